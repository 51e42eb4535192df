//! Records of one subject: accepted requests, completions, and the time without progress.
//!
//! Each case posts and polls through it, so that each finds completions that are doubled, missing, of no request or with a
//! wrong number of bytes.

use std::collections::HashMap;
use std::time::Instant;

use hmc_core::limits::MAX_SLOTS;
use hmc_core::slots::SlotId;
use hmc_core::transport::{CancelOutcome, PostErrorKind, Transport, TransportError};
use hmc_core::types::{Access, Caps};
use hmc_core::work::{CompleteWhen, Completion, Failure, Opcode, WorkRequest};

use super::report::Stop;
use super::subject::{IdleLimit, Subject};
use crate::rng::Rng;

/// The result of a request.
pub(super) type Outcome = Result<u64, Failure>;

/// Fills the output array before a poll; no request has this name.
const NOBODY: Completion =
    Completion { op: SlotId { index: u16::MAX, generation: u32::MAX }, result: Ok(u64::MAX) };

#[derive(Debug)]
pub(super) struct CompletionChecker<'s, S: Subject> {
    pub(super) subject: &'s mut S,
    pub(super) rng: Rng,
    idle_limit: IdleLimit,
    posted: u32,
    /// Bytes of each request that was accepted and has not completed.
    open: HashMap<SlotId, Vec<u64>>,
    done: HashMap<SlotId, Vec<Outcome>>,
    idle_steps: u64,
    idle_since: Instant,
}

/// The checker as a case gets it.
pub(super) type L<'l, 's, S> = &'l mut CompletionChecker<'s, S>;

impl<'s, S: Subject> CompletionChecker<'s, S> {
    pub(super) fn new(subject: &'s mut S) -> Self {
        Self {
            idle_limit: subject.idle_limit(),
            rng: Rng::new(subject.seed()),
            subject,
            posted: 0,
            open: HashMap::new(),
            done: HashMap::new(),
            idle_steps: 0,
            idle_since: Instant::now(),
        }
    }

    /// A fresh pair. Nothing may be open on the last one.
    pub(super) fn fresh(&mut self, local: u64, window: u64, access: Access) -> Result<(), Stop> {
        self.open.clear();
        self.done.clear();
        self.subject.fresh(local, window, access)?;
        self.reset_idle();
        Ok(())
    }

    /// Skips the case unless the transport can do `caps`.
    pub(super) fn need(&mut self, caps: Caps) -> Result<(), Stop> {
        let missing = caps.difference(self.subject.transport().caps());
        if missing.is_empty() {
            return Ok(());
        }
        Err(Stop::Skipped(format!("the transport has no {missing:?}")))
    }

    /// A name that no open request has. Indexes stay below `MAX_SLOTS`, as a work queue's do.
    pub(super) fn name(&mut self) -> SlotId {
        let slots = u32::try_from(MAX_SLOTS).unwrap_or(1 << 10);
        let index = u16::try_from(self.posted % slots).unwrap_or(0);
        let generation = 1 + self.posted / slots;
        self.posted += 1;
        SlotId { index, generation }
    }

    /// A request between the region and the window, within both.
    pub(super) fn request(
        &mut self,
        opcode: Opcode,
        local: u64,
        remote: u64,
        len: u64,
    ) -> WorkRequest {
        WorkRequest {
            op: self.name(),
            opcode,
            when: CompleteWhen::Visible,
            local: self.subject.local().slice(local, len).expect("within the region"),
            remote: self.subject.remote().slice(remote, len).expect("within the window"),
        }
    }

    /// Posts once.
    pub(super) fn try_post(&mut self, work: &WorkRequest) -> Result<(), PostErrorKind> {
        let posted = self.subject.transport().post(work);
        posted.map_err(|e| e.kind())?;
        self.open.entry(work.op).or_default().push(work.local.span.len());
        Ok(())
    }

    /// Posts until the transport accepts.
    pub(super) fn post(&mut self, work: &WorkRequest) -> Result<SlotId, Stop> {
        loop {
            match self.try_post(work) {
                Ok(()) => return Ok(work.op),
                Err(PostErrorKind::Busy) => self.step(8).map(|_| ())?,
                Err(kind) => return Err(format!("{work:?} was refused: {kind:?}").into()),
            }
        }
    }

    /// Polls once for at most `limit` completions, without driving.
    pub(super) fn poll(&mut self, limit: usize) -> Result<usize, Stop> {
        let mut out = vec![NOBODY; limit];
        let n = self.subject.transport().poll(&mut out);
        if n > limit {
            return Err(format!("poll wrote {n} completions into a buffer for {limit}").into());
        }
        for completion in &out[..n] {
            self.record(completion)?;
        }
        if n != 0 {
            self.reset_idle();
        }
        Ok(n)
    }

    fn record(&mut self, completion: &Completion) -> Result<(), Stop> {
        let Completion { op, result } = *completion;
        let Some(lens) = self.open.get_mut(&op) else {
            return Err(format!(
                "completion {result:?} for {op:?}, of which none was due (twice, withdrawn, \
                 refused or never posted)"
            )
            .into());
        };
        let at = match result {
            Ok(len) => lens.iter().position(|l| *l == len),
            Err(_) => lens.len().checked_sub(1),
        };
        let Some(at) = at else {
            return Err(format!("{op:?} reports {result:?} but had requests of {lens:?}").into());
        };
        lens.swap_remove(at);
        if lens.is_empty() {
            self.open.remove(&op);
        }
        self.done.entry(op).or_default().push(result);
        Ok(())
    }

    fn reset_idle(&mut self) {
        self.idle_steps = 0;
        self.idle_since = Instant::now();
    }

    /// Drives once and polls once. Fails the case at the idle limit.
    pub(super) fn step(&mut self, limit: usize) -> Result<usize, Stop> {
        self.subject.drive();
        let n = self.poll(limit)?;
        if n == 0 {
            self.idle_steps += 1;
            if self.idle_steps.is_multiple_of(64) {
                std::thread::yield_now();
                let late = self.idle_since.elapsed() > self.idle_limit.time;
                if late || self.idle_steps > self.idle_limit.turns {
                    return Err(format!(
                        "nothing happened for {} turns; open: {:?}",
                        self.idle_steps, self.open
                    )
                    .into());
                }
            }
        }
        Ok(n)
    }

    /// Steps until `until` holds.
    pub(super) fn step_until(
        &mut self,
        what: &str,
        mut until: impl FnMut(&mut Self) -> bool,
    ) -> Result<(), Stop> {
        self.reset_idle();
        while !until(self) {
            self.step(8).map_err(|stop| match stop {
                Stop::Failed(why) => Stop::Failed(format!("waiting until {what}: {why}")),
                Stop::Skipped(why) => Stop::Skipped(why),
            })?;
        }
        Ok(())
    }

    pub(super) fn is_open(&self, op: SlotId) -> bool {
        self.open.contains_key(&op)
    }

    /// Waits for the completion of an operation of one request.
    pub(super) fn wait(&mut self, op: SlotId) -> Result<Outcome, Stop> {
        self.step_until("an operation completes", |l| !l.is_open(op))?;
        match self.done.get(&op).map(Vec::as_slice) {
            Some([outcome]) => Ok(*outcome),
            other => Err(format!("{op:?} completed as {other:?}").into()),
        }
    }

    /// Posts, waits, and expects that all bytes moved.
    pub(super) fn complete(&mut self, work: &WorkRequest) -> Result<(), Stop> {
        let op = self.post(work)?;
        match self.wait(op)? {
            Ok(_) => Ok(()),
            Err(failure) => Err(format!("{work:?} failed: {failure:?}").into()),
        }
    }

    /// Waits for everything that is open.
    pub(super) fn wait_all(&mut self) -> Result<(), Stop> {
        self.step_until("all operations complete", |l| l.open.is_empty())
    }

    /// All outcomes so far of an operation.
    pub(super) fn outcomes(&self, op: SlotId) -> &[Outcome] {
        self.done.get(&op).map_or(&[], Vec::as_slice)
    }

    /// Expects that all of these operations succeeded.
    pub(super) fn all_ok(&self, ops: &[SlotId]) -> Result<(), Stop> {
        for op in ops {
            match self.outcomes(*op) {
                [Ok(_)] => {}
                other => return Err(format!("{op:?} completed as {other:?}").into()),
            }
        }
        Ok(())
    }

    /// Cancels; a withdrawn request is not due any more.
    pub(super) fn cancel(&mut self, op: SlotId) -> CancelOutcome {
        let outcome = self.subject.transport().cancel(op);
        if outcome == CancelOutcome::Withdrawn {
            self.open.remove(&op);
        }
        outcome
    }

    /// Checks that no completion comes for a while.
    pub(super) fn settle(&mut self) -> Result<(), Stop> {
        for _ in 0..self.idle_limit.settle {
            self.subject.drive();
            self.poll(4)?;
        }
        Ok(())
    }

    /// Waits for all requests, then checks that no completion follows and that the guards are intact.
    pub(super) fn finish(&mut self) -> Result<(), Stop> {
        self.wait_all()?;
        self.settle()?;
        Ok(self.subject.check()?)
    }
}
