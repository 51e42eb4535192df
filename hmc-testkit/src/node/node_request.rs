//! The requests of a node's application.

use std::time::Duration;

use crate::buffers::{Copy, Direction};
use hmc_core::types::Access;

/// A request of a node's application.
#[derive(Clone, Debug)]
pub enum NodeRequest {
    /// Be connected.
    Connect {
        /// The peer.
        rank: u32,
    },
    /// End a link in order.
    Disconnect {
        /// The peer.
        rank: u32,
    },
    /// End all links in order, and make no more.
    Leave,
    /// Put or get between the buffers.
    Transfer {
        /// The peer.
        rank: u32,
        /// Which way.
        direction: Direction,
        /// What moves.
        copy: Copy,
    },
    /// Put, then notify.
    PutNotify {
        /// The peer.
        rank: u32,
        /// What moves.
        copy: Copy,
        /// What the peer is told.
        tag: u64,
    },
    /// Several puts as one.
    PutBatch {
        /// The peer.
        rank: u32,
        /// What moves.
        list: Vec<Copy>,
    },
    /// Put or get between the buffer and a window of the peer.
    Window {
        /// The peer.
        rank: u32,
        /// The owner's name of it.
        label: u64,
        /// Which way.
        direction: Direction,
        /// What moves.
        copy: Copy,
    },
    /// Send a tag.
    Tag {
        /// The peer.
        rank: u32,
        /// The tag.
        tag: u64,
    },
    /// Send a number.
    Int {
        /// The peer.
        rank: u32,
        /// The number.
        value: i32,
    },
    /// Send opaque bytes.
    Struct {
        /// The peer.
        rank: u32,
        /// They.
        bytes: Vec<u8>,
    },
    /// Expose the memory behind a label, made at the first time.
    Expose {
        /// The peer.
        rank: u32,
        /// The name.
        label: u64,
        /// Bytes.
        len: u64,
        /// What the peer may do.
        access: Access,
    },
    /// Take a window back.
    Revoke {
        /// The name.
        label: u64,
        /// How long to wait for the fence.
        patience: Duration,
    },
    /// `send_data` from the buffer.
    Send {
        /// The peer.
        rank: u32,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// `recv_data` into the buffer.
    Recv {
        /// The peer.
        rank: u32,
        /// First byte.
        offset: u64,
        /// Bytes that there is space for.
        space: u64,
    },
    /// Cancel another request.
    Cancel {
        /// Its number.
        number: u64,
    },
}
