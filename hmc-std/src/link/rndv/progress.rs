//! Drives the messages of a link, and serves calls of other threads.

use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, MutexGuard};

use hmc_core::limits::{MAX_EAGER_BYTES, MAX_EAGER_MSGS};
use hmc_core::region::WindowDesc;
use hmc_core::rndv::{AbortReason, RndvError};
use hmc_core::time::Instant;
use hmc_core::types::ConnType;
use hmc_core::wire::held;
use hmc_core::wire::hello::Features;
use hmc_core::wire::message::{ControlKind, ControlMessage};
use hmc_mem::shared::SharedBytes;

use super::actions::RndvActions;
use super::handle::MessageHandle;
use super::host::Host as _;
use super::kept_window::KeptWindow;
use super::note::Note;
use super::on_link::OnLink;
use super::short::EndedMessage;
use super::state::{BounceBuffers, PostedRecv, RndvState};
use crate::base::error::Result;
use crate::base::lock::lock;
use crate::callbacks::deferred_drops::DeferDrops;
use crate::callbacks::wakers::panics;
use crate::link::deferred::Deferred;
use crate::link::{Link, LinkState};
use crate::memory::Region;

/// Notes that may wait for somebody who looks at them.
const MAX_NOTES: usize = held::of_message(ControlKind::Rndv).count();

impl Link {
    /// Received a note of the peer. Called under the control lock: it is only put aside. `false`: no peer that keeps to the
    /// rules has so many notes.
    pub(crate) fn rndv_receive(&self, note: Note) -> bool {
        let mut received = lock(&self.rndv.received);
        let eager = || received.iter().filter(|note| note.is_eager()).count();
        if received.len() >= MAX_NOTES || note.is_eager() && eager() >= MAX_EAGER_MSGS {
            return false;
        }
        received.push(note);
        drop(received);
        self.rndv.live.store(true, Ordering::SeqCst);
        true
    }

    /// Moves the link's messages on, unless somebody is at it: who is looks again. Call it without
    /// locks whenever a note came, an operation ended or time passed.
    pub(crate) fn run_rndv(&self) {
        let rndv = &self.rndv;
        if !rndv.live.load(Ordering::SeqCst) {
            return;
        }
        // Who finds the state taken sleeps only when the thread that has it has looked again.
        let _follow_up = self.follow_ups.begin();
        rndv.mark();
        loop {
            let Ok(mut state) = rndv.state.try_lock() else {
                return;
            };
            let (mut after, mut host) = (RndvActions::default(), OnLink::new(self));
            while rndv.unmark() {
                // In this order: no note comes after the end.
                let is_dead = self.state() == LinkState::Dead;
                // Notes of a peer that does not read ours are left alone: each of its notes may lead to one of ours.
                let receives = is_dead || state.outgoing.is_empty();
                if receives {
                    // Each poll takes what it finds there: what goes back to the receiver is storage.
                    std::mem::swap(&mut *lock(&rndv.received), &mut state.received);
                }
                state.poll(&mut host, self.clock.now(), is_dead, &mut after);
                if !receives && state.outgoing.is_empty() {
                    rndv.mark();
                }
            }
            after.borrow_ready = state.needs_borrowed_copy();
            rndv.borrow_ready.store(after.borrow_ready, Ordering::SeqCst);
            if state.is_empty() && lock(&rndv.received).is_empty() {
                rndv.live.store(false, Ordering::SeqCst);
                if !lock(&rndv.received).is_empty() {
                    rndv.live.store(true, Ordering::SeqCst);
                    // Whoever received it may have found the link not live, and gone.
                    rndv.mark();
                }
            }
            drop(state);
            if after.has_any() || host.has_any() {
                self.finish_rndv(after, host);
            }
            if !rndv.is_marked() {
                return;
            }
        }
    }

    /// The link is over: its messages end, and what is kept for later ones goes. Call it without locks.
    pub(in crate::link) fn end_rndvs(&self) {
        self.rndv.live.store(true, Ordering::SeqCst);
        self.run_rndv();
    }

    /// Wakes and drops what puts set free that ended at once; without locks.
    fn follow_up_puts(&self, later: Vec<Deferred>) {
        let _aside = DeferDrops::to(&self.wakers);
        for mut a in later {
            self.run_deferred_but_rndv(&mut a);
            if a.finished {
                // After that: more may have ended than there was space for. Not by a call of `run_rndv`, which
                // would go as deep as a message has pieces.
                self.rndv.mark();
            }
        }
    }

    /// A note came: acts on it at once, if that is all there is to be done for it, and else as [`Self::run_rndv`], whose calls
    /// of other threads it leaves to them.
    pub(in crate::link) fn run_received(&self, now: Instant) {
        let _follow_up = self.follow_ups.begin();
        let mut host = OnLink::at(self, now);
        let ended = self.rndv.state.try_lock().ok().and_then(|mut state| {
            let ended = self.take_received(&mut state, &mut host, now)?;
            Some((ended, state.has_surplus()))
        });
        let Some((ended, has_surplus)) = ended else { return self.run_rndv() };
        let EndedMessage { memory, notice, has_space } = ended;
        let _aside = DeferDrops::to(&self.wakers);
        if panics(|| drop(memory)) {
            self.wakers.note_panic();
        }
        if let Some(notice) = notice {
            self.wakers.notify(notice);
        }
        self.park_wakers.wake(&self.wakers);
        if has_space {
            self.announce_space();
        }
        self.leader_lock.notify();
        if let Some(owner) = self.owner.upgrade() {
            owner.on_event(self);
        }
        self.end_ctrl(host.ended);
        if has_surplus {
            self.run_rndv();
        } else {
            self.run_if_marked();
        }
    }

    /// Acts on the only note that waits, if it is the last one of its message.
    fn take_received(
        &self,
        state: &mut RndvState,
        host: &mut OnLink<'_>,
        now: Instant,
    ) -> Option<EndedMessage> {
        let note = {
            let mut received = lock(&self.rndv.received);
            if received.len() != 1 || self.state() == LinkState::Dead {
                return None;
            }
            received.pop()?
        };
        let ended = state.take_last_note(host, note, now);
        // In front of those that have come since.
        ended.map_err(|note| lock(&self.rndv.received).insert(0, note)).ok()
    }

    fn finish_rndv(&self, after: RndvActions, host: OnLink<'_>) {
        let _aside = DeferDrops::to(&self.wakers);
        self.follow_up_puts(host.later);
        for (window, epoch) in after.revoked {
            // So that the peer forgets its mapping. The fence does not depend on it.
            let _ = self.send(&ControlMessage::Revoke { window, epoch });
        }
        // The last handle of a waker may be there, which is the application's too.
        if panics(|| drop((after.over, after.regions))) {
            self.wakers.note_panic();
        }
        for notice in after.notices {
            self.wakers.notify(notice);
        }
        if after.events {
            self.park_wakers.wake(&self.wakers);
        }
        // What becomes free of bounce buffers and slots is announced where it does: bytes that only wait for it wake nobody.
        if after.has_space || after.borrow_ready && after.events {
            self.announce_space();
        }
        if after.has_space {
            self.leader_lock.notify();
        }
        // On a link to oneself a caller with more bytes than its bounce buffers hold waits for events, and for no socket.
        let copies_remain = after.borrow_ready && self.conn() == Some(ConnType::Loopback);
        if after.events || copies_remain {
            self.leader_lock.notify();
            if let Some(owner) = self.owner.upgrade() {
                owner.on_event(self);
            }
        }
        self.end_ctrl(host.ended);
        if let Some(why) = after.broken {
            self.close(false, &format!("it broke the protocol: {why}"));
        }
    }

    /// Changes the rendezvous state and has it run.
    pub(crate) fn with_rndv<R>(&self, change: impl FnOnce(&mut RndvState) -> R) -> R {
        let _follow_up = self.follow_ups.begin();
        let r = change(&mut self.live_rndv());
        self.run_rndv();
        r
    }

    /// As [`Self::with_rndv`], of a change that begins a message to the peer, which is to end at `by`.
    pub(crate) fn begin_rndv<R>(&self, by: Instant, change: impl FnOnce(&mut RndvState) -> R) -> R {
        let _follow_up = self.follow_ups.begin();
        let now = self.clock.now();
        let (mut after, mut host) = (RndvActions::default(), OnLink::at(self, now));
        let (r, is_offered) = {
            let mut state = self.live_rndv();
            let was_none = state.outbound.is_empty();
            let r = change(&mut state);
            (r, was_none && by > now && state.offer_only(&mut host, &mut after))
        };
        if after.has_any() || host.has_any() {
            self.finish_rndv(after, host);
        }
        // As for a receive that is posted.
        if is_offered && self.state() != LinkState::Dead {
            self.run_if_marked();
        } else {
            self.run_rndv();
        }
        r
    }

    /// Posts a receive. The state runs only if that may match a message, or ends the receive.
    pub(crate) fn post_recv(&self, want: PostedRecv) -> Arc<MessageHandle> {
        let _follow_up = self.follow_ups.begin();
        let is_in_time = want.deadline > self.clock.now();
        let (handle, waits) = {
            let mut state = self.live_rndv();
            let waits = is_in_time && state.is_nothing_unmatched();
            (state.receive(want), waits)
        };
        // After `live_rndv`, as the next poll would: it ends what a link that is over has.
        if waits && self.state() != LinkState::Dead {
            self.run_if_marked();
        } else {
            self.run_rndv();
        }
        handle
    }

    /// Takes storage for a message out of the rendezvous state, or gives it back: nothing that a poll would act on.
    pub(crate) fn rndv_storage<R>(&self, change: impl FnOnce(&mut RndvState) -> R) -> R {
        let _follow_up = self.follow_ups.begin();
        let r = change(&mut lock(&self.rndv.state));
        if self.state() == LinkState::Dead {
            // What is kept for later messages goes.
            self.end_rndvs();
        } else {
            self.run_if_marked();
        }
        r
    }

    /// The rendezvous state was locked, and is not any more: who came meanwhile found it taken, as in [`Self::run_rndv`].
    fn run_if_marked(&self) {
        if self.rndv.is_marked() {
            self.run_rndv();
        }
    }

    fn live_rndv(&self) -> MutexGuard<'_, RndvState> {
        let state = lock(&self.rndv.state);
        self.rndv.live.store(true, Ordering::SeqCst);
        // Pairs with the one in `Link::close`: it finds the link live, or the next poll finds it dead.
        fence(Ordering::SeqCst);
        state
    }

    /// Asks something at the rendezvous state, unless somebody is at it.
    fn glance(&self, ask: impl FnOnce(&RndvState) -> bool) -> Option<bool> {
        let _follow_up = self.follow_ups.begin();
        let answer = ask(&*self.rndv.state.try_lock().ok()?);
        self.run_if_marked();
        Some(answer)
    }

    /// Ends a message of ours, unless it has ended.
    pub(crate) fn end_rndv(&self, handle: &Arc<MessageHandle>, why: AbortReason) {
        self.with_rndv(|state| state.end(handle, RndvError::Here(why)));
    }

    /// Sends what may be sent now of the borrowed memory of `handle`.
    pub(crate) fn rndv_send_borrowed(&self, handle: &Arc<MessageHandle>, bytes: &SharedBytes<'_>) {
        if self.rndv.borrow_ready.load(Ordering::SeqCst) {
            let _follow_up = self.follow_ups.begin();
            let mut host = OnLink::new(self);
            self.live_rndv().copy_from_borrowed(&mut host, handle, bytes);
            self.follow_up_puts(host.later);
            self.run_rndv();
        }
    }

    /// Copies what came for the borrowed memory of `handle`.
    ///
    /// # Errors
    /// A half cannot be read, which its range excludes.
    pub(crate) fn rndv_recv_borrowed(
        &self,
        handle: &Arc<MessageHandle>,
        out: &SharedBytes<'_>,
    ) -> Result<()> {
        if self.rndv.borrow_ready.load(Ordering::SeqCst) {
            return self.with_rndv(|state| state.copy_to_borrowed(handle, out));
        }
        Ok(())
    }

    /// Closes a window over that region of which nobody was told yet, to serve messages. `None` when the peer is at its gate: also an
    /// entry that is refused, because it names the place's last window, is there for a moment. The window is taken back then.
    pub(crate) fn close_window(&self, region: &Region, remote: WindowDesc) -> Option<KeptWindow> {
        if OnLink::new(self).close(&remote).is_none() {
            return Some(KeptWindow::new(region, remote));
        }
        let window = BounceBuffers { region: region.clone(), remote };
        self.with_rndv(|state| state.retire(window));
        None
    }

    /// Takes back windows that served messages into memory that nobody else uses any more.
    pub(in crate::link) fn evict_rndv_windows(&self) {
        if self.glance(RndvState::has_useless_windows) == Some(true) {
            self.with_rndv(RndvState::evict_windows);
        }
    }

    /// This end or the peer leaves: what has not been matched never will be.
    pub(crate) fn rndv_leave(&self) {
        if self.rndv.live.load(Ordering::SeqCst) {
            self.with_rndv(RndvState::leave);
        }
    }

    /// Whether a message of so many bytes goes with its offer.
    pub(crate) fn sends_eagerly(&self, len: u64) -> bool {
        // A link to oneself has no control connection.
        let takes =
            self.features.contains(Features::EAGER) || self.conn() == Some(ConnType::Loopback);
        takes && usize::try_from(len).is_ok_and(|len| len <= MAX_EAGER_BYTES)
    }

    /// Whether certainly no message is under way. Call it without locks, as [`Link::run_rndv`].
    pub(crate) fn is_rndv_idle(&self) -> bool {
        !self.rndv.live.load(Ordering::SeqCst) || self.glance(RndvState::is_idle) == Some(true)
    }

    /// Whether messages may be under way.
    pub(in crate::link) fn has_rndvs(&self) -> bool {
        self.rndv.live.load(Ordering::SeqCst)
    }

    /// The memory of messages that are under way, by size and reason.
    pub(in crate::link) fn rndv_bytes(&self, each: &mut dyn FnMut(u64, &'static str)) {
        if self.has_rndvs() {
            let bytes = lock(&self.rndv.state).held_bytes();
            if bytes != 0 {
                each(bytes, "the peer may be inside the memory of a message under way");
            }
        }
    }

    /// Whether nothing of ours is in the reach of the peer of a link that is over.
    pub(crate) fn is_out_of_reach(&self) -> bool {
        self.run_rndv();
        let holds =
            self.rndv.live.load(Ordering::SeqCst) && self.glance(RndvState::holds) != Some(false);
        !holds && self.data().is_out_of_reach()
    }
}
