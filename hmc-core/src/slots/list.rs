//! Lists that link the slots: free slots (last in, first out, so that a slot just used is in the cache), slots with
//! an event, and slots with parts for which the transport has no space (both first in, first out).

use crate::slots::{NONE, Slot, Slots, Stale};
use crate::work::SlotId;

impl<X: Default, S: AsRef<[Slot<X>]> + AsMut<[Slot<X>]>> Slots<S, X> {
    /// Takes a free slot off its list. Its state is still `Free`.
    #[inline]
    pub(super) fn pop_free(&mut self) -> Option<(u16, &mut Slot<X>)> {
        let index = self.free;
        let slot = self.entries.as_mut().get_mut(usize::from(index))?;
        self.free = slot.next_free;
        // Cannot wrap, here and below: each slot counts once.
        self.in_use = self.in_use.wrapping_add(1);
        Some((index, slot))
    }

    /// Makes a slot of state `Free` available under its next generation.
    #[inline]
    pub(super) fn push_free(&mut self, index: u16) {
        let Some(slot) = self.entries.as_mut().get_mut(usize::from(index)) else {
            return;
        };
        slot.report_done = false;
        // No generation is 0, so that an all-zero name is never an operation.
        slot.generation = slot.generation.wrapping_add(1).max(1);
        slot.next_free = self.free;
        self.free = index;
        self.in_use = self.in_use.wrapping_sub(1);
    }

    /// Appends a slot to the list of events, unless it is there already.
    #[inline]
    pub(super) fn push_ready(&mut self, index: u16) {
        let entries = self.entries.as_mut();
        let Some(slot) = entries.get_mut(usize::from(index)) else {
            return;
        };
        if slot.queued {
            return;
        }
        slot.queued = true;
        slot.next_ready = NONE;
        match entries.get_mut(usize::from(self.ready_tail)) {
            Some(last) => last.next_ready = index,
            None => self.ready_head = index,
        }
        self.ready_tail = index;
    }

    /// Takes the first slot off the list of events; it may have none of its own.
    pub(super) fn pop_ready(&mut self) -> Option<(u16, &mut Slot<X>)> {
        let index = self.ready_head;
        let slot = self.entries.as_mut().get_mut(usize::from(index))?;
        slot.queued = false;
        self.ready_head = slot.next_ready;
        if self.ready_head == NONE {
            self.ready_tail = NONE;
        }
        Some((index, slot))
    }

    /// The part of an operation that was to be posted was not taken: it waits.
    ///
    /// # Errors
    /// [`Stale`] when there is no such operation.
    pub(crate) fn put_off(&mut self, op: SlotId) -> Result<(), Stale> {
        let slot = self.slot_mut(op)?;
        slot.unposted = core::mem::take(&mut slot.posted);
        self.push_waiting(op.index);
        Ok(())
    }

    /// Appends a slot to the list of those with parts to be posted, unless it is there already.
    pub(crate) fn push_waiting(&mut self, index: u16) {
        let entries = self.entries.as_mut();
        let Some(slot) = entries.get_mut(usize::from(index)) else {
            return;
        };
        if slot.waiting {
            return;
        }
        slot.waiting = true;
        slot.next_waiting = NONE;
        match entries.get_mut(usize::from(self.waiting_tail)) {
            Some(last) => last.next_waiting = index,
            None => self.waiting_head = index,
        }
        self.waiting_tail = index;
    }

    /// The first slot of the list of those with parts to be posted, whose operation may have ended.
    pub(crate) fn first_waiting(&self) -> Option<SlotId> {
        let index = self.waiting_head;
        let slot = self.entries.as_ref().get(usize::from(index))?;
        Some(SlotId { index, generation: slot.generation })
    }

    /// Takes the first slot off that list.
    pub(crate) fn pop_waiting(&mut self) {
        let Some(slot) = self.entries.as_mut().get_mut(usize::from(self.waiting_head)) else {
            return;
        };
        slot.waiting = false;
        self.waiting_head = slot.next_waiting;
        if self.waiting_head == NONE {
            self.waiting_tail = NONE;
        }
    }

    /// Whether that list has any.
    #[inline]
    pub(crate) const fn has_waiting(&self) -> bool {
        self.waiting_head != NONE
    }
}

#[cfg(test)]
mod tests {
    use crate::slots::{Slot, Slots};
    use crate::time::Instant;

    #[test]
    fn no_generation_is_zero() {
        let mut slots = Slots::new([Slot::FREE; 1]);
        slots.entries[0].generation = u32::MAX;
        let last = slots.acquire(Instant::NEVER, 1).unwrap();
        slots.unpost(last).unwrap();
        let first = slots.acquire(Instant::NEVER, 1).unwrap();
        assert_eq!((last.generation, first.generation), (u32::MAX, 1));
    }
}
