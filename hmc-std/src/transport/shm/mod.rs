//! Shared memory: a put is one bulk copy into the peer's pages, which are mapped here.
//!
//! A mapped window has a gate in a page that its owner shares with the peer: a copy enters the gate, and a
//! revocation closes it and waits until no copy is inside ([`hmc_mem::gate`]). Windows that cannot be mapped (user
//! memory) use the stream: the target copies by process_vm_readv(2), or receives the bytes inline if that is
//! refused.

use std::collections::VecDeque;
use std::sync::Arc;

use hmc_core::blocks::WindowBlocks;
use hmc_core::limits::{MAX_CHUNK_BYTES, MAX_WINDOWS_PER_PEER};
use hmc_core::range::{Extent, Side};
use hmc_core::region::{Epoch, LocalSlice, WindowId, WindowSlice};
use hmc_core::slots::SlotId;
use hmc_core::transport::{CancelOutcome, DataPlane as _, PostErrorKind, Transport};
use hmc_core::types::{Access, Caps};
use hmc_core::window::WindowFault;
use hmc_core::wire::data::{DataFrame, DataKind};
use hmc_core::wire::hello::Features;
use hmc_core::work::{Completion, Failure, Opcode, WorkRequest};
use hmc_mem::error::MemError;
use hmc_mem::os::life::{LifePage, PeerLife};
use hmc_mem::os::mapped_window::{MappedWindow, Moved, PeerPages};
use hmc_mem::os::memfd::Mapping;
use hmc_mem::os::ring::RING_PAGES_BYTES;
use hmc_mem::os::words::{PAGE_BYTES, PeerWords};

use crate::base::error::{Error, ErrorKind, Result};
use crate::transport::ctrl_rings::CtrlRings;
use crate::transport::gate::window_gates;
use crate::transport::pieces::Pieces;
use crate::transport::stream::{Arrival, MAX_REQUESTS, Offer, StreamDataPlane};

pub(crate) mod domain;
mod exposed;
mod heartbeat;
mod mapped;
mod plane;
#[cfg(test)]
mod tests;
mod unmapped;
mod unused;

use mapped::{File, Mapped, copy_mapped, no_descriptor};
use unmapped::Unmapped;
use unused::Unused;

/// The name under which the page of window words travels.
const PAGE_ID: WindowId = WindowId(u64::MAX);
/// The name under which a session's [`LifePage`] travels, before the page.
const LIFE_ID: WindowId = WindowId(u64::MAX - 1);
/// The name under which the ring of control frames travels, before the page.
const RING_ID: WindowId = WindowId(u64::MAX - 2);

/// Generations of a window of the peer: its name, the pages, and the length of a block.
#[derive(Debug)]
struct ArrivedTable {
    name: (WindowId, Epoch),
    words: (Arc<Mapping>, u64),
    block_bytes: u64,
}

#[derive(Debug)]
pub(crate) struct ShmDataPlane {
    stream: StreamDataPlane,
    /// Words of our windows, shared with the peer.
    page: Arc<Mapping>,
    /// Both pages have further gates: both ends have feature bit 8.
    has_further_gates: bool,
    /// Words of the peer's windows.
    peer_page: Option<Arc<PeerWords>>,
    /// Whether the peer's process has ended.
    peer_life: Option<Arc<PeerLife>>,
    /// Of the control half, if both ends have them.
    rings: Option<Arc<CtrlRings>>,
    /// Both ends know rings, so that the peer sends its own, whether this end has memory for them or not.
    has_ring: bool,
    remote: Vec<Option<Mapped>>,
    /// The generations of the window whose pages come next.
    table: Option<ArrivedTable>,
    /// What was in `remote`.
    unused: Unused,
    unmapped: Unmapped,
    /// Why a page that the link cannot do without is not mapped.
    page_error: Option<Error>,
    pieces: Pieces,
    done: VecDeque<Completion>,
    bytes: u64,
    /// What went into mapped windows and out of them without this type.
    moved: Arc<Moved>,
    /// The peer's heartbeats, as counted last.
    heard: u64,
}

impl ShmDataPlane {
    /// Takes over a stream over UDS and offers the peer the page of window words, and before that the session's `life` and the
    /// ring through which this end receives control frames, if both ends have the feature.
    pub(crate) fn new(
        mut stream: StreamDataPlane,
        life: Option<&LifePage>,
        features: Features,
    ) -> Result<Self> {
        let has_ring = features.contains(Features::CTRL_RING);
        let has_further_gates = features.contains(Features::GATES);
        if let Some((word, fd)) = life.and_then(LifePage::offer) {
            let mut frame = DataFrame::new(DataKind::Region, 0);
            frame.window = LIFE_ID;
            frame.offset = word.offset();
            frame.total = PAGE_BYTES;
            stream.offer(Offer { frame, fd: fd.try_clone_to_owned().map_err(no_descriptor)? });
        }
        let page = Mapping::builder().huge(false).create(PAGE_BYTES)?;
        for index in 0..u16::try_from(MAX_WINDOWS_PER_PEER).unwrap_or(0) {
            // A word of zeros would be an open window.
            window_gates(&page, index, has_further_gates).close();
        }
        let page_fd = page.fd()?.try_clone_to_owned().map_err(no_descriptor)?;
        // Without memory or descriptors for it, control frames stay on the socket.
        let (rings, fd) = has_ring.then(|| CtrlRings::new().ok()).flatten().unzip();
        if let Some(fd) = fd {
            let mut frame = DataFrame::new(DataKind::Region, 0);
            frame.window = RING_ID;
            frame.total = RING_PAGES_BYTES;
            stream.offer(Offer { frame, fd });
        }
        let mut frame = DataFrame::new(DataKind::Region, 0);
        frame.window = PAGE_ID;
        frame.total = PAGE_BYTES;
        stream.offer(Offer { frame, fd: page_fd });
        Ok(Self {
            stream,
            page: Arc::new(page),
            has_further_gates,
            peer_page: None,
            peer_life: None,
            rings,
            has_ring,
            remote: Vec::new(),
            table: None,
            unused: Unused::default(),
            unmapped: Unmapped::default(),
            page_error: None,
            pieces: Pieces::default(),
            done: VecDeque::with_capacity(MAX_REQUESTS.saturating_mul(2)),
            bytes: 0,
            moved: Arc::default(),
            heard: 0,
        })
    }

    /// The rings of the control half, if both ends have them.
    pub(crate) fn rings(&self) -> Option<Arc<CtrlRings>> {
        self.rings.clone()
    }

    fn map(&mut self, a: Arrival) -> Result<()> {
        let access = a.access();
        let fd = a.fd?;
        if a.window == LIFE_ID {
            self.peer_life = Some(Arc::new(PeerLife::map(fd, a.offset)?));
            return Ok(());
        }
        if a.window == RING_ID {
            let life = self.peer_life.clone();
            return self.rings.as_ref().map_or(Ok(()), |rings| rings.map_writer(fd, life));
        }
        if a.window == PAGE_ID {
            let page = Mapping::map_peer(fd, PAGE_BYTES, 0, Access::all())?;
            self.peer_page =
                Some(Arc::new(PeerWords::new(page)?.with_further_gates(self.has_further_gates)));
            return Ok(());
        }
        if a.is_generations {
            let words = Arc::new(Mapping::map_peer(fd, a.total, 0, Access::READ)?);
            let (name, block_bytes) = ((a.window, a.epoch), a.tag);
            self.table = Some(ArrivedTable { name, words: (words, a.offset), block_bytes });
            return Ok(());
        }
        let index = usize::from(a.window.index());
        // Pages that may be written are always readable to the CPU; `copy` checks the access.
        let writable = access.contains(Access::WRITE);
        let pages = if writable { Access::all() } else { Access::READ };
        let file = File::of(&fd)?;
        let known = |m: &Mapped| m.map_of(file, a.total, writable);
        let map = match self.remote.iter().flatten().find_map(known) {
            Some(map) => map,
            None => Arc::new(Mapping::map_peer(fd, a.total, 0, pages)?),
        };
        let range = Extent::new(a.total).span(Side::Remote, a.offset, a.len)?;
        if index >= self.remote.len() {
            self.remote.resize_with(index.saturating_add(1), || None);
        }
        let Some(gates) = self.peer_page.clone() else {
            let what = "the peer handed out a window before the gates of its windows";
            return Err(Error::new(ErrorKind::Protocol, what));
        };
        let pages = PeerPages { gates, life: self.peer_life.clone() };
        let (name, moved) = ((a.window, a.epoch), Arc::clone(&self.moved));
        let window = MappedWindow::new(name, access, (map, range), pages, moved);
        let mut window = window.map_err(MemError::from)?;
        if let Some(table) = self.table.take().filter(|t| t.name == name) {
            let blocks = WindowBlocks::new(Extent::new(a.len), table.block_bytes);
            let blocks = blocks.ok_or_else(|| {
                Error::new(ErrorKind::Protocol, "a window that is no whole blocks of its length")
            })?;
            window = window.with_generations(table.words, blocks).map_err(MemError::from)?;
        }
        let window = Arc::new(window);
        if let Some(place) = self.remote.get_mut(index)
            && let Some(old) = place.replace(Mapped { window, file })
        {
            self.unused.push(old, &self.remote);
        }
        self.unmapped.free(a.window);
        Ok(())
    }

    /// A window of the peer that is mapped, whatever its epoch.
    #[inline]
    fn mapped_window(&self, id: WindowId) -> Option<&Arc<MappedWindow>> {
        let mapped = self.remote.get(usize::from(id.index()))?.as_ref();
        mapped.map(|m| &m.window).filter(|w| w.id() == id)
    }

    /// Copies one piece of `whole` bytes. The window may be gone since the transfer was posted.
    #[inline]
    fn copy(
        &self,
        opcode: Opcode,
        local: LocalSlice,
        remote: WindowSlice,
        whole: u64,
    ) -> std::result::Result<(), Failure> {
        let window = self.mapped_window(remote.window);
        let window = window.ok_or(Failure::Window(WindowFault::Revoked))?;
        let region = self.stream.region_cache().resolve(local);
        let region = region.ok_or(Failure::UnknownRegion)?;
        copy_mapped(window, region, opcode, local.span, remote, whole)
    }

    /// Copies the next pieces of transfers between this process and the window of `first`, the oldest transfer, inside the window's gate:
    /// at most 1 MiB, since a revocation waits for them.
    fn copy_chunk(&mut self, first: &WorkRequest) {
        let window = self.mapped_window(first.remote.window).cloned();
        let window = window.ok_or(WindowFault::Revoked).and_then(|window| {
            let is_it = window.epoch() == first.remote.epoch;
            if is_it { Ok(window) } else { Err(WindowFault::StaleEpoch) }
        });
        let needed = if first.opcode == Opcode::Get { Access::READ } else { Access::WRITE };
        let Self { stream, pieces, done, .. } = self;
        // Refused ones may have been copied, too, before their generations were compared again.
        let (before, mut copied, mut tried) = (done.len(), 0_u64, 0_u64);
        let entered = window.map_err(Failure::Window).and_then(|window| {
            window.inside(needed, |inside| {
                while let Some((work, local, remote)) = pieces.next()
                    && is_beside(&work, first)
                    && tried.saturating_add(local.span.len()) <= MAX_CHUNK_BYTES
                {
                    tried = tried.saturating_add(local.span.len());
                    let len = work.local.span.len();
                    let region = stream.region_cache().resolve(local);
                    let result = region.ok_or(Failure::UnknownRegion).and_then(|region| {
                        let at = (remote.span.offset(), remote.expected);
                        inside.copy(at, region.bytes(), local.span, len)
                    });
                    pieces.advance(result);
                    match result {
                        Err(why) => done.push_back(Completion { op: work.op, result: Err(why) }),
                        Ok(()) => copied = copied.saturating_add(local.span.len()),
                    }
                    // The tag of a put has to wait until the gate was left.
                    if let Some(Opcode::Put | Opcode::Get) = pieces.copied().map(|w| w.opcode) {
                        pieces.pop();
                        done.push_back(Completion { op: work.op, result: Ok(len) });
                    }
                }
            })
        });
        match entered {
            Ok(()) => self.bytes = self.bytes.saturating_add(copied),
            Err(why) => {
                done.iter_mut().skip(before).for_each(|c| c.result = Err(why));
                if done.len() == before || pieces.is_begun() {
                    let work = pieces.pop();
                    work.into_iter().for_each(|w| self.finish(w.op, Err(why)));
                }
            }
        }
    }

    /// The bytes of a transfer are in place: report it, or let the tag follow.
    fn conclude(&mut self, work: &WorkRequest) -> bool {
        let len = work.local.span.len();
        if let Opcode::PutNotify { .. } = work.opcode {
            // Stores before a system call are visible to whoever sees its effect, so the tag, sent
            // as an empty put, arrives after the bytes.
            let tag = WorkRequest {
                local: LocalSlice { span: work.local.span.split_at_most(0).0, ..work.local },
                remote: WindowSlice {
                    span: work.remote.span.split_at_most(0).0,
                    expected: None,
                    ..work.remote
                },
                ..*work
            };
            return match self.stream.submit(&tag, false, len) {
                Ok(()) => true,
                Err(PostErrorKind::Busy) => false,
                Err(_) => {
                    self.finish(work.op, Err(Failure::PeerDead));
                    true
                }
            };
        }
        self.finish(work.op, Ok(len));
        true
    }

    /// Ends the transfers whose bytes are in place, as far as their tags can follow.
    fn conclude_copied(&mut self) {
        while let Some(work) = self.pieces.copied()
            && self.conclude(&work)
        {
            self.pieces.pop();
        }
    }

    fn finish(&mut self, op: SlotId, result: std::result::Result<u64, Failure>) {
        self.done.push_back(Completion { op, result });
    }
}

/// Whether a transfer can be copied in one chunk with `first`.
fn is_beside(work: &WorkRequest, first: &WorkRequest) -> bool {
    let (a, b) = (work.remote, first.remote);
    let is_same_way = (work.opcode == Opcode::Get) == (first.opcode == Opcode::Get);
    is_same_way && (a.window, a.epoch) == (b.window, b.epoch)
}

impl Transport for ShmDataPlane {
    type Error = PostErrorKind;

    fn caps(&self) -> Caps {
        Caps::all().difference(Caps::TARGET_CHECKED)
    }

    #[inline]
    fn post(&mut self, work: &WorkRequest) -> std::result::Result<(), PostErrorKind> {
        if self.stream.close_reason().is_some() {
            return Err(PostErrorKind::Disconnected);
        }
        if self.stream.region_cache().resolve(work.local).is_none() {
            return Err(PostErrorKind::UnknownRegion);
        }
        if self.done.len().saturating_add(self.pieces.len()) >= MAX_REQUESTS {
            return Err(PostErrorKind::Busy);
        }
        let window = self.mapped_window(work.remote.window);
        let direct = window.is_some_and(|w| work.remote.expected.is_none() || w.has_generations());
        if !direct {
            let by_ref = self.stream.may_use_refs();
            return self.stream.submit(work, by_ref, work.local.span.len());
        }
        let len = work.local.span.len();
        // What follows a transfer that was copied in the call is copied together, by `copy_piece`.
        let is_first = self.pieces.is_empty() && self.done.is_empty();
        if !is_first || len > MAX_CHUNK_BYTES {
            self.pieces.push(work);
            return Ok(());
        }
        match self.copy(work.opcode, work.local, work.remote, len) {
            Ok(()) => {
                self.bytes = self.bytes.saturating_add(len);
                if !self.conclude(work) {
                    self.pieces.push_copied(work);
                }
            }
            Err(why) => self.finish(work.op, Err(why)),
        }
        Ok(())
    }

    /// Lets the tags of copied transfers follow, and hands out completions.
    #[inline]
    fn poll(&mut self, out: &mut [Completion]) -> usize {
        self.conclude_copied();
        let mut n: usize = 0;
        while n < out.len() {
            let Some(c) = self.done.pop_front() else {
                break;
            };
            if let Some(place) = out.get_mut(n) {
                *place = c;
            }
            n = n.saturating_add(1);
        }
        n.saturating_add(self.stream.poll(out.get_mut(n..).unwrap_or_default()))
    }

    fn cancel(&mut self, op: SlotId) -> CancelOutcome {
        let withdrawn = self.pieces.cancel(op);
        let runs = self.done.iter().any(|c| c.op == op);
        if !runs && self.stream.cancel(op) == CancelOutcome::Withdrawn {
            return CancelOutcome::Withdrawn;
        }
        // Others of the operation complete, and so does each that was withdrawn beside them.
        (0..withdrawn).for_each(|_| self.finish(op, Err(Failure::Cancelled)));
        CancelOutcome::Running
    }
}
