//! The interface between the world and one rank's process: its inputs and outputs.
//!
//! Plain values only, no I/O. One rule drives a node: one [`NodeInput`], then [`Node::poll`] until it
//! returns `None`, then nothing until the next input. An implementation of [`Node`] has no other channel to the world: no
//! clock, no entropy beyond [`NodeConfig::seed`], no state shared with other nodes.

use hmc_core::time::Instant;

/// Makes the processes of one world.
pub trait Cluster {
    /// The process of a rank.
    type Node: Node;
    /// Called when a rank starts, and again after a crash with a higher incarnation.
    fn boot(&mut self, boot: &NodeConfig) -> Self::Node;
    /// Returns `true` if the lower rank reconnects a lost link without a request, while its process runs.
    fn redials(&self) -> bool {
        false
    }
    /// Returns `true` if an orderly close of a link waits for the bytes that were sent before it.
    fn drains(&self) -> bool {
        false
    }
    /// Returns the bytes that a process outside of the cluster sends after it connected to rank `to`, if any.
    fn outsider_bytes(&self, _to: u32, _outsider: &Outsider) -> Option<OutsiderBytes> {
        None
    }
    /// Returns the bytes that this thread has allocated and not freed; always 0 without a counting allocator.
    fn live_bytes() -> i64 {
        0
    }
}

/// What a process outside of the cluster does to a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outsider {
    /// It connects from the host of the ranks and sends nothing.
    Silent,
    /// It claims a rank, from another host and without a proof.
    Claim {
        /// The rank.
        rank: u32,
        /// Of the process that it says it is.
        incarnation: u64,
    },
    /// It claims a free rank, sends many frames of one kind, and reads nothing.
    Flood {
        /// The rank.
        rank: u32,
        /// Picks the kind.
        kind: u8,
        /// How many frames.
        frames: u32,
    },
}

impl Outsider {
    /// Returns its index in [`OUTSIDERS`](super::stats::OUTSIDERS).
    #[must_use]
    pub(crate) const fn index(self) -> usize {
        match self {
            Self::Silent => 0,
            Self::Claim { .. } => 1,
            Self::Flood { .. } => 2,
        }
    }
}

/// What an [`Outsider`] sends.
#[derive(Clone, Debug)]
pub struct OutsiderBytes {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Memory in bytes that they may make a node allocate, besides one connection.
    pub held: u64,
}

/// In [`NodeInput::Accepted`]: the connection comes from no host of the cluster.
pub const ELSEWHERE: u32 = u32::MAX;

/// Parameters of the start of a process.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Its rank, below `ranks`.
    pub rank: u32,
    /// How many ranks the world has.
    pub ranks: u32,
    /// Counts the starts of this rank; the first one is 1.
    pub incarnation: u64,
    /// Seed of its random numbers.
    pub seed: u64,
    /// The time of the start.
    pub now: Instant,
    /// Bytes of [`MemoryArea::Buffer`], zeroed. Each connected peer may read and write all of it.
    pub buffer_len: u64,
    /// Time between heartbeats. A peer is dead after five missed ones.
    pub heartbeat_ns: u64,
    /// Each request completes within this time, and so does a handshake.
    pub deadline_ns: u64,
}

/// One rank without its sockets and threads.
pub trait Node {
    /// Takes one input. It never blocks.
    fn handle(&mut self, now: Instant, input: NodeInput<'_>);
    /// Returns its next output, in order.
    fn poll(&mut self) -> Option<NodeOutput>;
    /// Returns the time of its next [`NodeInput::Tick`]; [`Instant::NEVER`] for none.
    fn wake_at(&self) -> Instant;
    /// The application reads its own memory. Returns `true` only if all of `out` was filled, `false` if there is no such area or range.
    fn read(&self, area: MemoryArea, offset: u64, out: &mut [u8]) -> bool;
    /// The application writes its own memory. Returns `false` if there is no such area or range. A window can also be written while it is exposed, and after its revoke completed.
    fn write(&mut self, area: MemoryArea, offset: u64, bytes: &[u8]) -> bool;
    /// Checks its own invariants. Called after the last event of a run.
    ///
    /// # Errors
    /// The broken invariant, for the report.
    fn health(&self) -> Result<(), String> {
        Ok(())
    }
}

/// Memory of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MemoryArea {
    /// The session's buffer.
    Buffer,
    /// The region behind a label of this rank. Created zeroed by the first [`Request::Expose`] of the label
    /// and kept, with its bytes, through revokes and later exposures (until `Quarantined`).
    Window(u64),
}

/// A connection. Unique in the world; both ends know it by the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnId(pub u32);

/// An input of a node.
#[derive(Clone, Copy, Debug)]
pub enum NodeInput<'a> {
    /// The [`NodeOutput::Connect`] of that number succeeded.
    Opened {
        /// The node's own number.
        number: u32,
        /// The new connection.
        conn: ConnId,
    },
    /// The [`NodeOutput::Connect`] of that number failed: refused, or no reply.
    Failed {
        /// The node's own number.
        number: u32,
    },
    /// A connection was accepted. `from` is the host as the network sees it: a hint for traces, no proof.
    Accepted {
        /// The new connection.
        conn: ConnId,
        /// The rank whose host it came from, or [`ELSEWHERE`].
        from: u32,
    },
    /// The next chunk of a stream, cut anywhere.
    Bytes {
        /// The connection.
        conn: ConnId,
        /// At least one byte.
        bytes: &'a [u8],
    },
    /// Bytes sent earlier have left the send buffer.
    SendSpace {
        /// The connection.
        conn: ConnId,
        /// Their number, since the last report.
        bytes: u64,
    },
    /// The connection is closed, in both directions; the last input about it.
    Closed {
        /// The connection.
        conn: ConnId,
        /// False: the other end closed and all its bytes were delivered. True: anything else.
        reset: bool,
    },
    /// The time that [`Node::wake_at`] returned has come.
    Tick,
    /// A request of the application of this rank.
    Request {
        /// Unique in the world, also over incarnations.
        number: u64,
        /// The request.
        request: &'a Request,
    },
}

impl NodeInput<'_> {
    /// Returns a number that distinguishes an input from others of its time and rank, for the trace.
    pub(crate) fn code(&self) -> u64 {
        match *self {
            Self::Opened { conn, .. } => 1 ^ u64::from(conn.0) << 8,
            Self::Failed { number } => 2 ^ u64::from(number) << 8,
            Self::Accepted { conn, .. } => 3 ^ u64::from(conn.0) << 8,
            Self::Bytes { conn, .. } => 4 ^ u64::from(conn.0) << 8,
            Self::SendSpace { bytes, .. } => 5 ^ bytes << 8,
            Self::Closed { conn, reset } => 6 ^ u64::from(conn.0) << 8 ^ u64::from(reset) << 7,
            Self::Tick => 7,
            Self::Request { number, .. } => 8 ^ number << 8,
        }
    }
}

/// An output of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeOutput {
    /// Connect to a rank's host. The reply is [`NodeInput::Opened`] or [`NodeInput::Failed`].
    Connect {
        /// The node's own number, for the reply.
        number: u32,
        /// The rank to dial.
        to: u32,
    },
    /// Send these bytes. Accepted whole: the node keeps to its limit by counting [`NodeInput::SendSpace`].
    /// Ignored if the connection is closed.
    Send {
        /// The connection.
        conn: ConnId,
        /// What to send.
        bytes: Vec<u8>,
    },
    /// The node has consumed received bytes. The world buffers a limited number of bytes that were not consumed; beyond it the
    /// peer's bytes wait.
    Taken {
        /// The connection.
        conn: ConnId,
        /// Their number, since the last report.
        bytes: u64,
    },
    /// Close: what was sent before still goes out, then the other end sees the end. No further input
    /// about this connection comes.
    Close {
        /// The connection.
        conn: ConnId,
    },
    /// The result of an [`NodeInput::Request`]: exactly one for each.
    Result {
        /// The number of the request.
        number: u64,
        /// Its result.
        result: RequestResult,
    },
    /// A message reached the application. Only between `PeerUp` and `PeerDown` of its sender.
    Message {
        /// The sender.
        from: u32,
        /// Its content.
        message: NodeMessage,
    },
    /// A peer is connected: operations to it may start, its operations may complete.
    PeerUp {
        /// The peer.
        rank: u32,
        /// Its incarnation.
        incarnation: u64,
    },
    /// A connected peer is disconnected. From now on none of its operations writes this rank's memory.
    PeerDown {
        /// The peer.
        rank: u32,
    },
}

/// One part of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchPart {
    /// Offset in the requester's buffer.
    pub local: u64,
    /// Offset in the peer's buffer.
    pub remote: u64,
    /// Bytes.
    pub len: u64,
}

/// A request of an application. Offsets may be out of range.
///
/// Local ranges of concurrent requests do not overlap; they belong to the node until the result, and to the application after
/// it, whatever the result is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Connect. Done when the peer is up, at once if it was; joins a running dial.
    Connect {
        /// The peer.
        rank: u32,
    },
    /// Close the link in order. Done when it is down, at once if it was. No reconnect until the next request.
    Disconnect {
        /// The peer.
        peer: u32,
    },
    /// Close all links in order; later requests may fail with `Closed`.
    Leave,
    /// Copy from the buffer to the peer's buffer. Done when the bytes can be read there.
    Put {
        /// The peer.
        peer: u32,
        /// The ranges.
        piece: BatchPart,
    },
    /// Copy from the peer's buffer to this buffer. Done when the bytes can be read here.
    Get {
        /// The peer.
        peer: u32,
        /// The ranges.
        piece: BatchPart,
    },
    /// A put, then [`NodeMessage::Notify`] at the peer, after the bytes. Done as a put.
    PutNotify {
        /// The peer.
        peer: u32,
        /// The ranges.
        piece: BatchPart,
        /// The tag of the notification.
        tag: u64,
    },
    /// Several puts with one result; `bytes` is their sum.
    PutBatch {
        /// The peer.
        peer: u32,
        /// The ranges, in no order.
        list: Vec<BatchPart>,
    },
    /// [`NodeMessage::Tag`] to the peer. Done when it no longer needs this process: it arrives even if the process is killed now.
    Tag {
        /// The peer.
        peer: u32,
        /// The message.
        tag: u64,
    },
    /// [`NodeMessage::Int`] to the peer. Done as a tag.
    Int {
        /// The peer.
        peer: u32,
        /// The message.
        value: i32,
    },
    /// [`NodeMessage::Struct`] to the peer. Done as a tag.
    Struct {
        /// The peer.
        peer: u32,
        /// The message.
        bytes: Vec<u8>,
    },
    /// Expose the region behind `label` to a peer. A label has one length permanently and one exposure at a time (else
    /// `Duplicate`). Done when the advert was sent. The window closes with the link.
    Expose {
        /// The peer that may access it.
        peer: u32,
        /// The owner's name for it.
        label: u64,
        /// Its length.
        len: u64,
        /// The peer may read.
        read: bool,
        /// The peer may write.
        write: bool,
    },
    /// A put into a window of the peer: `piece.remote` counts from its start. Bound to the exposure that the requester has an advert of at this moment; `Unknown` if none.
    PutWindow {
        /// The owner.
        peer: u32,
        /// Its name for the window.
        label: u64,
        /// The ranges.
        piece: BatchPart,
    },
    /// A get from a window of the peer, bound as a put is.
    GetWindow {
        /// The owner.
        peer: u32,
        /// Its name for the window.
        label: u64,
        /// The ranges.
        piece: BatchPart,
    },
    /// Revoke an own window. Done: the peer never accesses it again. `Quarantined`: no fence before the time limit; the region
    /// is lost. Also done if the link is closed.
    Revoke {
        /// The window.
        label: u64,
        /// How long to wait for the fence.
        patience_ns: u64,
    },
    /// Cancel an own request. Done when the cancellation was received (also too late); the other request still gets its own one
    /// result.
    Cancel {
        /// The number of the other request.
        number: u64,
    },
    /// `send_data`: matches the peer's [`Request::Recv`], in order. Done when the peer has the bytes.
    Send {
        /// The peer.
        peer: u32,
        /// Offset in the requester's buffer.
        local: u64,
        /// Bytes.
        len: u64,
    },
    /// `recv_data`: a buffer for the peer's next [`Request::Send`]; `bytes` of the result is the length of the message.
    Recv {
        /// The peer.
        peer: u32,
        /// Offset in the requester's buffer.
        local: u64,
        /// Bytes of the buffer.
        len: u64,
    },
}

/// The result of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestResult {
    /// It completed.
    Done {
        /// Bytes moved; zero for requests that move none.
        bytes: u64,
    },
    /// It failed; its bytes may have moved.
    Failed(RequestError),
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RequestError {
    /// The link closed during it.
    PeerDead,
    /// Its deadline passed.
    Deadline,
    /// By [`Request::Cancel`].
    Cancelled,
    /// The window was revoked.
    Revoked,
    /// The window or the link is an older one.
    StaleEpoch,
    /// A range does not fit.
    OutOfRange,
    /// The window does not allow it.
    Access,
    /// The memory could not be fenced.
    Quarantined,
    /// There is no link to that peer.
    NotConnected,
    /// It exists already; another process has the rank.
    Duplicate,
    /// A table or queue is full.
    Full,
    /// This rank has left.
    Closed,
    /// No such window is known.
    Unknown,
    /// The node cannot do this.
    Unsupported,
    /// Anything else.
    Other(String),
}

/// A message that an application receives.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NodeMessage {
    /// By [`Request::Tag`].
    Tag(u64),
    /// By [`Request::Int`].
    Int(i32),
    /// By [`Request::Struct`].
    Struct(Vec<u8>),
    /// By [`Request::PutNotify`].
    Notify(u64),
}
