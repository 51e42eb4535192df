//! Two workers of this process over UCX or the fake libucp, one with a window for the other: the subject of the
//! conformance suite, and of tests that script faults.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hmc_core::place::Place;
use hmc_core::range::{ByteRange, Extent, Side};
use hmc_core::region::{Epoch, LocalRegion, RegionKey, WindowDesc, WindowId};
use hmc_core::slots::SlotId;
use hmc_core::transport::{CancelOutcome, PostErrorKind, Transport};
use hmc_core::types::{Access, Caps, MemoryKind};
use hmc_core::work::{CompleteWhen, Completion, Opcode, WorkRequest};
use hmc_hw::ucx::Notify;
use hmc_hw::ucx::am::AmTarget;
use hmc_hw::ucx::context::{Context, UcxError};
use hmc_hw::ucx::library::Library;
use hmc_hw::ucx::memory::Memory;
use hmc_hw::ucx::settings::Settings;
use hmc_hw::ucx::transport::UcxTransport;
use hmc_hw::ucx::worker::Worker;
use hmc_mem::shared::SharedBytes;
use hmc_sim::conformance::transport::{IdleLimit, Subject, Support};

/// Bytes around the window within its memory, which nobody may touch.
const MARGIN: usize = 96;
const MARGIN_BYTE: u8 = 0xA7;
const KEY: RegionKey = RegionKey { index: 3, generation: 1 };
/// Polls in which something that is due must have happened.
const TURNS: u32 = 100_000;
/// Time within which two ends have surely met, or parted.
const LONG: Duration = Duration::from_secs(20);

/// Cases of the conformance suite that UCX cannot be asked: tags go over the session's control connection.
pub const WITHOUT_TAGS: [&str; 3] =
    ["notify_follows_its_bytes", "every_tag_once", "refused_notify_is_silent"];

/// Counts how often it is rung.
#[derive(Clone, Debug, Default)]
pub struct CountingNotify(Arc<AtomicU64>);

impl CountingNotify {
    /// So far.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

impl Notify for CountingNotify {
    fn notify(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// One pair that is connected.
#[derive(Debug)]
pub struct Built {
    /// The transport under test.
    pub near: AutoClose,
    /// The target's transport to the initiator, for replies.
    pub back: Option<UcxTransport>,
    /// The AM target at the target.
    pub am_target: Arc<AmTarget>,
    /// The AM target at the initiator.
    pub home: Arc<AmTarget>,
    /// The target's worker.
    pub far: Arc<Worker>,
    /// The initiator's memory.
    pub here: Arc<Memory>,
    /// The target's memory, the window with margins.
    pub there: Arc<Memory>,
    /// The window.
    pub window: WindowDesc,
    /// The initiator's region.
    pub local: LocalRegion,
    /// The counter of notifications.
    pub notifications: CountingNotify,
}

/// The transport, which its owner closes after its endpoint has failed, as hmc-std does.
#[derive(Debug)]
pub struct AutoClose(pub UcxTransport);

impl Drop for AutoClose {
    fn drop(&mut self) {
        crate::links::moved("ucx", self.0.bytes_moved());
    }
}

impl Transport for AutoClose {
    type Error = PostErrorKind;

    fn caps(&self) -> Caps {
        self.0.caps()
    }

    fn post(&mut self, work: &WorkRequest) -> Result<(), PostErrorKind> {
        self.0.post(work)
    }

    fn poll(&mut self, out: &mut [Completion]) -> usize {
        if self.0.failure().is_some() {
            self.0.close();
        }
        self.0.poll(out)
    }

    fn cancel(&mut self, op: SlotId) -> CancelOutcome {
        self.0.cancel(op)
    }
}

fn size(n: u64) -> usize {
    usize::try_from(n).expect("small")
}

fn number(n: usize) -> u64 {
    u64::try_from(n).expect("small")
}

fn bytes(memory: &Memory) -> SharedBytes<'_> {
    // SAFETY: the memory is valid as long as its registration, which the result borrows.
    unsafe { SharedBytes::new(memory.start(), memory.len()) }
}

fn span(memory: &Memory, at: usize, len: usize) -> ByteRange {
    let extent = Extent::new(number(memory.len()));
    extent.span(Side::Local, number(at), number(len)).expect("in range")
}

fn write(memory: &Memory, at: usize, from: &[u8]) {
    bytes(memory).write_at(span(memory, at, from.len()), from).expect("in range");
}

fn read(memory: &Memory, at: usize, out: &mut [u8]) {
    bytes(memory).read_at(span(memory, at, out.len()), out).expect("in range");
}

/// Memory of this process, registered in place and freed with its registration.
fn owned(context: &Arc<Context>, len: usize) -> Result<Arc<Memory>, String> {
    struct Owned(NonNull<u8>, usize);
    // SAFETY: an allocation, which belongs to nobody else.
    unsafe impl Send for Owned {}
    // SAFETY: nothing is reached through a reference.
    unsafe impl Sync for Owned {}
    impl Drop for Owned {
        fn drop(&mut self) {
            let slice = std::ptr::slice_from_raw_parts_mut(self.0.as_ptr(), self.1);
            // SAFETY: leaked by `owned`, and taken back once.
            drop(unsafe { Box::from_raw(slice) });
        }
    }
    let memory = Box::leak(vec![0u8; len].into_boxed_slice());
    let start = NonNull::from(&mut *memory).cast::<u8>();
    let keep = Box::new(Owned(start, len));
    // SAFETY: valid until `keep` is dropped, and reached through `SharedBytes` only.
    let memory = unsafe { Memory::register(context, start, len, MemoryKind::Cpu, Some(keep)) };
    memory.map(Arc::new).map_err(|e| e.to_string())
}

/// A transport from one worker to another, with what belongs to it.
#[derive(Debug)]
pub struct Met {
    /// The way there.
    pub transport: UcxTransport,
    /// Where messages come in there.
    pub am_target: Arc<AmTarget>,
    /// Where they come in here.
    pub home: Arc<AmTarget>,
    /// The way back, if messages are to be answered.
    pub back: Option<UcxTransport>,
}

/// Connects one worker to another.
///
/// # Errors
/// What UCX said.
pub fn connect(
    near: &Arc<Worker>,
    far: &Arc<Worker>,
    notifications: &CountingNotify,
) -> Result<Met, UcxError> {
    let ours = near.new_am_target(Box::new(notifications.clone()))?;
    let theirs = far.new_am_target(Box::new(CountingNotify::default()))?;
    let transport = UcxTransport::new(near, &ours, &far.conn_info(&theirs)?, false)?;
    // Whoever only copies memory needs no way back.
    let back = transport.may_use_am().then(|| {
        let info = near.conn_info(&ours)?;
        UcxTransport::new(far, &theirs, &info, false)
    });
    Ok(Met { transport, am_target: theirs, home: ours, back: back.transpose()? })
}

/// Over which UCX two workers connect, and how.
#[derive(Clone, Debug)]
pub struct UcxSetup {
    library: &'static Library,
    settings: Settings,
    /// The target's memory comes from UCX, whose lanes of shared memory map it.
    mapped: bool,
    idle_limit: IdleLimit,
}

impl UcxSetup {
    /// The fake libucp.
    #[must_use]
    pub fn fake_ucp(library: &'static Library) -> Self {
        Self {
            library,
            settings: Settings::default(),
            mapped: false,
            idle_limit: IdleLimit::VIRTUAL,
        }
    }

    /// A real one with those lanes.
    #[must_use]
    pub fn lanes(library: &'static Library, tls: &str, mapped: bool) -> Self {
        let keys = vec![("TLS".to_owned(), tls.to_owned())];
        let settings = Settings { keys, ..Settings::default() };
        Self { library, settings, mapped, idle_limit: IdleLimit::REAL }
    }
}

impl Built {
    /// Two workers over the fake libucp, connected.
    ///
    /// # Errors
    /// What UCX said.
    pub fn new(
        library: &'static Library,
        local_len: u64,
        window_len: u64,
        access: Access,
        life: u32,
    ) -> Result<Self, String> {
        Self::with_setup(&UcxSetup::fake_ucp(library), local_len, window_len, access, life)
    }

    /// Two workers, connected.
    ///
    /// # Errors
    /// What UCX said.
    pub fn with_setup(
        setup: &UcxSetup,
        local_len: u64,
        window_len: u64,
        access: Access,
        life: u32,
    ) -> Result<Self, String> {
        let text = |e: hmc_hw::ucx::context::UcxError| e.to_string();
        let context = Context::new(setup.library, &setup.settings).map_err(text)?;
        let (near, far) =
            (Worker::new(&context).map_err(text)?, Worker::new(&context).map_err(text)?);
        let here = owned(&context, size(local_len).max(1))?;
        let whole = size(window_len) + 2 * MARGIN;
        let there = if setup.mapped {
            Memory::allocate(&context, whole).map(Arc::new).map_err(text)?
        } else {
            owned(&context, whole)?
        };
        let paint = [MARGIN_BYTE; MARGIN];
        write(&there, 0, &paint);
        write(&there, MARGIN + size(window_len), &paint);
        let window = WindowDesc {
            window: WindowId::new(2, 0x5EED << 16 | u64::from(life) << 32),
            epoch: Epoch(life),
            extent: Extent::new(window_len),
            access,
            kind: MemoryKind::Cpu,
        };
        let notifications = CountingNotify::default();
        let Met { mut transport, am_target, home, mut back } =
            connect(&near, &far, &notifications).map_err(text)?;
        let limit = Instant::now() + LONG;
        while !transport.is_wired_up() || back.as_ref().is_some_and(|b| !b.is_wired_up()) {
            if Instant::now() >= limit {
                return Err("the two ends do not meet".to_owned());
            }
            transport.advance();
            far.lock().progress();
            if let Some(back) = &mut back {
                back.advance();
            }
        }
        transport.add_local(KEY, Arc::clone(&here));
        let base = number(there.start().as_ptr().expose_provenance() + MARGIN);
        transport.add_remote(window, base, &there.pack().map_err(text)?).map_err(text)?;
        let local = LocalRegion { key: KEY, extent: Extent::new(local_len), place: Place::HOST };
        let all = Extent::new(number(whole));
        let place = all.span(Side::Local, number(MARGIN), window_len).map_err(|e| e.to_string())?;
        am_target.open(window, Arc::clone(&there), place);
        Ok(Self {
            near: AutoClose(transport),
            back,
            am_target,
            home,
            far,
            here,
            there,
            window,
            local,
            notifications,
        })
    }

    /// A request within both ranges.
    ///
    /// # Panics
    /// When it is not.
    #[must_use]
    pub fn request(
        &self,
        index: u16,
        opcode: Opcode,
        here: u64,
        there: u64,
        len: u64,
    ) -> WorkRequest {
        WorkRequest {
            op: SlotId { index, generation: 1 },
            opcode,
            when: CompleteWhen::Visible,
            local: self.local.slice(here, len).expect("within the region"),
            remote: self.window.slice(there, len).expect("within the window"),
        }
    }

    /// Writes into the local region.
    pub fn write_local(&self, at: u64, from: &[u8]) {
        write(&self.here, size(at), from);
    }

    /// Reads from the local region.
    #[must_use]
    pub fn read_local(&self, at: u64, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        read(&self.here, size(at), &mut out);
        out
    }

    /// Writes into the window.
    pub fn write_remote(&self, at: u64, from: &[u8]) {
        write(&self.there, MARGIN + size(at), from);
    }

    /// Reads from the window.
    #[must_use]
    pub fn read_remote(&self, at: u64, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        read(&self.there, MARGIN + size(at), &mut out);
        out
    }

    /// One poll of both ends; what completed.
    pub fn poll(&mut self) -> Vec<Completion> {
        let nobody = Completion { op: SlotId { index: u16::MAX, generation: 0 }, result: Ok(0) };
        let mut out = [nobody; 64];
        self.far.lock().progress();
        let n = self.near.poll(&mut out);
        out[..n].to_vec()
    }

    /// Polls until that many completed.
    ///
    /// # Panics
    /// When they do not.
    pub fn wait(&mut self, count: usize) -> Vec<Completion> {
        let mut all = Vec::new();
        for _ in 0..TURNS {
            all.extend(self.poll());
            if all.len() >= count {
                return all;
            }
        }
        panic!("{} of {count} operations completed: {all:?}", all.len());
    }

    /// Whether bytes beside the window were written.
    ///
    /// # Errors
    /// Where.
    pub fn check_margins(&self) -> Result<(), String> {
        let mut edge = [0; MARGIN];
        for from in [0, self.there.len() - MARGIN] {
            read(&self.there, from, &mut edge);
            if edge != [MARGIN_BYTE; MARGIN] {
                return Err(format!("bytes beside the window, at {from}, were written"));
            }
        }
        Ok(())
    }
}

/// A pair as the conformance suite wants it.
#[derive(Debug)]
pub struct Pair {
    setup: UcxSetup,
    built: Option<Built>,
    lives: u32,
}

impl Pair {
    /// None yet.
    #[must_use]
    pub const fn new(setup: UcxSetup) -> Self {
        Self { setup, built: None, lives: 0 }
    }

    fn built(&self) -> &Built {
        self.built.as_ref().expect("fresh was called")
    }

    fn built_mut(&mut self) -> &mut Built {
        self.built.as_mut().expect("fresh was called")
    }
}

impl Subject for Pair {
    type T = AutoClose;

    fn fresh(&mut self, local_len: u64, window_len: u64, access: Access) -> Result<(), String> {
        self.built = None;
        self.lives += 1;
        self.built =
            Some(Built::with_setup(&self.setup, local_len, window_len, access, self.lives)?);
        Ok(())
    }

    fn transport(&mut self) -> &mut AutoClose {
        &mut self.built_mut().near
    }

    fn local(&self) -> LocalRegion {
        self.built().local
    }

    fn remote(&self) -> WindowDesc {
        self.built().window
    }

    fn write_local(&mut self, offset: u64, bytes: &[u8]) {
        self.built().write_local(offset, bytes);
    }

    fn read_local(&mut self, offset: u64, out: &mut [u8]) {
        out.copy_from_slice(&self.built().read_local(offset, out.len()));
    }

    fn write_remote(&mut self, offset: u64, bytes: &[u8]) {
        self.built().write_remote(offset, bytes);
    }

    fn read_remote(&mut self, offset: u64, out: &mut [u8]) {
        out.copy_from_slice(&self.built().read_remote(offset, out.len()));
    }

    fn drive(&mut self) {
        // Both workers, as the background threads of two sessions do.
        self.built().far.lock().progress();
        self.built().near.0.worker().lock().progress();
    }

    fn notifications(&mut self) -> Vec<u64> {
        Vec::new()
    }

    fn revoke(&mut self) -> Support {
        let built = self.built_mut();
        let window = built.window.window;
        built.am_target.close(window);
        let limit = Instant::now() + LONG;
        let mut left = built.near.0.remove_window(window);
        while !left {
            assert!(Instant::now() < limit, "the initiator does not leave the window");
            built.far.lock().progress();
            built.near.0.advance();
            left = built.near.0.is_window_unused(window);
        }
        Support::Done
    }

    fn kill_peer(&mut self) -> Support {
        // Who the peer is, and that it is gone, is known from the control connection.
        self.built_mut().near.0.close();
        Support::Done
    }

    fn check(&mut self) -> Result<(), String> {
        self.built().check_margins()
    }

    fn idle_limit(&self) -> IdleLimit {
        self.setup.idle_limit
    }
}
