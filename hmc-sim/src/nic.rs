//! A simulated NIC: two ends, each a [`Transport`] to the other.
//!
//! The target checks every access against its [`WindowTable`](hmc_core::window::WindowTable).
//! Queues are bounded, completions come late and out of order, and with [`Faults`] promises are
//! broken on purpose. Time is virtual: it passes when an end is polled or [`SimNic::advance`] is
//! called, never by itself. Both ends live in one thread.

use std::cell::RefCell;
use std::rc::Rc;

use hmc_core::kinds::{Access, Caps, MemoryKind};
use hmc_core::region::{LocalRegion, LocalSlice, RegionKey, RemoteRegion};
use hmc_core::slots::OpId;
use hmc_core::time::Instant;
use hmc_core::transport::{CancelOutcome, ErrorKind, Transport};
use hmc_core::window::Step;
use hmc_core::work::{Completion, WorkRequest};

pub use crate::fabric::Bytes;
use crate::fabric::{Fabric, Place};
use crate::fault::Faults;
use crate::memory::Damage;
use crate::plain::framed;

/// Virtual time that one poll takes, in nanoseconds.
const POLL_NS: u64 = 100;

/// How a pair of NICs is made.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The seed of all chance.
    pub seed: u64,
    /// Weather and faults.
    pub faults: Faults,
    /// Requests that each end holds at a time, finished ones that were not polled included.
    pub depth: usize,
}

impl Config {
    /// Legal weather of that seed, 32 requests deep.
    #[must_use]
    pub const fn weather(seed: u64) -> Self {
        Self { seed, faults: Faults::WEATHER, depth: 32 }
    }
}

/// One end of a simulated NIC pair.
#[derive(Debug)]
pub struct SimNic {
    fabric: Rc<RefCell<Fabric>>,
    place: Place,
}

/// What a benchmark needs; see [`SimNic::pair_fast`].
#[derive(Debug)]
pub struct FastPair {
    /// The initiator.
    pub near: SimNic,
    /// The target; it needs no call for bytes to land.
    pub far: SimNic,
    /// The initiator's region.
    pub local: LocalRegion,
    /// The target's region; its bytes are seen through `far`.
    pub target: LocalRegion,
    /// A window over all of it, for reading and writing.
    pub remote: RemoteRegion,
}

impl SimNic {
    /// Two connected ends.
    #[must_use]
    pub fn pair(config: Config) -> (Self, Self) {
        Self::connect(Fabric::new(config.seed, config.faults, config.depth, Bytes::Move))
    }

    /// A pair for benchmarks: no weather, no faults, one region here and one window there. A
    /// request is done when `post` returns, and `poll` hands out its completion; neither allocates.
    /// With [`Bytes::Skip`] no byte moves (keys, ranges, window and epoch are checked all the same),
    /// so that what is measured is everything but the copy. `None` when the sizes cannot be had.
    #[must_use]
    pub fn pair_fast(local_len: u64, window_len: u64, bytes: Bytes) -> Option<FastPair> {
        let (near, far) = Self::connect(Fabric::new(0, Faults::NONE, 256, bytes));
        let local = near.register(local_len)?;
        let target = far.register(window_len)?;
        let remote = far.expose(target.slice(0, window_len).ok()?, Access::all())?;
        Some(FastPair { near, far, local, target, remote })
    }

    fn connect(fabric: Fabric) -> (Self, Self) {
        let fabric = Rc::new(RefCell::new(fabric));
        let near = Self { fabric: Rc::clone(&fabric), place: Place::Near };
        (near, Self { fabric, place: Place::Far })
    }

    /// Registers `len` bytes of fresh memory of this end.
    #[must_use]
    pub fn register(&self, len: u64) -> Option<LocalRegion> {
        self.fabric.borrow_mut().end(self.place).memory.register(len)
    }

    /// Forgets a region of this end and poisons its bytes. Whether there was one.
    pub fn deregister(&self, key: RegionKey) -> bool {
        self.fabric.borrow_mut().end(self.place).memory.deregister(key)
    }

    /// Exposes a range of this end to the other; `None` when the table of windows is full.
    #[must_use]
    pub fn expose(&self, range: LocalSlice, access: Access) -> Option<RemoteRegion> {
        let mut fabric = self.fabric.borrow_mut();
        let entropy = fabric.rng().next_u64();
        fabric.end(self.place).windows.expose(range, MemoryKind::Cpu, access, entropy).ok()
    }

    /// Registers a region of this end with a margin on both sides of a window of `len` bytes.
    pub(crate) fn expose_framed(
        &self,
        len: u64,
        access: Access,
    ) -> Option<(LocalRegion, RemoteRegion)> {
        let (target, slice) = framed(&mut self.fabric.borrow_mut().end(self.place).memory, len)?;
        Some((target, self.expose(slice, access)?))
    }

    /// Takes a window of this end back. The fence is immediate: the other end's requests check the
    /// window before every piece that they move.
    pub fn revoke(&self, window: &RemoteRegion) {
        let mut fabric = self.fabric.borrow_mut();
        for step in [Step::Revoke, Step::Fence] {
            // A window that is gone already needs no revocation.
            let _ = fabric.end(self.place).windows.step(window.window, window.epoch, step);
        }
    }

    /// This end dies: it answers `Disconnected`, its memory is never touched again, and the
    /// requests of both ends complete as virtual time passes.
    pub fn kill(&self) {
        self.fabric.borrow_mut().kill(self.place);
    }

    /// Copies bytes out of this end's memory. Whether the range was known.
    pub fn read(&self, region: LocalRegion, offset: u64, out: &mut [u8]) -> bool {
        self.fabric.borrow_mut().end(self.place).memory.read(region, offset, out)
    }

    /// Copies bytes into this end's memory. Whether the range was known.
    pub fn write(&self, region: LocalRegion, offset: u64, bytes: &[u8]) -> bool {
        self.fabric.borrow_mut().end(self.place).memory.write(region, offset, bytes)
    }

    /// Takes the oldest tag that this end received.
    pub fn take_tag(&self) -> Option<u64> {
        self.fabric.borrow_mut().end(self.place).take_tag()
    }

    /// Lets virtual time pass; the requests of both ends run.
    pub fn advance(&self, by_ns: u64) {
        self.fabric.borrow_mut().advance(by_ns);
    }

    /// The virtual time.
    #[must_use]
    pub fn now(&self) -> Instant {
        Instant::from_nanos(self.fabric.borrow().now_ns())
    }

    /// Looks for bytes of this end that nobody may write and somebody wrote.
    ///
    /// # Errors
    /// The first [`Damage`].
    pub fn check(&self) -> Result<(), Damage> {
        self.fabric.borrow_mut().end(self.place).memory.check()
    }
}

impl Transport for SimNic {
    type Error = ErrorKind;

    fn caps(&self) -> Caps {
        Caps::all()
    }

    /// `CompleteWhen::Local` is treated as `Visible`, which promises more.
    #[inline]
    fn post(&mut self, work: &WorkRequest) -> Result<(), ErrorKind> {
        self.fabric.borrow_mut().post(self.place, work)
    }

    #[inline]
    fn poll(&mut self, out: &mut [Completion]) -> usize {
        self.fabric.borrow_mut().poll(self.place, out, POLL_NS)
    }

    fn cancel(&mut self, op: OpId) -> CancelOutcome {
        self.fabric.borrow_mut().cancel(self.place, op)
    }
}
