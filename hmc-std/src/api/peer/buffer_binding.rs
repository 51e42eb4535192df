//! Transfers between a buffer beside the session's own and one of the peer's windows.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hmc_core::region::WindowDesc;
use hmc_core::work::Opcode;
use hmc_mem::os::mapped_window::MappedWindow;

use super::Peer;
use super::binding::Binding;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::op_id::OpId;
use crate::link::data::DataState;
use crate::memory::{ConnBuffer, Region};
use crate::ops::batch::{Batch, Copy, Direction};
use crate::ops::window::RemoteWindow;

/// A buffer of ours and a window of the peer's, between which offsets address bytes: what [`Peer`]'s own `put` and `get` are
/// for the two sessions' buffers. Cheap to clone; all methods may be called from any thread, for the same bytes too.
///
/// Operations are the peer's: `wait`, `test`, `cancel` and `post_batch` are [`Peer`]'s. The buffer's memory stays until they
/// are over, whoever has dropped it. A route belongs to one life of the peer and to one window; when either is over, every
/// call answers so.
#[derive(Clone, Debug)]
pub struct Route {
    peer: Peer,
    region: Region,
    window: WindowDesc,
    /// The window, once a copy has found its pages mapped here.
    direct: OnceLock<Arc<MappedWindow>>,
}

impl Peer {
    /// The way between one of our buffers ([`Communicator::share`](crate::communicator::Communicator::share), or the
    /// session's own) and one of the peer's windows ([`Peer::remote_window`], [`Peer::remote_buffer`]).
    ///
    /// # Errors
    /// `Stale` for a window of another peer or life; `InvalidConfig` for a buffer of another session.
    pub fn between(&self, local: &ConnBuffer, remote: &RemoteWindow) -> Result<Route> {
        self.shared.check_process()?;
        self.shared.check_own(local.region())?;
        if remote.link != self.link.id() {
            let what = "the window belongs to another peer, life or session; ask this peer for it";
            return Err(Error::new(ErrorKind::Stale, what).with_peer(self.rank()));
        }
        let (peer, region) = (self.clone(), local.region().clone());
        Ok(Route { peer, region, window: remote.region, direct: OnceLock::new() })
    }

    /// The peer's session buffer as a window.
    ///
    /// # Errors
    /// `NotFound` when it exposes none; `PeerDead`, `Closed`.
    pub fn remote_buffer(&self) -> Result<RemoteWindow> {
        self.shared.check_process()?;
        self.link.check_open()?;
        Ok(RemoteWindow { region: self.default_remote()?, link: self.link.id() })
    }
}

impl Binding for Route {
    fn peer(&self) -> &Peer {
        &self.peer
    }

    fn region(&self) -> &Region {
        &self.region
    }

    fn window(&self, _: &DataState) -> Option<WindowDesc> {
        Some(self.window)
    }

    fn direct(&self) -> &OnceLock<Arc<MappedWindow>> {
        &self.direct
    }
}

impl Route {
    /// Whose window it is.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Bytes of our buffer.
    #[must_use]
    pub fn local_len(&self) -> u64 {
        self.region.len()
    }

    /// Bytes of the peer's window.
    #[must_use]
    pub fn remote_len(&self) -> u64 {
        self.window.extent.len()
    }

    /// Puts; see [`Peer::put`]. Of an 8-byte put over mapped memory as fast as that.
    ///
    /// # Errors
    /// As [`Peer::put`]; `Access` when the window is for reading, `Revoked` when it was taken back.
    pub fn put(&self, local_offset: u64, remote_offset: u64, len: u64) -> Result<()> {
        self.transfer(Opcode::Put, local_offset, remote_offset, len, None)
    }

    /// Gets; see [`Peer::get`].
    ///
    /// # Errors
    /// As [`Route::put`].
    pub fn get(&self, local_offset: u64, remote_offset: u64, len: u64) -> Result<()> {
        self.transfer(Opcode::Get, local_offset, remote_offset, len, None)
    }

    /// As [`Route::put`] or [`Route::get`], if it needs no operation; see [`Peer::transfer_now`].
    ///
    /// # Errors
    /// As there, and as [`Route::put`].
    pub fn transfer_now(&self, direction: Direction, copy: Copy) -> Result<bool> {
        let code = direction.opcode();
        self.try_now(code, copy.local_offset, copy.remote_offset, copy.len)
    }

    /// As [`Route::put`] or [`Route::get`], with a deadline of its own.
    ///
    /// # Errors
    /// As [`Route::put`].
    pub fn transfer_within(
        &self,
        direction: Direction,
        copy: Copy,
        timeout: Duration,
    ) -> Result<()> {
        let code = direction.opcode();
        self.transfer(code, copy.local_offset, copy.remote_offset, copy.len, Some(timeout))
    }

    /// Puts, then delivers `tag` to the peer's inbox; see [`Peer::put_notify`].
    ///
    /// # Errors
    /// As [`Route::put`].
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

    /// As [`Route::put_notify`], with a deadline of its own.
    ///
    /// # Errors
    /// As [`Route::put`].
    pub fn put_notify_within(&self, copy: Copy, tag: u64, timeout: Duration) -> Result<()> {
        let code = Opcode::PutNotify { tag };
        self.transfer(code, copy.local_offset, copy.remote_offset, copy.len, Some(timeout))
    }

    /// Begins a put; see [`Peer::put_nb`].
    ///
    /// # Errors
    /// As there.
    pub fn put_nb(&self, local_offset: u64, remote_offset: u64, len: u64) -> Result<OpId> {
        self.begin(Opcode::Put, local_offset, remote_offset, len, None)
    }

    /// Begins a get; see [`Peer::get_nb`].
    ///
    /// # Errors
    /// As there.
    pub fn get_nb(&self, local_offset: u64, remote_offset: u64, len: u64) -> Result<OpId> {
        self.begin(Opcode::Get, local_offset, remote_offset, len, None)
    }

    /// Begins a put with a tag; see [`Peer::put_notify_nb`].
    ///
    /// # Errors
    /// As there.
    pub fn put_notify_nb(
        &self,
        local_offset: u64,
        remote_offset: u64,
        len: u64,
        tag: u64,
    ) -> Result<OpId> {
        self.begin(Opcode::PutNotify { tag }, local_offset, remote_offset, len, None)
    }

    /// Checks a list of copies once, for [`Peer::post_batch`] and [`Peer::run_batch`]; see [`Peer::prepare`].
    ///
    /// # Errors
    /// `Range` for the first copy that does not fit.
    pub fn prepare(&self, direction: Direction, copies: &[Copy]) -> Result<Batch> {
        self.list(direction, copies)
    }
}
