//! Windows as the application holds them: exposed spans of ours, and exposed ranges of a peer.

use std::time::Duration;

use hmc_core::region::RemoteRegion;
use hmc_core::wire::message::Message as Wire;

use crate::error::{Error, ErrorKind, Result};
use crate::link::{Link, Watch};
use crate::memory::Span;
use crate::peer::Peer;
use crate::shared::{Shared, lock};
use crate::transport::Fence;
use crate::until::{Stop, Until};

/// A window of a peer, found by its label.
#[derive(Clone, Copy, Debug)]
pub struct RemoteWindow {
    pub(crate) region: RemoteRegion,
    pub(crate) link: u32,
}

impl RemoteWindow {
    /// Bytes in the window.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.region.extent.len()
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.region.extent.is_empty()
    }
}

/// A span of ours that a peer may access. [`Window::revoke`] takes it back; dropping it does the
/// same without waiting, and the span returns to its region when its fence has passed.
#[derive(Debug)]
pub struct Window {
    peer: Peer,
    span: Option<Span>,
    region: RemoteRegion,
}

/// A revoked window whose peer is not out yet: its word must not serve another window.
#[derive(Debug)]
pub(crate) struct Quarantine {
    /// The memory that the peer may still touch; `None` when the owner has fresh pages instead.
    span: Option<Span>,
    fence: Fence,
    peer: Peer,
    region: RemoteRegion,
}

impl Window {
    pub(crate) fn new(peer: Peer, span: Span, region: RemoteRegion) -> Self {
        Self { peer, span: Some(span), region }
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
        match &self.span {
            Some(span) => span.read_at(offset, out),
            None => Err(Error::new(ErrorKind::Revoked, "the window was revoked")),
        }
    }

    /// Copies `bytes` in at `offset`; the peer may be reading or changing them.
    ///
    /// # Errors
    /// `Range`.
    pub fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        match &mut self.span {
            Some(span) => span.write_at(offset, bytes),
            None => Err(Error::new(ErrorKind::Revoked, "the window was revoked")),
        }
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
        let until = self.peer.shared.until(timeout);
        let fence = self.begin()?;
        let Some(span) = self.span.take() else {
            return Err(Error::new(ErrorKind::Revoked, "the window was revoked before"));
        };
        let (window, epoch) = (self.region.window, self.region.epoch);
        let link = &self.peer.link;
        let Err(stop) = self.wait_for(&fence, until) else {
            link.data().port().fenced(window, epoch);
            return Ok(span);
        };
        link.data().port().quarantine(window, epoch);
        if stop == Stop::Deadline && span.renew_pages() {
            self.lock_away(None, fence);
            return Ok(span);
        }
        let len = span.len();
        self.lock_away(Some(span), fence);
        if stop == Stop::Interrupted {
            let what =
                format_args!("taking back a window ({len} bytes return when the peer is out)");
            return Err(stop.error(what).with_peer(self.peer.rank()));
        }
        Err(Error::new(
            ErrorKind::Quarantined,
            format!(
                "{len} bytes stay in quarantine: the peer is in the middle of a copy and did not \
                 finish it in time; they return when it does or dies"
            ),
        )
        .with_peer(self.peer.rank()))
    }

    fn wait_for(&self, fence: &Fence, until: Until) -> std::result::Result<(), Stop> {
        let (window, epoch) = (self.region.window, self.region.epoch);
        match fence {
            Fence::Passed => Ok(()),
            Fence::Shm(fence) => fence.wait_until(until),
            Fence::Word => self.peer.link.drive(Watch::Both, until, |link: &Link| {
                let mut data = link.data();
                let over = fence.has_passed(data.port(), window, epoch);
                (over || data.port().peer_has_ended()).then_some(())
            }),
        }
    }

    fn begin(&self) -> Result<Fence> {
        let (window, epoch) = (self.region.window, self.region.epoch);
        let fence = {
            let mut data = self.peer.link.data();
            let fence =
                data.port().revoke(window, epoch).map_err(|e| e.with_peer(self.peer.rank()))?;
            // Refusals of what was under way go out at once.
            if let Some(s) = data.port().stream() {
                s.flush();
            }
            self.peer.link.settle_data(&mut data);
            fence
        };
        // So that the peer forgets its mapping. The fence does not depend on it.
        let _ = self.peer.link.send(&Wire::Revoke { window, epoch });
        Ok(fence)
    }

    fn lock_away(&self, span: Option<Span>, fence: Fence) {
        let q = Quarantine { span, fence, peer: self.peer.clone(), region: self.region };
        lock(&self.peer.shared.quarantine).push(q);
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        if self.span.is_none() {
            return;
        }
        if self.peer.shared.fork.is_child() {
            // The window is the parent's.
            std::mem::forget(self.span.take());
            return;
        }
        let (window, epoch) = (self.region.window, self.region.epoch);
        // An error: the place is unknown, it was fenced before.
        let Ok(fence) = self.begin() else { return };
        let mut data = self.peer.link.data();
        if fence.has_passed(data.port(), window, epoch) {
            data.port().fenced(window, epoch);
            return;
        }
        data.port().quarantine(window, epoch);
        drop(data);
        let span = self.span.take();
        self.lock_away(span, fence);
    }
}

/// Bytes that are held back.
pub(crate) fn quarantined_bytes(shared: &Shared) -> u64 {
    let len = |q: &Quarantine| q.span.as_ref().map_or(0, Span::len);
    lock(&shared.quarantine).iter().map(len).fold(0, u64::saturating_add)
}

/// Gives back what has been fenced since.
pub(crate) fn tend_quarantine(shared: &Shared) {
    let mut all = lock(&shared.quarantine);
    if all.is_empty() {
        return;
    }
    let (free, kept) = std::mem::take(&mut *all).into_iter().partition::<Vec<_>, _>(|q| {
        let mut data = q.peer.link.data();
        let passed = q.fence.has_passed(data.port(), q.region.window, q.region.epoch);
        passed || data.port().peer_has_ended()
    });
    *all = kept;
    drop(all);
    for q in free {
        q.peer.link.data().port().fenced(q.region.window, q.region.epoch);
    }
}
