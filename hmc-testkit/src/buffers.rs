//! Transfers between the buffers of two sessions by their offsets, which is what most tests need.

use std::time::Duration;

use hmc_std::internals::own_buffer;
use hmc_std::{Op, Peer, Result, Waited};

/// Operations on the buffers of two sessions: ours and the peer's. All offsets and lengths are in bytes.
pub trait BufferTransfers {
    /// Puts `len` bytes from `local` of our buffer to `remote` of the peer's.
    ///
    /// # Errors
    /// As [`hmc_std::Remote::put`].
    fn put_at(&self, local: u64, remote: u64, len: u64) -> Result<()>;

    /// Gets `len` bytes from `remote` of the peer's buffer to `local` of ours.
    ///
    /// # Errors
    /// As [`hmc_std::Remote::get`].
    fn get_at(&self, local: u64, remote: u64, len: u64) -> Result<()>;

    /// As [`Self::put_at`], with a tag after the bytes.
    ///
    /// # Errors
    /// As there.
    fn put_notify_at(&self, local: u64, remote: u64, len: u64, tag: u64) -> Result<()>;

    /// Begins a put; waits for a slot.
    ///
    /// # Errors
    /// As [`hmc_std::Request::start_blocking`].
    fn start_put_at(&self, local: u64, remote: u64, len: u64) -> Result<Op>;

    /// Begins a get; waits for a slot.
    ///
    /// # Errors
    /// As [`hmc_std::Request::start_blocking`].
    fn start_get_at(&self, local: u64, remote: u64, len: u64) -> Result<Op>;

    /// As [`Self::start_put_at`], with a tag after the bytes.
    ///
    /// # Errors
    /// As there.
    fn start_put_notify_at(&self, local: u64, remote: u64, len: u64, tag: u64) -> Result<Op>;
}

impl BufferTransfers for Peer {
    fn put_at(&self, local: u64, remote: u64, len: u64) -> Result<()> {
        let buffer = own_buffer(self);
        self.buffer()?.put(remote, buffer.range(local, len)?).wait().map(drop)
    }

    fn get_at(&self, local: u64, remote: u64, len: u64) -> Result<()> {
        let buffer = own_buffer(self);
        self.buffer()?.get(remote, buffer.range(local, len)?).wait().map(drop)
    }

    fn put_notify_at(&self, local: u64, remote: u64, len: u64, tag: u64) -> Result<()> {
        let buffer = own_buffer(self);
        self.buffer()?.put(remote, buffer.range(local, len)?).notify(tag).wait().map(drop)
    }

    fn start_put_at(&self, local: u64, remote: u64, len: u64) -> Result<Op> {
        let buffer = own_buffer(self);
        self.buffer()?.put(remote, buffer.range(local, len)?).start_blocking()
    }

    fn start_get_at(&self, local: u64, remote: u64, len: u64) -> Result<Op> {
        let buffer = own_buffer(self);
        self.buffer()?.get(remote, buffer.range(local, len)?).start_blocking()
    }

    fn start_put_notify_at(&self, local: u64, remote: u64, len: u64, tag: u64) -> Result<Op> {
        let buffer = own_buffer(self);
        self.buffer()?.put(remote, buffer.range(local, len)?).notify(tag).start_blocking()
    }
}

/// Whether an operation has ended, after one look at its link.
#[must_use]
pub fn has_ended(op: &Op) -> bool {
    matches!(op.wait_for(Duration::ZERO), Waited::Ended(_))
}
