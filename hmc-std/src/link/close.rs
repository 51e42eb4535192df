//! Closes a link: first its operations, and then, after all bytes of the peer have been received, the link itself.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use hmc_core::limits::PEER_DEAD_NS;
use hmc_core::time::{Duration, Instant};
use hmc_core::transport::DataCloseReason;
use hmc_core::types::ConnType;

use super::ctrl::machine::Ended;
use super::deferred::Deferred;
use super::received::Received;
use super::{CLOSING, Link, LinkState};
use crate::callbacks::deferred_drops::DeferDrops;

impl Link {
    /// Says BYE; the peer has until `by` to say it too.
    pub(crate) fn bye(&self, by: Instant) {
        self.leaving.store(true, Ordering::Release);
        self.advance(LinkState::Leaving);
        if self.is_closing() {
            // Nobody is there to answer.
            return self.close_now();
        }
        let ended = {
            let mut ctrl = self.ctrl();
            ctrl.bye(by, self.clock.now());
            self.update_ctrl_interest(&mut ctrl);
            ctrl.machine.ended()
        };
        self.end_ctrl(ended);
    }

    /// Answers the peer's BYE once nothing of ours is under way.
    pub(super) fn answer_bye(&self) {
        let left = self.peer_left.load(Ordering::Acquire) && self.is_rndv_idle();
        if left && self.is_idle() {
            self.bye(self.clock.now());
        }
    }

    /// The control connection ended, if it did.
    pub(super) fn end_ctrl(&self, ended: Option<Ended>) {
        match ended {
            Some(why) if why.unread => self.begin_closing(why.eof, &why.text),
            Some(why) => self.close(why.eof, &why.text),
            None => {}
        }
    }

    /// The data plane has ended. The caller holds no lock of the link.
    pub(super) fn close_on_error(&self, why: DataCloseReason) {
        let words = self.data_fairly().plane().why_closed().unwrap_or_default();
        if why == DataCloseReason::Eof {
            return self.begin_closing(true, &words);
        }
        self.begin_closing(false, &words);
        // The peer may go on sending: what it has sent by now is enough.
        self.close_now();
    }

    /// Says why it ends. Its data plane, and operations with it, may end before the link is known to be over. The caller
    /// holds no lock of the link.
    pub(crate) fn why(&self) -> String {
        match self.reason.get() {
            Some(why) => why.clone(),
            None => {
                let why = self.data_fairly().plane().why_closed();
                why.unwrap_or_else(|| self.reason().to_owned())
            }
        }
    }

    /// Whether it is ready and its peer's process has not left the mark of its end; if it has, the link ends. For those who
    /// are about to give the link to somebody: its sockets may tell of the end later than a transfer does. The caller holds
    /// no lock of the link.
    pub(crate) fn is_ready_now(&self) -> bool {
        self.state() == LinkState::Ready && !self.end_if_marked()
    }

    /// Ends it if its peer is known to be gone. For those who are about to say so: the thread that found it may not have ended
    /// the link yet, and nobody is to find it ready after `PeerDead`. The caller holds no lock of the link.
    pub(crate) fn end_if_gone(&self) {
        if self.end_if_marked() {
            return;
        }
        let down = self.data_fairly().plane().close_reason();
        if let Some(why) = down {
            self.close_on_error(why);
        }
    }

    /// Ends it if the peer's process has left the mark of its end ([`hmc_mem::os::life`]). Whether it has.
    pub(crate) fn end_if_marked(&self) -> bool {
        if !self.data_fairly().is_marked() {
            return false;
        }
        if matches!(self.state(), LinkState::Opening | LinkState::Ready) {
            self.begin_closing(true, "its process has ended");
        }
        true
    }

    /// One of the two connections has ended, at the peer's end: no more operations. What the peer has sent on the control
    /// connection is delivered up to its end before the link is over; that of a dead process comes at once. Connections are
    /// not ordered against each other, so the data plane may end first.
    fn begin_closing(&self, eof: bool, why: &str) {
        // Before anybody can ask for it.
        let _ = self.reason.set(why.to_owned());
        if self.state.fetch_max(CLOSING, Ordering::AcqRel) >= CLOSING {
            return;
        }
        self.end_data(eof);
        self.ctrl().machine.close_at(self.clock.now().after(Duration::from_nanos(PEER_DEAD_NS)));
        self.run_rndv();
        self.poll_ctrl(false);
        self.leader_lock.notify();
        self.park_wakers.wake(&self.wakers);
    }

    /// Ends the link if the peer's control connection has not ended in time.
    pub(super) fn close_if_due(&self, now: Instant) {
        if self.is_closing() && self.ctrl().machine.is_close_due(now) {
            self.close_now();
        }
    }

    /// Receives what there is and ends the link, unless the inbox is full: whoever takes messages goes on then.
    fn close_now(&self) {
        let mut received = Received::default();
        let now = self.clock.now();
        let done = {
            let mut ctrl = self.ctrl();
            ctrl.machine.close_at(now);
            ctrl.poll(now, self, &mut received);
            self.update_ctrl_interest(&mut ctrl);
            ctrl.machine.ended().is_some_and(|e| !e.unread) || ctrl.machine.is_close_due(now)
        };
        self.apply_received(received, now);
        if done {
            self.close(false, "its data connection ended");
        }
    }

    /// Every operation ends.
    fn end_data(&self, eof: bool) {
        let _aside = DeferDrops::to(&self.wakers);
        let mut after = Deferred::default();
        let released = {
            let mut data = self.data_fairly();
            data.close(eof, &mut after);
            self.update_data_interest(&mut data);
            // What no operation holds can go: nobody looks for a region any more.
            data.plane().release_memory(true);
            data.plane().take_released()
        };
        self.run_deferred(&mut after);
        self.space.wake(&self.wakers);
        // After those who wait have been woken, and without the lock: to free memory takes long.
        drop(released);
    }

    /// Lets go of memory that this link, which is over, used last, without a lock. It may have been in use when the link ended.
    pub(crate) fn drop_unused(&self) {
        let _aside = DeferDrops::to(&self.wakers);
        let unused = self.data().evict_unused();
        drop(unused);
    }

    /// Logs what the link has moved, and by which transport.
    fn log_end(&self) {
        let mut data = self.data();
        let (bytes_out, bytes_in) = data.bytes_moved();
        let plane = data.plane();
        tracing::debug!(
            target: "hmc_std::link",
            peer = self.peer.0,
            conn = plane.kind().map_or("none", ConnType::name),
            bytes_out,
            bytes_in,
            bytes_by_ucx = plane.bytes_offloaded(),
            why = self.reason(),
            "a link is over"
        );
    }

    /// Ends the link: every operation ends, every waiter wakes. Once.
    pub(crate) fn close(&self, eof: bool, why: &str) {
        if self.over.swap(true, Ordering::AcqRel) {
            return;
        }
        let _ = self.reason.set(why.to_owned());
        // Whoever finds the link over finds all that came before.
        self.data_fairly().plane().deliver_rest();
        self.advance(LinkState::Dead);
        self.ctrl().machine.close();
        self.ctrl_socket.shutdown();
        self.log_end();
        self.end_data(eof);
        // Pairs with the one in `with_rndv`: we find a message that begins, or its poll finds the link dead.
        fence(Ordering::SeqCst);
        self.end_rndvs();
        self.reactor.unwatch_link(self.ctrl_socket(), self.data_socket().map(Arc::as_ref));
        self.leader_lock.notify();
        self.park_wakers.wake(&self.wakers);
        self.quarantine_unfenced();
        if let Some(owner) = self.owner.upgrade() {
            owner.on_closed(self);
        }
    }
}
