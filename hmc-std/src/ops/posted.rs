//! An operation that has a slot of its link.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll};

use hmc_core::slots::{Outcome, SlotId};
use hmc_core::time::Instant;
use hmc_core::work::Failure;

use crate::base::error::{Error, Result};
use crate::base::lock::lock;
use crate::base::op_name::OpName;
use crate::base::polling::Polling;
use crate::base::process::forked;
use crate::base::wait_limit::{WaitLimit, WaitStopped};
use crate::callbacks::wakers::Notice;
use crate::link::WaitScope;
use crate::link::deferred::Deferred;
use crate::link::op_resources::OpResources;
use crate::ops::peer_handle::Peer;

/// The owner of one operation. Dropped, it detaches the operation: that runs on, and its memory goes at its fence.
#[derive(Debug)]
pub struct Posted {
    pub(crate) peer: Peer,
    slot: SlotId,
    /// When it ends at the latest.
    deadline: Instant,
    /// What was taken from its slot, after its fence.
    taken: Mutex<Option<(Outcome, OpResources)>>,
    error: OnceLock<Error>,
}

impl Posted {
    pub(crate) fn new(peer: Peer, slot: SlotId, deadline: Instant) -> Self {
        Self { peer, slot, deadline, taken: Mutex::new(None), error: OnceLock::new() }
    }

    /// What became of it; `None` while it runs. Drives nothing.
    pub(crate) fn outcome(&self) -> Option<Outcome> {
        let mut taken = lock(&self.taken);
        if let Some((outcome, _)) = &*taken {
            return Some(*outcome);
        }
        if self.peer.link.is_running(self.slot) {
            return None;
        }
        let mut data = self.peer.link.data();
        let outcome = match data.outcome(self.slot) {
            Ok(outcome) => outcome?,
            // Nobody else knows its name.
            Err(_) => Outcome { result: Err(Failure::PeerDead), fenced: false },
        };
        // Before its fence it keeps its slot, which has its memory.
        if outcome.fenced {
            *taken = data.take(self.slot).ok().flatten();
        }
        Some(outcome)
    }

    /// The bytes moved, or why it failed; `None` while it runs. Drives nothing.
    pub(crate) fn result(&self) -> Option<Result<u64>> {
        Some(match self.outcome()?.result {
            Ok(bytes) => Ok(bytes),
            Err(failure) => {
                let error = || self.peer.failed(Error::from(failure).with_op(self.name()));
                Err(self.error.get_or_init(error).clone())
            }
        })
    }

    /// As [`Self::result`], after one poll of its link if it runs.
    pub(crate) fn polled_result(&self) -> Option<Result<u64>> {
        if let Err(e) = self.peer.shared.check_process() {
            return Some(Err(e));
        }
        self.result().or_else(|| {
            self.peer.link.poll_data(false);
            self.result()
        })
    }

    /// Whether its outcome is known without a look at its link.
    pub(crate) fn outcome_here(&self) -> bool {
        self.peer.shared.check_process().is_ok() && lock(&self.taken).is_some()
    }

    /// Whether it has ended, after one poll of its link if it runs.
    pub(crate) fn has_ended(&self) -> bool {
        self.outcome().is_some() || {
            self.peer.link.poll_data(false);
            self.outcome().is_some()
        }
    }

    /// Waits until it has ended, or the wait is over.
    pub(crate) fn wait_until(
        &self,
        until: WaitLimit,
    ) -> std::result::Result<Result<u64>, WaitStopped> {
        let over = self.peer.link.drive(WaitScope::Data, until, |_| self.outcome());
        if over == Err(WaitStopped::Deadline) {
            self.expire();
        }
        match (over, self.result()) {
            (Ok(_) | Err(WaitStopped::Deadline), Some(result)) => Ok(result),
            (Err(stop), _) => Err(stop),
            // It ended before `drive` did.
            (Ok(_), None) => Err(WaitStopped::Deadline),
        }
    }

    /// Waits until it has ended, which is at its deadline. If the caller's interrupt hook ends the wait, the operation ends too.
    pub(crate) fn finish(&self) -> Result<u64> {
        self.peer.shared.check_process()?;
        if let Some(result) = self.result() {
            return result;
        }
        let until = WaitLimit::new(self.deadline, self.peer.shared.config.interrupt);
        match self.wait_until(until) {
            Ok(result) => result,
            Err(WaitStopped::Forked) => Err(forked()),
            Err(stop) => {
                self.cancel();
                match self.result() {
                    Some(Ok(bytes)) => Ok(bytes),
                    _ => Err(stop.error("waiting").with_op(self.name())),
                }
            }
        }
    }

    /// Ends it if its deadline has passed.
    fn expire(&self) {
        let mut after = Deferred::default();
        self.peer.link.data().expire(self.peer.shared.clock.now(), &mut after);
        self.peer.link.run_deferred(&mut after);
    }

    /// Whether it has ended, or passed its fence too. If not, `cx` is woken when that may have changed.
    fn poll(&self, cx: &Context<'_>, fence: bool) -> Poll<Outcome> {
        let reached = |o: &Outcome| o.fenced || !fence;
        if let Some(outcome) = self.outcome().filter(reached) {
            return Poll::Ready(outcome);
        }
        self.peer.shared.wakers.start();
        // Wakers of the application's are cloned and dropped without a lock.
        let waker = Notice::User(cx.waker().clone());
        let replaced = self.peer.link.data().set_waker(self.slot, waker);
        match replaced {
            // A call that waits for several looks again.
            Some(Notice::Own(waker)) => waker.wake(),
            Some(Notice::User(_)) | None => {}
        }
        // What ended before the waker was set woke nobody.
        if let Some(outcome) = self.outcome().filter(reached) {
            return Poll::Ready(outcome);
        }
        self.peer.link.wake_on_completion();
        Poll::Pending
    }

    /// The result as a future has it. The waker of the last call is woken.
    pub(crate) fn poll_result(&self, cx: &Context<'_>) -> Poll<Result<u64>> {
        let _polling = Polling::enter();
        self.peer.shared.check_process()?;
        let outcome = std::task::ready!(self.poll(cx, false));
        Poll::Ready(self.result().unwrap_or_else(|| outcome.result.map_err(Into::into)))
    }

    /// Whether nothing touches its memory any more. The waker of the last call is woken.
    pub(crate) fn poll_fenced(&self, cx: &Context<'_>) -> Poll<()> {
        if self.peer.shared.check_process().is_err() {
            // It never will be, here.
            return Poll::Ready(());
        }
        self.poll(cx, true).map(|_| ())
    }

    /// Waits until nothing touches its memory any more.
    pub(crate) fn wait_fenced(&self, until: WaitLimit) -> std::result::Result<(), WaitStopped> {
        if self.peer.shared.check_process().is_err() {
            return Err(WaitStopped::Forked);
        }
        let fenced = || self.outcome().filter(|o| o.fenced).map(|_| ());
        self.peer.link.drive(WaitScope::Data, until, |_| fenced())
    }

    /// Takes what it still holds, if it has passed its fence.
    pub(crate) fn take_held(&self) -> Option<OpResources> {
        self.peer.shared.check_process().ok()?;
        self.outcome().filter(|o| o.fenced)?;
        let held = lock(&self.taken).as_mut().map(|(_, held)| std::mem::take(held));
        Some(held.unwrap_or_default())
    }

    /// Asks it to end.
    pub(crate) fn cancel(&self) {
        if self.peer.shared.check_process().is_err() {
            return;
        }
        let mut after = Deferred::default();
        {
            let mut data = self.peer.link.data();
            // Stale: it has ended.
            let _ = data.cancel(self.slot);
            data.progress(&mut after);
            self.peer.link.update_data_interest(&mut data);
        }
        self.peer.link.run_deferred(&mut after);
    }

    pub(crate) fn name(&self) -> OpName {
        OpName { link: self.peer.link.serial, op: self.slot, peer: self.peer.rank() }
    }

    pub(crate) fn slot(&self) -> SlotId {
        self.slot
    }
}

impl Drop for Posted {
    fn drop(&mut self) {
        // Without the lock: in a forked child nobody may hold it any more.
        if self.taken.get_mut().unwrap_or_else(PoisonError::into_inner).is_none() {
            self.peer.abandon(self.slot);
        }
    }
}
