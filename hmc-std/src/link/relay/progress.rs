//! Who moves the messages of a link on, and what others ask of them.

use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, MutexGuard};

use hmc_core::rndv::{AbortReason, RndvError, RndvMsg};
use hmc_core::types::ConnType;
use hmc_core::wire::held;
use hmc_core::wire::message::{ControlKind, ControlMessage};
use hmc_mem::shared::SharedBytes;

use super::actions::After;
use super::desk::Desk;
use super::on_link::OnLink;
use super::ticket::Ticket;
use crate::base::clock;
use crate::base::error::Result;
use crate::base::lock::lock;
use crate::callbacks::deferred_drops::Collects;
use crate::callbacks::wakers::panics;
use crate::link::aftermath::Aftermath;
use crate::link::{Life, Link};

/// Notes that may wait for somebody who looks at them.
const MAX_NOTES: usize = held::of_message(ControlKind::Rndv).count();

impl Link {
    /// The peer told a note. Called under the control lock: it is only put aside. `false`: nobody who keeps to the rules
    /// has so many to tell.
    pub(crate) fn relay_hear(&self, note: RndvMsg) -> bool {
        let mut heard = lock(&self.relay.heard);
        if heard.len() >= MAX_NOTES {
            return false;
        }
        heard.push(note);
        drop(heard);
        self.relay.live.store(true, Ordering::SeqCst);
        true
    }

    /// Moves the link's messages on, unless somebody is at it: who is looks again. Call it without
    /// locks whenever a note came, an operation ended or time passed.
    pub(crate) fn run_relay(&self) {
        let relay = &self.relay;
        if !relay.live.load(Ordering::SeqCst) {
            return;
        }
        relay.mark();
        loop {
            let Ok(mut desk) = relay.desk.try_lock() else {
                return;
            };
            let (mut after, mut host) = (After::default(), OnLink::new(self));
            while relay.unmark() {
                // In this order: no note comes after the end.
                let is_dead = self.life() == Life::Dead;
                // A peer that does not read what it is told is not listened to: each of its notes may lead to one of ours.
                let listens = is_dead || desk.tells.is_empty();
                if listens {
                    // Each turn uses up what it finds there: what goes to those who hear is storage.
                    std::mem::swap(&mut *lock(&relay.heard), &mut desk.heard);
                }
                desk.turn(&mut host, clock::now(), is_dead, &mut after);
                if !listens && desk.tells.is_empty() {
                    relay.mark();
                }
            }
            after.lends = desk.wants_lender();
            relay.lend.store(after.lends, Ordering::SeqCst);
            if desk.is_empty() && lock(&relay.heard).is_empty() {
                relay.live.store(false, Ordering::SeqCst);
                if !lock(&relay.heard).is_empty() {
                    relay.live.store(true, Ordering::SeqCst);
                    // Whoever heard it may have found the link not live, and gone.
                    relay.mark();
                }
            }
            drop(desk);
            self.finish_relay(after, host);
            if !relay.is_marked() {
                return;
            }
        }
    }

    /// Wakes and drops what puts set free that ended at once; without locks.
    fn follow_up_puts(&self, later: Vec<Aftermath>) {
        let _aside = Collects::to(&self.wakers);
        for mut a in later {
            self.follow_up_but_relay(&mut a);
            if a.finished {
                // After that: more may have ended than there was room for. Not by a call of `run_relay`, which
                // would go as deep as a message has pieces.
                self.relay.mark();
            }
        }
    }

    fn finish_relay(&self, after: After, host: OnLink<'_>) {
        let _aside = Collects::to(&self.wakers);
        self.follow_up_puts(host.later);
        for (window, epoch) in after.revoked {
            // So that the peer forgets its mapping. The fence does not depend on it.
            let _ = self.send(&ControlMessage::Revoke { window, epoch });
        }
        // The last handle of a waker may be there, which is the application's too.
        if panics(|| drop(after.over)) {
            self.wakers.note_panic();
        }
        for waker in after.wakers {
            self.wakers.wake(waker);
        }
        if after.news || after.lends {
            self.park_wakers.wake();
        }
        // On a link to oneself the lender of more than its bounce buffers hold waits for news, and for no socket.
        let lends = after.lends && self.conn() == Some(ConnType::Loopback);
        if after.news || lends {
            self.leader_lock.notify();
            if let Some(owner) = self.owner.upgrade() {
                owner.news(self);
            }
        }
        self.end_ctrl(host.ended);
        if let Some(why) = after.broken {
            self.die(false, &format!("it broke the protocol: {why}"));
        }
    }

    /// Changes the desk and has it run.
    pub(crate) fn at_relay<R>(&self, change: impl FnOnce(&mut Desk) -> R) -> R {
        let r = change(&mut self.live_desk());
        self.run_relay();
        r
    }

    fn live_desk(&self) -> MutexGuard<'_, Desk> {
        let desk = lock(&self.relay.desk);
        self.relay.live.store(true, Ordering::SeqCst);
        // Pairs with the one in `Link::die`: it finds the link live, or the next turn finds it dead.
        fence(Ordering::SeqCst);
        desk
    }

    /// Asks something at the desk, unless somebody is at it.
    fn glance(&self, ask: impl FnOnce(&Desk) -> bool) -> Option<bool> {
        let answer = ask(&*self.relay.desk.try_lock().ok()?);
        // Who came meanwhile found the desk taken, as in `run_relay`.
        if self.relay.is_marked() {
            self.run_relay();
        }
        Some(answer)
    }

    /// Ends a message of ours, unless it has ended.
    pub(crate) fn end_relay(&self, ticket: &Arc<Ticket>, why: AbortReason) {
        self.at_relay(|desk| desk.end(ticket, RndvError::Here(why)));
    }

    /// Sends what the lender of `ticket` may send now.
    pub(crate) fn relay_lend(&self, ticket: &Arc<Ticket>, bytes: &SharedBytes<'_>) {
        if self.relay.lend.load(Ordering::SeqCst) {
            let mut host = OnLink::new(self);
            self.live_desk().feed_lent(&mut host, ticket, bytes);
            self.follow_up_puts(host.later);
            self.run_relay();
        }
    }

    /// Copies what came for the lender of `ticket`.
    ///
    /// # Errors
    /// A half cannot be read, which its range excludes.
    pub(crate) fn relay_borrow(&self, ticket: &Arc<Ticket>, out: &SharedBytes<'_>) -> Result<()> {
        if self.relay.lend.load(Ordering::SeqCst) {
            return self.at_relay(|desk| desk.drain_lent(ticket, out));
        }
        Ok(())
    }

    /// This end or the peer leaves: what has not been matched never will be.
    pub(crate) fn relay_leave(&self) {
        if self.relay.live.load(Ordering::SeqCst) {
            self.at_relay(Desk::leave);
        }
    }

    /// Whether certainly no message is under way. Call it without locks, as [`Link::run_relay`].
    pub(crate) fn is_relay_quiet(&self) -> bool {
        !self.relay.live.load(Ordering::SeqCst) || self.glance(Desk::is_quiet) == Some(true)
    }

    /// Whether messages may be under way.
    pub(in crate::link) fn has_relays(&self) -> bool {
        self.relay.live.load(Ordering::SeqCst)
    }

    /// The memory of messages that are under way, by size and reason.
    pub(in crate::link) fn relay_bytes(&self, each: &mut dyn FnMut(u64, &'static str)) {
        if self.has_relays() {
            let bytes = lock(&self.relay.desk).held_bytes();
            if bytes != 0 {
                each(bytes, "the peer may be inside the memory of a message under way");
            }
        }
    }

    /// Whether nothing of ours is in the reach of the peer of a link that is over.
    pub(crate) fn is_out_of_reach(&self) -> bool {
        self.run_relay();
        let holds =
            self.relay.live.load(Ordering::SeqCst) && self.glance(Desk::holds) != Some(false);
        !holds && self.data().is_out_of_reach()
    }
}
