//! One poll of a link: receives the available bytes, executes them, and performs the effects.

use std::sync::atomic::Ordering;

use hmc_core::limits::FRAME_DEADLINE_NS;
use hmc_core::time::{Duration, Instant};

use super::deferred::Deferred;
use super::received::Received;
use super::{Link, LinkState, Tick};
use crate::callbacks::deferred_drops::DeferDrops;
use crate::io::reactor::Channel;

impl Link {
    /// One of its sockets is ready. Returns whether anything came that somebody may be waiting for.
    pub(crate) fn poll(&self, channel: Channel) -> bool {
        match channel {
            Channel::Ctrl => self.poll_ctrl(false),
            Channel::Data => self.poll_data(false),
        }
    }

    /// Receives and executes on the data plane. Returns whether anything happened.
    ///
    /// Only the leader receives while there is one: it may be about to park on the socket, and would
    /// miss what another thread took from it. Others merely move copies and batches on.
    pub(crate) fn poll_data(&self, as_leader: bool) -> bool {
        let _aside = DeferDrops::to(&self.wakers);
        let mut after = Deferred::default();
        let (busy, work, down, became_ready, owes, copies, ring, _follow_up) = {
            let mut data = if as_leader { self.data() } else { self.data_fairly() };
            let busy = if as_leader || !data.is_claimed() {
                data.poll(self.clock.now(), &mut after)
            } else {
                data.progress(&mut after);
                false
            };
            self.update_data_interest(&mut data);
            let copies = data.copy_piece(&mut after);
            let ring = data.plane().take_ring();
            let work = data.has_work() && !data.is_claimed();
            let owes = data.plane().has_releases() || data.plane().has_notes();
            let (down, became_ready) = (data.plane().close_reason(), data.take_became_ready());
            let ends = after.finished || after.delivered || copies;
            let acts = !as_leader && (ends || became_ready || owes);
            let follow_up = acts.then(|| self.follow_ups.begin());
            (busy, work, down, became_ready, owes, copies, ring, follow_up)
        };
        let copied = copies && self.copy_pieces(as_leader, &mut after);
        let ended = after.finished || after.delivered;
        // The answer to a put that was complete locally ends no operation, and the end of the link may wait for it.
        let may_end = (after.came || ended) && self.state() == LinkState::Leaving;
        if after.came {
            self.idle_waits.reset();
        }
        if may_end {
            self.leader_lock.notify();
        }
        self.run_deferred(&mut after);
        if owes {
            self.send_releases();
            self.send_notes();
        }
        if !as_leader {
            if ended {
                self.wake_leader();
            }
            self.resume_worker();
        }
        if work {
            self.schedule();
        }
        if let Some(ring) = ring {
            self.send_by_ring(ring);
        }
        if became_ready {
            self.check_ready();
        }
        if may_end {
            // What this end owes to the peer goes first.
            self.answer_bye();
        }
        if let Some(why) = down {
            self.close_on_error(why);
        }
        busy || copied
    }

    /// Receives and executes on the control connection. Returns whether anything came that somebody
    /// may be waiting for: a heartbeat is nothing to stay awake for. As for the data plane, only the
    /// leader receives while there is one.
    pub(crate) fn poll_ctrl(&self, as_leader: bool) -> bool {
        let mut received = Received::default();
        let (now, ended, _follow_up) = {
            let mut ctrl = self.ctrl();
            if ctrl.is_claimed() && !as_leader {
                ctrl.note_ready();
                self.update_ctrl_interest(&mut ctrl);
                return false;
            }
            let now = self.clock.now();
            ctrl.poll(now, self, &mut received);
            if !as_leader && !ctrl.sleep() {
                self.ctrl_wakes.set_unread();
                self.reactor.request_ctrl_poll();
            }
            self.update_ctrl_interest(&mut ctrl);
            let follow_up = (!as_leader).then(|| self.follow_ups.begin());
            (now, ctrl.machine.ended(), follow_up)
        };
        let busy = received.messages
            || received.adverts
            || received.revoked
            || received.left
            || received.bye
            || received.rndv;
        self.apply_received(received, now);
        self.end_ctrl(ended);
        busy
    }

    /// Looks at the deadlines of the control connection and of operations.
    pub(crate) fn tick(&self, Tick { now, late, spread }: Tick) {
        if self.state() == LinkState::Dead {
            return;
        }
        let (late, spread) = if self.near { (late, spread) } else { (Duration::ZERO, 1) };
        let late = late.min(now.since(self.born));
        let late_ns = self.late_ns.fetch_add(late.as_nanos(), Ordering::Relaxed);
        let patience = FRAME_DEADLINE_NS.saturating_add(late_ns).saturating_add(late.as_nanos());
        let by = self.born.after(Duration::from_nanos(patience));
        if self.state() == LinkState::Opening && now >= by {
            self.close(false, "it connected but did not open its data plane in time");
            return;
        }
        let _aside = DeferDrops::to(&self.wakers);
        self.end_if_marked();
        let beat = self.data_fairly().beat();
        let mut came = Received::default();
        let (ended, _follow_up) = {
            let mut ctrl = self.ctrl();
            if let Some(peer_beat) = beat {
                ctrl.machine.note_beat(peer_beat, now);
            }
            ctrl.machine.adapt_deadlines(late, spread, now);
            ctrl.tick(now, self, &mut came);
            // It may have looked at the ring in place of who is woken for that.
            if ctrl.is_unattended() && !ctrl.sleep() {
                self.ctrl_wakes.set_unread();
                self.reactor.request_ctrl_poll();
            }
            self.update_ctrl_interest(&mut ctrl);
            (ctrl.machine.ended(), self.follow_ups.begin())
        };
        self.apply_received(came, now);
        self.end_ctrl(ended);
        self.close_if_due(now);
        if self.state() == LinkState::Dead {
            return;
        }
        // Before the memory that they name.
        self.evict_rndv_windows();
        let mut after = Deferred::default();
        let evicted = {
            let mut data = self.data_fairly();
            data.expire(now, &mut after);
            let evicted = data.evict_unused();
            self.update_data_interest(&mut data);
            evicted
        };
        drop(evicted);
        self.run_deferred(&mut after);
        self.run_rndv();
        self.answer_bye();
    }

    pub(super) fn apply_received(&self, received: Received, now: Instant) {
        if received.any && self.has_channels.load(Ordering::Relaxed) {
            // A heartbeat may tell of words in memory that both ends map.
            self.park_wakers.wake(&self.wakers);
        }
        if received.messages || received.adverts || received.left || received.space {
            self.leader_lock.notify();
        }
        if received.space {
            self.announce_space();
        }
        if let Some(e) = &received.failed {
            self.close(false, &format!("its transport cannot be used: {e}"));
            return;
        }
        if received.adverts {
            // Before this end takes the link for ready: who connected may make no progress from then on.
            self.send_notes();
            self.check_ready();
        }
        if received.revoked {
            let released = self.data_fairly().plane().take_released();
            drop(released);
        }
        if received.rndv || received.space {
            if received.space {
                self.run_rndv();
            } else {
                self.run_received(now);
            }
            if self.state() == LinkState::Leaving {
                self.answer_bye();
            }
        }
        if received.bye {
            self.leaving.store(true, Ordering::Release);
            self.peer_left.store(true, Ordering::Release);
            self.advance(LinkState::Leaving);
            self.rndv_leave();
            self.answer_bye();
        }
        if (received.messages || received.adverts || received.bye || received.revoked)
            && let Some(owner) = self.owner.upgrade()
        {
            owner.on_event(self);
        }
    }

    /// A link is ready when its data plane is there and the peer's window is known.
    pub(crate) fn check_ready(&self) {
        let ready = self.data().is_complete();
        if ready && self.advance(LinkState::Ready) {
            self.leader_lock.notify();
            if let Some(owner) = self.owner.upgrade() {
                owner.on_event(self);
            }
        }
    }

    /// Wakes and drops what a poll released; without locks.
    pub(crate) fn run_deferred(&self, after: &mut Deferred) {
        self.run_deferred_but_rndv(after);
        if after.finished {
            self.run_rndv();
        }
        if std::mem::take(&mut after.peer_dead) {
            self.end_if_marked();
        }
    }

    pub(super) fn run_deferred_but_rndv(&self, after: &mut Deferred) {
        loop {
            if std::mem::take(&mut after.delivered) {
                self.leader_lock.notify();
                if let Some(owner) = self.owner.upgrade() {
                    owner.on_event(self);
                }
            }
            if after.finished {
                self.leader_lock.notify();
                self.announce_space();
                self.wakers.events.set();
            }
            let more = after.is_full();
            after.release(&self.wakers);
            if !more {
                return;
            }
            // More may have ended than there was space for.
            self.data().drain(after);
        }
    }
}

#[cfg(test)]
mod tests;
