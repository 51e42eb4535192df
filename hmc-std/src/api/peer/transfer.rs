//! Single transfers between the two buffers: put, get, wait.

use super::Peer;
use super::binding::Binding as _;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::op_id::OpId;
use crate::link::Link;
use crate::link::deferred::Deferred;
use crate::ops::batch::{Copy, Direction};
use hmc_core::slots;
use hmc_core::work::Opcode;
use std::time::Duration;

impl Peer {
    /// Puts `len` bytes from `local_offset` of our buffer to `remote_offset` of the peer's, and
    /// returns when the peer can read them.
    ///
    /// # Errors
    /// `Range` when either range exceeds its buffer (nothing is written), `PeerDead`,
    /// `DeadlineExceeded` after the session's deadline (default 30 s), `Interrupted`; `Revoked` if the peer
    /// takes its window back meanwhile, `NotFound` if it has forgotten that window by then. After a failure
    /// the peer's bytes are old, new or mixed.
    pub fn put(&self, local_offset: u64, remote_offset: u64, len: u64) -> Result<()> {
        self.transfer(Opcode::Put, local_offset, remote_offset, len, None)
    }

    /// Gets `len` bytes from `remote_offset` of the peer's buffer to `local_offset` of ours.
    ///
    /// # Errors
    /// As [`Peer::put`]; after a failure our bytes are old, new or mixed.
    pub fn get(&self, local_offset: u64, remote_offset: u64, len: u64) -> Result<()> {
        self.transfer(Opcode::Get, local_offset, remote_offset, len, None)
    }

    /// As [`Peer::put`] or [`Peer::get`], if it is a copy of at most 1 MiB into or out of memory that is mapped here: `true`
    /// when that is done. `false` when it would have to be posted; nothing was done then. Waits for nothing but other calls' copies.
    ///
    /// # Errors
    /// `Range`, `PeerDead`, `NotFound` when the peer exposes no buffer.
    pub fn transfer_now(&self, direction: Direction, copy: Copy) -> Result<bool> {
        let code = direction.opcode();
        self.try_now(code, copy.local_offset, copy.remote_offset, copy.len)
    }

    /// As [`Peer::put`] or [`Peer::get`], with a deadline of its own.
    ///
    /// # Errors
    /// As [`Peer::put`].
    pub fn transfer_within(
        &self,
        direction: Direction,
        copy: Copy,
        timeout: Duration,
    ) -> Result<()> {
        let code = direction.opcode();
        self.transfer(code, copy.local_offset, copy.remote_offset, copy.len, Some(timeout))
    }

    /// Puts, then delivers `tag` to the peer's inbox after the bytes. Returns when both are there.
    ///
    /// # Errors
    /// As [`Peer::put`].
    pub fn put_notify(
        &self,
        local_offset: u64,
        remote_offset: u64,
        len: u64,
        tag: u64,
    ) -> Result<()> {
        let code = Opcode::PutNotify { tag };
        self.transfer(code, local_offset, remote_offset, len, None)
    }

    pub(crate) fn name(&self, op: slots::SlotId) -> OpId {
        OpId { link: self.link.id(), op }
    }

    /// Begins a put and returns at once, with its name. The bytes of our buffer must not change
    /// until it is done. While as many operations run as the session has slots, it waits
    /// until one has ended. Up to 65,536 more may have ended without being waited for.
    ///
    /// # Errors
    /// `Range`; `PeerDead`; `DeadlineExceeded` after the session's deadline or `Interrupted` when there was no space; `Full`
    /// when too many have ended that nobody waited for.
    pub fn put_nb(&self, local_offset: u64, remote_offset: u64, len: u64) -> Result<OpId> {
        self.begin(Opcode::Put, local_offset, remote_offset, len, None)
    }

    /// Begins a put or a get, as [`Peer::put_nb`], with a deadline of its own.
    ///
    /// # Errors
    /// As [`Peer::put_nb`].
    pub fn begin_within(&self, direction: Direction, c: Copy, timeout: Duration) -> Result<OpId> {
        self.begin(direction.opcode(), c.local_offset, c.remote_offset, c.len, Some(timeout))
    }

    /// Begins a get and returns at once, with its name.
    ///
    /// # Errors
    /// As [`Peer::put_nb`].
    pub fn get_nb(&self, local_offset: u64, remote_offset: u64, len: u64) -> Result<OpId> {
        self.begin(Opcode::Get, local_offset, remote_offset, len, None)
    }

    /// Begins a put with a tag that follows its bytes; see [`Peer::put_notify`].
    ///
    /// # Errors
    /// As [`Peer::put_nb`].
    pub fn put_notify_nb(
        &self,
        local_offset: u64,
        remote_offset: u64,
        len: u64,
        tag: u64,
    ) -> Result<OpId> {
        self.begin(Opcode::PutNotify { tag }, local_offset, remote_offset, len, None)
    }

    /// Waits until an operation ended, within the session's deadline. Gives the bytes moved.
    ///
    /// # Errors
    /// The operation's own failure; `Stale` for one that was waited for before; `DeadlineExceeded` or
    /// `Interrupted` when it has not ended yet: it can be waited for again.
    pub fn wait(&self, op: OpId) -> Result<u64> {
        self.wait_within(op, self.shared.config.deadline)
    }

    /// As [`Peer::wait`], within `timeout`.
    ///
    /// # Errors
    /// As [`Peer::wait`].
    pub fn wait_within(&self, op: OpId, timeout: Duration) -> Result<u64> {
        self.check_name(op)?;
        if let Some(bytes) = self.link.at_once.take(op.op) {
            return Ok(bytes);
        }
        self.wait_locked(op, timeout)
    }

    /// As [`Peer::wait_within`], for an operation that had a slot. Out of line: the other path stays short.
    #[inline(never)]
    fn wait_locked(&self, op: OpId, timeout: Duration) -> Result<u64> {
        let (outcome, _) = match self.taken(op.op) {
            // It is over: no need of the clock.
            Some(taken) => taken?,
            None => self.finish(op.op, self.shared.until(timeout))?,
        };
        outcome.result.map_err(|e| self.failed(Error::from(e).with_op(op)))
    }

    /// Whether an operation has ended. It still has to be waited for.
    ///
    /// # Errors
    /// `Stale`.
    pub fn test(&self, op: OpId) -> Result<bool> {
        self.check_name(op)?;
        has_ended(&self.link, op)
    }

    /// Asks for an operation to end. It still has to be waited for; it ends as `Cancelled` unless it
    /// had ended already. That is no fence: what the transport had begun with may still be carried out, over UCX or RDMA with
    /// several channels even after a later operation of the same bytes. The memory of this end is kept until it is over.
    ///
    /// # Errors
    /// `Stale`.
    pub fn cancel(&self, op: OpId) -> Result<()> {
        self.check_name(op)?;
        let mut after = Deferred::default();
        let r = {
            let mut data = self.link.data();
            let r = data.cancel(op.op);
            data.progress(&mut after);
            self.link.update_data_interest(&mut data);
            r
        };
        self.link.run_deferred(&mut after);
        r.map_err(|_| Error::new(ErrorKind::Stale, "already waited for").with_op(op))
    }

    pub(super) fn check_name(&self, op: OpId) -> Result<()> {
        self.shared.check_process()?;
        if self.link.id().is(op.link) {
            return Ok(());
        }
        Err(foreign(&op))
    }
}

#[cold]
#[inline(never)]
fn foreign(op: &OpId) -> Error {
    let what = "the operation belongs to another peer, life or session";
    Error::new(ErrorKind::Stale, what).with_op(*op)
}

/// Whether an operation of that link has ended.
///
/// # Errors
/// `Stale`.
pub(crate) fn has_ended(link: &Link, op: OpId) -> Result<bool> {
    let ended = || link.data().test(op.op);
    let stale = |_| Error::new(ErrorKind::Stale, "already waited for").with_op(op);
    if ended().map_err(stale)? {
        return Ok(true);
    }
    link.poll_data(false);
    ended().map_err(stale)
}
