//! Progress of requests: what waits is posted, and completions are taken.

use hmc_mem::registered::Registered;

use super::VerbsDataPlane;
use crate::verbs::lane::{Lane, LaneFailure, lane_of};
use crate::verbs::requests::{Places, RequestTable};
use crate::verbs::sys::{IBV_WC_SUCCESS, ibv_wc};
use crate::verbs::tags::Tags;

impl<M: Registered> VerbsDataPlane<M> {
    /// Posts what waits, and takes completions of this end's requests. Returns whether anything happened.
    pub(super) fn advance(&mut self) -> bool {
        self.advance_with(false)
    }

    /// As [`Self::advance`]. `receives`: also if there can only be some of the peer's.
    #[inline(never)]
    pub(super) fn advance_with(&mut self, receives: bool) -> bool {
        self.advance_into(receives, &mut Places::default())
    }

    /// As [`Self::advance_with`]. Completions of requests go to `out`.
    #[inline(always)]
    pub(super) fn advance_into(&mut self, receives: bool, out: &mut Places<'_>) -> bool {
        match self.try_advance(receives, out) {
            Ok(any) => any,
            Err(failure) => {
                self.fail(failure);
                true
            }
        }
    }

    #[inline(always)]
    fn try_advance(
        &mut self,
        receives: bool,
        out: &mut Places<'_>,
    ) -> Result<bool, Box<LaneFailure>> {
        if self.lanes.is_empty() {
            return Ok(false);
        }
        self.is_put_off = false;
        if let Some((nic, event)) = self.worker.ended_by() {
            return Err(Box::new(LaneFailure::Event(nic, event)));
        }
        if !self.is_connected {
            return Ok(false);
        }
        if self.exposed.is_binding() {
            self.exposed.post_binds(&mut self.lanes)?;
        }
        if self.tags.is_paused() {
            self.tags.deliver(false);
        }
        let any = self.submit()?;
        if !receives && self.requests.is_idle() && self.lanes.iter().all(Lane::is_idle) {
            return Ok(any);
        }
        let taken = self.take_completions(out)?;
        if taken != 0 {
            self.settle()?;
        }
        Ok(any | (taken != 0))
    }

    /// Takes completions, at most [`MAX_COMPLETIONS`] of each NIC. Returns their number.
    #[inline(always)]
    fn take_completions(&mut self, out: &mut Places<'_>) -> Result<usize, Box<LaneFailure>> {
        let (mut failure, mut taken) = (None, 0_usize);
        for nic in &self.nics {
            let done = match nic.cq.poll(&mut *self.completions) {
                Ok(done) => done,
                Err(e) => {
                    failure = Some(first(failure, e.into()));
                    continue;
                }
            };
            taken = taken.wrapping_add(done.len());
            for wc in done {
                // Behind a failure other queue pairs may have succeeded.
                if (failure.is_none() || wc.status == IBV_WC_SUCCESS)
                    && let Err(e) =
                        complete(&mut self.lanes, wc, &mut self.requests, &mut self.tags, out)
                {
                    failure = Some(first(failure, e));
                }
            }
        }
        failure.map_or(Ok(taken), Err)
    }

    /// Does what follows from completions.
    #[inline(always)]
    fn settle(&mut self) -> Result<(), Box<LaneFailure>> {
        if self.tags.has_work() {
            self.end_receives()?;
        }
        if !self.backlog.is_empty() || self.owes_messages() {
            // What has space now. After it only completions make space.
            self.submit_more()?;
        }
        if self.exposed.is_binding() {
            self.exposed.settle(&self.lanes);
        }
        if self.requests.is_idle() {
            self.worker.set_busy(self.exposed.is_binding());
        }
        self.worker.note_progress();
        Ok(())
    }

    /// What has completed before the end is done. The rest fails.
    pub(super) fn take_successes(&mut self) {
        let out = &mut Places::default();
        for nic in &self.nics {
            while let Ok(taken @ [_, ..]) = nic.cq.poll(&mut *self.completions) {
                for wc in taken.iter().filter(|wc| wc.status == IBV_WC_SUCCESS) {
                    // It is no failure.
                    let _ = complete(&mut self.lanes, wc, &mut self.requests, &mut self.tags, out);
                }
            }
        }
    }
}

/// The failure that came first.
#[cold]
fn first(before: Option<Box<LaneFailure>>, next: Box<LaneFailure>) -> Box<LaneFailure> {
    before.unwrap_or(next)
}

/// A completion of a work request of one of the queue pairs, or of a receive of the first.
#[inline(always)]
fn complete(
    lanes: &mut [Lane],
    wc: &ibv_wc,
    requests: &mut RequestTable,
    tags: &mut Tags,
    out: &mut Places<'_>,
) -> Result<(), Box<LaneFailure>> {
    match lanes.get_mut(lane_of(wc)) {
        Some(lane) => lane.complete(wc, requests, out),
        None => lanes.first().map_or(Ok(()), |lane| lane.receive(wc, tags)),
    }
}
