//! A simulated NIC: two connected ends, each a [`DataPlane`](hmc_core::transport::DataPlane) to the other.
//!
//! As with a real one, a host and its NIC each have a table of windows: the host's names them, the NIC's checks each access and
//! changes when a window is opened, when the fence of its revocation passes, and when it is forgotten. Memory has to be registered.
//! Queues are bounded, completions come late and out of order, and with [`Faults`] the rules of a transport are broken on purpose.
//! Time is virtual: it passes when an end is polled or [`SimNic::advance`] is called, never by itself. All ends live in one thread;
//! [`crate::sim_net`] has more than two.

mod data_plane;
mod fault;
mod peer_process;
mod process_memory;
mod target;
mod wire;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use hmc_core::limits::MAX_WINDOWS_PER_PEER;
use hmc_core::place::{DeviceId, Place};
use hmc_core::range::Side;
use hmc_core::region::{Epoch, LocalRegion, LocalSlice, RegionKey, WindowDesc, WindowId};
use hmc_core::slots::SlotId;
use hmc_core::time::Instant;
use hmc_core::transport::{CancelOutcome, DataCloseReason, PostErrorKind, Target as _, Transport};
use hmc_core::types::{Access, Caps, MemoryKind};
use hmc_core::window::{WindowEntry, WindowTable};
use hmc_core::work::{Completion, WorkRequest};

pub use self::fault::NicFault;
pub use self::peer_process::PeerProcess;
pub use self::process_memory::{ProcessMemory, RegisteredMemory};
use self::wire::Wire;
pub use crate::fabric::Bytes;
pub use crate::fabric::port::{Path, Queue};
use crate::fabric::timed::Fabric;
use crate::fabric::zero_latency::{FabricSide, FastFabric};
use crate::fault::Faults;
use crate::memory::Corruption;

/// Virtual time that one poll takes, in nanoseconds.
const POLL_NS: u64 = 100;

/// How a pair of NICs is made.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The seed of all random numbers.
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
    fabric: Rc<RefCell<FastFabric>>,
    side: FabricSide,
    host: HostState,
}

/// What the host's part of a data plane keeps. No request reads it.
#[derive(Debug)]
struct HostState {
    windows: WindowTable<Box<[WindowEntry]>>,
    registered: Vec<RegisteredMemory>,
    released: Vec<RegisteredMemory>,
    /// Windows that the peer revoked and requests of this end used then.
    releases: Vec<(WindowId, Epoch)>,
    /// Tags in the inbox that were reported.
    tags_seen: Cell<usize>,
    down: Option<DataCloseReason>,
}

impl HostState {
    fn new() -> Self {
        Self {
            windows: WindowTable::new(vec![WindowEntry::FREE; MAX_WINDOWS_PER_PEER].into()),
            registered: Vec::new(),
            released: Vec::new(),
            releases: Vec::new(),
            tags_seen: Cell::new(0),
            down: None,
        }
    }
}

/// A pair for benchmarks; see [`SimNic::pair_fast`].
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
    /// posted. (A [`SimNet`](crate::sim_net::SimNet) takes its time without faults too, and has an access checker.)
    #[must_use]
    pub fn pair(config: Config) -> (Self, Self) {
        if config.faults == Faults::NONE {
            return Self::zero_latency(FastFabric::new(config.seed, config.depth, Bytes::Move));
        }
        let Config { seed, faults, depth } = config;
        let fabric = Rc::new(RefCell::new(Fabric::new(seed, faults, depth, 2)));
        let ports = fabric.borrow_mut().connect(0, 1);
        let (near, far) = ports.expect("a net of two has the ends 0 and 1");
        (Self::of_net(&fabric, near), Self::of_net(&fabric, far))
    }

    /// As [`Self::pair`], of ends that are not connected: each needs the other's greeting before it accepts a request. At zero
    /// latency they are.
    #[must_use]
    pub fn unconnected_pair(config: Config) -> (Self, Self) {
        let pair = Self::pair(config);
        for end in [&pair.0, &pair.1] {
            if let Wire::Net(fabric, port) = end.wire() {
                fabric.borrow_mut().port(port).queue = Queue::Init;
            }
        }
        pair
    }

    /// A pair for benchmarks: ideal conditions, no faults, one region here and one window there. A
    /// request is done when `post` returns, and `poll` hands out its completion; neither allocates.
    /// With [`Bytes::Skip`] no byte moves (keys, ranges, window and epoch are checked all the same),
    /// to measure the cost without the copy. `None` if the memory cannot be allocated.
    #[must_use]
    pub fn pair_fast(local_len: u64, window_len: u64, bytes: Bytes) -> Option<FastPair> {
        let (near, mut far) = Self::zero_latency(FastFabric::new(0, 256, bytes));
        let local = near.register(local_len)?;
        let target = far.register(window_len)?;
        let remote = far.expose(target.slice(0, window_len).ok()?, Access::all())?;
        Some(FastPair { near, far, local, target, remote })
    }

    fn zero_latency(fabric: FastFabric) -> (Self, Self) {
        let fabric = Rc::new(RefCell::new(fabric));
        let end = |side| Self { fabric: Rc::clone(&fabric), side, host: HostState::new() };
        (end(FabricSide::Near), end(FabricSide::Far))
    }

    pub(crate) fn of_net(fabric: &Rc<RefCell<Fabric>>, port: usize) -> Self {
        let fabric = Rc::new(RefCell::new(FastFabric::of_net(fabric, port)));
        Self { fabric, side: FabricSide::Near, host: HostState::new() }
    }

    fn wire(&self) -> Wire {
        match self.fabric.borrow().net() {
            Some((fabric, port)) => Wire::Net(Rc::clone(fabric), *port),
            None => Wire::ZeroLatency(Rc::clone(&self.fabric), self.side),
        }
    }

    /// At zero latency: whether one of the ends is down.
    fn is_down(&self) -> bool {
        self.host.down.is_some() || self.wire().has_peer_ended()
    }

    /// Allocates `len` bytes of fresh memory of this end's process, of that kind. The NIC does not know them: see
    /// [`Registration::add_memory`](hmc_core::transport::Registration::add_memory).
    #[must_use]
    pub fn allocate(&self, kind: MemoryKind, len: u64) -> Option<ProcessMemory> {
        let region = self.wire().allocate(len)?;
        Some(ProcessMemory::new(
            self.wire(),
            LocalRegion { place: Place::on(DeviceId { kind, index: 0 }), ..region },
        ))
    }

    /// Allocates `len` bytes of fresh memory of this end's process, and registers them until [`Self::deregister`].
    #[must_use]
    pub fn register(&self, len: u64) -> Option<LocalRegion> {
        let wire = self.wire();
        let region = wire.allocate(len)?;
        wire.with_memory(|memory| memory.pin(region.key)).then_some(region)
    }

    /// Removes a region of this end's process and poisons its bytes. Returns `true` if there was one.
    pub fn deregister(&self, key: RegionKey) -> bool {
        self.wire().deregister(key)
    }

    /// Exposes a range of registered memory to the other end; `None` when the table of windows is full.
    #[must_use]
    pub fn expose(&mut self, range: LocalSlice, access: Access) -> Option<WindowDesc> {
        let wire = self.wire();
        let windows = &mut self.host.windows;
        let window = windows.expose(range, MemoryKind::Cpu, access, wire.entropy()).ok()?;
        wire.open_window(range, &window).then_some(window)
    }

    /// Tells the NIC that a window is revoked. Returns the time when its fence passes.
    fn begin_revoke(&self, id: WindowId, epoch: Epoch) -> u64 {
        match &self.wire() {
            Wire::ZeroLatency(fabric, side) => {
                let mut fabric = fabric.borrow_mut();
                fabric.end(*side).revoke(id, epoch);
                fabric.now_ns()
            }
            Wire::Net(fabric, port) => fabric.borrow_mut().begin_revoke(*port, (id, epoch)),
        }
    }

    /// Revokes a window of this end, and returns after its fence: virtual time advances until then, and the other end's requests
    /// may access it meanwhile. Nothing happens if there is no such window.
    pub fn revoke_now(&mut self, window: &WindowDesc) {
        let (id, epoch) = (window.window, window.epoch);
        if self.revoke(id, epoch).is_ok() {
            let wait_ns = self.begin_revoke(id, epoch).saturating_sub(self.now().as_nanos());
            if wait_ns != 0 {
                self.advance(wait_ns);
            }
            self.free_window(id, epoch);
        }
    }

    /// This end's process dies: it returns `Disconnected`, its memory is never accessed again, and the requests from it
    /// and to it complete as virtual time passes.
    pub fn kill(&self) {
        match &self.wire() {
            Wire::ZeroLatency(fabric, side) => fabric.borrow_mut().kill(*side),
            Wire::Net(fabric, port) => {
                let mut fabric = fabric.borrow_mut();
                let (_, host) = fabric.host_of(*port);
                fabric.kill(host);
            }
        }
    }

    /// Returns the state of the request queue of this end.
    #[must_use]
    pub fn queue(&self) -> Queue {
        match &self.wire() {
            Wire::ZeroLatency(..) => Queue::Ready,
            Wire::Net(fabric, port) => fabric.borrow_mut().port(*port).queue,
        }
    }

    /// Destroys the request queue of this end: its requests access no memory any more and never complete. This is the
    /// initiator's fence; `post` returns `Disconnected`. With zero latency nothing is in flight, and nothing happens.
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

    /// Reports to the access checker that a range is free for its owner: no request that was posted before may access it any
    /// more.
    pub fn reclaim(&self, range: LocalSlice) {
        if let Wire::Net(fabric, port) = &self.wire() {
            fabric.borrow_mut().reclaim(*port, range);
        }
    }

    /// Copies bytes out of this end's memory. Whether the range was known.
    pub fn read(&self, region: LocalRegion, offset: u64, out: &mut [u8]) -> bool {
        self.wire().with_memory(|memory| memory.read(region, offset, out))
    }

    /// Copies bytes into this end's memory. Whether the range was known.
    pub fn write(&self, region: LocalRegion, offset: u64, bytes: &[u8]) -> bool {
        match &self.wire() {
            Wire::ZeroLatency(fabric, side) => {
                fabric.borrow_mut().end(*side).memory.write(region, offset, bytes)
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
        self.host.tags_seen.set(self.host.tags_seen.get().saturating_sub(1));
        match &self.wire() {
            Wire::ZeroLatency(fabric, side) => fabric.borrow_mut().end(*side).take_tag(),
            Wire::Net(fabric, port) => fabric.borrow_mut().port(*port).inbox.pop(),
        }
    }

    /// Lets virtual time pass; the requests of all ends run.
    pub fn advance(&self, by_ns: u64) {
        match &self.wire() {
            Wire::ZeroLatency(fabric, _) => fabric.borrow_mut().advance(by_ns),
            Wire::Net(fabric, _) => fabric.borrow_mut().advance(by_ns),
        }
    }

    /// The virtual time.
    #[must_use]
    pub fn now(&self) -> Instant {
        Instant::from_nanos(match &self.wire() {
            Wire::ZeroLatency(fabric, _) => fabric.borrow().now_ns(),
            Wire::Net(fabric, _) => fabric.borrow().now_ns,
        })
    }

    /// Checks guards and poison of this end's memory, without the records of the access checker.
    ///
    /// # Errors
    /// The first [`Corruption`].
    pub fn check(&self) -> Result<(), Corruption> {
        self.wire().with_memory(|memory| memory.check())
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
        self.fabric.borrow_mut().post(self.side, work)
    }

    #[inline]
    fn poll(&mut self, out: &mut [Completion]) -> usize {
        self.fabric.borrow_mut().poll(self.side, out, POLL_NS)
    }

    fn cancel(&mut self, op: SlotId) -> CancelOutcome {
        self.fabric.borrow_mut().cancel(self.side, op)
    }
}
