//! The border between the world and one rank's process: what it is told, what it says.
//!
//! Plain values only, no I/O. A node is driven by one rule: one [`Input`], then [`Node::poll`] until
//! it says `None`, then nothing until the next input. Whoever implements [`Node`] keeps no other
//! channel to the world: no clock, no entropy beyond [`Boot::seed`], no state shared with other nodes.

use hmc_core::time::Instant;

/// Makes the processes of one world.
pub trait Cluster {
    /// The process of a rank.
    type Node: Node;
    /// Called when a rank starts, and again after a crash with a higher incarnation.
    fn boot(&mut self, boot: &Boot) -> Self::Node;
    /// Whether a link that was lost comes back without being asked for: the lower rank dials again, while its
    /// process lives.
    fn redials(&self) -> bool {
        false
    }
    /// Whether the end of a link in order waits for the bytes that were on their way before it.
    fn drains(&self) -> bool {
        false
    }
    /// What a process outside of the cluster sends when it has connected to rank `to`; `None`: nothing.
    fn outsider_bytes(&self, _to: u32, _outsider: &Outsider) -> Option<OutsiderBytes> {
        None
    }
    /// Bytes that this thread has allocated and not freed; always 0 if nobody counts them.
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
    /// It claims a rank that nobody else has, sends many frames of one kind, and reads nothing.
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
    /// Its place in [`OUTSIDERS`](super::stats::OUTSIDERS).
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
    /// What they may make a node hold, in bytes, beside one connection.
    pub held: u64,
}

/// In [`Input::Accepted`]: the connection comes from no host of the cluster.
pub const ELSEWHERE: u32 = u32::MAX;

/// What a process is started with.
#[derive(Clone, Debug)]
pub struct Boot {
    /// Its rank, below `ranks`.
    pub rank: u32,
    /// How many ranks the world has.
    pub ranks: u32,
    /// Counts the starts of this rank; the first one is 1.
    pub incarnation: u64,
    /// Its own source of chance.
    pub seed: u64,
    /// The time of the start.
    pub now: Instant,
    /// Bytes of [`Area::Buffer`], zeroed. Each connected peer may read and write all of it.
    pub buffer_len: u64,
    /// Time between heartbeats. A peer is dead after five of them in silence.
    pub heartbeat_ns: u64,
    /// Each ask is answered within this time, and a handshake ends within it.
    pub deadline_ns: u64,
}

/// One rank without its sockets and threads.
pub trait Node {
    /// Takes one input. It never blocks.
    fn handle(&mut self, now: Instant, input: Input<'_>);
    /// The next thing it wants done or known, in order.
    fn poll(&mut self) -> Option<Output>;
    /// When it wants [`Input::Tick`] next; [`Instant::NEVER`] if not.
    fn wake_at(&self) -> Instant;
    /// The application reads its own memory; true only when all of `out` was filled, false when there is
    /// no such area or range.
    fn read(&self, area: Area, offset: u64, out: &mut [u8]) -> bool;
    /// The application writes its own memory; false when there is no such area or range. For a
    /// window: also while it is exposed, and after its revoke was answered `Done`.
    fn write(&mut self, area: Area, offset: u64, bytes: &[u8]) -> bool;
    /// Invariants of its own. Asked after the last event of a run.
    ///
    /// # Errors
    /// What is broken, for the report.
    fn health(&self) -> Result<(), String> {
        Ok(())
    }
}

/// Memory of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Area {
    /// The session's buffer.
    Buffer,
    /// The region behind a label of this rank. Made zeroed by the first [`Ask::Expose`] of the label
    /// and kept, with its bytes, through revokes and later exposures (until `Quarantined`).
    Window(u64),
}

/// A connection. Unique in the world; both ends know it by the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnId(pub u32);

/// What a node is told.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// The [`Output::Connect`] of that ticket succeeded.
    Opened {
        /// The node's own ticket.
        ticket: u32,
        /// The new connection.
        conn: ConnId,
    },
    /// The [`Output::Connect`] of that ticket came to nothing: refused, or no reply.
    Failed {
        /// The node's own ticket.
        ticket: u32,
    },
    /// Somebody connected. `from` is the host as the network sees it: a hint for traces, no proof.
    Accepted {
        /// The new connection.
        conn: ConnId,
        /// The rank whose host it came from, or [`ELSEWHERE`].
        from: u32,
    },
    /// The next piece of a stream, cut anywhere.
    Bytes {
        /// The connection.
        conn: ConnId,
        /// At least one byte.
        bytes: &'a [u8],
    },
    /// So many bytes sent earlier have left the send buffer.
    SendSpace {
        /// The connection.
        conn: ConnId,
        /// How many, not counted before.
        bytes: u64,
    },
    /// The connection is over, for both directions; the last input about it.
    Closed {
        /// The connection.
        conn: ConnId,
        /// False: the other end closed and all its bytes were delivered. True: anything else.
        reset: bool,
    },
    /// The time asked for by [`Node::wake_at`] has come.
    Tick,
    /// The application of this rank asks for something.
    Ask {
        /// Unique in the world, also over incarnations.
        ticket: u64,
        /// What it asks.
        ask: &'a Ask,
    },
}

impl Input<'_> {
    /// Returns a number that tells an input from others of its time and rank, for the trace.
    pub(crate) fn code(&self) -> u64 {
        match *self {
            Self::Opened { conn, .. } => 1 ^ u64::from(conn.0) << 8,
            Self::Failed { ticket } => 2 ^ u64::from(ticket) << 8,
            Self::Accepted { conn, .. } => 3 ^ u64::from(conn.0) << 8,
            Self::Bytes { conn, .. } => 4 ^ u64::from(conn.0) << 8,
            Self::SendSpace { bytes, .. } => 5 ^ bytes << 8,
            Self::Closed { conn, reset } => 6 ^ u64::from(conn.0) << 8 ^ u64::from(reset) << 7,
            Self::Tick => 7,
            Self::Ask { ticket, .. } => 8 ^ ticket << 8,
        }
    }
}

/// What a node says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Connect to a rank's host. Answered by [`Input::Opened`] or [`Input::Failed`].
    Connect {
        /// The node's own ticket, for the answer.
        ticket: u32,
        /// The rank to call.
        to: u32,
    },
    /// Send these bytes. Accepted whole: the node keeps to its limit by counting [`Input::SendSpace`].
    /// Ignored when the connection is over.
    Send {
        /// The connection.
        conn: ConnId,
        /// What to send.
        bytes: Vec<u8>,
    },
    /// The node is done with so many received bytes. The world keeps a limited number of bytes that
    /// were not taken; then the peer's bytes wait.
    Taken {
        /// The connection.
        conn: ConnId,
        /// How many, not counted before.
        bytes: u64,
    },
    /// Close: what was sent before still goes out, then the other end sees the end. No further input
    /// about this connection comes.
    Close {
        /// The connection.
        conn: ConnId,
    },
    /// The answer to an [`Input::Ask`]: exactly one for each.
    Answer {
        /// The ticket of the ask.
        ticket: u64,
        /// How it ended.
        answer: Answer,
    },
    /// A message reached the application. Only between `PeerUp` and `PeerDown` of its sender.
    Message {
        /// Who sent it.
        from: u32,
        /// What it says.
        message: Message,
    },
    /// A peer is connected: operations to it may start, its operations may land.
    PeerUp {
        /// The peer.
        rank: u32,
        /// Its incarnation.
        incarnation: u64,
    },
    /// A connected peer is gone. From here on nothing that it started lands in this rank's memory.
    PeerDown {
        /// The peer.
        rank: u32,
    },
}

/// One piece of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Offset in the asker's buffer.
    pub local: u64,
    /// Offset in the peer's buffer.
    pub remote: u64,
    /// Bytes.
    pub len: u64,
}

/// What an application asks. Offsets are claims: they may be out of range.
///
/// Local ranges of asks that run at the same time do not overlap; they belong to the node until the
/// answer, and to the application after it, whatever the answer is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Be connected. Done when the peer is up, at once if it was; joins a dial that is under way.
    Connect {
        /// The peer.
        rank: u32,
    },
    /// End the link in order. Done when it is down, at once if it was. No redial until asked again.
    Disconnect {
        /// The peer.
        peer: u32,
    },
    /// End all links in order; later asks may answer `Closed`.
    Leave,
    /// Buffer to the peer's buffer. Done when the bytes can be read there.
    Put {
        /// The peer.
        peer: u32,
        /// What moves.
        piece: Piece,
    },
    /// The peer's buffer to this buffer. Done when the bytes can be read here.
    Get {
        /// The peer.
        peer: u32,
        /// What moves.
        piece: Piece,
    },
    /// A put, then [`Message::Notify`] at the peer, after the bytes. Done as a put.
    PutNotify {
        /// The peer.
        peer: u32,
        /// What moves.
        piece: Piece,
        /// What the peer is told.
        tag: u64,
    },
    /// Several puts with one answer; `bytes` is their sum.
    PutBatch {
        /// The peer.
        peer: u32,
        /// What moves, in no order.
        list: Vec<Piece>,
    },
    /// [`Message::Tag`] to the peer. Done when it needs this process no more: it arrives even if that is killed now.
    Tag {
        /// The peer.
        peer: u32,
        /// The message.
        tag: u64,
    },
    /// [`Message::Int`] to the peer. Done as a tag.
    Int {
        /// The peer.
        peer: u32,
        /// The message.
        value: i32,
    },
    /// [`Message::Struct`] to the peer. Done as a tag.
    Struct {
        /// The peer.
        peer: u32,
        /// The message.
        bytes: Vec<u8>,
    },
    /// Let a peer at the region behind `label`. A label has one length for ever and one exposure at a
    /// time (else `Duplicate`). Done when the advert is on its way. The window ends with the link.
    Expose {
        /// Who may use it.
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
    /// A put into a window of the peer: `piece.remote` counts from its start. Bound to the exposure that
    /// the asker knows at this moment; `Unknown` when it knows none.
    PutWindow {
        /// The owner.
        peer: u32,
        /// Its name for the window.
        label: u64,
        /// What moves.
        piece: Piece,
    },
    /// A get from a window of the peer, bound as a put is.
    GetWindow {
        /// The owner.
        peer: u32,
        /// Its name for the window.
        label: u64,
        /// What moves.
        piece: Piece,
    },
    /// Take an own window back. Done: no access by the peer from here on, ever. `Quarantined`: that
    /// could not be had within the patience; the region is lost. Done too when the link is gone.
    Revoke {
        /// The window.
        label: u64,
        /// How long to wait for the fence.
        patience_ns: u64,
    },
    /// Give up an own ask. Done when the request was taken note of (also too late); the other ask still
    /// gets its own one answer.
    Cancel {
        /// The ticket of the other ask.
        ticket: u64,
    },
    /// `send_data`: meets the peer's [`Ask::Recv`], first to first. Done when the peer has the bytes.
    Send {
        /// The peer.
        peer: u32,
        /// Offset in the asker's buffer.
        local: u64,
        /// Bytes.
        len: u64,
    },
    /// `recv_data`: a buffer for the peer's next [`Ask::Send`]; `bytes` of the answer is what came.
    Recv {
        /// The peer.
        peer: u32,
        /// Offset in the asker's buffer.
        local: u64,
        /// Bytes of the buffer.
        len: u64,
    },
}

/// How an ask ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is true.
    Done {
        /// Bytes moved; zero for asks that move none.
        bytes: u64,
    },
    /// It did not happen, or nobody can tell.
    Failed(Fault),
}

/// Why an ask failed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    /// The link ended under it.
    PeerDead,
    /// Its time was up.
    Deadline,
    /// By [`Ask::Cancel`].
    Cancelled,
    /// The window was taken back.
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
    /// It exists already; another one holds the rank.
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

/// What reaches an application.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Message {
    /// By [`Ask::Tag`].
    Tag(u64),
    /// By [`Ask::Int`].
    Int(i32),
    /// By [`Ask::Struct`].
    Struct(Vec<u8>),
    /// By [`Ask::PutNotify`].
    Notify(u64),
}
