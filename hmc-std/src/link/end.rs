//! How a link ends.

use std::sync::atomic::{Ordering, fence};

use hmc_core::time::Instant;

use super::aftermath::Aftermath;
use super::{Life, Link};
use crate::clock;
use crate::transport::stream::Down;

impl Link {
    /// Says BYE; the peer has until `by` to say it too.
    pub(crate) fn bye(&self, by: Instant) {
        self.leaving.store(true, Ordering::Release);
        self.advance(Life::Leaving);
        let ended = {
            let mut ctrl = self.ctrl();
            ctrl.bye(by, clock::now());
            self.settle_ctrl(&mut ctrl);
            ctrl.ended()
        };
        if let Some(why) = ended {
            self.die(why.eof, &why.text);
        }
    }

    pub(super) fn end_down(&self, why: Down) {
        self.die(why == Down::Eof, &why.to_string());
    }

    /// Ends the link: every operation ends, every waiter wakes. Once.
    pub(crate) fn die(&self, eof: bool, why: &str) {
        if self.reason.set(why.to_owned()).is_err() {
            return;
        }
        self.advance(Life::Dead);
        self.ctrl().close();
        self.ctrl_socket.shutdown();
        let mut after = Aftermath::default();
        self.data().die(eof, &mut after);
        self.follow_up(&mut after);
        self.room.wake(&self.owner);
        // Pairs with the one in `at_relay`: we find a message that begins, or its turn finds the link dead.
        fence(Ordering::SeqCst);
        self.run_relay();
        self.driver.forget(self);
        self.baton.notify();
        self.bells.ring();
        self.keep_unfenced();
        if let Some(owner) = self.owner.upgrade() {
            owner.over(self);
        }
    }
}
