//! Windows as the application holds them: exposed spans, and exposed ranges of shared memory.

use hmc_core::region::{Epoch, WindowId};

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::wait_limit::WaitStopped;
use crate::memory::{ConnBuffer, Span};
use crate::ops::exposure::{ExposedMemory, Exposure, TakenBack};
use crate::ops::request::Request;
use crate::ops::revoke::{Revocable, Revoke};

/// Memory of this end that a peer may access: a [`Span`], or a range of a [`ConnBuffer`], which others may use meanwhile.
///
/// [`Window::revoke`] takes it back. A drop does the same without waiting: the memory is returned when the fence has passed.
#[derive(Debug)]
pub struct Window<M: ExposedAs> {
    grant: Exposure,
    memory: Option<M>,
}

/// What a window holds.
pub trait ExposedAs: Send + Unpin + std::fmt::Debug + 'static {
    /// Puts fresh pages under the memory, if nobody else uses them. Whether that was possible.
    #[doc(hidden)]
    fn renew_pages(&self) -> bool;

    /// What the quarantine keeps of a window of so many bytes.
    #[doc(hidden)]
    fn into_exposed(self, len: u64) -> ExposedMemory;
}

impl ExposedAs for Span {
    fn renew_pages(&self) -> bool {
        Self::renew_pages(self)
    }

    fn into_exposed(self, _: u64) -> ExposedMemory {
        ExposedMemory::Span(self)
    }
}

impl ExposedAs for ConnBuffer {
    fn renew_pages(&self) -> bool {
        // Others may have the same pages mapped.
        false
    }

    fn into_exposed(self, len: u64) -> ExposedMemory {
        ExposedMemory::Buffer { _keep: self, len }
    }
}

fn revoked_before() -> Error {
    Error::new(ErrorKind::Revoked, "the window was revoked")
}

impl<M: ExposedAs> Window<M> {
    pub(crate) fn new(grant: Exposure, memory: M) -> Self {
        Self { grant, memory: Some(memory) }
    }

    /// Its id and epoch.
    pub(crate) fn name(&self) -> (WindowId, Epoch) {
        self.grant.name()
    }

    /// Bytes in the window.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.grant.len()
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes the memory back: when the request is complete, the peer reads and writes no byte of it through this window. TCP: at
    /// once. Shared memory: when the peer's copy in progress (at most 1 MiB) has ended. If it does not end before the deadline
    /// (a stopped peer, for example) and the memory is a span that starts and ends at pages, the span gets fresh pages with the
    /// same bytes, and the peer keeps the old pages. Later windows of that region cannot be mapped: their bytes use the local
    /// socket.
    ///
    /// # Errors
    /// Of the request: `Quarantined` if the copy did not end before the deadline and the pages cannot be replaced. A span stays
    /// `Busy` in its region, and a buffer's bytes may change, until the copy ends or the peer's process has ended.
    /// `Interrupted`: the same, without fresh pages.
    pub fn revoke(self) -> Request<Revoke<Self>> {
        Request::new(Revoke::of(self))
    }
}

impl Window<Span> {
    /// The span, unless it was taken back.
    pub(crate) fn span(&self) -> Option<&Span> {
        self.memory.as_ref()
    }

    /// Copies `out.len()` bytes at `offset` out; the peer may be changing them.
    ///
    /// # Errors
    /// `Range`.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.memory.as_ref().ok_or_else(revoked_before)?.read_at(offset, out)
    }

    /// Copies `bytes` in at `offset`; the peer may be reading or changing them.
    ///
    /// # Errors
    /// `Range`.
    pub fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.memory.as_mut().ok_or_else(revoked_before)?.write_at(offset, bytes)
    }
}

impl<M: ExposedAs> Revocable for Window<M> {
    type Memory = M;

    fn exposure(&self) -> &Exposure {
        &self.grant
    }

    fn conclude(mut self, over: TakenBack) -> Result<M> {
        let memory = self.memory.take().ok_or_else(revoked_before)?;
        let Err((stop, fence)) = over else { return Ok(memory) };
        if stop == WaitStopped::Deadline && memory.renew_pages() {
            self.grant.lock_away(ExposedMemory::Nothing, fence);
            return Ok(memory);
        }
        let len = self.len();
        let error = self.grant.refusal(stop, len);
        self.grant.lock_away(memory.into_exposed(len), fence);
        Err(error)
    }
}

impl<M: ExposedAs> Drop for Window<M> {
    fn drop(&mut self) {
        let Some(memory) = self.memory.take() else { return };
        if self.grant.is_child() {
            // The window is the parent's.
            std::mem::forget(memory);
        } else if let Some(fence) = self.grant.try_revoke() {
            self.grant.lock_away(memory.into_exposed(self.len()), fence);
        }
    }
}
