//! Progress of requests: what waits is posted, and completions are taken.

use std::{mem, slice};

use hmc_core::work::Completion;
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
    pub(super) fn advance_with(&mut self, receives: bool) -> bool {
        self.advance_into(receives, &mut Places::default())
    }

    /// As [`Self::advance_with`]. Completions of requests go to `out`.
    #[inline(never)]
    fn advance_into(&mut self, receives: bool, out: &mut Places<'_>) -> bool {
        match self.try_advance(receives, out) {
            Ok(any) => any,
            Err(failure) => {
                self.fail(failure);
                true
            }
        }
    }

    /// Posts what waits, and takes completions to `out`. A link of one queue pair that has nothing but short requests is not asked for
    /// anything else.
    #[inline(always)]
    pub(super) fn poll_into(&mut self, out: &mut [Completion]) -> usize {
        if self.rest() != 0 || !self.is_alone || self.worker.ended_by().is_some() {
            return self.poll_any(out);
        }
        let Some(lane) = self.lanes.first_mut() else { return 0 };
        self.is_put_off = false;
        let mut out = Places::new(out);
        let (requests, tags) = (&mut self.requests, &mut self.tags);
        match advance_alone(lane, &mut *self.completions, requests, tags, &mut out) {
            Ok(false) => {}
            Ok(true) if usize::from(self.tags.has_work()) | self.requests.rest() == 0 => {
                let worker = &*self.worker;
                worker.note_progress();
                if self.requests.is_empty() {
                    worker.set_busy(false);
                }
            }
            ended => return self.end_poll(ended, out),
        }
        out.used()
    }

    /// As [`Self::poll_into`], of any link.
    #[inline(never)]
    fn poll_any(&mut self, out: &mut [Completion]) -> usize {
        let mut out = Places::new(out);
        self.requests.take_done(&mut out);
        let _ = self.advance_into(false, &mut out);
        // Those that were kept: failures, tags that were sent after their bytes, and what came behind them.
        self.requests.take_done(&mut out);
        out.used()
    }

    /// Does what follows from a failure, or from completions that not only end short requests.
    #[cold]
    fn end_poll(&mut self, ended: Result<bool, Box<LaneFailure>>, mut out: Places<'_>) -> usize {
        if let Err(failure) = ended.and_then(|_| self.settle()) {
            self.fail(failure);
        }
        self.requests.take_done(&mut out);
        out.used()
    }

    /// Returns 0 if no bind, tag, longer request or kept completion wants anything.
    #[inline(always)]
    fn rest(&self) -> usize {
        let [binds, tags] = [self.exposed.is_binding(), self.tags.has_work()].map(usize::from);
        binds | tags | self.backlog.len() | self.requests.rest()
    }

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
        if taken {
            self.settle()?;
        }
        Ok(any | taken)
    }

    /// Takes completions, at most [`super::MAX_COMPLETIONS`] of each NIC. Returns whether there were any.
    fn take_completions(&mut self, out: &mut Places<'_>) -> Result<bool, Box<LaneFailure>> {
        let (mut failure, mut any) = (None, false);
        let (lanes, requests, tags) = (&mut self.lanes, &mut self.requests, &mut self.tags);
        for nic in &self.nics {
            let taken = nic.cq.poll(&mut *self.completions).map_err(Into::into);
            let completed = taken.and_then(|done| {
                any |= !done.is_empty();
                if failure.is_some() {
                    // Behind a failure other queue pairs may have succeeded.
                    complete_successes(lanes, done, requests, tags, out);
                    return Ok(());
                }
                complete_all(lanes, done, requests, tags, out)
            });
            failure = failure.or(completed.err());
        }
        failure.map_or(Ok(any), Err)
    }

    /// Does what follows from completions.
    fn settle(&mut self) -> Result<(), Box<LaneFailure>> {
        if self.tags.has_work() {
            self.end_receives()?;
        }
        if !self.backlog.is_empty() || self.owes_messages() {
            // What has space now. After it only completions make space.
            self.submit()?;
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
                let (requests, tags) = (&mut self.requests, &mut self.tags);
                complete_successes(&mut self.lanes, taken, requests, tags, out);
            }
        }
    }
}

/// Posts what waits for the only queue pair of a link, and takes its completions. Returns whether there were any.
#[inline(always)]
fn advance_alone(
    lane: &mut Lane,
    completions: &mut [ibv_wc],
    requests: &mut RequestTable,
    tags: &mut Tags,
    out: &mut Places<'_>,
) -> Result<bool, Box<LaneFailure>> {
    lane.submit()?;
    if requests.is_empty() && lane.is_idle() {
        return Ok(false);
    }
    let done = lane.cq().poll(completions)?;
    complete_all(slice::from_mut(lane), done, requests, tags, out)?;
    Ok(!done.is_empty())
}

/// Completions of one queue, the oldest first. Behind a failure those of other queue pairs may have succeeded.
#[inline(always)]
fn complete_all(
    lanes: &mut [Lane],
    done: &[ibv_wc],
    requests: &mut RequestTable,
    tags: &mut Tags,
    out: &mut Places<'_>,
) -> Result<(), Box<LaneFailure>> {
    let mut done = done.iter();
    while let Some(wc) = done.next() {
        if let Some(lane) = lanes.get_mut(lane_of(wc))
            && wc.status == IBV_WC_SUCCESS
        {
            lane.complete(wc.wr_id, requests, out);
        } else if let Err(failure) = complete_other(lanes, wc, requests, tags) {
            // The address of `out` is not given away: it may stay in registers.
            let mut places = mem::take(out);
            complete_successes(lanes, done.as_slice(), requests, tags, &mut places);
            *out = places;
            return Err(failure);
        }
    }
    Ok(())
}

/// As [`complete_all`], of those that have succeeded.
#[cold]
fn complete_successes(
    lanes: &mut [Lane],
    done: &[ibv_wc],
    requests: &mut RequestTable,
    tags: &mut Tags,
    out: &mut Places<'_>,
) {
    for wc in done.iter().filter(|wc| wc.status == IBV_WC_SUCCESS) {
        match lanes.get_mut(lane_of(wc)) {
            Some(lane) => lane.complete(wc.wr_id, requests, out),
            None => {
                // A receive that breaks the protocol is behind the failure.
                let _ = complete_other(lanes, wc, requests, tags);
            }
        }
    }
}

/// A completion of a work request that has failed, or of a receive of the first queue pair.
#[inline(never)]
fn complete_other(
    lanes: &mut [Lane],
    wc: &ibv_wc,
    requests: &mut RequestTable,
    tags: &mut Tags,
) -> Result<(), Box<LaneFailure>> {
    match lanes.get_mut(lane_of(wc)) {
        Some(lane) => Err(lane.fail(wc, requests)),
        None => lanes.first().map_or(Ok(()), |lane| lane.receive(wc, tags)),
    }
}
