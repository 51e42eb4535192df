//! A data plane that does what a test says.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt::{self, Write};

use hmc_core::region::{Epoch, LocalSlice, WindowDesc, WindowId, WindowSlice};
use hmc_core::slots::SlotId;
use hmc_core::transport::{
    CancelOutcome, DataCloseReason, DataPlane, Fence, Interest, NeedsStream, Note, Notes,
    PeerAccess, PeerWindows, PostErrorKind, Progress, Registration, Target, Transport,
};
use hmc_core::types::{Caps, ConnType};
use hmc_core::window::{WindowEntry, WindowTable};
use hmc_core::work::{Completion, Opcode, Transfer, WorkRequest};

use crate::base::error::Error;
use crate::memory::Region;
use crate::transport::regions::RegionCache;

#[derive(Debug)]
pub(super) struct Scripted {
    /// What the next note tells.
    pub(super) told: PeerAccess,
    access: PeerAccess,
    pub(super) posted: Vec<WorkRequest>,
    pub(super) done: VecDeque<Completion>,
    pub(super) notifies: VecDeque<WorkRequest>,
    pub(super) failed: Option<DataCloseReason>,
    pub(super) closed: Option<DataCloseReason>,
    pub(super) is_idle: bool,
    pub(super) is_drained: bool,
    pub(super) is_shut: bool,
    pub(super) has_windows: bool,
    pub(super) windows_seen: Vec<&'static str>,
    pub(super) known: RegionCache,
    pub(super) added: usize,
    /// Whether it copies in the call, and what it has moved.
    pub(super) copies: bool,
    pub(super) moved: (u64, u64),
    table: WindowTable<[WindowEntry; 0]>,
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
        CancelOutcome::Withdrawn
    }
}

impl Registration for Scripted {
    type Memory = Region;
    type Released = Vec<Box<dyn Send>>;

    fn add_memory(&mut self, memory: &Region) {
        self.known.add(memory);
        self.added = self.added.saturating_add(1);
    }

    fn release_memory(&mut self, _all: bool) {
        drop(self.known.sweep());
    }

    fn take_released(&mut self) -> Vec<Box<dyn Send>> {
        Vec::new()
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

    fn forget_window(&mut self, _id: WindowId, _epoch: Epoch) {
        self.windows_seen.push("forget");
    }
}

impl PeerWindows for Scripted {
    type Mapped = Infallible;

    fn remove_window(&mut self, _id: WindowId, _epoch: Epoch) -> bool {
        true
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

    fn poll_peer(&mut self, _claimed: bool) -> bool {
        false
    }

    fn interest(&mut self) -> Interest {
        Interest::default()
    }
}

impl Notes for Scripted {
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
        false
    }

    fn trust(&self) -> &'static str {
        "scripted"
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
