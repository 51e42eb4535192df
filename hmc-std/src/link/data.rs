//! The data half of a link: the operations on its data plane, and the peer's windows.

mod ended;
pub(crate) mod now;
mod op_queue;
pub(crate) mod stored_outcomes;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use hmc_core::queue::Transfer;
use hmc_core::region::{Epoch, WindowDesc, WindowId};
use hmc_core::slots::{Outcome, SlotId, Stale};
use hmc_core::time::{Duration, Instant};
use hmc_core::transport::{DataCloseReason, Readiness};
use hmc_core::window::WindowState;
use hmc_core::wire::advert::{RegionAdvert, WindowBacking, WindowRole};
use hmc_core::wire::held;
use hmc_core::wire::message::ControlKind;
use hmc_core::work::Opcode;

use hmc_mem::slot::SlotWord;

use super::deferred::Deferred;
use super::op_resources::OpResources;
use crate::base::polling::is_polling;
use crate::callbacks::wakers::Notice;
use crate::io::eventfd::EventfdWaker;
use crate::io::reactor::Registered;
use crate::memory::Region;
use crate::transport::data_plane::AnyDataPlane;
use crate::transport::released::Released;
pub(crate) use op_queue::{Begun, OpQueue};

/// A window that this end exposed or knows, by the user's label.
#[derive(Clone, Copy, Debug)]
struct Named {
    label: u64,
    region: WindowDesc,
}

/// How long after the end of one connection of a process its other ends take to show.
const SHOWN_WITHIN: Duration = Duration::from_millis(20);

pub(crate) struct DataState {
    queue: OpQueue,
    attached: bool,
    /// Whether it was complete at the last look.
    complete: bool,
    became_ready: bool,
    claimed: bool,
    wants_default: bool,
    default: Option<WindowDesc>,
    default_mappable: bool,
    named: Vec<Named>,
    registered: Registered,
    /// Bytes that were copied into mapped windows or out of them in the call, under the lock.
    bytes_now: u64,
    puts: u64,
    gets: u64,
}

impl DataState {
    /// `attached` says whether the data plane is the final one; `wants_default` whether a link is only
    /// ready when the peer sent its default window.
    pub(crate) fn new(
        plane: AnyDataPlane,
        slots: usize,
        attached: bool,
        wants_default: bool,
    ) -> Self {
        Self {
            queue: OpQueue::new(plane, slots),
            attached,
            complete: false,
            became_ready: false,
            claimed: false,
            wants_default,
            default: None,
            default_mappable: false,
            named: Vec::new(),
            registered: Registered::default(),
            bytes_now: 0,
            puts: 0,
            gets: 0,
        }
    }

    pub(crate) fn plane(&mut self) -> &mut AnyDataPlane {
        self.queue.transport_mut()
    }

    /// To look at. What is posted goes through [`DataState::post`] and its kin, with what it holds.
    pub(crate) fn queue(&self) -> &OpQueue {
        &self.queue
    }

    /// Withdraws an operation.
    pub(crate) fn cancel(&mut self, op: SlotId) -> Result<(), Stale> {
        self.queue.cancel(op)
    }

    /// Takes the outcome of an operation, with what it still holds.
    pub(crate) fn take(&mut self, op: SlotId) -> Result<Option<(Outcome, OpResources)>, Stale> {
        self.queue.take(op)
    }

    /// What became of an operation; `None` while it runs. Changes nothing.
    pub(crate) fn outcome(&self, op: SlotId) -> Result<Option<Outcome>, Stale> {
        self.queue.outcome(op)
    }

    /// Whether an operation has ended.
    pub(crate) fn test(&self, op: SlotId) -> Result<bool, Stale> {
        self.outcome(op).map(|o| o.is_some())
    }

    /// Nobody will take the outcome of an operation. What it holds goes at its fence; when it has
    /// passed that, now.
    pub(crate) fn abandon(&mut self, op: SlotId, after: &mut Deferred) {
        if let Some(hold) = self.queue.abandon(op) {
            after.keep(hold);
        }
    }

    /// How many slots are used by operations, those that have ended included.
    #[cfg(test)]
    pub(crate) fn slots_in_use(&self) -> usize {
        self.queue.slots_in_use()
    }

    /// How many operations may run at a time.
    pub(crate) fn slots(&self) -> usize {
        self.queue.limit()
    }

    /// Whether no more outcomes are kept beside the slots.
    pub(crate) fn is_outcome_store_full(&self) -> bool {
        self.queue.is_outcome_store_full()
    }

    pub(crate) fn words(&self) -> Arc<[SlotWord]> {
        self.queue.words()
    }

    pub(crate) fn set_plane(&mut self, plane: AnyDataPlane) {
        *self.queue.transport_mut() = plane;
        self.attached = true;
    }

    pub(crate) fn is_claimed(&self) -> bool {
        self.claimed
    }

    pub(crate) fn set_claimed(&mut self, on: bool) {
        self.claimed = on;
    }

    /// Whether the stream stopped reading because the inbox was full.
    pub(crate) fn is_paused(&mut self) -> bool {
        self.plane().is_paused()
    }

    pub(crate) fn registration(&mut self, wanted: Readiness) -> Option<&mut Registered> {
        self.registered.differs(wanted).then_some(&mut self.registered)
    }

    /// Whether what was missing has come since the last call.
    pub(crate) fn take_became_ready(&mut self) -> bool {
        std::mem::take(&mut self.became_ready)
    }

    /// Whether operations can be posted with full effect.
    pub(crate) fn is_complete(&self) -> bool {
        if !self.attached {
            return false;
        }
        let Some(default) = &self.default else {
            return !self.wants_default;
        };
        let plane = self.queue.transport();
        plane.is_ready()
            && (!self.default_mappable || plane.is_settled(default.window, default.epoch))
    }

    pub(crate) fn default_remote(&self) -> Option<WindowDesc> {
        self.default
    }

    /// The peer described one of its windows.
    pub(crate) fn add_peer_window(&mut self, advert: &RegionAdvert) {
        match advert.role {
            WindowRole::Default => {
                self.default = Some(advert.region);
                self.default_mappable = matches!(advert.backing, WindowBacking::Memfd { .. });
            }
            WindowRole::Named(label) => {
                self.named.retain(|n| n.label != label);
                if self.named.len() < held::of_message(ControlKind::Advert).count() {
                    self.named.push(Named { label, region: advert.region });
                }
            }
        }
    }

    /// The peer's window of that label.
    pub(crate) fn named_remote(&self, label: u64) -> Option<WindowDesc> {
        self.named.iter().find(|n| n.label == label).map(|n| n.region)
    }

    /// The peer takes a window back. Whether nothing of ours uses it.
    pub(crate) fn remove_peer_window(&mut self, window: WindowId, epoch: Epoch) -> bool {
        let is_it = |r: &WindowDesc| r.window == window && r.epoch == epoch;
        self.named.retain(|n| !is_it(&n.region));
        if self.default.as_ref().is_some_and(is_it) {
            self.default = None;
        }
        self.plane().remove_window(window, epoch)
    }

    /// Bytes of our memory that the peer may touch or may still touch.
    pub(crate) fn exposed_bytes(&mut self) -> (u64, u64) {
        let mut exposed: u64 = 0;
        let mut held: u64 = 0;
        for e in self.plane().windows().in_use() {
            let len = e.local().span.len();
            match e.state() {
                WindowState::Quarantined => held = held.saturating_add(len),
                WindowState::Free | WindowState::Closed => {}
                WindowState::Exposed | WindowState::Revoking => {
                    exposed = exposed.saturating_add(len);
                }
            }
        }
        (exposed, held)
    }

    /// Adds a region to the data plane's memory.
    pub(crate) fn add_memory(&mut self, region: &Region) {
        self.plane().add_memory(region);
    }

    /// Posts one transfer, and takes `hold` until its fence if that was done. If the transport is full, it waits in its record.
    pub(crate) fn post(
        &mut self,
        t: &Transfer,
        deadline: Instant,
        hold: &mut OpResources,
    ) -> Begun {
        hold.held_regions().iter().for_each(|region| self.add_memory(region));
        self.queue.post(t, deadline, hold)
    }

    /// Posts the list that `hold` has, of `parts` transfers, as one operation, and takes `hold` if that was done.
    pub(crate) fn post_list(
        &mut self,
        parts: u32,
        deadline: Instant,
        hold: &mut OpResources,
    ) -> Begun {
        hold.held_regions().iter().for_each(|region| self.add_memory(region));
        self.queue.post_list(parts, deadline, hold)
    }

    /// Counts an operation that was begun. Under the lock, so no atomic is needed.
    #[inline]
    pub(crate) fn count(&mut self, code: Opcode) {
        let counter = if code == Opcode::Get { &mut self.gets } else { &mut self.puts };
        *counter = counter.saturating_add(1);
    }

    /// Whether what was just posted needs no progress now, and gains by waiting for the next poll.
    pub(crate) fn can_wait(&mut self) -> bool {
        !self.queue.has_waiting() && self.plane().can_coalesce()
    }

    /// Progress without receiving: copies, sends, completions.
    pub(crate) fn progress(&mut self, after: &mut Deferred) {
        self.queue.progress();
        if !self.complete && self.is_complete() {
            self.complete = true;
            self.became_ready = true;
        }
        self.drain(after);
    }

    /// Receives, executes, makes progress. Returns whether anything happened.
    pub(crate) fn poll(&mut self, now: Instant, after: &mut Deferred) -> bool {
        let claimed = self.claimed;
        let busy = self.plane().poll_peer(claimed);
        after.came |= busy;
        if now >= self.queue.next_deadline() {
            self.queue.expire(now);
        }
        self.progress(after);
        after.delivered |= self.plane().take_delivered();
        // What follows is the same as after the end of an operation.
        after.finished |= self.plane().take_all_put();
        // Copies of our own end without anything received.
        busy || after.finished
    }

    /// Beats through shared memory, if the data plane can; says whether the peer did.
    pub(crate) fn beat(&mut self) -> Option<bool> {
        self.plane().heartbeat()
    }

    /// Whether the peer's process has left a mark of its end in memory that is shared.
    pub(crate) fn is_marked(&self) -> bool {
        self.queue.transport().is_peer_marked()
    }

    /// Evicts regions that nobody else uses any more. What is given back is to be dropped without a lock.
    #[must_use]
    pub(crate) fn evict_unused(&mut self) -> Released {
        self.plane().release_memory(false);
        self.plane().take_released()
    }

    pub(crate) fn expire(&mut self, now: Instant, after: &mut Deferred) {
        if now >= self.queue.next_deadline() {
            self.queue.expire(now);
            self.progress(after);
        }
    }

    /// Takes note of the operations that have ended, until [`Deferred::is_full`].
    pub(super) fn drain(&mut self, after: &mut Deferred) {
        while !after.is_full()
            && let Some(event) = self.queue.next_event()
        {
            after.peer_dead |= event.peer_dead;
            after.finished |= event.done | event.fenced;
            after.keep(event.freed);
        }
    }

    /// Registers who is to be woken when the operation ends. Gives back a waker to drop.
    pub(crate) fn set_waker(&mut self, op: SlotId, waker: Notice) -> Option<Notice> {
        self.queue.set_waker(op, waker)
    }

    /// As [`DataState::set_waker`], but leaves the waker of another waiting call: `Err` gives back `waker` then.
    pub(crate) fn add_waker(
        &mut self,
        op: SlotId,
        waker: Arc<EventfdWaker>,
    ) -> Result<Option<Notice>, Arc<EventfdWaker>> {
        self.queue.add_waker(op, waker)
    }

    /// Takes off `waker`, if it was to be woken when the operation ends and that still runs.
    pub(crate) fn take_waker(&mut self, op: SlotId, waker: &Arc<EventfdWaker>) -> Option<Notice> {
        self.queue.take_waker(op, waker)
    }

    /// The link is over: everything ends. Copies that the peer does itself, in our address space, may still run: their
    /// memory stays held. After `eof` on the control connection its process has ended, as a rule, and shows that soon.
    pub(crate) fn close(&mut self, eof: bool, after: &mut Deferred) {
        let why = if eof { DataCloseReason::Eof } else { DataCloseReason::Silent };
        if eof && self.queue.in_flight() != 0 {
            // A future's poll does not wait for it: what is not shown yet is held for a little longer.
            let within = if is_polling() { Duration::ZERO } else { SHOWN_WITHIN };
            let _ = self.plane().peer_life().ends_within(within);
        }
        self.plane().close(why);
        self.queue.collect();
        let fenced = self.is_harmless();
        self.queue.fail_all(fenced);
        self.drain(after);
    }

    /// Nothing of a link that is over is in the peer's reach any more.
    pub(super) fn fenced(&mut self, after: &mut Deferred) {
        self.queue.fail_all(true);
        self.drain(after);
    }

    /// What operations hold that have not passed their fence, and what is exposed, by size and reason.
    pub(super) fn unfenced_bytes(&mut self, each: &mut dyn FnMut(u64, &'static str)) {
        let reason = self.queue.transport().unfenced_reason();
        for region in self.queue.unfenced().flat_map(OpResources::held_regions) {
            each(region.len(), reason);
        }
        if let Some(reason) = self.plane().unfenced_window_reason() {
            let (exposed, _) = self.exposed_bytes();
            if exposed != 0 {
                each(exposed, reason);
            }
        }
    }

    /// Whether the peer cannot be in the middle of a copy in our address space.
    pub(crate) fn is_harmless(&mut self) -> bool {
        self.plane().are_requests_fenced()
    }

    /// Whether nothing of ours is in the reach of the peer of a link that is over.
    pub(crate) fn is_out_of_reach(&mut self) -> bool {
        self.plane().is_fenced()
    }

    /// Copies the next piece of a long transfer. Returns whether there was one.
    pub(crate) fn copy_piece(&mut self, after: &mut Deferred) -> bool {
        let copied = self.plane().copy_piece();
        if copied {
            self.progress(after);
        }
        copied
    }

    /// Whether there is something to do that no socket will tell of.
    pub(crate) fn has_work(&mut self) -> bool {
        self.plane().interest().work
    }
}
