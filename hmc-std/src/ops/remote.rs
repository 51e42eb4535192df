//! A window of a peer.

use std::sync::OnceLock;

use hmc_core::limits::MAX_CHUNK_BYTES;
use hmc_core::queue::Transfer;
use hmc_core::range::ByteRange;
use hmc_core::region::{LocalSlice, WindowDesc, WindowSlice};
use hmc_core::work::{CompleteWhen, Opcode};
use hmc_mem::os::mapped_window::handle::MappedHandle;
use hmc_mem::shared::SharedBytes;

use crate::base::error::Result;
use crate::link::LinkState;
use crate::link::data::DataState;
use crate::link::data::now::Copied;
use crate::memory::Region;
use crate::ops::peer_handle::Peer;

/// A window of a peer: memory that the peer exposed to this process. Transfers name bytes in it by their offset.
///
/// Clones are handles of the same window. All methods may be called by several threads at a time, for the same bytes too. Threads
/// that make small transfers at the same time are faster with a clone each: in mapped memory, 8 handles made one after another, of
/// the first 32 windows of a peer, share no cache line that they write. Other handles may share one, which makes such threads slower.
/// A handle belongs to one incarnation of the peer and to one exposure: after the end of either, every operation fails (`PeerDead`,
/// `Revoked`).
#[derive(Debug)]
pub struct Remote {
    pub(crate) peer: Peer,
    pub(crate) window: WindowDesc,
    /// The window, once a copy has found its pages mapped here.
    direct: OnceLock<MappedHandle>,
}

impl Clone for Remote {
    /// The clone is of the same window, and enters it by another gate where it is mapped here.
    fn clone(&self) -> Self {
        let direct = kept(self.direct.get().and_then(MappedHandle::another));
        Self { peer: self.peer.clone(), window: self.window, direct }
    }
}

fn kept(handle: Option<MappedHandle>) -> OnceLock<MappedHandle> {
    handle.map_or_else(OnceLock::new, OnceLock::from)
}

/// Where bytes of a transfer are in a window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct There {
    /// The offset of the first one.
    pub(crate) at: u64,
    /// The generation that their blocks must have.
    pub(crate) expected: Option<u32>,
}

impl There {
    /// The same, so many bytes further on.
    pub(crate) const fn skip(self, bytes: u64) -> Self {
        Self { at: self.at.saturating_add(bytes), ..self }
    }
}

impl Remote {
    pub(crate) fn new(peer: Peer, window: WindowDesc) -> Self {
        let mapped = peer.link.data().mapped(window.window, window.epoch);
        Self { peer, window, direct: kept(mapped.and_then(MappedHandle::new)) }
    }

    /// Returns the length of the window in bytes.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "a window of no bytes is of no use")]
    pub fn len(&self) -> u64 {
        self.window.extent.len()
    }

    /// Returns `true` if the pages of the window are mapped into this process. Transfers of up to 1 MiB are then copies that need
    /// neither the peer nor a system call.
    #[must_use]
    pub fn is_mapped(&self) -> bool {
        self.direct.get().is_some()
    }

    /// Copies at most a chunk of a transfer of `whole` bytes into the mapped window or out of it. Returns `false` if the transfer must
    /// be posted, even if it fails then.
    ///
    /// Takes no lock of the link: the window's gate, the exit mark of the peer and the link's state show whether the memory may be
    /// used.
    #[inline(always)]
    pub(crate) fn copy_direct(
        &self,
        code: Opcode,
        there: There,
        local: SharedBytes<'_>,
        range: ByteRange,
        whole: u64,
    ) -> bool {
        let Some(handle) = self.direct.get() else { return false };
        if self.peer.shared.check_process().is_err()
            || range.len() > MAX_CHUNK_BYTES
            || self.peer.link.state() != LinkState::Ready
        {
            return false;
        }
        let at = (there.at, there.expected);
        match code {
            Opcode::Put => handle.put(at, local, range, whole),
            Opcode::Get => handle.get(at, local, range, whole),
            // A tag goes through the link's sockets.
            Opcode::PutNotify { .. } => false,
        }
    }

    /// The bytes at `there`, as the peer's window has them.
    ///
    /// # Errors
    /// `Range`, `Forked`.
    pub(crate) fn slice(&self, there: There, len: u64) -> Result<WindowSlice> {
        self.peer.shared.check_process()?;
        let There { at, expected } = there;
        Ok(WindowSlice { expected, ..self.window.slice(at, len)? })
    }

    /// Does a small copy into memory that is mapped here, or out of it, under the lock of the link's data half. Gives the
    /// transfer if it has to be posted.
    ///
    /// # Errors
    /// `Range`; `InvalidConfig` for memory of another session.
    pub(crate) fn copy_locked(
        &self,
        code: Opcode,
        there: There,
        region: &Region,
        local: LocalSlice,
    ) -> Result<Option<Transfer>> {
        let remote = self.slice(there, local.span.len())?;
        self.peer.shared.check_own(region)?;
        if self.peer.link.state() == LinkState::Ready {
            let mut data = self.peer.link.data();
            let copied = data.transfer_now(region, code, local, remote);
            if copied != Copied::Not {
                data.count(code);
                if copied == Copied::Mapped {
                    self.keep_direct(&data, remote);
                }
                return Ok(None);
            }
        }
        Ok(Some(Transfer { opcode: code, when: CompleteWhen::Visible, local, remote }))
    }

    /// As [`Self::copy_locked`], for bytes that are in no region; whether it was done.
    ///
    /// # Errors
    /// `Range`.
    pub(crate) fn copy_lent(
        &self,
        code: Opcode,
        there: There,
        local: SharedBytes<'_>,
        range: ByteRange,
    ) -> Result<bool> {
        let remote = self.slice(there, range.len())?;
        if self.peer.link.state() != LinkState::Ready {
            return Ok(false);
        }
        let mut data = self.peer.link.data();
        let done = data.copy_lent(code, local, range, remote);
        if done {
            self.keep_direct(&data, remote);
        }
        Ok(done)
    }

    /// Keeps the window that a copy found mapped, unless one is kept.
    #[cold]
    fn keep_direct(&self, data: &DataState, remote: WindowSlice) {
        if self.direct.get().is_none()
            && let Some(window) = data.mapped(remote.window, remote.epoch)
            && let Some(handle) = MappedHandle::new(window)
        {
            // Another thread may have been faster, with the same one.
            let _ = self.direct.set(handle);
        }
    }
}
