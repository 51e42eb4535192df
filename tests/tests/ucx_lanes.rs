//! The real UCX of this machine keeps the promises of the suite that the simulated NIC keeps: two workers in this process,
//! one after the other over each kind of lane that a machine without a NIC has.

#![allow(clippy::arithmetic_side_effects, reason = "tests may panic")]

use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hmc_core::kinds::{Access, Caps, MemoryKind};
use hmc_core::region::{Epoch, LocalRegion, RegionKey, RemoteRegion, WindowId};
use hmc_core::slots::OpId;
use hmc_core::span::Extent;
use hmc_core::transport::{CancelOutcome, ErrorKind, Transport};
use hmc_core::work::{Completion, WorkRequest};
use hmc_hw::ucx::Bell;
use hmc_hw::ucx::context::{Context, Settings};
use hmc_hw::ucx::library::{Library, Search};
use hmc_hw::ucx::memory::Memory;
use hmc_hw::ucx::soft::Door;
use hmc_hw::ucx::transport::UcxTransport;
use hmc_hw::ucx::worker::Worker;
use hmc_sim::conformance::transport::{Subject, Support, run};

/// Bytes around the window within its memory, which nobody may touch.
const MARGIN: usize = 96;
const MARGIN_BYTE: u8 = 0xA7;
const KEY: RegionKey = RegionKey { index: 3, generation: 1 };

struct Mute;

impl Bell for Mute {
    fn ring(&self) {}
}

/// Two workers of this process, one with a window for the other.
struct Pair {
    tls: &'static str,
    /// Whether the target's memory comes from UCX, which its lanes of shared memory map.
    mapped: bool,
    built: Option<Built>,
    lives: u32,
}

struct Built {
    near: Near,
    /// The target's way back, and where messages come in there.
    back: UcxTransport,
    door: Arc<Door>,
    far: Arc<Worker>,
    here: Arc<Memory>,
    there: Arc<Memory>,
    window: RemoteRegion,
    local: LocalRegion,
}

/// The transport under test, with the way in which its owner revokes.
struct Near(UcxTransport);

impl Transport for Near {
    type Error = ErrorKind;

    fn caps(&self) -> Caps {
        self.0.caps()
    }

    fn post(&mut self, work: &WorkRequest) -> Result<(), ErrorKind> {
        self.0.post(work)
    }

    fn poll(&mut self, out: &mut [Completion]) -> usize {
        if self.0.failure().is_some() {
            self.0.bring_down();
        }
        self.0.poll(out)
    }

    fn cancel(&mut self, op: OpId) -> CancelOutcome {
        self.0.cancel(op)
    }
}

impl Pair {
    fn new(tls: &'static str, mapped: bool) -> Self {
        Self { tls, mapped, built: None, lives: 0 }
    }

    fn built(&self) -> &Built {
        self.built.as_ref().expect("fresh was called")
    }

    fn built_mut(&mut self) -> &mut Built {
        self.built.as_mut().expect("fresh was called")
    }

    fn memory(context: &Arc<Context>, len: usize, mapped: bool) -> Result<Arc<Memory>, String> {
        if mapped {
            return Memory::allocate(context, len).map(Arc::new).map_err(|e| e.to_string());
        }
        let bytes = Box::leak(vec![0u8; len].into_boxed_slice());
        let start = NonNull::from(&mut *bytes).cast::<u8>();
        // SAFETY: leaked: valid for ever, and reached through `SharedBytes` only.
        unsafe { Memory::register(context, start, len, MemoryKind::Cpu, None) }
            .map(Arc::new)
            .map_err(|e| e.to_string())
    }

    fn build(&mut self, local_len: u64, window_len: u64, access: Access) -> Result<Built, String> {
        let text = |e: hmc_hw::ucx::context::Failed| e.to_string();
        let library = Library::load(&search()).map_err(|e| e.to_string())?;
        let settings =
            Settings { keys: vec![("TLS".to_owned(), self.tls.to_owned())], ..Settings::default() };
        let context = Context::new(library, &settings).map_err(text)?;
        let (near, far) =
            (Worker::new(&context).map_err(text)?, Worker::new(&context).map_err(text)?);
        let size = |n: u64| usize::try_from(n).expect("small");
        let here = Self::memory(&context, size(local_len).max(1), false)?;
        let there = Self::memory(&context, size(window_len) + 2 * MARGIN, self.mapped)?;
        let paint = [MARGIN_BYTE; MARGIN];
        write(&there, 0, &paint);
        write(&there, MARGIN + size(window_len), &paint);
        self.lives += 1;
        let window = RemoteRegion {
            window: WindowId::new(2, 0x5EED << 16 | u64::from(self.lives) << 32),
            epoch: Epoch(self.lives),
            extent: Extent::new(window_len),
            access,
            kind: MemoryKind::Cpu,
        };
        let ours = Door::new(&near, Box::new(Mute)).map_err(text)?;
        let door = Door::new(&far, Box::new(Mute)).map_err(text)?;
        let (near_card, far_card) =
            (near.card(&ours).map_err(text)?, far.card(&door).map_err(text)?);
        let mut transport = UcxTransport::new(&near, &ours, &far_card, false).map_err(text)?;
        let mut back = UcxTransport::new(&far, &door, &near_card, false).map_err(text)?;
        let limit = Instant::now() + Duration::from_secs(10);
        while !transport.is_wired() || !back.is_wired() {
            assert!(Instant::now() < limit, "the two ends do not meet");
            transport.advance();
            back.advance();
        }
        transport.learn_local(KEY, Arc::clone(&here));
        let base = u64::try_from(there.start().as_ptr().addr() + MARGIN).expect("an address");
        transport.learn_remote(window, base, &there.pack().map_err(text)?).map_err(text)?;
        let local = LocalRegion { key: KEY, extent: Extent::new(local_len), kind: MemoryKind::Cpu };
        door.open(window, Arc::clone(&there), u64::try_from(MARGIN).expect("small"));
        Ok(Built { near: Near(transport), back, door, far, here, there, window, local })
    }
}

fn bytes(memory: &Memory) -> hmc_mem::shared::SharedBytes<'_> {
    // SAFETY: the memory is valid as long as its registration, which the result borrows.
    unsafe { hmc_mem::shared::SharedBytes::new(memory.start(), memory.len()) }
}

fn span(memory: &Memory, at: usize, len: usize) -> hmc_core::span::Span {
    let n = |n: usize| u64::try_from(n).expect("small");
    Extent::new(n(memory.len())).span(hmc_core::span::Side::Local, n(at), n(len)).expect("in range")
}

fn write(memory: &Memory, at: usize, from: &[u8]) {
    bytes(memory).write_at(span(memory, at, from.len()), from).expect("in range");
}

fn read(memory: &Memory, at: usize, out: &mut [u8]) {
    bytes(memory).read_at(span(memory, at, out.len()), out).expect("in range");
}

fn at(offset: u64) -> usize {
    usize::try_from(offset).expect("small")
}

impl Subject for Pair {
    type T = Near;

    fn fresh(&mut self, local_len: u64, window_len: u64, access: Access) -> Result<(), String> {
        self.built = None;
        self.built = Some(self.build(local_len, window_len, access)?);
        Ok(())
    }

    fn transport(&mut self) -> &mut Near {
        &mut self.built_mut().near
    }

    fn local(&self) -> LocalRegion {
        self.built().local
    }

    fn remote(&self) -> RemoteRegion {
        self.built().window
    }

    fn write_local(&mut self, offset: u64, bytes: &[u8]) {
        write(&self.built().here, at(offset), bytes);
    }

    fn read_local(&mut self, offset: u64, out: &mut [u8]) {
        read(&self.built().here, at(offset), out);
    }

    fn write_remote(&mut self, offset: u64, bytes: &[u8]) {
        write(&self.built().there, MARGIN + at(offset), bytes);
    }

    fn read_remote(&mut self, offset: u64, out: &mut [u8]) {
        read(&self.built().there, MARGIN + at(offset), out);
    }

    fn drive(&mut self) {
        let built = self.built_mut();
        // The target's own progress, which software lanes need.
        built.back.advance();
        built.far.crank().progress();
    }

    fn notifications(&mut self) -> Vec<u64> {
        Vec::new()
    }

    fn revoke(&mut self) -> Support {
        let built = self.built_mut();
        let limit = Instant::now() + Duration::from_secs(10);
        built.door.close(built.window.window);
        let mut left = built.near.0.leave_remote(built.window.window);
        while !left {
            assert!(Instant::now() < limit, "the initiator does not leave the window");
            built.far.crank().progress();
            built.near.0.advance();
            left = built.near.0.has_left(built.window.window);
        }
        Support::Done
    }

    fn kill_peer(&mut self) -> Support {
        // Who the peer is, and that it is gone, is known from the control connection.
        self.built_mut().near.0.bring_down();
        Support::Done
    }

    fn check(&mut self) -> Result<(), String> {
        let there = &self.built().there;
        let mut edge = [0; MARGIN];
        for from in [0, there.len() - MARGIN] {
            read(there, from, &mut edge);
            if edge != [MARGIN_BYTE; MARGIN] {
                return Err(format!("bytes beside the window, at {from}, were written"));
            }
        }
        Ok(())
    }
}

/// As hmc-std searches: the library that `HMC_UCX_LIB` names, else the system's.
fn search() -> Search {
    Search { named: std::env::var_os("HMC_UCX_LIB").map(Into::into), ..Search::default() }
}

fn suite(tls: &'static str, mapped: bool) {
    let library = Library::load(&search()).expect("cargo xtask test-hw found it");
    println!("UCX {} at {}", library.version(), library.path().display());
    let report = run(|| Pair::new(tls, mapped));
    println!("{tls}:\n{report}");
    assert_eq!(report.failed().count(), 0, "{report}");
}

#[test]
#[ignore = "needs UCX: cargo xtask test-hw"]
fn tcp_lanes() {
    suite("tcp", false);
}

#[test]
#[ignore = "needs UCX: cargo xtask test-hw"]
fn posix_lanes_into_mapped_memory() {
    suite("posix,self", true);
}

#[test]
#[ignore = "needs UCX: cargo xtask test-hw"]
fn sysv_and_cma_lanes_into_heap_memory() {
    suite("sysv,cma,self", false);
}
