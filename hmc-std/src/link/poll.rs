//! One turn of a link: what is there is received and executed, and what follows from it is done.

use std::sync::atomic::Ordering;

use hmc_core::limits::FRAME_DEADLINE_NS;
use hmc_core::time::Duration;

use super::aftermath::Aftermath;
use super::heard::Heard;
use super::{Life, Link, Tick};
use crate::aside::Collects;
use crate::clock;
use crate::driver::Channel;

impl Link {
    /// One of its sockets is ready. Returns whether anything came that somebody may be waiting for.
    pub(crate) fn turn(&self, channel: Channel) -> bool {
        match channel {
            Channel::Ctrl => self.turn_ctrl(false),
            Channel::Data => self.turn_data(false),
        }
    }

    /// Receives and executes on the data plane. Returns whether anything happened.
    ///
    /// Only the leader receives while there is one: it may be about to park on the socket, and would
    /// miss what another thread took from it. Others merely move copies and batches on.
    pub(crate) fn turn_data(&self, as_leader: bool) -> bool {
        let _aside = Collects::to(&self.wakers);
        let mut after = Aftermath::default();
        let (busy, work, down, opened, leaves) = {
            let mut data = if as_leader { self.data() } else { self.data_in_turn() };
            let busy = if as_leader || !data.is_attended() {
                data.turn(clock::now(), &mut after)
            } else {
                data.pump(&mut after);
                false
            };
            self.settle_data(&mut data);
            let work = data.has_work() && !data.is_attended();
            let leaves = data.port().leaves();
            (busy, work, data.port().down(), data.take_opened(), leaves)
        };
        let ended = after.finished || after.delivered;
        if after.came {
            self.stillness.end();
        }
        self.follow_up(&mut after);
        if leaves {
            self.say_left();
        }
        if !as_leader {
            if ended {
                self.wake_leader();
            }
            self.leave_to_worker();
        }
        if work {
            self.enqueue();
        }
        if opened {
            self.check_ready();
        }
        if let Some(why) = down {
            self.end_down(why);
        }
        busy
    }

    /// Receives and executes on the control connection. Returns whether anything came that somebody
    /// may be waiting for: a heartbeat is nothing to stay awake for. As for the data plane, only the
    /// leader receives while there is one.
    pub(crate) fn turn_ctrl(&self, as_leader: bool) -> bool {
        let mut heard = Heard::default();
        let ended = {
            let mut ctrl = self.ctrl();
            if ctrl.is_attended() && !as_leader {
                return false;
            }
            ctrl.turn(clock::now(), self, &mut heard);
            self.settle_ctrl(&mut ctrl);
            ctrl.ended()
        };
        let busy = heard.messages
            || heard.adverts
            || heard.revoked
            || heard.left
            || heard.bye
            || heard.relay;
        self.act_on(heard);
        self.end_ctrl(ended);
        busy
    }

    /// Looks at the deadlines of the control connection and of operations.
    pub(crate) fn tick(&self, Tick { now, late, spread }: Tick) {
        if self.life() == Life::Dead {
            return;
        }
        let (late, spread) = if self.near { (late, spread) } else { (Duration::ZERO, 1) };
        let late = late.min(now.since(self.born));
        let late_ns = self.late_ns.fetch_add(late.as_nanos(), Ordering::Relaxed);
        let patience = FRAME_DEADLINE_NS.saturating_add(late_ns).saturating_add(late.as_nanos());
        let by = self.born.after(Duration::from_nanos(patience));
        if self.life() == Life::Opening && now >= by {
            self.die(false, "it connected but did not open its data plane in time");
            return;
        }
        let _aside = Collects::to(&self.wakers);
        self.end_if_marked();
        let beat = self.data_in_turn().beat();
        let mut came = Heard::default();
        let ended = {
            let mut ctrl = self.ctrl();
            if let Some(heard) = beat {
                ctrl.note_beat(heard, now);
            }
            ctrl.suit(late, spread, now);
            ctrl.tick(now, self, &mut came);
            self.settle_ctrl(&mut ctrl);
            ctrl.ended()
        };
        self.act_on(came);
        self.end_ctrl(ended);
        self.close_if_due(now);
        if self.life() == Life::Dead {
            return;
        }
        let mut after = Aftermath::default();
        let (swept, unused) = {
            let mut data = self.data_in_turn();
            data.expire(now, &mut after);
            let swept = data.sweep();
            self.settle_data(&mut data);
            (swept, data.port().take_unused())
        };
        unused.unmap();
        drop(swept);
        self.follow_up(&mut after);
        self.run_relay();
        self.let_go();
    }

    pub(super) fn act_on(&self, heard: Heard) {
        if heard.messages || heard.adverts || heard.left || heard.room {
            self.leader_lock.notify();
        }
        if let Some(e) = &heard.failed {
            self.die(false, &format!("its transport cannot be used: {e}"));
            return;
        }
        if heard.adverts {
            self.check_ready();
        }
        if heard.revoked {
            let unused = self.data_in_turn().port().take_unused();
            unused.unmap();
        }
        if heard.relay || heard.room {
            self.run_relay();
        }
        if heard.bye {
            self.leaving.store(true, Ordering::Release);
            self.peer_left.store(true, Ordering::Release);
            self.advance(Life::Leaving);
            self.relay_leave();
            self.let_go();
        }
        if (heard.messages || heard.bye || heard.revoked)
            && let Some(owner) = self.owner.upgrade()
        {
            owner.news(self);
        }
    }

    /// A link is ready when its data plane is there and the peer's window is known.
    pub(crate) fn check_ready(&self) {
        let ready = self.data().is_complete();
        if ready && self.advance(Life::Ready) {
            self.leader_lock.notify();
            if let Some(owner) = self.owner.upgrade() {
                owner.news(self);
            }
        }
    }

    /// Wakes and drops what a turn set free; without locks.
    pub(crate) fn follow_up(&self, after: &mut Aftermath) {
        self.follow_up_but_relay(after);
        if after.finished {
            self.run_relay();
        }
        if std::mem::take(&mut after.peer_dead) {
            self.end_if_marked();
        }
    }

    pub(super) fn follow_up_but_relay(&self, after: &mut Aftermath) {
        loop {
            if std::mem::take(&mut after.delivered) {
                self.leader_lock.notify();
                if let Some(owner) = self.owner.upgrade() {
                    owner.news(self);
                }
            }
            if after.finished {
                self.leader_lock.notify();
                self.room.wake(&self.wakers);
            }
            let more = after.is_full();
            after.release(&self.wakers);
            if !more {
                return;
            }
            // More may have ended than there was room for.
            self.data().drain(after);
        }
    }
}
