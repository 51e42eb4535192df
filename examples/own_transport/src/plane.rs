//! The data plane of a link.

use std::sync::Arc;

use hmc_core::region::{Epoch, WindowId};
use hmc_core::slots::SlotId;
use hmc_core::transport::{
    CancelOutcome, DataCloseReason, DataPlane, Interest, PeerWindows, PostErrorKind, Progress,
    Readiness, Transport,
};
use hmc_core::types::{Caps, ConnType};
use hmc_core::window::{WindowEntry, WindowTable};
use hmc_core::work::{Completion, WorkRequest};
use hmc_std::transport::{
    DataPlaneParams, MappedWindow, PeerLife, RegionCache, Released, SideStream, TagInbox, Worker,
};

use crate::frames::{Came, Frame, Input, Output};
use crate::name::MEMFILE;
use crate::requests::{MAX_REQUESTS, Requests};

/// All that the transport is to one link.
#[derive(Debug)]
pub(crate) struct MemfilePlane {
    stream: SideStream,
    tags: TagInbox,
    pub(crate) life: PeerLife,
    pub(crate) regions: RegionCache,
    pub(crate) released: Released,
    pub(crate) windows: WindowTable<Box<[WindowEntry]>>,
    /// Revoked windows that the peer does not use any more.
    pub(crate) acknowledged: Vec<(WindowId, Epoch)>,
    pub(crate) requests: Requests,
    input: Input,
    output: Output,
    /// A tag waits for space in the inbox.
    is_paused: bool,
    delivered: bool,
    down: Option<DataCloseReason>,
}

impl MemfilePlane {
    pub(crate) fn new(params: &DataPlaneParams<'_>) -> Self {
        let windows = params.windows();
        Self {
            stream: params.side_stream(),
            tags: params.tags(),
            life: params.peer_life(),
            regions: RegionCache::default(),
            released: Released::default(),
            acknowledged: Vec::with_capacity(windows.len()),
            windows: WindowTable::new(windows),
            requests: Requests::new(),
            input: Input::new(),
            // Tags of ours, and answers to those of the peer.
            output: Output::new(MAX_REQUESTS * 2),
            is_paused: false,
            delivered: false,
            down: None,
        }
    }

    fn send(&mut self) {
        if self.down.is_some() {
            return;
        }
        if let Err(e) = self.output.send(&self.stream) {
            self.fail(&e);
        }
    }

    fn fail(&mut self, e: &std::io::Error) {
        use std::io::ErrorKind::{BrokenPipe, ConnectionReset};
        let is_end = matches!(e.kind(), BrokenPipe | ConnectionReset);
        let number = e.raw_os_error().unwrap_or(0);
        self.close(if is_end { DataCloseReason::Eof } else { DataCloseReason::System(number) });
    }

    /// Executes what was received. Whether there was anything.
    fn execute(&mut self) -> bool {
        let mut is_busy = false;
        while self.down.is_none() && self.output.has_space() {
            match self.input.next() {
                None => break,
                Some(Some(Frame::Tag(tag))) => {
                    self.is_paused = !self.tags.has_space();
                    if self.is_paused {
                        break;
                    }
                    self.tags.push(tag);
                    self.delivered = true;
                    self.output.push(Frame::Delivered);
                }
                Some(Some(Frame::Delivered)) if self.requests.acknowledge() => {}
                Some(Some(Frame::Delivered)) => {
                    self.close(DataCloseReason::Protocol("an answer to a tag that was not sent"));
                }
                Some(None) => self.close(DataCloseReason::Protocol("a frame of no known kind")),
            }
            self.input.take();
            is_busy = true;
        }
        is_busy
    }
}

impl Transport for MemfilePlane {
    type Error = PostErrorKind;

    fn caps(&self) -> Caps {
        Caps::PUT | Caps::GET | Caps::NOTIFY | Caps::CANCEL
    }

    fn post(&mut self, work: &WorkRequest) -> Result<(), PostErrorKind> {
        if self.down.is_some() {
            return Err(PostErrorKind::Disconnected);
        }
        if self.regions.resolve(work.local).is_none() {
            return Err(PostErrorKind::UnknownRegion);
        }
        self.requests.push(work)
    }

    fn poll(&mut self, out: &mut [Completion]) -> usize {
        if self.down.is_none() {
            self.requests.copy(&self.regions, &mut self.output);
            self.send();
        }
        self.requests.report(out)
    }

    fn cancel(&mut self, op: SlotId) -> CancelOutcome {
        self.requests.cancel(op)
    }
}

impl PeerWindows for MemfilePlane {
    type Mapped = Arc<MappedWindow>;

    fn remove_window(&mut self, id: WindowId, epoch: Epoch) -> bool {
        self.requests.remove_window(id, epoch, &mut self.released);
        true
    }
}

impl Progress for MemfilePlane {
    type Worker = Worker;

    fn poll_peer(&mut self, _claimed: bool) -> bool {
        let mut is_busy = self.execute();
        // Nothing is received before what came was executed: the end of the stream comes after it.
        if self.down.is_none() && self.input.next().is_none() {
            match self.input.receive(&self.stream) {
                Ok(Came::Nothing) => {}
                Ok(Came::Bytes) => is_busy = true,
                Ok(Came::End) => self.close(DataCloseReason::Eof),
                Err(e) => self.fail(&e),
            }
            is_busy |= self.execute();
        }
        self.send();
        is_busy
    }

    fn flush(&mut self) {
        self.send();
    }

    fn interest(&mut self) -> Interest {
        if self.down.is_some() {
            return Interest::default();
        }
        let goes_on = self.is_paused && self.tags.has_space();
        let stopped = self.is_paused && !goes_on;
        let is_whole = self.input.next().is_some() && self.output.has_space() && !stopped;
        Interest {
            connection: Readiness {
                read: !stopped && self.output.has_space(),
                write: !self.output.is_empty(),
                end: stopped,
            },
            work: self.requests.is_waiting() && self.output.has_space() || goes_on || is_whole,
        }
    }

    fn is_paused(&self) -> bool {
        self.is_paused
    }

    fn take_delivered(&mut self) -> bool {
        std::mem::take(&mut self.delivered)
    }
}

impl DataPlane for MemfilePlane {
    type PeerLife = PeerLife;

    fn kind(&self) -> Option<ConnType> {
        Some(MEMFILE)
    }

    fn close_reason(&self) -> Option<DataCloseReason> {
        self.down
    }

    /// All copies were made under this lock, so nothing of this end is in the peer's memory from now on: the end of this direction
    /// of the connection says so.
    fn close(&mut self, why: DataCloseReason) {
        if self.down.is_some() {
            return;
        }
        self.down = Some(why);
        self.requests.end(&mut self.released);
        self.output.clear();
        self.stream.end_sending();
    }

    fn peer_life(&self) -> PeerLife {
        self.life.clone()
    }

    fn peer_has_ended(&mut self) -> bool {
        self.life.has_ended()
    }

    fn are_requests_fenced(&mut self) -> bool {
        true
    }

    fn uses_memory_of(&mut self, op: SlotId) -> bool {
        self.requests.uses_memory_of(op)
    }

    /// What the peer wrote and read is not known here.
    fn is_fenced(&mut self) -> bool {
        self.windows.in_use().next().is_none() || self.life.has_ended()
    }

    fn bytes_moved(&self) -> (u64, u64) {
        (self.requests.bytes(), 0)
    }

    fn checks_accesses(&self) -> bool {
        false
    }

    fn trust(&self) -> &'static str {
        "the kernel keeps the peer inside the files of exposed memory; ranges and revocation are checked by this transport in the peer's process (same user)"
    }

    fn unfenced_window_reason(&self) -> Option<&'static str> {
        Some("the peer may be copying into or out of the file of this memory")
    }

    fn lanes(&self, each: &mut dyn FnMut(&str)) {
        each("pwrite(2) and pread(2) on the peer's memfds");
    }
}
