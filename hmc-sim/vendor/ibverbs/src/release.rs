//! What requests and receives hold of registered memory, and when they let it go: with the poll of their completion.

use crate::queue::{Freed, Owner, Piece};
use crate::state::FakeIbv;
use crate::table::Id;

impl FakeIbv {
    fn release_pieces(&mut self, pieces: &mut Vec<Piece>) {
        for piece in pieces.drain(..) {
            self.release_region(piece.mr);
        }
    }

    fn release_region(&mut self, mr: Id) {
        if let Some(mr) = self.mrs.get_mut(mr) {
            mr.users = mr.users.saturating_sub(1);
        }
    }

    /// Frees the requests of a send queue before a number.
    pub(crate) fn free_sends(&mut self, id: Id, end: u64) {
        while let Some(qp) = self.qps.get_mut(id).filter(|q| q.freed < end) {
            let at = qp.at(qp.freed);
            qp.freed += 1;
            let mut request = core::mem::take(&mut qp.queue[at]);
            self.release_pieces(&mut request.pieces);
            request.inline.clear();
            let bind = core::mem::take(&mut request.bind);
            self.release_region(bind.mr);
            if let Some(mw) = self.mws.get_mut(bind.mw) {
                mw.users = mw.users.saturating_sub(1);
            }
            if let Some(qp) = self.qps.get_mut(id) {
                qp.queue[at] = request;
            }
        }
    }

    /// Frees a receive.
    pub(crate) fn free_receive(&mut self, owner: Owner, slot: usize) {
        let Some(receives) = self.receives(owner) else { return };
        let mut pieces = core::mem::take(&mut receives.slots[slot].pieces);
        self.release_pieces(&mut pieces);
        if let Some(receives) = self.receives(owner) {
            receives.slots[slot].pieces = pieces;
            receives.free.push(slot);
        }
    }

    /// Frees what a polled completion stood for.
    pub(crate) fn free(&mut self, freed: Freed) {
        match freed {
            Freed::Sends(qp, end) => self.free_sends(qp, end),
            Freed::Receive(owner, slot) => self.free_receive(owner, slot),
        }
    }

    /// Frees all receives of a queue.
    pub(crate) fn free_receives(&mut self, owner: Owner) {
        let count = self.receives(owner).map_or(0, |r| r.slots.len());
        for slot in 0..count {
            if self.receives(owner).is_some_and(|r| !r.free.contains(&slot)) {
                self.free_receive(owner, slot);
            }
        }
        if let Some(receives) = self.receives(owner) {
            receives.posted.clear();
        }
    }

    /// Removes all work of a queue pair that is reset or destroyed, and its completions that were not polled.
    pub(crate) fn drop_work(&mut self, id: Id) {
        self.deliver_of(id);
        let Some(qp) = self.qps.get_mut(id) else { return };
        let (posted, queues) = (qp.posted, [qp.send_cq, qp.recv_cq]);
        qp.completed = posted;
        self.free_sends(id, posted);
        self.free_receives(Owner::Qp(id));
        for cq in queues {
            let count = self.cqs.get(cq).map_or(0, |c| c.ring.len());
            for _ in 0..count {
                let next = self.cqs.get_mut(cq).and_then(|c| c.ring.pop_front());
                let Some(completion) = next else { continue };
                if completion.qp != id {
                    if let Some(cq) = self.cqs.get_mut(cq) {
                        cq.ring.push_back(completion);
                    }
                } else if let Freed::Receive(owner @ Owner::Srq(_), slot) = completion.freed {
                    self.free_receive(owner, slot);
                }
            }
        }
    }
}
