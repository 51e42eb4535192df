//! Windows as the application holds them: exposed spans and ranges of ours, and exposed ranges of a peer.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hmc_core::region::WindowDesc;
use hmc_core::types::Rank;
use hmc_core::wire::message::ControlMessage;

use crate::api::peer::Peer;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::lock::lock;
use crate::base::wait_limit::{WaitLimit, WaitStopped};
use crate::callbacks::wakers::Wakers;
use crate::link::{Link, WaitScope};
use crate::memory::{ConnBuffer, Span};
use crate::quarantine::{self, Tally, Unfenced};
use crate::transport::data_plane::Fence;
use crate::transport::stream::PeerLife;

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

/// What a peer was allowed, and how it is taken back: whatever memory is below.
#[derive(Clone, Debug)]
pub(crate) struct Exposure {
    peer: Peer,
    region: WindowDesc,
}

/// The memory that a peer may still touch.
#[derive(Debug)]
enum ExposedMemory {
    /// None: the owner has fresh pages instead.
    Nothing,
    Span(Span),
    Buffer {
        _keep: ConnBuffer,
        len: u64,
    },
}

/// A revoked window whose peer is not out yet: its word must not serve another window.
struct Quarantine {
    held: Mutex<ExposedMemory>,
    fence: Fence,
    link: Arc<Link>,
    region: WindowDesc,
    tally: Arc<Tally>,
}

impl Exposure {
    pub(crate) fn new(peer: Peer, region: WindowDesc) -> Self {
        Self { peer, region }
    }

    /// Refuses new accesses, and tells what ends those under way.
    fn begin(&self) -> Result<Fence> {
        let (window, epoch) = (self.region.window, self.region.epoch);
        let fence = {
            let mut data = self.peer.link.data();
            let fence = data
                .plane()
                .begin_revoke(window, epoch)
                .map_err(|e| e.with_peer(self.peer.rank()))?;
            self.peer.link.update_data_interest(&mut data);
            fence
        };
        // What waited for places that copies into it had in the inbox.
        self.peer.link.resume_background();
        // So that the peer forgets its mapping. The fence does not depend on it.
        let _ = self.peer.link.send(&ControlMessage::Revoke { window, epoch });
        Ok(fence)
    }

    fn wait_for(&self, fence: &Fence, until: WaitLimit) -> std::result::Result<(), WaitStopped> {
        let (window, epoch) = (self.region.window, self.region.epoch);
        match fence {
            Fence::Passed => Ok(()),
            Fence::Gate(gate) => {
                gate.wait_until(until, || self.peer.link.data().plane().peer_has_ended())
            }
            Fence::PeerAck => self.peer.link.drive(WaitScope::Both, until, |link: &Link| {
                let mut data = link.data();
                let over = data.plane().has_passed(fence, window, epoch);
                (over || data.plane().peer_has_ended()).then_some(())
            }),
        }
    }

    /// Takes it back. When the fence does not pass in time its place is in quarantine, and the memory has to follow
    /// ([`Exposure::lock_away`]).
    fn revoke(&self, timeout: Duration) -> Result<std::result::Result<(), (WaitStopped, Fence)>> {
        self.peer.shared.check_process()?;
        let until = self.peer.shared.until(timeout);
        let fence = self.begin()?;
        let over = self.wait_for(&fence, until);
        if let Err(stop @ WaitStopped::Forked) = over {
            return Err(stop.error("taking back a window"));
        }
        let (window, epoch) = (self.region.window, self.region.epoch);
        let mut data = self.peer.link.data();
        Ok(match over {
            Ok(()) => {
                data.plane().free_window(window, epoch);
                Ok(())
            }
            Err(stop) => {
                data.plane().quarantine(window, epoch);
                Err((stop, fence))
            }
        })
    }

    /// As [`Exposure::revoke`], without waiting. The fence that has not passed.
    fn try_revoke(&self) -> Option<Fence> {
        // An error: the place is unknown, it was fenced before.
        let fence = self.begin().ok()?;
        let (window, epoch) = (self.region.window, self.region.epoch);
        let mut data = self.peer.link.data();
        if data.plane().has_passed(&fence, window, epoch) {
            data.plane().free_window(window, epoch);
            return None;
        }
        data.plane().quarantine(window, epoch);
        Some(fence)
    }

    fn lock_away(&self, held: ExposedMemory, fence: Fence) {
        let (link, tally) = (Arc::clone(&self.peer.link), Arc::clone(&self.peer.shared.tally));
        tally.window_bytes.fetch_add(held.bytes(), Ordering::AcqRel);
        let held = Mutex::new(held);
        quarantine::keep(Arc::new(Quarantine { held, fence, link, region: self.region, tally }));
    }

    /// Why memory was locked away.
    fn refusal(&self, stop: WaitStopped, len: u64) -> Error {
        let error = match stop {
            WaitStopped::Interrupted => stop.error(format_args!(
                "taking back a window ({len} bytes stay in quarantine until the peer is out)"
            )),
            WaitStopped::Forked => stop.error(""),
            WaitStopped::Deadline => Error::new(
                ErrorKind::Quarantined,
                format!(
                    "{len} bytes stay in quarantine: the peer is in the middle of a copy and did not \
                     finish it in time; they return when it does or dies"
                ),
            ),
        };
        error.with_peer(self.peer.rank())
    }

    fn is_child(&self) -> bool {
        self.peer.shared.origin.is_child()
    }
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

    /// Takes the span back: from when this returns `Ok`, no byte of it is read or written by the
    /// peer. TCP: at once. Shared memory: when the peer's copy under way (at most 1 MiB) has ended.
    /// If it does not end by `timeout` (the peer is stopped, say) and the span starts and ends at pages, the
    /// span gets fresh pages with the same bytes, and the peer keeps the old ones for itself. Later windows
    /// of that region cannot be mapped any more: their bytes go through the local socket.
    ///
    /// # Errors
    /// `Quarantined` when the peer did not get out by `timeout` and the pages cannot be replaced. The range
    /// stays `Busy` in its region until the peer is out or its process has ended. `Interrupted`: the same, without
    /// fresh pages.
    pub fn revoke(mut self, timeout: Duration) -> Result<Span> {
        // An error leaves the span in: the drop looks once more.
        let over = self.grant.revoke(timeout)?;
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
        self.grant.region.extent.len()
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes the window back: from when this returns `Ok`, no byte of it is read or written by the peer through this
    /// window. As [`Window::revoke`], but for the fresh pages: others may have the same ones mapped.
    ///
    /// # Errors
    /// `Quarantined` when the peer did not get out by `timeout`: it may still touch the bytes until it is out or its process
    /// has ended. `Interrupted`: the same.
    pub fn revoke(mut self, timeout: Duration) -> Result<()> {
        let over = self.grant.revoke(timeout)?;
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

impl ExposedMemory {
    fn bytes(&self) -> u64 {
        match self {
            Self::Nothing => 0,
            Self::Span(span) => span.len(),
            Self::Buffer { len, .. } => *len,
        }
    }
}

impl Unfenced for Quarantine {
    fn peer(&self) -> Rank {
        self.link.peer
    }

    fn life(&self) -> PeerLife {
        self.link.data().plane().peer_life()
    }

    fn may_end_before(&self) -> bool {
        true
    }

    fn is_fenced(&self) -> bool {
        let passed = {
            let mut data = self.link.data();
            let plane = data.plane();
            plane.has_passed(&self.fence, self.region.window, self.region.epoch)
                || plane.peer_has_ended()
        };
        if !passed && matches!(self.fence, Fence::PeerAck) {
            // Without the peer's word a NIC's windows are closed by the clock, in a turn of the link. Nothing else may cause one.
            self.link.schedule();
        }
        passed
    }

    fn release(&self) {
        let held = std::mem::replace(&mut *lock(&self.held), ExposedMemory::Nothing);
        let bytes = held.bytes();
        self.link.data().plane().free_window(self.region.window, self.region.epoch);
        drop(held);
        // Last: who sees that nothing is held back may take the bytes.
        self.tally.window_bytes.fetch_sub(bytes, Ordering::AcqRel);
    }

    fn wakers(&self) -> &Arc<Wakers> {
        &self.link.wakers
    }

    fn pieces(&self, each: &mut dyn FnMut(u64, &'static str)) {
        each(lock(&self.held).bytes(), "the peer may be inside a window that was taken back");
    }
}
