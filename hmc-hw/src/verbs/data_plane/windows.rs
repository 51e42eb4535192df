//! Windows of this end: their end.

use std::sync::Arc;

use hmc_mem::registered::Registered;

use super::VerbsDataPlane;
use crate::verbs::error::VerbsError;
use crate::verbs::exposed::Entrance;
use crate::verbs::lane::LaneFailure;

impl<M: Registered> VerbsDataPlane<M> {
    /// Ends what lets the peer in, which is the fence. What does not end ends the link: the end of its queue pairs keeps the peer out.
    pub(super) fn end_entrances(&mut self, entrances: impl IntoIterator<Item = Entrance>) {
        for entrance in entrances {
            match entrance {
                Entrance::Region(region) => self.release([Arc::new(region)]),
                Entrance::Windows(set) => {
                    let mut regions = Vec::new();
                    let ended = set.end(&mut regions);
                    self.release(regions);
                    self.keep_if_open(ended);
                }
            }
        }
    }

    fn keep_if_open(&mut self, ended: Result<(), VerbsError>) {
        if let Err(e) = ended {
            self.keeps_memory = true;
            self.fail(LaneFailure::Call(e));
        }
    }

    /// Ends windows that are over. If the bind of one is still under way after the peer's time for it, behind requests that do not
    /// complete, the link ends.
    pub(super) fn end_revoked(&mut self) -> bool {
        let now = self.domain.host().now();
        let ended = self.exposed.take_ended(now);
        let any = !ended.is_empty();
        self.end_entrances(ended);
        if self.exposed.is_stuck(now) && !self.lanes.is_empty() {
            let e = VerbsError::new("binding a window", &self.lane_name, libc::ETIMEDOUT);
            self.fail(LaneFailure::Call(e));
            return true;
        }
        any
    }
}
