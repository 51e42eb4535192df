//! A simulated NIC: two connected ends, each a [`Transport`] to the other.
//!
//! The target checks every access against its [`WindowTable`](hmc_core::window::WindowTable).
//! Queues are bounded, completions come late and out of order, and with [`Faults`] promises are
//! broken on purpose. Time is virtual: it passes when an end is polled or [`SimNic::advance`] is
//! called, never by itself. All ends live in one thread; [`crate::net`] has more than two.

use std::cell::RefCell;
use std::rc::Rc;

use hmc_core::range::Side;
use hmc_core::region::{LocalRegion, LocalSlice, RegionKey, WindowDesc};
use hmc_core::slots::SlotId;
use hmc_core::time::Instant;
use hmc_core::transport::{CancelOutcome, PostErrorKind, Transport};
use hmc_core::types::{Access, Caps, MemoryKind};
use hmc_core::window::WindowTransition;
use hmc_core::work::{Completion, WorkRequest};

pub use crate::fabric::Bytes;
use crate::fabric::instant::{Place, Shell};
use crate::fabric::net::Fabric;
pub use crate::fabric::port::{Path, Queue};
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
    /// Network conditions and faults.
    pub faults: Faults,
    /// Requests that each end holds at a time, finished ones that were not polled included (unless
    /// [`Faults::completion_depth`] gives those a queue of their own).
    pub depth: usize,
}

impl Config {
    /// Legal network conditions of that seed, 32 requests deep.
    #[must_use]
    pub const fn conditions(seed: u64) -> Self {
        Self { seed, faults: Faults::CONDITIONS, depth: 32 }
    }
}

/// One end of a connection between two simulated processes.
#[derive(Debug)]
pub struct SimNic {
    shell: Rc<RefCell<Shell>>,
    place: Place,
}

/// Which world it lives in.
#[derive(Debug)]
enum Wire {
    /// Everything is done when it is posted.
    Instant(Rc<RefCell<Shell>>, Place),
    /// Time, network conditions and faults; the number of the port.
    Net(Rc<RefCell<Fabric>>, usize),
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
    pub remote: WindowDesc,
}

impl SimNic {
    /// Two connected ends. With [`Faults::NONE`] nothing takes time: a request is done when it is
    /// posted. (A [`SimNet`](crate::net::SimNet) takes its time without faults too, and has a detector.)
    #[must_use]
    pub fn pair(config: Config) -> (Self, Self) {
        if config.faults == Faults::NONE {
            return Self::instant(Shell::new(config.seed, config.depth, Bytes::Move));
        }
        let Config { seed, faults, depth } = config;
        let fabric = Rc::new(RefCell::new(Fabric::new(seed, faults, depth, 2)));
        let ports = fabric.borrow_mut().connect(0, 1);
        let (near, far) = ports.expect("a net of two has the ends 0 and 1");
        (Self::of_net(&fabric, near), Self::of_net(&fabric, far))
    }

    /// A pair for benchmarks: ideal conditions, no faults, one region here and one window there. A
    /// request is done when `post` returns, and `poll` hands out its completion; neither allocates.
    /// With [`Bytes::Skip`] no byte moves (keys, ranges, window and epoch are checked all the same),
    /// so that what is measured is everything but the copy. `None` when the sizes cannot be had.
    #[must_use]
    pub fn pair_fast(local_len: u64, window_len: u64, bytes: Bytes) -> Option<FastPair> {
        let (near, far) = Self::instant(Shell::new(0, 256, bytes));
        let local = near.register(local_len)?;
        let target = far.register(window_len)?;
        let remote = far.expose(target.slice(0, window_len).ok()?, Access::all())?;
        Some(FastPair { near, far, local, target, remote })
    }

    fn instant(world: Shell) -> (Self, Self) {
        let shell = Rc::new(RefCell::new(world));
        let near = Self { shell: Rc::clone(&shell), place: Place::Near };
        (near, Self { shell, place: Place::Far })
    }

    pub(crate) fn of_net(fabric: &Rc<RefCell<Fabric>>, port: usize) -> Self {
        let shell = Rc::new(RefCell::new(Shell::of_net(fabric, port)));
        Self { shell, place: Place::Near }
    }

    fn wire(&self) -> Wire {
        match self.shell.borrow().net() {
            Some((fabric, port)) => Wire::Net(Rc::clone(fabric), *port),
            None => Wire::Instant(Rc::clone(&self.shell), self.place),
        }
    }

    /// Registers `len` bytes of fresh memory of this end's process.
    #[must_use]
    pub fn register(&self, len: u64) -> Option<LocalRegion> {
        match &self.wire() {
            Wire::Instant(world, place) => world.borrow_mut().end(*place).memory.register(len),
            Wire::Net(fabric, port) => fabric.borrow_mut().register(*port, len),
        }
    }

    /// Forgets a region of this end's process and poisons its bytes. Whether there was one.
    pub fn deregister(&self, key: RegionKey) -> bool {
        match &self.wire() {
            Wire::Instant(world, place) => world.borrow_mut().end(*place).memory.deregister(key),
            Wire::Net(fabric, port) => fabric.borrow_mut().deregister(*port, key),
        }
    }

    /// Exposes a range of this end to the other; `None` when the table of windows is full.
    #[must_use]
    pub fn expose(&self, range: LocalSlice, access: Access) -> Option<WindowDesc> {
        match &self.wire() {
            Wire::Instant(world, place) => {
                let mut world = world.borrow_mut();
                let entropy = world.rng().next_u64();
                let windows = &mut world.end(*place).windows;
                windows.expose(range, MemoryKind::Cpu, access, entropy).ok()
            }
            Wire::Net(fabric, port) => {
                fabric.borrow_mut().expose(*port, range, MemoryKind::Cpu, access)
            }
        }
    }

    /// Registers a region of this end with a margin on both sides of a window of `len` bytes.
    pub(crate) fn expose_framed(
        &self,
        len: u64,
        access: Access,
    ) -> Option<(LocalRegion, WindowDesc)> {
        let (target, slice) = match &self.wire() {
            Wire::Instant(world, place) => framed(&mut world.borrow_mut().end(*place).memory, len)?,
            Wire::Net(fabric, port) => {
                framed(&mut fabric.borrow_mut().host_of(*port).0.memory, len)?
            }
        };
        Some((target, self.expose(slice, access)?))
    }

    /// Takes a window of this end back, and returns when its fence has passed: virtual time goes on
    /// as long as that takes, and until then the other end's requests may land.
    pub fn revoke(&self, window: &WindowDesc) {
        match &self.wire() {
            Wire::Instant(world, place) => {
                let mut world = world.borrow_mut();
                for step in [WindowTransition::Revoke, WindowTransition::Fence] {
                    // A window that is gone already needs no revocation.
                    let _ = world.end(*place).windows.apply(window.window, window.epoch, step);
                }
            }
            Wire::Net(fabric, port) => {
                let mut fabric = fabric.borrow_mut();
                let due_ns = fabric.begin_revoke(*port, window);
                let wait_ns = due_ns.saturating_sub(fabric.now_ns);
                if wait_ns != 0 {
                    fabric.advance(wait_ns);
                }
            }
        }
    }

    /// Begins to take a window back; [`Self::is_fenced`] says when nobody can use it any more. It
    /// takes up to [`Faults::fence_max_ns`] of virtual time.
    pub fn begin_revoke(&self, window: &WindowDesc) {
        match &self.wire() {
            Wire::Instant(..) => self.revoke(window),
            Wire::Net(fabric, port) => {
                fabric.borrow_mut().begin_revoke(*port, window);
            }
        }
    }

    /// Whether a window of this end is gone for good.
    #[must_use]
    pub fn is_fenced(&self, window: &WindowDesc) -> bool {
        match &self.wire() {
            Wire::Instant(world, place) => {
                let mut world = world.borrow_mut();
                world.end(*place).windows.entry(window.window, window.epoch).is_err()
            }
            Wire::Net(fabric, port) => fabric.borrow_mut().is_fenced(*port, window),
        }
    }

    /// This end's process dies: it answers `Disconnected`, its memory is never touched again, and
    /// the requests from it and to it complete as virtual time passes.
    pub fn kill(&self) {
        match &self.wire() {
            Wire::Instant(world, place) => world.borrow_mut().kill(*place),
            Wire::Net(fabric, port) => {
                let mut fabric = fabric.borrow_mut();
                let (_, host) = fabric.host_of(*port);
                fabric.kill(host);
            }
        }
    }

    /// Where the request queue of this end stands.
    #[must_use]
    pub fn queue(&self) -> Queue {
        match &self.wire() {
            Wire::Instant(..) => Queue::Ready,
            Wire::Net(fabric, port) => fabric.borrow_mut().port(*port).queue,
        }
    }

    /// Destroys the request queue of this end: what it held touches no memory any more and never
    /// completes. This is the initiator's fence; `post` answers `Disconnected`. On an instant pair
    /// nothing is ever in flight, and nothing happens.
    pub fn destroy_queue(&self) {
        if let Wire::Net(fabric, port) = &self.wire() {
            fabric.borrow_mut().destroy(*port);
        }
    }

    /// Destroys the request queue and makes a new one, if both processes live.
    pub fn renew_queue(&self) {
        if let Wire::Net(fabric, port) = &self.wire() {
            let mut fabric = fabric.borrow_mut();
            fabric.destroy(*port);
            fabric.port(*port).queue = Queue::Ready;
        }
    }

    /// From now on bytes and completions of this end's requests take that long.
    pub fn set_path(&self, path: Path) {
        if let Wire::Net(fabric, port) = &self.wire() {
            fabric.borrow_mut().port(*port).path = path;
        }
    }

    /// Tells the detector that the owner takes a range of its own for free: no request that was
    /// posted before may touch it any more.
    pub fn reclaim(&self, range: LocalSlice) {
        if let Wire::Net(fabric, port) = &self.wire() {
            fabric.borrow_mut().reclaim(*port, range);
        }
    }

    /// Copies bytes out of this end's memory. Whether the range was known.
    pub fn read(&self, region: LocalRegion, offset: u64, out: &mut [u8]) -> bool {
        match &self.wire() {
            Wire::Instant(world, place) => {
                world.borrow_mut().end(*place).memory.read(region, offset, out)
            }
            Wire::Net(fabric, port) => {
                fabric.borrow_mut().host_of(*port).0.memory.read(region, offset, out)
            }
        }
    }

    /// Copies bytes into this end's memory. Whether the range was known.
    pub fn write(&self, region: LocalRegion, offset: u64, bytes: &[u8]) -> bool {
        match &self.wire() {
            Wire::Instant(world, place) => {
                world.borrow_mut().end(*place).memory.write(region, offset, bytes)
            }
            Wire::Net(fabric, port) => {
                let len = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
                let span = region.extent.span(Side::Local, offset, len);
                let range = span.map(|span| LocalSlice { key: region.key, span });
                range.is_ok_and(|range| fabric.borrow_mut().owner_writes(*port, range, bytes))
            }
        }
    }

    /// Takes the oldest tag that this end received.
    pub fn take_tag(&self) -> Option<u64> {
        match &self.wire() {
            Wire::Instant(world, place) => world.borrow_mut().end(*place).take_tag(),
            Wire::Net(fabric, port) => fabric.borrow_mut().port(*port).inbox.pop(),
        }
    }

    /// Lets virtual time pass; the requests of all ends run.
    pub fn advance(&self, by_ns: u64) {
        match &self.wire() {
            Wire::Instant(world, _) => world.borrow_mut().advance(by_ns),
            Wire::Net(fabric, _) => fabric.borrow_mut().advance(by_ns),
        }
    }

    /// The virtual time.
    #[must_use]
    pub fn now(&self) -> Instant {
        Instant::from_nanos(match &self.wire() {
            Wire::Instant(world, _) => world.borrow().now_ns(),
            Wire::Net(fabric, _) => fabric.borrow().now_ns,
        })
    }

    /// Looks for bytes of this end that nobody may write and somebody wrote: guards and poison only,
    /// without the detector's books.
    ///
    /// # Errors
    /// The first [`Damage`].
    pub fn check(&self) -> Result<(), Damage> {
        match &self.wire() {
            Wire::Instant(world, place) => world.borrow_mut().end(*place).memory.check(),
            Wire::Net(fabric, port) => fabric.borrow_mut().host_of(*port).0.memory.check(),
        }
    }
}

impl Transport for SimNic {
    type Error = PostErrorKind;

    fn caps(&self) -> Caps {
        Caps::all()
    }

    /// `CompleteWhen::Local` is treated as `Visible`, which promises more.
    #[inline]
    fn post(&mut self, work: &WorkRequest) -> Result<(), PostErrorKind> {
        self.shell.borrow_mut().post(self.place, work)
    }

    #[inline]
    fn poll(&mut self, out: &mut [Completion]) -> usize {
        self.shell.borrow_mut().poll(self.place, out, POLL_NS)
    }

    fn cancel(&mut self, op: SlotId) -> CancelOutcome {
        self.shell.borrow_mut().cancel(self.place, op)
    }
}
