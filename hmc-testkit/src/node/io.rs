//! All inputs and outputs of a sans-IO session: plain values.

use std::time::Duration;

use hmc_core::time::Instant;
use hmc_std::Message;
use hmc_std::error::Result;

use super::node_request::NodeRequest;

/// What a node is started with.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Its rank.
    pub rank: u32,
    /// Counts the starts of this rank, from 1.
    pub start: u64,
    /// Its source of chance.
    pub seed: u64,
    /// The time of the start.
    pub now: Instant,
    /// Bytes of the buffer.
    pub buffer_len: u64,
    /// Time between heartbeats.
    pub heartbeat: Duration,
    /// The deadline of operations and handshakes.
    pub deadline: Duration,
}

/// In [`Input::Accepted`]: the connection comes from another host.
pub const ELSEWHERE: u32 = u32::MAX;

/// What happened.
#[derive(Clone, Debug)]
pub enum Input<'a> {
    /// A connection that was asked for is up.
    Opened {
        /// The node's number.
        number: u32,
        /// The connection.
        conn: u32,
    },
    /// It is not, and will not be.
    Failed {
        /// The node's number.
        number: u32,
    },
    /// Somebody connected.
    Accepted {
        /// The connection.
        conn: u32,
        /// The rank whose host it came from, or [`ELSEWHERE`].
        from: u32,
    },
    /// Bytes arrived.
    Bytes {
        /// The connection.
        conn: u32,
        /// They.
        bytes: &'a [u8],
    },
    /// Bytes sent earlier have left.
    Space {
        /// The connection.
        conn: u32,
        /// How many.
        bytes: u64,
    },
    /// A connection is over.
    Closed {
        /// The connection.
        conn: u32,
        /// Whether it broke.
        reset: bool,
    },
    /// Time passed.
    Tick,
    /// A request of the application.
    Request {
        /// The number of the result.
        number: u64,
        /// What.
        request: NodeRequest,
    },
}

/// What a node wants done or known.
#[derive(Debug)]
pub enum Output {
    /// Connect to a rank's listener.
    Connect {
        /// The node's number.
        number: u32,
        /// The rank.
        to: u32,
    },
    /// Send bytes.
    Send {
        /// The connection.
        conn: u32,
        /// They.
        bytes: Vec<u8>,
    },
    /// Bytes were received.
    Taken {
        /// The connection.
        conn: u32,
        /// How many.
        bytes: u64,
    },
    /// The node is done with a connection.
    Close {
        /// The connection.
        conn: u32,
    },
    /// The end of a request: bytes moved, or why not.
    Result {
        /// Its name.
        number: u64,
        /// How it ended.
        result: Result<u64>,
    },
    /// A message for the application.
    Message {
        /// The sender.
        from: u32,
        /// What it says.
        message: Message<'static>,
    },
    /// A peer is connected.
    PeerUp {
        /// The peer.
        rank: u32,
        /// Which of its starts.
        start: u64,
    },
    /// A peer is gone.
    PeerDown {
        /// The peer.
        rank: u32,
    },
}
