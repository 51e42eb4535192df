//! A data plane that does what a test says.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt::{self, Write};
use std::sync::Arc;

use hmc_core::region::{Epoch, LocalSlice, WindowDesc, WindowId, WindowSlice};
use hmc_core::slots::SlotId;
use hmc_core::transport::{
    CancelOutcome, DataCloseReason, DataPlane, Fence, Interest, NeedsStream, Note, Notes,
    PeerAccess, PeerWindows, PostErrorKind, Progress, Registration, Served, Target, Transport,
};
use hmc_core::types::{Caps, ConnType, MemoryKind};
use hmc_core::window::{WindowEntry, WindowTable};
use hmc_core::work::{Completion, Opcode, Transfer, WorkRequest};

use crate::base::error::Error;
use crate::memory::Region;
use crate::transport::regions::RegionCache;

#[derive(Debug)]
pub(crate) struct Scripted {
    /// What the next note tells.
    pub(crate) told: PeerAccess,
    pub(crate) access: PeerAccess,
    pub(crate) posted: Vec<WorkRequest>,
    pub(crate) done: VecDeque<Completion>,
    pub(crate) notifies: VecDeque<WorkRequest>,
    pub(crate) failed: Option<DataCloseReason>,
    pub(crate) closed: Option<DataCloseReason>,
    pub(crate) is_idle: bool,
    pub(crate) is_drained: bool,
    pub(crate) is_shut: bool,
    pub(crate) has_windows: bool,
    pub(crate) windows_seen: Vec<&'static str>,
    pub(crate) known: RegionCache,
    pub(crate) added: usize,
    /// Whether it copies in the call, and what it has moved.
    pub(crate) copies: bool,
    pub(crate) moved: (u64, u64),
    /// What it answers to an attempt to cancel.
    pub(crate) cancels: CancelOutcome,
    /// What it does not use any more.
    pub(crate) released: Vec<Arc<()>>,
    pub(crate) is_released: bool,
    pub(crate) uses_window: bool,
    pub(crate) is_ready: bool,
    /// Whether something comes from the peer.
    pub(crate) is_busy: bool,
    pub(crate) flushes: usize,
    pub(crate) has_work: bool,
    pub(crate) has_posted: bool,
    pub(crate) coalesces: bool,
    pub(crate) notes: VecDeque<u8>,
    pub(crate) releases: VecDeque<(WindowId, Epoch)>,
    pub(crate) releases_heard: Vec<(WindowId, Epoch)>,
    pub(crate) checks: bool,
    pub(crate) refusal: Option<Error>,
    pub(crate) table: WindowTable<[WindowEntry; 0]>,
}

impl Default for Scripted {
    fn default() -> Self {
        Self {
            told: PeerAccess::Unknown,
            access: PeerAccess::Unknown,
            posted: Vec::new(),
            done: VecDeque::new(),
            notifies: VecDeque::new(),
            failed: None,
            closed: None,
            is_idle: true,
            is_drained: true,
            is_shut: false,
            has_windows: false,
            windows_seen: Vec::new(),
            known: RegionCache::default(),
            added: 0,
            copies: false,
            moved: (0, 0),
            cancels: CancelOutcome::Withdrawn,
            released: Vec::new(),
            is_released: false,
            uses_window: false,
            is_ready: true,
            is_busy: false,
            flushes: 0,
            has_work: false,
            has_posted: false,
            coalesces: false,
            notes: VecDeque::new(),
            releases: VecDeque::new(),
            releases_heard: Vec::new(),
            checks: false,
            refusal: None,
            table: WindowTable::new([]),
        }
    }
}

impl Transport for Scripted {
    type Error = PostErrorKind;

    fn caps(&self) -> Caps {
        Caps::PUT | Caps::GET
    }

    fn post(&mut self, work: &WorkRequest) -> Result<(), PostErrorKind> {
        self.posted.push(*work);
        Ok(())
    }

    fn poll(&mut self, out: &mut [Completion]) -> usize {
        let done = out.iter_mut().zip(std::iter::from_fn(|| self.done.pop_front()));
        done.map(|(place, completion)| *place = completion).count()
    }

    fn cancel(&mut self, _op: SlotId) -> CancelOutcome {
        self.cancels
    }
}

impl Registration for Scripted {
    type Memory = Region;
    type Released = Vec<Box<dyn Send>>;

    fn serves(&self, _kind: MemoryKind) -> Served {
        Served::Direct
    }

    fn add_memory(&mut self, memory: &Region) {
        self.known.add(memory);
        self.added = self.added.saturating_add(1);
    }

    fn release_memory(&mut self, _all: bool) {
        drop(self.known.sweep());
    }

    fn take_released(&mut self) -> Vec<Box<dyn Send>> {
        self.released.drain(..).map(|one| -> Box<dyn Send> { Box::new(one) }).collect()
    }
}

impl Target for Scripted {
    type Windows = [WindowEntry; 0];
    type Gate = Infallible;
    type Fault = Error;

    fn windows(&mut self) -> &mut WindowTable<[WindowEntry; 0]> {
        &mut self.table
    }

    fn open<'a>(
        &mut self,
        _memory: &Region,
        _local: LocalSlice,
        _window: &WindowDesc,
        buf: &'a mut [u8],
    ) -> Result<Option<Note<'a>>, Error> {
        self.windows_seen.push("open");
        buf.fill(1);
        Ok(buf.get(..1).map(|bytes| Note { kind: 9, bytes }))
    }

    fn close_window(&mut self, _id: WindowId, _epoch: Epoch) -> Fence<Infallible> {
        self.windows_seen.push("close");
        Fence::PeerAck
    }

    fn is_released(&self, _id: WindowId, _epoch: Epoch) -> bool {
        self.is_released
    }

    fn forget_window(&mut self, _id: WindowId, _epoch: Epoch) {
        self.windows_seen.push("forget");
    }
}

impl PeerWindows for Scripted {
    type Mapped = Infallible;

    fn remove_window(&mut self, _id: WindowId, _epoch: Epoch) -> bool {
        !self.uses_window
    }

    fn try_transfer(&mut self, opcode: Opcode, _from: LocalSlice, _to: WindowSlice) -> bool {
        self.copies && opcode == Opcode::Put
    }

    fn try_transfer_list(&mut self, list: &[Transfer]) -> bool {
        self.copies && list.len() == 2
    }
}

impl Progress for Scripted {
    type Worker = Infallible;

    fn is_ready(&self) -> bool {
        self.is_ready
    }

    fn poll_peer(&mut self, _claimed: bool) -> bool {
        self.is_busy
    }

    fn flush(&mut self) {
        self.flushes = self.flushes.saturating_add(1);
    }

    fn interest(&mut self) -> Interest {
        Interest { work: self.has_work, ..Interest::default() }
    }

    fn take_posted(&mut self) -> bool {
        std::mem::take(&mut self.has_posted)
    }

    fn can_coalesce(&self) -> bool {
        self.coalesces
    }
}

impl Notes for Scripted {
    fn greeting<'a>(&mut self, buf: &'a mut [u8]) -> Result<Option<Note<'a>>, Error> {
        buf.fill(2);
        Ok(buf.get(..3).map(|bytes| Note { kind: 8, bytes }))
    }

    fn next_note<'a>(&mut self, buf: &'a mut [u8]) -> Option<Note<'a>> {
        let kind = self.notes.pop_front()?;
        buf.get(..1).map(|bytes| Note { kind, bytes })
    }

    fn has_notes(&self) -> bool {
        !self.notes.is_empty()
    }

    fn has_releases(&self) -> bool {
        !self.releases.is_empty()
    }

    fn next_release(&mut self) -> Option<(WindowId, Epoch)> {
        self.releases.pop_front()
    }

    fn receive_release(&mut self, id: WindowId, epoch: Epoch) {
        self.releases_heard.push((id, epoch));
    }

    fn receive_note(&mut self, _note: Note<'_>) -> Result<(), Error> {
        self.access = self.told;
        Ok(())
    }
}

impl DataPlane for Scripted {
    type PeerLife = ();

    fn kind(&self) -> Option<ConnType> {
        Some(ConnType::Rdma)
    }

    fn close_reason(&self) -> Option<DataCloseReason> {
        self.closed.or(self.failed)
    }

    fn close(&mut self, why: DataCloseReason) {
        self.closed = Some(why);
    }

    fn peer_life(&self) {}

    fn peer_has_ended(&mut self) -> bool {
        self.is_shut || self.closed.is_some() && self.is_idle && self.is_drained
    }

    fn are_requests_fenced(&mut self) -> bool {
        self.is_idle
    }

    /// Its work is one piece.
    fn copy_piece(&mut self) -> bool {
        std::mem::take(&mut self.has_work)
    }

    fn uses_memory_of(&mut self, _op: SlotId) -> bool {
        !self.is_idle
    }

    fn bytes_moved(&self) -> (u64, u64) {
        self.moved
    }

    fn bytes_offloaded(&self) -> u64 {
        self.moved.0
    }

    fn checks_accesses(&self) -> bool {
        self.checks
    }

    fn trust(&self) -> &'static str {
        "scripted"
    }

    fn unfenced_reason(&self) -> &'static str {
        "the script may use it"
    }

    fn unfenced_window_reason(&self) -> Option<&'static str> {
        Some("the script may write it")
    }

    fn lanes(&self, each: &mut dyn FnMut(&str)) {
        ["one", "two"].into_iter().for_each(each);
    }

    fn degraded(&self, each: &mut dyn FnMut(fmt::Arguments<'_>)) {
        each(format_args!("scripted: {}", 3));
    }

    fn take_refusal(&mut self) -> Option<Error> {
        self.refusal.take()
    }

    fn describe_close(&self, _why: DataCloseReason, out: &mut dyn Write) -> fmt::Result {
        out.write_str("scripted")
    }
}

impl NeedsStream for Scripted {
    const MAX_NOTIFIES: usize = 4;

    fn peer_access(&self) -> PeerAccess {
        self.access
    }

    fn take_notify(&mut self) -> Option<WorkRequest> {
        self.notifies.pop_front()
    }

    fn is_idle(&self) -> bool {
        self.is_idle
    }

    fn has_windows(&self) -> bool {
        self.has_windows
    }

    fn is_shut(&self) -> bool {
        self.is_shut
    }

    fn has_drained(&mut self) -> bool {
        self.is_drained
    }
}
