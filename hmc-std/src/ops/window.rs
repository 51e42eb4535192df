//! Windows as the application holds them: exposed spans, and exposed ranges of shared buffers.

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::wait_limit::WaitStopped;
use crate::memory::{ConnBuffer, Span};
use crate::ops::exposure::{ExposedMemory, Exposure, TakenBack};
use crate::ops::request::Request;
use crate::ops::revoke::{Revocable, Revoke};

/// A span of ours that a peer may access. [`Window::revoke`] takes it back; dropping it does the
/// same without waiting, and the span returns to its region when its fence has passed.
#[derive(Debug)]
pub struct Window {
    grant: Exposure,
    span: Option<Span>,
}

/// A range of a shared buffer that a peer may access. [`SharedWindow::revoke`] ends that; dropping it does the same without
/// waiting. The buffer's memory stays until the fence has passed.
#[derive(Debug)]
pub struct SharedWindow {
    grant: Exposure,
    buffer: Option<ConnBuffer>,
}

fn revoked_before() -> Error {
    Error::new(ErrorKind::Revoked, "the window was revoked")
}

impl Window {
    pub(crate) fn new(grant: Exposure, span: Span) -> Self {
        Self { grant, span: Some(span) }
    }

    /// Bytes in the window; 0 when it was taken back.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.span.as_ref().map_or(0, Span::len)
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The span, unless it was taken back.
    pub(crate) fn span(&self) -> Option<&Span> {
        self.span.as_ref()
    }

    /// Copies `out.len()` bytes at `offset` out; the peer may be changing them.
    ///
    /// # Errors
    /// `Range`.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.span.as_ref().ok_or_else(revoked_before)?.read_at(offset, out)
    }

    /// Copies `bytes` in at `offset`; the peer may be reading or changing them.
    ///
    /// # Errors
    /// `Range`.
    pub fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.span.as_mut().ok_or_else(revoked_before)?.write_at(offset, bytes)
    }

    /// Takes the span back: once the request is done, no byte of it is read or written by the peer. TCP: at once. Shared
    /// memory: when the peer's copy under way (at most 1 MiB) has ended. If it does not end in time (the peer is stopped, say)
    /// and the span starts and ends at pages, the span gets fresh pages with the same bytes, and the peer keeps the old ones for
    /// itself. Later windows of that region cannot be mapped any more: their bytes go through the local socket.
    ///
    /// # Errors
    /// Of the request: `Quarantined` when the peer did not get out in time and the pages cannot be replaced. The range
    /// stays `Busy` in its region until the peer is out or its process has ended. `Interrupted`: the same, without
    /// fresh pages.
    pub fn revoke(self) -> Request<Revoke<Self>> {
        Request::new(Revoke::of(self))
    }
}

impl Revocable for Window {
    type Memory = Span;

    fn exposure(&self) -> &Exposure {
        &self.grant
    }

    fn conclude(mut self, over: TakenBack) -> Result<Span> {
        let span = self.span.take().ok_or_else(revoked_before)?;
        let Err((stop, fence)) = over else { return Ok(span) };
        if stop == WaitStopped::Deadline && span.renew_pages() {
            self.grant.lock_away(ExposedMemory::Nothing, fence);
            return Ok(span);
        }
        let error = self.grant.refusal(stop, span.len());
        self.grant.lock_away(ExposedMemory::Span(span), fence);
        Err(error)
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        let Some(span) = self.span.take() else { return };
        if self.grant.is_child() {
            // The window is the parent's.
            std::mem::forget(span);
        } else if let Some(fence) = self.grant.try_revoke() {
            self.grant.lock_away(ExposedMemory::Span(span), fence);
        }
    }
}

impl SharedWindow {
    pub(crate) fn new(grant: Exposure, buffer: ConnBuffer) -> Self {
        Self { grant, buffer: Some(buffer) }
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

    /// Takes the window back: once the request is done, no byte of it is read or written by the peer through this window. As
    /// [`Window::revoke`], but for the fresh pages: others may have the same ones mapped.
    ///
    /// # Errors
    /// Of the request: `Quarantined` when the peer did not get out in time: it may still touch the bytes until it is out or its
    /// process has ended. `Interrupted`: the same.
    pub fn revoke(self) -> Request<Revoke<Self>> {
        Request::new(Revoke::of(self))
    }
}

impl Revocable for SharedWindow {
    type Memory = ();

    fn exposure(&self) -> &Exposure {
        &self.grant
    }

    fn conclude(mut self, over: TakenBack) -> Result<()> {
        let buffer = self.buffer.take();
        let Err((stop, fence)) = over else { return Ok(()) };
        let len = self.len();
        if let Some(buffer) = buffer {
            self.grant.lock_away(ExposedMemory::Buffer { _keep: buffer, len }, fence);
        }
        Err(self.grant.refusal(stop, len))
    }
}

impl Drop for SharedWindow {
    fn drop(&mut self) {
        let Some(buffer) = self.buffer.take() else { return };
        if self.grant.is_child() {
            // The window is the parent's.
            std::mem::forget(buffer);
        } else if let Some(fence) = self.grant.try_revoke() {
            self.grant.lock_away(ExposedMemory::Buffer { _keep: buffer, len: self.len() }, fence);
        }
    }
}
