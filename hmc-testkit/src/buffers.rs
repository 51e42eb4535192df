//! Transfers between two buffers by their offsets, which is what most tests need.

use std::time::Duration;

use hmc_std::internals::own_buffer;
use hmc_std::request::{Gets, Puts};
use hmc_std::{ConnBuffer, Done, Op, Peer, Piece, Plan, Remote, Result, Waited};

/// Which way the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From our buffer to the peer's.
    Put,
    /// From the peer's buffer to ours.
    Get,
}

/// One copy between our buffer and the peer's. All in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Copy {
    /// First byte in our buffer.
    pub local_offset: u64,
    /// First byte in the peer's buffer.
    pub remote_offset: u64,
    /// Bytes.
    pub len: u64,
}

/// A prepared list of copies.
#[derive(Clone, Debug)]
pub enum List {
    /// To the peer.
    Put(Plan<Puts>),
    /// From the peer.
    Get(Plan<Gets>),
}

/// A buffer of ours and a window of the peer's.
#[derive(Clone, Debug)]
pub struct Ends {
    /// Ours.
    pub local: ConnBuffer,
    /// The peer's.
    pub remote: Remote,
}

/// Operations between a buffer of ours and a window of the peer's: of a [`Peer`], the two sessions' buffers. Offsets and lengths
/// are in bytes.
pub trait BufferTransfers {
    /// The two.
    ///
    /// # Errors
    /// As [`Peer::buffer`].
    fn ends(&self) -> Result<Ends>;

    /// Puts `len` bytes from `local` of our buffer to `remote` of the peer's.
    ///
    /// # Errors
    /// As [`Remote::put`].
    fn put_at(&self, local: u64, remote: u64, len: u64) -> Result<()> {
        let ends = self.ends()?;
        ends.remote.put(remote, ends.local.range(local, len)?).wait().map(drop)
    }

    /// Gets `len` bytes from `remote` of the peer's buffer to `local` of ours.
    ///
    /// # Errors
    /// As [`Remote::get`].
    fn get_at(&self, local: u64, remote: u64, len: u64) -> Result<()> {
        let ends = self.ends()?;
        ends.remote.get(remote, ends.local.range(local, len)?).wait().map(drop)
    }

    /// A put or get, with a time of its own.
    ///
    /// # Errors
    /// As [`Remote::put`].
    fn transfer_within(&self, way: Direction, c: Copy, within: Duration) -> Result<()> {
        let ends = self.ends()?;
        let range = ends.local.range(c.local_offset, c.len)?;
        match way {
            Direction::Put => ends.remote.put(c.remote_offset, range).within(within).wait(),
            Direction::Get => ends.remote.get(c.remote_offset, range).within(within).wait(),
        }
        .map(drop)
    }

    /// As [`Self::put_at`], with a tag after the bytes.
    ///
    /// # Errors
    /// As there.
    fn put_notify_at(&self, local: u64, remote: u64, len: u64, tag: u64) -> Result<()> {
        let ends = self.ends()?;
        ends.remote.put(remote, ends.local.range(local, len)?).notify(tag).wait().map(drop)
    }

    /// Begins a put; waits for a slot.
    ///
    /// # Errors
    /// As [`hmc_std::Request::start_blocking`].
    fn start_put_at(&self, local: u64, remote: u64, len: u64) -> Result<Op> {
        let ends = self.ends()?;
        ends.remote.put(remote, ends.local.range(local, len)?).start_blocking()
    }

    /// Begins a get; waits for a slot.
    ///
    /// # Errors
    /// As [`hmc_std::Request::start_blocking`].
    fn start_get_at(&self, local: u64, remote: u64, len: u64) -> Result<Op> {
        let ends = self.ends()?;
        ends.remote.get(remote, ends.local.range(local, len)?).start_blocking()
    }

    /// As [`Self::start_put_at`], with a tag after the bytes.
    ///
    /// # Errors
    /// As there.
    fn start_put_notify_at(&self, local: u64, remote: u64, len: u64, tag: u64) -> Result<Op> {
        let ends = self.ends()?;
        ends.remote.put(remote, ends.local.range(local, len)?).notify(tag).start_blocking()
    }

    /// Begins a put or get with a time of its own; waits for a slot.
    ///
    /// # Errors
    /// As [`hmc_std::Request::start_blocking`].
    fn start_within(&self, way: Direction, c: Copy, within: Duration) -> Result<Op> {
        let ends = self.ends()?;
        let range = ends.local.range(c.local_offset, c.len)?;
        match way {
            Direction::Put => {
                ends.remote.put(c.remote_offset, range).within(within).start_blocking()
            }
            Direction::Get => {
                ends.remote.get(c.remote_offset, range).within(within).start_blocking()
            }
        }
    }

    /// Checks a list of copies, to be run many times.
    ///
    /// # Errors
    /// As [`hmc_std::Request::prepare`].
    fn prepare_at(&self, way: Direction, copies: &[Copy]) -> Result<List> {
        let ends = self.ends()?;
        let piece =
            |c: &Copy| Ok(Piece::new(ends.local.range(c.local_offset, c.len)?, c.remote_offset));
        let pieces = copies.iter().map(piece).collect::<Result<Vec<_>>>()?;
        Ok(match way {
            Direction::Put => List::Put(ends.remote.put_list(&pieces).prepare()?),
            Direction::Get => List::Get(ends.remote.get_list(&pieces).prepare()?),
        })
    }
}

/// Messages of any size from and to our session's buffer.
pub trait BufferMessages {
    /// Sends `len` bytes at `local` of our buffer as a message.
    ///
    /// # Errors
    /// As [`Peer::send_data`].
    fn send_data_at(&self, local: u64, len: u64) -> Result<()>;

    /// Receives a message to `local` of our buffer, where it may take `space` bytes, and gives its length.
    ///
    /// # Errors
    /// As [`Peer::recv_data`].
    fn recv_data_at(&self, local: u64, space: u64) -> Result<u64>;

    /// Begins to send from our buffer.
    ///
    /// # Errors
    /// As [`Peer::send_data`].
    fn start_send_at(&self, local: u64, len: u64) -> Result<Op>;

    /// Begins to receive into our buffer.
    ///
    /// # Errors
    /// As [`Peer::recv_data`].
    fn start_recv_at(&self, local: u64, space: u64) -> Result<Op>;
}

impl BufferMessages for Peer {
    fn send_data_at(&self, local: u64, len: u64) -> Result<()> {
        let buffer = own_buffer(self);
        self.send_data(buffer.range(local, len)?).wait().map(drop)
    }

    fn recv_data_at(&self, local: u64, space: u64) -> Result<u64> {
        let buffer = own_buffer(self);
        self.recv_data(buffer.range(local, space)?).wait().map(|d| d.bytes)
    }

    fn start_send_at(&self, local: u64, len: u64) -> Result<Op> {
        let buffer = own_buffer(self);
        self.send_data(buffer.range(local, len)?).start()
    }

    fn start_recv_at(&self, local: u64, space: u64) -> Result<Op> {
        let buffer = own_buffer(self);
        self.recv_data(buffer.range(local, space)?).start()
    }
}

impl BufferTransfers for Peer {
    fn ends(&self) -> Result<Ends> {
        Ok(Ends { local: own_buffer(self), remote: self.buffer()? })
    }
}

impl BufferTransfers for Ends {
    fn ends(&self) -> Result<Ends> {
        Ok(self.clone())
    }
}

impl List {
    /// Does all copies.
    ///
    /// # Errors
    /// As [`Plan::again`].
    pub fn run(&self) -> Result<()> {
        match self {
            Self::Put(plan) => plan.again().wait(),
            Self::Get(plan) => plan.again().wait(),
        }
        .map(drop)
    }

    /// Begins all copies as one operation; waits for a slot.
    ///
    /// # Errors
    /// As [`hmc_std::Request::start_blocking`].
    pub fn start(&self) -> Result<Op> {
        match self {
            Self::Put(plan) => plan.again().start_blocking(),
            Self::Get(plan) => plan.again().start_blocking(),
        }
    }
}

/// Whether an operation has ended, after one look at its link.
#[must_use]
pub fn has_ended(op: &Op) -> bool {
    matches!(op.wait_for(Duration::ZERO), Waited::Ended(_))
}

/// The bytes that an operation moved, waiting for its end.
///
/// # Errors
/// As [`Op::wait`].
pub fn wait(op: Op) -> Result<u64> {
    op.wait().map(|Done { bytes, .. }| bytes)
}
