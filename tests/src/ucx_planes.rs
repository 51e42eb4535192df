//! UCX's data plane by itself at two ends, without sessions and without the stream beside it, over the fake libucp.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use hmc_core::limits::MAX_ENDPOINT_BYTES;
use hmc_core::place::Place;
use hmc_core::range::Extent;
use hmc_core::region::{LocalRegion, RegionKey, WindowDesc};
use hmc_core::slots::SlotId;
use hmc_core::time::Instant;
use hmc_core::transport::{
    Note, Notes as _, Progress as _, Registration as _, Target as _, Transport as _,
};
use hmc_core::types::{Access, MemoryKind};
use hmc_core::work::{CompleteWhen, Completion, Opcode, WorkRequest};
use hmc_hw::host::{Event, Host, WatchError};
use hmc_hw::ucx::context::Context;
use hmc_hw::ucx::data_plane::UcxDataPlane;
use hmc_hw::ucx::domain::{DomainOptions, UcxDomain};
use hmc_hw::ucx::settings::Settings;
use hmc_mem::os::memfd::Mapping;
use hmc_mem::registered::Registered;
use hmc_mem::shared::SharedBytes;

use crate::fake_ucp::FakeUcp;
use crate::ucx_pair::CountingNotify;

/// Bytes of an end's memory.
pub const LEN: u64 = 4096;
/// Polls in which something that is due must have happened.
pub const TURNS: u32 = 10_000;
/// Lanes of shared memory.
pub const SHARED_MEMORY: &str = "posix/memory";
/// A lane of a NIC.
pub const NIC: &str = "rc_mlx5/mlx5_0:1";
/// A lane that only sends messages.
pub const MESSAGES: &str = "tcp/eth0";
/// The number of an end's first worker.
pub const FIRST_WORKER: u32 = 5;

/// What a host was asked to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostCall {
    /// Watch the descriptor of the worker of that number.
    Watch(u32),
    /// Watch a descriptor no more.
    Unwatch,
    /// Report that a worker cannot be armed.
    NeverArmed,
    /// Report that a worker is not watched any more, for that reason.
    NotWatched(i32),
    /// Report that memory cannot be registered.
    NotRegistered,
    /// Report that a port is down.
    PortDown(String),
    /// Report that a port has changed.
    PortChanged(String),
    /// Report that a queue pair was not destroyed.
    NotDestroyed(String),
    /// Report that a device has failed.
    DeviceFailed(String),
}

/// A host without a thread. A test sets its clock, and reads what it was asked to do.
#[derive(Debug, Default)]
pub struct RecordingHost {
    nanos: AtomicU64,
    calls: Mutex<Vec<HostCall>>,
    /// The errno of a watch that fails; 0 if none does.
    refusal: AtomicUsize,
}

impl RecordingHost {
    fn record(&self, call: HostCall) {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).push(call);
    }

    /// Takes what it was asked to do since the last call of this.
    pub fn take(&self) -> Vec<HostCall> {
        std::mem::take(&mut self.calls.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sets its clock.
    pub fn set_time(&self, at: Instant) {
        self.nanos.store(at.as_nanos(), Ordering::Relaxed);
    }

    /// Refuses to watch from now on, for that reason.
    pub fn refuse_to_watch(&self, errno: usize) {
        self.refusal.store(errno, Ordering::Relaxed);
    }
}

impl Drop for RecordingHost {
    fn drop(&mut self) {
        let reports = self.take();
        let is_report = |call: &HostCall| !matches!(call, HostCall::Watch(_) | HostCall::Unwatch);
        if !std::thread::panicking() {
            assert!(!reports.iter().any(is_report), "no test has foreseen {reports:?}");
        }
    }
}

impl Host for RecordingHost {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.nanos.load(Ordering::Relaxed))
    }

    fn watch(&self, worker: u32, _fd: BorrowedFd<'_>) -> Result<(), WatchError> {
        self.record(HostCall::Watch(worker));
        match i32::try_from(self.refusal.load(Ordering::Relaxed)) {
            Ok(0) => Ok(()),
            errno => Err(WatchError(errno.unwrap_or(1))),
        }
    }

    fn unwatch(&self, _fd: BorrowedFd<'_>) {
        self.record(HostCall::Unwatch);
    }

    fn report(&self, event: Event<'_>) {
        self.record(match event {
            Event::NeverArmed => HostCall::NeverArmed,
            Event::NotWatched(e) => HostCall::NotWatched(e.0),
            Event::NotRegistered(_) => HostCall::NotRegistered,
            Event::PortDown(what) => HostCall::PortDown(what.to_string()),
            Event::PortChanged(what) => HostCall::PortChanged(what.to_string()),
            Event::NotDestroyed(error) => HostCall::NotDestroyed(error.to_string()),
            Event::DeviceFailed(what) => HostCall::DeviceFailed(what.to_string()),
            _ => panic!("an event that no test knows"),
        });
    }
}

/// Pages of a memfd.
#[derive(Clone, Debug)]
pub struct Pages {
    key: RegionKey,
    len: u64,
    pages: Arc<Mapping>,
    cached: Arc<AtomicUsize>,
}

impl Pages {
    /// Makes memory of that key.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn new(key: RegionKey) -> Self {
        Self::with_len(key, LEN)
    }

    /// Makes memory of that key and length. Pages are taken when they are touched.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn with_len(key: RegionKey, len: u64) -> Self {
        let pages = Mapping::builder().commit(false).create(len).expect("memory");
        Self { key, len, pages: Arc::new(pages), cached: Arc::default() }
    }

    /// Its bytes.
    #[must_use]
    pub fn shared(&self) -> SharedBytes<'_> {
        self.pages.bytes()
    }
}

// SAFETY: each handle keeps the mapping, which never moves; the test accesses it by copies.
unsafe impl Registered for Pages {
    fn local(&self) -> LocalRegion {
        LocalRegion { key: self.key, extent: Extent::new(self.len), place: Place::HOST }
    }

    unsafe fn bytes(&self) -> SharedBytes<'_> {
        self.pages.bytes()
    }

    fn note_pinned(&self) {}

    fn note_cached(&self, is_cached: bool) {
        match is_cached {
            true => self.cached.fetch_add(1, Ordering::Relaxed),
            false => self.cached.fetch_sub(1, Ordering::Relaxed),
        };
    }

    fn is_only_cached(&self) -> bool {
        Arc::strong_count(&self.pages) <= self.cached.load(Ordering::Relaxed)
    }
}

/// A data plane with memory.
#[derive(Debug)]
pub struct End {
    /// Its session's part in UCX.
    pub domain: Arc<UcxDomain>,
    /// The data plane.
    pub plane: UcxDataPlane<Pages>,
    /// The memory.
    pub memory: Pages,
    /// The number of notifications.
    pub notifications: CountingNotify,
}

impl End {
    /// An end whose callers make its progress.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn new(fake_ucp: &FakeUcp, same_system: bool) -> Self {
        Self::with_host(fake_ucp, same_system, &Arc::default(), true)
    }

    /// An end of that host, whose thread makes its progress unless it `is_manual`.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn with_host(
        fake_ucp: &FakeUcp,
        same_system: bool,
        host: &Arc<RecordingHost>,
        is_manual: bool,
    ) -> Self {
        let context = Context::new(fake_ucp.library(), &Settings::default()).expect("a context");
        let options = DomainOptions { workers: 1, first_worker: FIRST_WORKER, is_manual };
        let host: Arc<dyn Host> = Arc::<RecordingHost>::clone(host);
        Self::in_domain(&UcxDomain::new(context, host, options), same_system)
    }

    /// One more end of a domain.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn in_domain(domain: &Arc<UcxDomain>, same_system: bool) -> Self {
        let notifications = CountingNotify::default();
        let notify = Box::new(notifications.clone());
        let mut plane = UcxDataPlane::new(domain, 1, same_system, 4, notify).expect("a worker");
        let memory = Pages::new(RegionKey { index: 0, generation: 1 });
        plane.add_memory(&memory);
        Self { domain: Arc::clone(domain), plane, memory, notifications }
    }

    /// Receives a note of the other end's.
    ///
    /// # Panics
    /// If it is refused.
    pub fn receive(&mut self, (kind, bytes): (u8, &[u8])) {
        self.plane.receive_note(Note { kind, bytes }).expect("a note that can be used");
    }

    /// What the other end must receive first.
    ///
    /// # Panics
    /// If there is nothing.
    pub fn greeting(&mut self) -> (u8, Vec<u8>) {
        let mut buf = [0; MAX_ENDPOINT_BYTES];
        let note = self.plane.greeting(&mut buf).expect("connection info").expect("a note");
        (note.kind, note.bytes.to_vec())
    }

    /// Exposes all memory: the window, and what the other end must receive to use it.
    ///
    /// # Panics
    /// If it cannot be exposed.
    pub fn expose(&mut self) -> (WindowDesc, u8, Vec<u8>) {
        self.expose_part(0, LEN)
    }

    /// Exposes a part of its memory.
    ///
    /// # Panics
    /// If it cannot be exposed.
    pub fn expose_part(&mut self, at: u64, len: u64) -> (WindowDesc, u8, Vec<u8>) {
        let local = self.memory.local().slice(at, len).expect("in range");
        let table = self.plane.windows();
        let window = table.expose(local, MemoryKind::Cpu, Access::all(), 1 << 20);
        let window = window.expect("a place");
        let mut buf = [0; MAX_ENDPOINT_BYTES];
        let note = self.plane.open(&self.memory, local, &window, &mut buf).expect("registered");
        let note = note.expect("a key");
        (window, note.kind, note.bytes.to_vec())
    }

    /// A put of its first bytes to the window's.
    #[must_use]
    pub fn put(&self, index: u16, window: &WindowDesc, len: u64) -> WorkRequest {
        self.work(index, Opcode::Put, window, len)
    }

    /// A request between its first bytes and the window's.
    ///
    /// # Panics
    /// If they are not that many.
    #[must_use]
    pub fn work(&self, index: u16, opcode: Opcode, window: &WindowDesc, len: u64) -> WorkRequest {
        WorkRequest {
            op: SlotId { index, generation: 1 },
            opcode,
            when: CompleteWhen::Visible,
            local: self.memory.local().slice(0, len).expect("in range"),
            remote: window.slice(0, len).expect("in range"),
        }
    }

    /// Fills its memory.
    ///
    /// # Panics
    /// Never.
    pub fn fill(&self, byte: u8) {
        self.memory.pages.bytes().fill(Extent::new(LEN).whole(), byte).expect("in range");
    }

    /// How many bytes from `at` on are that one.
    ///
    /// # Panics
    /// Never.
    #[must_use]
    pub fn count_from(&self, at: usize, byte: u8) -> usize {
        let mut bytes = [0; 4096];
        self.memory.pages.bytes().read_at(Extent::new(LEN).whole(), &mut bytes).expect("in range");
        bytes[at..].iter().take_while(|b| **b == byte).count()
    }

    /// How many of its first bytes are that one.
    #[must_use]
    pub fn count(&self, byte: u8) -> usize {
        self.count_from(0, byte)
    }

    /// Completions that are there.
    pub fn poll(&mut self) -> Vec<Completion> {
        let op = SlotId { index: u16::MAX, generation: 1 };
        let mut out = [Completion { op, result: Ok(0) }; 8];
        let n = self.plane.poll(&mut out);
        out[..n].to_vec()
    }
}

/// Two ends that have received each other's greeting, and the second end's window.
///
/// # Panics
/// If they do not meet.
#[must_use]
pub fn pair(fake_ucp: &FakeUcp, same_system: bool) -> (End, End, WindowDesc) {
    connect(End::new(fake_ucp, same_system), End::new(fake_ucp, same_system))
}

/// Connects two ends. Returns them, and the second one's window.
///
/// # Panics
/// If they do not meet.
#[must_use]
pub fn connect(mut near: End, mut far: End) -> (End, End, WindowDesc) {
    let (ours, theirs) = (near.greeting(), far.greeting());
    near.receive((theirs.0, &theirs.1));
    far.receive((ours.0, &ours.1));
    let (window, kind, key) = far.expose();
    near.receive((kind, &key));
    for _ in 0..TURNS {
        for end in [&mut near, &mut far] {
            assert_eq!(end.poll(), []);
            end.plane.poll_peer(true);
        }
        if near.plane.is_ready() && far.plane.is_ready() {
            return (near, far, window);
        }
    }
    panic!("the two ends do not meet");
}
