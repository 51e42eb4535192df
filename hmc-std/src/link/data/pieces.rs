//! The pieces of a pipeline as operations of a link: each holds the region that it reads or writes until its fence.

use hmc_core::pipeline::Operations;
use hmc_core::queue::{QueueError, Transfer};
use hmc_core::slots::{Outcome, SlotId, Stale};
use hmc_core::time::Instant;
use hmc_core::transport::PostErrorKind;

use super::DataState;
use crate::link::op_resources::OpResources;
use crate::memory::Region;

/// Where a pipeline over `region` posts. Whoever makes it keeps a handle of the region of its own: what a piece holds is
/// dropped under the link's lock, where no last handle may go.
pub(crate) struct Pieces<'a> {
    pub(crate) data: &'a mut DataState,
    pub(crate) region: &'a Region,
}

impl Operations for Pieces<'_> {
    type Error = PostErrorKind;

    fn post(
        &mut self,
        t: &Transfer,
        deadline: Instant,
    ) -> Result<SlotId, QueueError<PostErrorKind>> {
        self.data.post(t, deadline, &mut OpResources::region(self.region.clone()))
    }

    fn outcome(&self, op: SlotId) -> Result<Option<Outcome>, Stale> {
        self.data.outcome(op)
    }

    fn take(&mut self, op: SlotId) {
        let _ = self.data.take(op);
    }

    fn cancel(&mut self, op: SlotId) {
        let _ = self.data.cancel(op);
    }

    fn abandon(&mut self, op: SlotId) {
        let _ = self.data.queue.abandon(op);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::arithmetic_side_effects, clippy::unwrap_used, reason = "tests may panic")]

    use std::num::NonZeroU64;

    use std::os::unix::net::UnixStream;
    use std::sync::Arc;

    use hmc_core::limits::MAX_STREAM_REQUESTS;
    use hmc_core::pipeline::{Pipeline, PipelineStatus};
    use hmc_core::range::{Extent, Side};
    use hmc_core::region::{Epoch, WindowId, WindowSlice};

    use hmc_core::work::{CompleteWhen, Failure, Opcode};

    use super::*;
    use crate::link::deferred::Deferred;
    use crate::link::ends::silent_peer;
    use crate::memory::RegionTable;

    use crate::transport::data_plane::AnyDataPlane;

    const CHUNK: u64 = 1 << 20;
    const LEN: u64 = 4 * CHUNK;

    /// A link of so many slots to a peer that reads nothing: what is posted stays under way.
    fn stopped_peer(slots: usize) -> (DataState, UnixStream) {
        let (stream, theirs) = silent_peer();
        (DataState::new(AnyDataPlane::new(stream), slots, true, false), theirs)
    }

    #[test]
    fn each_piece_holds_its_region_until_its_fence() {
        let region = Arc::new(RegionTable::default()).allocate(LEN).unwrap();
        let (mut data, _theirs) = stopped_peer(8);
        let local = region.slice(0, LEN).unwrap();
        let span = Extent::new(LEN).span(Side::Remote, 0, LEN).unwrap();
        let remote = WindowSlice { window: WindowId(0), epoch: Epoch(1), span };
        let t = Transfer { opcode: Opcode::Put, when: CompleteWhen::Visible, local, remote };
        let chunk = NonZeroU64::new(CHUNK).unwrap();
        let mut pipe = Pipeline::new(&t, chunk, 3, Instant::NEVER).unwrap();
        let mut pieces = Pieces { data: &mut data, region: &region };
        assert_eq!(pipe.advance(&mut pieces, Instant::ZERO), PipelineStatus::Pending);
        assert_eq!(pipe.in_flight(), 3);
        let holders =
            |data: &DataState| data.queue.unfenced().flat_map(OpResources::held_regions).count();
        assert_eq!(holders(&data), 3, "each of the pieces under way holds its memory");
        // A peer that is gone, and with it the pieces.
        let mut after = Deferred::default();
        data.close(true, &mut after);
        after.release(&crate::callbacks::wakers::Wakers::closed());
        pipe.abandon(&mut Pieces { data: &mut data, region: &region });
        assert_eq!(holders(&data), 0, "what was fenced is let go of");
    }
    /// Busy never leaves the queue: what the transport has no space for waits in its record, is counted as under way, can be
    /// withdrawn, and ends with the link.
    #[test]
    fn what_the_transport_has_no_space_for_waits_in_its_record() {
        const SLOTS: usize = MAX_STREAM_REQUESTS + 44;
        let region = Arc::new(RegionTable::default()).allocate(8).unwrap();
        let (mut data, _theirs) = stopped_peer(SLOTS);
        let span = Extent::new(8).span(Side::Remote, 0, 8).unwrap();
        let remote = WindowSlice { window: WindowId(0), epoch: Epoch(1), span };
        let local = region.slice(0, 8).unwrap();
        let t = Transfer { opcode: Opcode::Put, when: CompleteWhen::Visible, local, remote };
        let mut after = Deferred::default();
        let post = |data: &mut DataState| {
            data.post(&t, Instant::NEVER, &mut OpResources::region(region.clone()))
        };
        let ops: Vec<_> = (0..SLOTS).map(|_| post(&mut data).unwrap()).collect();
        assert_eq!(post(&mut data), Err(QueueError::Full { limit: SLOTS }));
        let held = |data: &DataState| {
            (
                data.queue.in_flight(),
                data.queue.unfenced().flat_map(OpResources::held_regions).count(),
            )
        };
        assert!(data.queue.has_waiting());
        assert_eq!(held(&data), (SLOTS, SLOTS));
        // One that waits is withdrawn at once: nobody else has it.
        let last = *ops.last().unwrap();
        data.cancel(last).unwrap();
        data.progress(&mut after);
        let cancelled = Outcome { result: Err(Failure::Cancelled), fenced: true };
        assert_eq!(data.take(last).unwrap().unwrap().0, cancelled);
        assert_eq!(held(&data), (SLOTS - 1, SLOTS - 1));
        let reused = post(&mut data).unwrap();
        assert_eq!(reused.index, last.index);
        // The others end with the link, and let go of what they hold.
        data.close(true, &mut after);
        while after.is_full() {
            after.release(&crate::callbacks::wakers::Wakers::closed());
            data.drain(&mut after);
        }
        let dead = Outcome { result: Err(Failure::PeerDead), fenced: true };
        let all = ops.iter().take(SLOTS - 1).chain([&reused]);
        assert!(all.into_iter().all(|op| data.take(*op).unwrap().unwrap().0 == dead));
        assert_eq!(held(&data), (0, 0));
    }
}
