//! Pairs of connected data planes for tests of the transports themselves. Not for applications: no
//! session, no thread, no deadline stands behind them, and nothing here is stable.
//!
//! [`pair`] gives two [`End`]s in one process over the real sockets and mappings of each transport,
//! [`pair_of`] two of a transport that is not of this crate. Whoever holds both drives both, by
//! [`End::service`] and [`Transport::poll`].

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hmc_core::limits::MAX_ENDPOINT_BYTES;
use hmc_core::region::{Epoch, LocalRegion, WindowDesc, WindowId};
use hmc_core::slots::SlotId;
use hmc_core::transport::{CancelOutcome, DataCloseReason, Note, PostErrorKind, Transport};
use hmc_core::types::{Access, Caps, Rank};
use hmc_core::work::{Completion, WorkRequest};
use hmc_mem::error::MemError;
use hmc_std::error::{Error, ErrorKind as Kind, Result};
use hmc_std::internals::{self, Parts, Tags};
use hmc_std::memory::{HeapBytes, Region};
use hmc_std::transport::{AnyDataPlane, Domain, Fence, RegionTable, Side};

use crate::wire::{Wire, sockets};

/// Windows that each end can expose.
const WINDOWS: usize = 64;
/// How long two ends may take to get to know each other's memory.
const SETUP: Duration = Duration::from_secs(10);

/// One end of a transport, with regions of its own.
#[derive(Debug)]
pub struct End {
    plane: AnyDataPlane,
    tags: Tags,
    table: Arc<RegionTable>,
    /// What goes to the other end, and what came from it.
    control: (ControlQueue, ControlQueue),
}

/// What a link's control connection carries between two data planes; here it is a queue for each direction.
type ControlQueue = Arc<Mutex<VecDeque<ToPeer>>>;

#[derive(Debug)]
enum ToPeer {
    Note(u8, Vec<u8>),
    Revoke(WindowId, Epoch),
    Release(WindowId, Epoch),
}

fn tags() -> Tags {
    Tags::new(4096, 4 << 20)
}

fn lock(queue: &ControlQueue) -> MutexGuard<'_, VecDeque<ToPeer>> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An initiator and its target. Over [`Wire::Loopback`] the first end is both, and there is no
/// second.
///
/// # Errors
/// What the system refused.
pub fn pair(wire: Wire) -> Result<(End, Option<End>)> {
    if wire == Wire::Loopback {
        let tags = tags();
        return Ok((End::new(internals::loopback(WINDOWS, tags.clone()), tags), None));
    }
    if wire == Wire::Rdma {
        let (near, far) = rdma_pair(None)?;
        return Ok((near, Some(far)));
    }
    let (a, b) = sockets(wire)?;
    let (near, far) = opened(end(wire, a, 1)?, end(wire, b, 0)?)?;
    Ok((near, Some(far)))
}

/// Lets two ends get to know each other.
fn opened(mut near: End, mut far: End) -> Result<(End, End)> {
    let limit = Instant::now().checked_add(SETUP);
    while !(near.is_ready() && far.is_ready()) {
        near.service();
        far.service();
        if limit.is_some_and(|l| Instant::now() > l) {
            let what = "the deadline passed before both ends were ready";
            return Err(Error::new(Kind::DeadlineExceeded, what));
        }
    }
    Ok((near, far))
}

/// An initiator and its target, of a transport that each has a part in. The second connection is a local socket, or one of TCP
/// where the transport takes no other.
///
/// # Errors
/// What the system or the transport refused.
pub fn pair_of(near: &dyn Domain, far: &dyn Domain) -> Result<(End, End)> {
    let is_remote = near.side() == Side::Remote;
    let (a, b) = sockets(if is_remote { Wire::Tcp } else { Wire::TcpOverUds })?;
    let there = (ControlQueue::default(), ControlQueue::default());
    let back = (Arc::clone(&there.1), Arc::clone(&there.0));
    let made = |domain: &dyn Domain, fd: OwnedFd, peer: u32, control| {
        let tags = tags();
        let plane = domain.data_plane(internals::params(Parts {
            socket: fd,
            peer: Rank(peer),
            pid: (!is_remote).then(std::process::id),
            cma: true,
            windows: WINDOWS,
            tags: tags.clone(),
        }))?;
        let mut end = End { control, ..End::new(plane, tags) };
        let mut buf = [0; MAX_ENDPOINT_BYTES];
        if let Some(Note { kind, bytes }) = end.plane.greeting(&mut buf)? {
            lock(&end.control.0).push_back(ToPeer::Note(kind, bytes.to_vec()));
        }
        Ok::<_, Error>(end)
    };
    opened(made(near, a, 1, there)?, made(far, b, 0, back)?)
}

/// An initiator and its target over RDMA verbs, by that library or the one that is installed.
///
/// # Errors
/// As [`pair_of`]; `Unavailable`.
pub fn rdma_pair(library: Option<&Path>) -> Result<(End, End)> {
    let domain = internals::rdma(library)?;
    pair_of(&domain, &domain)
}

/// Takes a window of `owner` back that `peer` may use, and waits for its fence, up to `timeout`. Whether the fence was reached.
///
/// # Errors
/// `NotFound`.
pub fn revoke(
    owner: &mut End,
    peer: &mut End,
    window: &WindowDesc,
    timeout: Duration,
) -> Result<bool> {
    let (id, epoch) = (window.window, window.epoch);
    let fence = internals::begin_revoke(&mut owner.plane, id, epoch)?;
    if internals::has_passed(&owner.plane, &fence, id, epoch) {
        // It does not depend on what the peer is told, which may come as late as ever.
        owner.plane.free_window(id, epoch);
        return Ok(true);
    }
    owner.send(ToPeer::Revoke(id, epoch));
    let limit = Instant::now().checked_add(timeout);
    while !internals::has_passed(&owner.plane, &fence, id, epoch) {
        if limit.is_some_and(|l| Instant::now() > l) {
            return Ok(false);
        }
        peer.service();
        owner.service();
    }
    owner.plane.free_window(id, epoch);
    Ok(true)
}

fn end(wire: Wire, fd: OwnedFd, peer: u32) -> Result<End> {
    let tags = tags();
    let parts = Parts {
        socket: fd,
        peer: Rank(peer),
        pid: matches!(wire, Wire::Shm { .. }).then(std::process::id),
        cma: wire == Wire::Shm { cma: true },
        windows: WINDOWS,
        tags: tags.clone(),
    };
    let plane = match wire {
        Wire::Shm { .. } => internals::shm(parts)?,
        // Loopback has one end, and a domain makes those of RDMA verbs.
        Wire::Loopback | Wire::Rdma | Wire::Tcp | Wire::TcpOverUds => internals::stream(parts),
    };
    Ok(End::new(plane, tags))
}

impl End {
    fn new(plane: AnyDataPlane, tags: Tags) -> Self {
        Self { plane, tags, table: Arc::default(), control: Default::default() }
    }

    fn send(&self, what: ToPeer) {
        lock(&self.control.0).push_back(what);
    }

    /// Receives what the other end's data plane sent. Whether there was anything.
    fn receive(&mut self) -> bool {
        let mut received = false;
        loop {
            let next = lock(&self.control.1).pop_front();
            match next {
                None => break,
                Some(ToPeer::Note(kind, bytes)) => {
                    if self.plane.receive_note(Note { kind, bytes: &bytes }).is_err() {
                        self.plane.close(DataCloseReason::Protocol("a note that cannot be used"));
                    }
                }
                Some(ToPeer::Revoke(id, epoch)) => {
                    if self.plane.remove_window(id, epoch) {
                        self.send(ToPeer::Release(id, epoch));
                    }
                }
                Some(ToPeer::Release(id, epoch)) => self.plane.receive_release(id, epoch),
            }
            received = true;
        }
        let mut buf = [0; MAX_ENDPOINT_BYTES];
        while let Some(Note { kind, bytes }) = self.plane.next_note(&mut buf) {
            lock(&self.control.0).push_back(ToPeer::Note(kind, bytes.to_vec()));
        }
        while let Some((id, epoch)) = self.plane.next_release() {
            self.send(ToPeer::Release(id, epoch));
        }
        received
    }

    fn is_ready(&self) -> bool {
        self.plane.is_ready()
    }

    /// A region that a peer can map; zeros.
    ///
    /// # Errors
    /// `NoSpace`.
    pub fn allocate(&self, len: u64) -> Result<Region> {
        internals::allocate(&self.table, len)
    }

    /// A region of ordinary memory, adopted in place; zeros.
    ///
    /// # Errors
    /// `Full`.
    pub fn adopt(&self, len: usize) -> Result<Region> {
        self.table.adopt(Box::new(HeapBytes::from(vec![0; len])))
    }

    /// Adds a region to the data plane's memory, as posting an operation on it does.
    pub fn add_memory(&mut self, region: &Region) -> LocalRegion {
        self.plane.add_memory(region);
        internals::local(region)
    }

    /// Exposes a range of a region. The peer can use the result when it [`End::is_settled`].
    ///
    /// # Errors
    /// `Range`, `Full`.
    pub fn expose(
        &mut self,
        region: &Region,
        offset: u64,
        len: u64,
        access: Access,
    ) -> Result<WindowDesc> {
        let slice = internals::slice(region, offset, len)?;
        let entropy = u64::from_le_bytes(internals::random()?);
        let mut buf = [0; MAX_ENDPOINT_BYTES];
        let (exposed, note) =
            internals::expose(&mut self.plane, region, slice, access, entropy, &mut buf)?;
        if let Some(Note { kind, bytes }) = note {
            lock(&self.control.0).push_back(ToPeer::Note(kind, bytes.to_vec()));
        }
        self.plane.flush();
        Ok(exposed)
    }

    /// Whether the peer's window was mapped here (or found to be none that can be).
    #[must_use]
    pub fn is_settled(&self, window: &WindowDesc) -> bool {
        self.plane.is_settled(window.window, window.epoch)
    }

    /// Takes a window back and waits for its fence, up to `timeout`. Whether the fence was reached.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn revoke(&mut self, window: &WindowDesc, timeout: Duration) -> Result<bool> {
        let fence = internals::begin_revoke(&mut self.plane, window.window, window.epoch)?;
        let passed = match fence {
            Fence::Passed => true,
            Fence::Gate(gate) => internals::wait_gate(&gate, timeout),
            Fence::PeerAck => false,
        };
        if passed {
            self.plane.free_window(window.window, window.epoch);
        }
        Ok(passed)
    }

    /// Receives and executes what the peer requested. Returns whether anything happened.
    pub fn service(&mut self) -> bool {
        let received = self.receive();
        let mut busy = self.plane.poll_peer(true) | received;
        while self.plane.copy_piece() {
            busy = true;
        }
        busy
    }

    /// Whether the data plane has ended.
    #[must_use]
    pub fn is_down(&mut self) -> bool {
        self.plane.close_reason().is_some()
    }

    /// Ends the data plane, as a link that dies does.
    pub fn kill(&mut self) {
        self.plane.close(DataCloseReason::Silent);
    }

    /// Bytes that hardware or a vendor's library has moved for this end.
    #[must_use]
    pub fn bytes_offloaded(&self) -> u64 {
        self.plane.bytes_offloaded()
    }

    /// The tags that were delivered here since the last call.
    #[must_use]
    pub fn take_tags(&mut self) -> Vec<u64> {
        std::iter::from_fn(|| self.tags.take()).collect()
    }
}

/// Copies out of a region, whoever may be writing it.
///
/// # Errors
/// `Range`.
pub fn read(region: &Region, offset: u64, out: &mut [u8]) -> Result<()> {
    let part = internals::slice(region, offset, u64::try_from(out.len()).unwrap_or(u64::MAX))?;
    Ok(internals::bytes(region).read_at(part.span, out).map_err(MemError::from)?)
}

/// Copies into a region, whoever may be reading or writing it.
///
/// # Errors
/// `Range`.
pub fn write(region: &Region, offset: u64, bytes: &[u8]) -> Result<()> {
    let part = internals::slice(region, offset, u64::try_from(bytes.len()).unwrap_or(u64::MAX))?;
    Ok(internals::bytes(region).write_at(part.span, bytes).map_err(MemError::from)?)
}

impl Transport for End {
    type Error = PostErrorKind;

    fn caps(&self) -> Caps {
        self.plane.caps()
    }

    fn post(&mut self, work: &WorkRequest) -> std::result::Result<(), PostErrorKind> {
        self.plane.post(work)
    }

    fn poll(&mut self, out: &mut [Completion]) -> usize {
        self.plane.poll(out)
    }

    fn cancel(&mut self, op: SlotId) -> CancelOutcome {
        self.plane.cancel(op)
    }
}
