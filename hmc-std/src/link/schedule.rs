//! Requests of a link to the reactor: watch its sockets, poll it.

use std::sync::atomic::Ordering;

use super::ctrl::CtrlState;
use super::data::DataState;
use super::{Link, LinkState};
use crate::io::reactor::Channel;

impl Link {
    /// Asks the reactor to run this link's data plane soon.
    pub(crate) fn schedule(&self) {
        if !self.queued.swap(true, Ordering::AcqRel) {
            self.reactor.enqueue(self.serial);
        }
    }

    /// Returns `true` if no operation of ours is under way, and none that was complete locally waits for its answer.
    pub(crate) fn is_idle(&self) -> bool {
        let mut data = self.data();
        data.queue().in_flight() == 0 && data.plane().are_puts_answered()
    }

    /// Whether some waiter drives this link.
    pub(crate) fn has_leader(&self) -> bool {
        self.leader_lock.has_leader()
    }

    pub(crate) fn unschedule(&self) {
        self.queued.store(false, Ordering::Release);
    }

    /// Asks the reactor to run the data plane, if there is work and nobody is at it.
    pub(crate) fn resume_background(&self) {
        let (has_work, worker) = {
            let mut data = self.data();
            (data.has_work(), self.worker_of_posted(&mut data))
        };
        if has_work {
            self.schedule();
        }
        if let Some(worker) = worker {
            worker.shared.resume();
            if self.wakers.events.is_wanted() {
                // An event loop may sleep until the operation has ended.
                worker.shared.wake_on_completion();
            }
        }
    }

    /// Bytes that the last poll of the control connection left in its ring are read. Returns whether anything came.
    pub(crate) fn poll_unread(&self) -> bool {
        self.ctrl_wakes.take_unread() && self.poll_ctrl(false)
    }

    /// Registers what the data plane waits for now.
    pub(crate) fn update_data_interest(&self, data: &mut DataState) {
        let Some(socket) = self.data_socket.get() else { return };
        let mut wanted = data.plane().interest().connection;
        wanted.read &= !data.is_claimed();
        wanted.end &= !data.is_claimed();
        if let Some(slot) = data.registration(wanted) {
            self.reactor.register(socket, self.serial, Channel::Data, slot, wanted);
        }
    }

    /// Registers what the control connection waits for now, and wakes a peer that sleeps although bytes were written to its ring.
    pub(crate) fn update_ctrl_interest(&self, ctrl: &mut CtrlState) {
        // Who has deferred that may sleep itself.
        if !self.ctrl_wakes.is_deferred() || ctrl.is_parked() {
            ctrl.wake_peer();
        }
        let wanted = ctrl.interest();
        // A link that is over is watched no more; the rests of several have one socket.
        if self.state() == LinkState::Dead {
            return;
        }
        if let Some(slot) = ctrl.registration(wanted) {
            self.reactor.register(&self.ctrl_socket, self.serial, Channel::Ctrl, slot, wanted);
        }
    }
}
