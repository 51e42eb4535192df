//! What a peer was allowed to access of our memory, and how that is taken back, whatever the memory is.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use hmc_core::region::{Epoch, WindowDesc, WindowId};
use hmc_core::types::Rank;
use hmc_core::wire::message::ControlMessage;

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::lock::lock;
use crate::base::wait_limit::{WaitLimit, WaitStopped};
use crate::callbacks::wakers::Wakers;
use crate::link::{Link, WaitScope};
use crate::memory::{ConnBuffer, Span};
use crate::ops::peer_handle::Peer;
use crate::quarantine::{self, Tally, Unfenced};
use crate::transport::data_plane::Fence;
use crate::transport::stream::PeerLife;

/// How a window was taken back: in order, or why that is not over, and its fence.
pub(crate) type TakenBack = std::result::Result<(), (WaitStopped, Fence)>;

/// A window of ours, apart from its memory.
#[derive(Clone, Debug)]
pub struct Exposure {
    peer: Peer,
    region: WindowDesc,
}

/// The memory that a peer may still touch.
#[derive(Debug)]
pub enum ExposedMemory {
    /// None: the owner has fresh pages instead.
    Nothing,
    Span(Span),
    Buffer {
        _keep: ConnBuffer,
        len: u64,
    },
}

/// A revoked window whose peer is not out yet: its gates must not serve another window.
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
    pub(super) fn begin(&self) -> Result<Fence> {
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

    /// Waits for the fence that [`Exposure::begin`] gave. When it does not pass in time the window's place is in quarantine, and
    /// the memory has to follow ([`Exposure::lock_away`]).
    ///
    /// # Errors
    /// `Forked`.
    pub(super) fn finish(&self, fence: Fence, until: WaitLimit) -> Result<TakenBack> {
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

    /// Whether the fence has passed already: then the window is gone.
    pub(super) fn has_passed(&self, fence: &Fence) -> bool {
        let (window, epoch) = (self.region.window, self.region.epoch);
        let mut data = self.peer.link.data();
        let passed = data.plane().has_passed(fence, window, epoch);
        if passed {
            data.plane().free_window(window, epoch);
        }
        passed
    }

    /// Its id and epoch.
    pub(super) fn name(&self) -> (WindowId, Epoch) {
        (self.region.window, self.region.epoch)
    }

    /// Bytes in the window.
    pub(super) fn len(&self) -> u64 {
        self.region.extent.len()
    }

    pub(super) fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Takes it back without waiting. The fence that has not passed.
    pub(super) fn try_revoke(&self) -> Option<Fence> {
        // An error: the place is unknown, it was fenced before.
        let fence = self.begin().ok()?;
        if self.has_passed(&fence) {
            return None;
        }
        let (window, epoch) = (self.region.window, self.region.epoch);
        self.peer.link.data().plane().quarantine(window, epoch);
        Some(fence)
    }

    pub(super) fn lock_away(&self, held: ExposedMemory, fence: Fence) {
        let (link, tally) = (Arc::clone(&self.peer.link), Arc::clone(&self.peer.shared.tally));
        tally.window_bytes.fetch_add(held.bytes(), Ordering::AcqRel);
        let held = Mutex::new(held);
        quarantine::keep(Arc::new(Quarantine { held, fence, link, region: self.region, tally }));
    }

    /// Why memory was locked away.
    pub(super) fn refusal(&self, stop: WaitStopped, len: u64) -> Error {
        let error = match stop {
            WaitStopped::Interrupted => stop.error(format_args!(
                "taking back a window ({len} bytes stay in quarantine until the peer is out)"
            )),
            WaitStopped::Forked => stop.error(""),
            WaitStopped::Deadline => Error::new(
                ErrorKind::Quarantined,
                format!(
                    "{len} bytes stay in quarantine: the peer is in the middle of a copy and did not \
                     finish it in time"
                ),
            )
            .with_remedy("they return when it does or dies"),
        };
        error.with_peer(self.peer.rank())
    }

    pub(super) fn is_child(&self) -> bool {
        self.peer.shared.origin.is_child()
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
