//! Tags of puts, by the first queue pair.

use hmc_mem::registered::Registered;

use super::VerbsDataPlane;
use crate::verbs::chain::RdmaAccess;
use crate::verbs::error::VerbsError;
use crate::verbs::lane::{Lane, LaneFailure};
use crate::verbs::requests::RequestTable;
use crate::verbs::send_queue::Piece;
use crate::verbs::tags::{RECEIVES, TagParts};

/// A write without bytes: its key and address are not looked at (InfiniBand specification, volume 1, C9-88).
const NOTHING: RdmaAccess = RdmaAccess {
    is_read: false,
    address: 0,
    lkey: 0,
    len: 0,
    remote_address: 0,
    rkey: 0,
    immediate: None,
};

impl<M: Registered> VerbsDataPlane<M> {
    /// Posts the receives for the peer's tags.
    ///
    /// # Errors
    /// [`VerbsError`].
    pub(super) fn begin_receiving(&self) -> Result<(), VerbsError> {
        self.lanes.first().map_or(Ok(()), |lane| lane.post_receives(RECEIVES))
    }

    /// Whether a tag may go along with its bytes now. If so, the peer's receives for it are taken.
    #[inline]
    pub(super) fn can_send_now(&mut self, tag: TagParts) -> bool {
        // Behind those that wait.
        !self.requests.has_notifies()
            && has_space(&self.lanes, tag)
            && self.tags.try_take(tag.receives())
    }

    /// Whether a tag whose bytes are there waits, or the peer is to be told of receives.
    #[inline]
    pub(super) fn owes_messages(&self) -> bool {
        self.requests.has_notifies() || self.tags.owes_return()
    }

    /// Whether [`Self::push_messages`] would push one.
    pub(super) fn has_messages(&self) -> bool {
        let has_tag = |tag| has_space(&self.lanes, tag) && self.tags.has_left(tag.receives());
        next_tag(&self.requests).is_some_and(has_tag)
            || self.tags.owes_return() && self.lanes.first().is_some_and(Lane::has_space)
    }

    /// Pushes what there is space for of the messages that are owed, and posts receives again.
    ///
    /// # Errors
    /// [`LaneFailure`].
    #[cold]
    pub(super) fn push_messages(&mut self) -> Result<(), Box<LaneFailure>> {
        while self.tags.owes_return() {
            let Some(lane) = self.lanes.first_mut().filter(|lane| lane.has_space()) else { break };
            // Before the peer may use them.
            lane.post_receives(self.tags.take_return())?;
            lane.push_message(None)?;
        }
        while let Some(tag) = next_tag(&self.requests) {
            if !has_space(&self.lanes, tag) || !self.tags.try_take(tag.receives()) {
                break;
            }
            let (Some(lane), Some(record)) =
                (self.lanes.first_mut(), self.requests.begin_next_tag())
            else {
                break;
            };
            if let Some(high) = tag.high {
                lane.push_message(Some(high))?;
            }
            let access = RdmaAccess { immediate: Some(tag.low), ..NOTHING };
            lane.push(&access, Piece::Plain(record))?;
            // Someone waits for it, and its bytes have been there for a while.
            self.has_posted = true;
            self.worker.set_busy(true);
            self.worker.set_awaited();
        }
        Ok(())
    }

    /// Delivers the tags that have come, and posts receives again without a message to the peer.
    ///
    /// # Errors
    /// [`LaneFailure`].
    pub(super) fn end_receives(&mut self) -> Result<(), Box<LaneFailure>> {
        self.tags.deliver(false);
        let spent = self.tags.take_spent();
        if spent != 0
            && let Some(lane) = self.lanes.first()
        {
            lane.post_receives(spent)?;
        }
        Ok(())
    }
}

/// The oldest tag whose bytes are there.
#[inline]
fn next_tag(requests: &RequestTable) -> Option<TagParts> {
    Some(TagParts::of_tag(requests.next_tag()?))
}

/// Whether the queue pair that carries tags has space for one.
#[inline]
fn has_space(lanes: &[Lane], tag: TagParts) -> bool {
    lanes.first().is_some_and(|lane| lane.has_space_for(tag.receives()))
}
