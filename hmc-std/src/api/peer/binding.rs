//! The two ends of transfers: a region of ours and a window of the peer's. What [`Peer`] does between the two buffers and
//! [`Route`](super::Route) between others is written here, once.

use super::Peer;
use crate::base::error::Result;
use crate::base::op_id::OpId;
use crate::link::LinkState;
use crate::link::data::DataState;
use crate::link::data::now::Copied;
use crate::link::op_resources::OpResources;
use crate::link::transfer_list::TransferList;
use crate::memory::Region;
use crate::ops::batch::{Batch, Copy, Direction};
use hmc_core::limits::MAX_CHUNK_BYTES;
use hmc_core::queue::Transfer;
use hmc_core::region::{LocalSlice, WindowDesc, WindowSlice};
use hmc_core::work::{CompleteWhen, Opcode};
use hmc_mem::os::mapped_window::MappedWindow;
use std::sync::{Arc, MutexGuard, OnceLock};
use std::time::Duration;

/// A transfer that is to be begun.
pub(super) enum Begun {
    /// It is over, under that name.
    Over(OpId),
    /// It has to be posted.
    Not(Transfer),
}

/// Where the offsets of a transfer begin. Known to the compiler for each caller: what the small copies cost is counted in
/// nanoseconds.
pub(super) trait Binding {
    fn peer(&self) -> &Peer;

    /// Our end.
    fn region(&self) -> &Region;

    /// The peer's end, as of now; `None` when it exposes no buffer.
    fn window(&self, data: &DataState) -> Option<WindowDesc>;

    /// The peer's end once a copy has found its pages mapped here.
    fn direct(&self) -> &OnceLock<Arc<MappedWindow>>;

    /// Copies at most a chunk into the mapped window or out of it. `false` if something else has to do it, even if it fails.
    /// No lock of the link is taken: the window's gate, the mark of a peer that ended and the link's state say whether its
    /// memory may be used.
    #[inline(always)]
    fn transfer_direct(
        &self,
        window: &MappedWindow,
        code: Opcode,
        lo: u64,
        ro: u64,
        len: u64,
    ) -> Result<bool> {
        self.peer().shared.check_process()?;
        let region = self.region();
        if len > MAX_CHUNK_BYTES || self.peer().link.state() != LinkState::Ready {
            return Ok(false);
        }
        let local = region.slice(lo, len)?.span;
        Ok(match code {
            Opcode::Put => window.put(ro, region.bytes(), local),
            Opcode::Get => window.get(ro, region.bytes(), local),
            Opcode::PutNotify { .. } => false,
        })
    }

    /// Keeps the window that a copy found mapped, unless one is kept.
    #[cold]
    fn keep_direct(&self, data: &DataState, remote: WindowSlice) {
        if self.direct().get().is_none()
            && let Some(window) = data.mapped(remote.window, remote.epoch)
        {
            // Another thread may have been faster, with the same one.
            let _ = self.direct().set(window);
        }
    }

    /// Transfers, and returns when the bytes are there. Without `timeout` the session's deadline counts.
    #[inline(always)]
    fn transfer(
        &self,
        code: Opcode,
        lo: u64,
        ro: u64,
        len: u64,
        timeout: Option<Duration>,
    ) -> Result<()> {
        if let Some(window) = self.direct().get()
            && self.transfer_direct(window, code, lo, ro, len)?
        {
            return Ok(());
        }
        self.transfer_locked(code, lo, ro, len, timeout)
    }

    /// As `transfer`, under the lock of the link's data half. Out of line: the direct path stays short.
    #[inline(never)]
    fn transfer_locked(
        &self,
        code: Opcode,
        lo: u64,
        ro: u64,
        len: u64,
        timeout: Option<Duration>,
    ) -> Result<()> {
        let (mut data, local, remote) = self.ranges(lo, ro, len)?;
        // A small copy into mapped memory needs neither clock nor operation.
        if self.copy_locked(&mut data, code, local, remote) {
            return Ok(());
        }
        drop(data);
        let timeout = timeout.unwrap_or(self.peer().shared.config.deadline);
        self.transfer_posted(code, local, ro, len, timeout)
    }

    /// As `transfer`, if it needs no operation; whether it did it.
    fn try_now(&self, code: Opcode, lo: u64, ro: u64, len: u64) -> Result<bool> {
        if let Some(window) = self.direct().get()
            && self.transfer_direct(window, code, lo, ro, len)?
        {
            return Ok(true);
        }
        let (mut data, local, remote) = self.ranges(lo, ro, len)?;
        Ok(self.copy_locked(&mut data, code, local, remote))
    }

    /// A small copy into mapped memory or out of it. Notes how the window is reached. `false` if it must be posted.
    #[inline(always)]
    fn copy_locked(
        &self,
        data: &mut DataState,
        code: Opcode,
        local: LocalSlice,
        remote: WindowSlice,
    ) -> bool {
        if self.peer().link.state() != LinkState::Ready {
            return false;
        }
        let copied = data.transfer_now(self.region(), code, local, remote);
        if copied == Copied::Not {
            return false;
        }
        data.count(code);
        if copied == Copied::Mapped {
            self.keep_direct(data, remote);
        }
        true
    }

    /// Both ranges of a transfer, and the data half of the link. Always inlined: handed over in memory they would be read in
    /// other pieces than they were written, which stalls the processor for half of a small put.
    #[inline(always)]
    fn ranges(
        &self,
        lo: u64,
        ro: u64,
        len: u64,
    ) -> Result<(MutexGuard<'_, DataState>, LocalSlice, WindowSlice)> {
        let peer = self.peer();
        peer.shared.check_process()?;
        let local = self.region().slice(lo, len)?;
        let data = peer.link.data();
        let Some(window) = self.window(&data) else {
            drop(data);
            return Err(peer.no_buffer());
        };
        Ok((data, local, window.slice(ro, len)?))
    }

    /// The long way: an operation, its slot, its deadline.
    #[cold]
    #[inline(never)]
    fn transfer_posted(
        &self,
        code: Opcode,
        local: LocalSlice,
        ro: u64,
        len: u64,
        timeout: Duration,
    ) -> Result<()> {
        let peer = self.peer();
        let until = peer.shared.until(timeout);
        let t = self.describe(code, local, ro, len)?;
        let op = peer.post_awaited(&t, until, self.hold())?;
        if peer.link.has_leader() {
            // Its leader may be parked on the sockets and not see this.
            peer.link.resume_background();
        }
        // Nobody knows its name: should the wait be interrupted, it runs on by itself.
        let (outcome, _) = peer.finish(op, until).inspect_err(|_| peer.abandon(op))?;
        outcome.result.map(drop).map_err(|e| peer.failed(e.into()))
    }

    /// What an operation keeps alive.
    fn hold(&self) -> OpResources {
        OpResources::region(self.region().clone())
    }

    fn window_now(&self) -> Result<WindowDesc> {
        let peer = self.peer();
        peer.shared.check_process()?;
        let window = self.window(&peer.link.data());
        window.ok_or_else(|| peer.no_buffer())
    }

    /// A transfer as the lane wants it.
    fn describe(&self, code: Opcode, local: LocalSlice, ro: u64, len: u64) -> Result<Transfer> {
        let remote = self.window_now()?.slice(ro, len)?;
        Ok(Transfer { opcode: code, when: CompleteWhen::Visible, local, remote })
    }

    /// Begins a transfer. Without `timeout` the session's deadline counts.
    #[inline(always)]
    fn begin(
        &self,
        code: Opcode,
        lo: u64,
        ro: u64,
        len: u64,
        timeout: Option<Duration>,
    ) -> Result<OpId> {
        match self.begin_direct(code, lo, ro, len)? {
            Some(op) => Ok(op),
            None => self.begin_otherwise(code, lo, ro, len, timeout),
        }
    }

    /// As `begin`, under the lock of the link's data half. Out of line: the direct path stays short.
    #[inline(never)]
    fn begin_otherwise(
        &self,
        code: Opcode,
        lo: u64,
        ro: u64,
        len: u64,
        timeout: Option<Duration>,
    ) -> Result<OpId> {
        let t = match self.begin_locked(code, lo, ro, len)? {
            Begun::Over(op) => return Ok(op),
            Begun::Not(t) => t,
        };
        let peer = self.peer();
        let timeout = timeout.unwrap_or(peer.shared.config.deadline);
        let op = peer.post(&t, peer.shared.until(timeout), self.hold())?;
        // Nobody waits yet: what this thread did not finish goes on in the background.
        peer.link.resume_background();
        Ok(peer.name(op))
    }

    /// As `transfer_direct`, with a name. `None` if something else has to do it, even if it fails.
    #[inline(always)]
    fn begin_direct(&self, code: Opcode, lo: u64, ro: u64, len: u64) -> Result<Option<OpId>> {
        // A tag goes through the link's sockets.
        if matches!(code, Opcode::PutNotify { .. }) {
            return Ok(None);
        }
        let Some(window) = self.direct().get() else { return Ok(None) };
        let peer = self.peer();
        let Some(op) = peer.link.at_once.keep(len) else { return Ok(None) };
        match self.transfer_direct(window, code, lo, ro, len) {
            Ok(true) => Ok(Some(peer.name(op))),
            other => {
                // Nobody has learned the name.
                peer.link.at_once.give_back(op);
                other.map(|_| None)
            }
        }
    }

    /// Does a small copy into mapped memory; gives what else has to be posted.
    #[inline]
    fn begin_now(&self, code: Opcode, lo: u64, ro: u64, len: u64) -> Result<Begun> {
        if let Some(op) = self.begin_direct(code, lo, ro, len)? {
            return Ok(Begun::Over(op));
        }
        self.begin_locked(code, lo, ro, len)
    }

    /// As `begin_now`, under the lock of the link's data half.
    #[inline]
    fn begin_locked(&self, code: Opcode, lo: u64, ro: u64, len: u64) -> Result<Begun> {
        let (mut data, local, remote) = self.ranges(lo, ro, len)?;
        let peer = self.peer();
        // A small copy into mapped memory is over at once.
        if peer.link.state() == LinkState::Ready
            && let Some((op, copied)) = data.begin_now(self.region(), code, local, remote)
        {
            if copied == Copied::Mapped {
                self.keep_direct(&data, remote);
            }
            return Ok(Begun::Over(peer.name(op)));
        }
        drop(data);
        Ok(Begun::Not(Transfer { opcode: code, when: CompleteWhen::Visible, local, remote }))
    }

    fn list(&self, direction: Direction, copies: &[Copy]) -> Result<Batch> {
        let (region, window) = (self.region(), self.window_now()?);
        let mut list = TransferList::with_capacity(copies.len());
        for c in copies {
            let t = Transfer {
                opcode: direction.opcode(),
                when: CompleteWhen::Visible,
                local: region.slice(c.local_offset, c.len)?,
                remote: window.slice(c.remote_offset, c.len)?,
            };
            list.push(region, t);
        }
        Ok(Batch { list: Arc::new(list), direction, link: self.peer().link.id() })
    }
}

/// Between the two sessions' buffers.
impl Binding for Peer {
    fn peer(&self) -> &Peer {
        self
    }

    fn region(&self) -> &Region {
        self.shared.buffer.region()
    }

    fn window(&self, data: &DataState) -> Option<WindowDesc> {
        data.default_remote()
    }

    fn direct(&self) -> &OnceLock<Arc<MappedWindow>> {
        &self.link.direct
    }
}
