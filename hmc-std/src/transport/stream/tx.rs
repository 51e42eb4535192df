//! Outgoing frames: headers and small payload are copied to a staging buffer; large payload is sent from where it lies.

use hmc_core::limits::MAX_GATHERED_FRAMES;
use hmc_core::range::ByteRange;
use hmc_core::region::{Epoch, WindowId};
use hmc_core::wire::data::{DATA_FRAME_BYTES, DataFrame};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use crate::memory::Region;

/// Bytes of the staging buffer.
const STAGE_BYTES: usize = 16 * 1024;
/// Payload up to this size is copied next to its header, so that many frames share one send(2).
pub(super) const SMALL_BYTES: u64 = 2048;
/// What the payload being sent belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// Our request of that number.
    Request(u32),
    /// Our answer to the peer's request of that number, from one of our windows.
    Reply { window: WindowId, epoch: Epoch },
}

#[derive(Debug)]
pub(super) struct Body {
    /// `None` when the memory was taken back: zeros fill the frame.
    pub(super) region: Option<Region>,
    pub(super) range: ByteRange,
    pub(super) owner: Owner,
}

#[derive(Debug)]
pub(super) struct Tx {
    pub(super) stage: Vec<u8>,
    pub(super) sent: usize,
    /// Payload that follows what is staged.
    pub(super) bodies: VecDeque<Body>,
    pub(super) reply_turn: bool,
    /// Descriptors to send, ahead of everything else.
    pub(super) offers: VecDeque<Offer>,
    /// The kernel takes none now, whatever space the socket has.
    pub(super) held: bool,
}

/// A descriptor to pass to the peer, with the frame that says what it is.
#[derive(Debug)]
pub(crate) struct Offer {
    pub(crate) frame: DataFrame,
    pub(crate) fd: OwnedFd,
}

impl Tx {
    pub(super) fn new() -> Self {
        Self {
            stage: Vec::with_capacity(STAGE_BYTES),
            sent: 0,
            bodies: VecDeque::new(),
            reply_turn: false,
            offers: VecDeque::new(),
            held: false,
        }
    }

    pub(super) fn clear(&mut self) {
        self.stage.clear();
        self.sent = 0;
        self.bodies.clear();
    }

    pub(super) fn is_idle(&self) -> bool {
        self.stage.is_empty() && self.bodies.is_empty()
    }

    pub(super) fn has_space(&self) -> bool {
        let frame = DATA_FRAME_BYTES.saturating_add(usize::try_from(SMALL_BYTES).unwrap_or(0));
        self.bodies.is_empty() && self.stage.len().saturating_add(frame) <= STAGE_BYTES
    }

    /// Frames whose headers can be staged together, behind the one that announces them.
    pub(super) fn space_to_gather(&self) -> usize {
        let heads = STAGE_BYTES.saturating_sub(self.stage.len()) / DATA_FRAME_BYTES;
        heads.saturating_sub(1).min(MAX_GATHERED_FRAMES)
    }

    pub(super) fn head(&mut self, frame: &DataFrame) {
        self.stage.extend_from_slice(&frame.emit());
    }

    /// Appends payload: copied when small, else left in place to be sent after the stage.
    pub(super) fn payload(&mut self, region: &Region, range: ByteRange, owner: Owner) -> bool {
        if range.len() > SMALL_BYTES {
            self.body(Some(region), range, owner);
            return false;
        }
        let from = self.stage.len();
        let to = from.saturating_add(usize::try_from(range.len()).unwrap_or(0));
        self.stage.resize(to, 0);
        if let Some(place) = self.stage.get_mut(from..to) {
            // The range was resolved against this region, so it fits.
            let _ = region.bytes().read_at(range, place);
        }
        true
    }

    /// Leaves payload in place, to be sent after the stage and the payload before it.
    pub(super) fn body(&mut self, region: Option<&Region>, range: ByteRange, owner: Owner) {
        if self.bodies.capacity() == 0 {
            self.bodies.reserve_exact(MAX_GATHERED_FRAMES);
        }
        self.bodies.push_back(Body { region: region.cloned(), range, owner });
    }

    /// Whether local memory of request `seq` is being sent from.
    pub(super) fn body_of(&self, seq: u32) -> bool {
        self.bodies.iter().any(|b| b.owner == Owner::Request(seq))
    }

    /// Stops reading from a window: the rest of its frames becomes zeros, which the peer discards. Its pages are offered no more.
    pub(super) fn divert_window(&mut self, window: WindowId, epoch: Epoch) {
        self.offers.retain(|o| o.frame.window != window || o.frame.epoch != epoch);
        let its = self.bodies.iter_mut().filter(|b| b.owner == (Owner::Reply { window, epoch }));
        its.for_each(|b| b.region = None);
    }
}
