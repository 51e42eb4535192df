//! A small correct node for the world: one stream for each peer, the target does every copy; one [`Bug`] at a time can be planted.

pub mod links;
pub mod ops;
mod wire;

use std::collections::{BTreeMap, VecDeque};

use hmc_core::time::Instant;
use hmc_sim::world::node::{
    Cluster, ConnId, MemoryArea, Node, NodeConfig, NodeInput, NodeOutput, RequestError,
    RequestResult,
};

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    None,
    /// The target acknowledges a put and copies at its next wake-up.
    AckBeforeBytes,
    /// Operations of a link that ended are forgotten.
    LostOnReset,
    /// Operations of a closed link complete as done.
    DoneOnReset,
    /// The target does not look whether a window was revoked.
    LateAfterRevoke,
    /// An acknowledgement after the deadline or a cancel completes the request again.
    TwoAnswers,
    /// No deadlines, and silence kills nobody.
    HangOnPartition,
    /// Pieces after the first land one byte off.
    WrongOffset,
    /// The notification goes with the first piece.
    NotifyOvertakes,
    /// The target does not look at the range of a put.
    OutOfRange,
    /// The target does not look at a window's rights.
    NoRights,
    /// A second greeting evicts the first link.
    EvictOnDuplicate,
    /// Silence kills nobody.
    NoHeartbeat,
    /// A get completes before its data came.
    GetEarly,
    /// A late reply to a get is copied although the request has completed.
    LateGet,
    /// Tags of one burst go out backwards.
    TagsBackwards,
    /// Some tags are dropped.
    TagLost,
    /// A peer that was lost once is never called again.
    NoRedial,
    /// The close of a link is not reported to the application.
    SilentDown,
    /// It wakes up all the time.
    Spin,
    /// Of two waiting messages the later is delivered first.
    SendsReversed,
    /// A peer is dead after half a heartbeat of silence.
    Impatient,
}

/// Makes toys.
#[derive(Clone, Copy)]
pub struct Toys(pub Bug);

impl Cluster for Toys {
    type Node = Toy;

    fn boot(&mut self, boot: &NodeConfig) -> Toy {
        let len = usize::try_from(boot.buffer_len).expect("small");
        Toy {
            bug: self.0,
            boot: boot.clone(),
            now: boot.now.as_nanos(),
            out: VecDeque::new(),
            buffer: vec![0; len],
            windows: BTreeMap::new(),
            peers: (0..boot.ranks).map(|_| links::Peer::default()).collect(),
            conns: BTreeMap::new(),
            dials: 0,
            pending: BTreeMap::new(),
            deadlines: VecDeque::new(),
            beat: boot.now.as_nanos() + boot.heartbeat_ns,
            left: false,
            delayed: Vec::new(),
            epochs: 0,
            tags: 0,
        }
    }
}

/// One rank.
pub struct Toy {
    pub bug: Bug,
    pub boot: NodeConfig,
    pub now: u64,
    pub out: VecDeque<NodeOutput>,
    pub buffer: Vec<u8>,
    pub windows: BTreeMap<u64, ops::Window>,
    pub peers: Vec<links::Peer>,
    pub conns: BTreeMap<u32, links::Conn>,
    pub dials: u32,
    pub pending: BTreeMap<u64, ops::Pending>,
    pub deadlines: VecDeque<(u64, u64)>,
    pub beat: u64,
    pub left: bool,
    pub delayed: Vec<(u32, Vec<u8>)>,
    pub epochs: u64,
    pub tags: u64,
}

impl Toy {
    pub fn completed(&mut self, number: u64, result: RequestResult) {
        self.out.push_back(NodeOutput::Result { number, result });
    }

    pub fn done(&mut self, number: u64, bytes: u64) {
        self.completed(number, RequestResult::Done { bytes });
    }

    pub fn fail(&mut self, number: u64, error: RequestError) {
        self.completed(number, RequestResult::Failed(error));
    }

    pub fn send(&mut self, conn: u32, bytes: Vec<u8>) {
        self.out.push_back(NodeOutput::Send { conn: ConnId(conn), bytes });
    }

    pub fn area(&mut self, area: MemoryArea) -> Option<&mut Vec<u8>> {
        match area {
            MemoryArea::Buffer => Some(&mut self.buffer),
            MemoryArea::Window(label) => {
                self.windows.get_mut(&label).map(|window| &mut window.bytes)
            }
        }
    }
}

impl Node for Toy {
    fn handle(&mut self, now: Instant, input: NodeInput<'_>) {
        self.now = now.as_nanos();
        match input {
            NodeInput::Opened { number, conn } => self.opened(number, conn.0),
            NodeInput::Failed { number } => self.refused(number),
            NodeInput::Accepted { conn, .. } => self.accepted(conn.0),
            NodeInput::Bytes { conn, bytes } => self.bytes(conn.0, bytes),
            NodeInput::SendSpace { .. } => {}
            NodeInput::Closed { conn, .. } => self.closed(conn.0),
            NodeInput::Tick => self.tick(),
            NodeInput::Request { number, request } => self.request(number, request),
        }
    }

    fn poll(&mut self) -> Option<NodeOutput> {
        self.out.pop_front()
    }

    fn wake_at(&self) -> Instant {
        let mut at = self.beat;
        if let Some((deadline, _)) = self.deadlines.front() {
            at = at.min(*deadline);
        }
        for peer in &self.peers {
            at = at.min(peer.redial);
        }
        if self.bug == Bug::Spin || !self.delayed.is_empty() {
            at = at.min(self.now + u64::from(self.bug != Bug::Spin) * 50_000);
        }
        Instant::from_nanos(at)
    }

    fn read(&self, area: MemoryArea, offset: u64, out: &mut [u8]) -> bool {
        let offset = usize::try_from(offset).expect("small");
        let bytes = match area {
            MemoryArea::Buffer => Some(&self.buffer),
            MemoryArea::Window(label) => self.windows.get(&label).map(|window| &window.bytes),
        };
        bytes.and_then(|bytes| bytes.get(offset..offset + out.len())).is_some_and(|bytes| {
            out.copy_from_slice(bytes);
            true
        })
    }

    fn write(&mut self, area: MemoryArea, offset: u64, bytes: &[u8]) -> bool {
        let offset = usize::try_from(offset).expect("small");
        let to = self.area(area).and_then(|area| area.get_mut(offset..offset + bytes.len()));
        to.is_some_and(|to| {
            to.copy_from_slice(bytes);
            true
        })
    }
}
