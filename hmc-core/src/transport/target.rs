//! This end as the target: windows that are exposed to the peer.

use super::memory::Registration;
use super::note::Note;
use crate::blocks::WindowBlocks;
use crate::region::{Epoch, LocalSlice, WindowDesc, WindowId};
use crate::window::{WindowEntry, WindowFault, WindowTable, WindowTransition};

/// What ends the peer's last access to a revoked window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fence<G> {
    /// Nothing more: no byte is touched from now on.
    Passed,
    /// The peer's copy in progress, of which the host can wait for the end without the data plane.
    Gate(G),
    /// The peer's word that it uses the window no more; [`Target::is_released`] tells when it has come.
    PeerAck,
}

/// The windows of this end.
///
/// The data plane owns the table, because it checks accesses. A window is first exposed in the table, and then opened.
pub trait Target: Registration {
    /// Storage of the window table.
    type Windows: AsRef<[WindowEntry]> + AsMut<[WindowEntry]>;
    /// What the host waits on for [`Fence::Gate`].
    type Gate;
    /// Why a window cannot be opened, or a note cannot be used.
    type Fault;

    /// The window table.
    fn windows(&mut self) -> &mut WindowTable<Self::Windows>;

    /// Lets the peer reach a window that was just exposed: `local` of `memory`, which is known. Returns what the peer's data plane
    /// must receive before the window is announced, if anything; it is written to `buf`, which has
    /// [`MAX_ENDPOINT_BYTES`](crate::limits::MAX_ENDPOINT_BYTES) bytes.
    ///
    /// # Errors
    /// The peer cannot reach the window and never could.
    fn open<'a>(
        &mut self,
        memory: &Self::Memory,
        local: LocalSlice,
        window: &WindowDesc,
        buf: &'a mut [u8],
    ) -> Result<Option<Note<'a>>, Self::Fault> {
        let _ = (memory, local, window, buf);
        Ok(None)
    }

    /// Has the data plane compare the generations of the window's blocks, which was just exposed and is not open yet. `table` is
    /// known, and has the words of [`WindowBlocks`]. Returns `false` if it cannot, or if the peer can name none.
    fn add_generations(
        &mut self,
        table: &Self::Memory,
        blocks: WindowBlocks,
        window: &WindowDesc,
    ) -> bool {
        let _ = (table, blocks, window);
        false
    }

    /// Whether the window's pages are on their way to the peer, which can map them.
    fn offers_pages(&self, id: WindowId, epoch: Epoch) -> bool {
        let _ = (id, epoch);
        false
    }

    /// Refuses new accesses to a window, and returns what ends those in progress. A second call returns the fence again.
    ///
    /// # Errors
    /// The table has no such window.
    fn revoke(&mut self, id: WindowId, epoch: Epoch) -> Result<Fence<Self::Gate>, WindowFault> {
        self.windows().apply(id, epoch, WindowTransition::Revoke)?;
        Ok(self.close_window(id, epoch))
    }

    /// The transport's part of [`Self::revoke`], without the table.
    fn close_window(&mut self, id: WindowId, epoch: Epoch) -> Fence<Self::Gate> {
        let _ = (id, epoch);
        Fence::Passed
    }

    /// Whether the peer uses a revoked window no more; asked where the fence is [`Fence::PeerAck`].
    fn is_released(&self, id: WindowId, epoch: Epoch) -> bool {
        let _ = (id, epoch);
        true
    }

    /// Opens a [closed](crate::window::WindowState::Closed) window again under its epoch, so that what the peer knows of it holds
    /// again; requests of the peer reach only `len` bytes from `offset` ([`WindowTable::serve`]). The fence of its revocation must have
    /// passed before it was closed. Returns `false`, and it stays closed, if the transport keeps no closed windows or the window is not
    /// closed.
    fn reopen(&mut self, id: WindowId, epoch: Epoch, (offset, len): (u64, u64)) -> bool {
        let _ = (id, epoch, offset, len);
        false
    }

    /// From now on the data plane counts the bytes of the peer's puts into an exposed window, until the window is revoked: they are to
    /// be `len` bytes. One that cannot see puts counts none.
    fn count_puts(&mut self, id: WindowId, epoch: Epoch, len: u64) {
        let _ = (id, epoch, len);
    }

    /// Whether puts of as many bytes as [`Self::count_puts`] was told have ended well: the bytes can be read.
    fn are_all_put(&self, id: WindowId, epoch: Epoch) -> bool {
        let _ = (id, epoch);
        false
    }

    /// Whether [`Self::are_all_put`] has become true for a window since the last call.
    fn take_all_put(&mut self) -> bool {
        false
    }

    /// The fence of a revoked window has passed: its entry is free for another window.
    fn free_window(&mut self, id: WindowId, epoch: Epoch) {
        // An error: the table has no such window, it was freed before.
        let _ = self.windows().apply(id, epoch, WindowTransition::Fence);
        self.forget_window(id, epoch);
    }

    /// The transport's part of [`Self::free_window`], without the table.
    fn forget_window(&mut self, id: WindowId, epoch: Epoch) {
        let _ = (id, epoch);
    }
}
