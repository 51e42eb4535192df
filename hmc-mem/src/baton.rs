//! [`Baton`]: which of the waiters drives the shared driver.
//!
//! Exactly one thread leads at a time: it runs progress for everyone, so that no thread hop lies between
//! the wire and the one who waits. The others follow: they sleep until their own operation may have ended
//! or until the lead is free. A leader that leaves wakes one follower; a follower that leaves while nobody
//! leads hands that wake-up on. Nothing is allocated and there is no list of threads.
//!
//! One word holds it all: followers registered (low half), the LED bit (bit 32) and a sequence number
//! (bits 33 to 63). Followers sleep on the high half. To take the lead is one `fetch_or`; to leave is one
//! `fetch_add`, and a system call only if a follower is registered.
//!
//! How a waiter uses it (the order of the four steps of the follower matters):
//! ```text
//! loop {
//!     if my operation has ended { return }
//!     if let Some(lead) = baton.try_lead() { drive until it has ended; drop(lead); return }
//!     let follow = baton.follow();           // 1 register
//!     let ticket = follow.ticket();          // 2 read the sequence
//!     if !slot.set_waiter(generation) { continue }    // 3 say that someone sleeps, or learn that it ended
//!     follow.wait_for(ticket, timeout);      // 4 sleep unless the sequence moved since step 2
//! }
//! ```
//! Whoever finishes an operation and is told `Wake::Waiter` calls [`Baton::notify`] after it.

use core::time::Duration;

use crate::sync::{Ordering, Scope, Wakes, Word64, high, low};

/// Bit 32: someone leads.
const LED: u64 = 1 << 32;
/// The sequence number counts in bits 33 to 63; it wraps off the top and disturbs nothing.
const SEQUENCE: u64 = 1 << 33;
/// The low half counts registered followers: fewer than 2^32, as each is a thread.
const FOLLOWER: u64 = 1;

/// What [`Follow::ticket`] read: LED bit and sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(u32);

/// Whom a leader that left handed the lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handed {
    /// A follower was woken and will take the lead or hand it on.
    Follower,
    /// Nobody follows: the background thread must take over what is still in flight.
    Nobody,
}

/// The right to drive, handed from waiter to waiter.
#[derive(Debug)]
pub struct Baton {
    word: Word64,
}

impl Default for Baton {
    fn default() -> Self {
        Self::new()
    }
}

impl Baton {
    /// A baton that nobody holds.
    #[cfg(not(loom))]
    #[must_use]
    pub const fn new() -> Self {
        Self { word: Word64::new(0) }
    }

    /// A baton that nobody holds. (loom's atomics have no constant constructor.)
    #[cfg(loom)]
    #[must_use]
    pub fn new() -> Self {
        Self { word: Word64::new(0) }
    }

    /// Takes the lead if it is free. Never blocks. What earlier leaders wrote is visible to the new one.
    #[must_use]
    #[inline]
    pub fn try_lead(&self) -> Option<Lead<'_>> {
        // The look spares the word's cache line while someone leads. Relaxed: it decides nothing.
        if self.word.atomic().load(Ordering::Relaxed) & LED != 0 {
            return None;
        }
        // Acquire pairs with the Release of `leave`: the driver's state passes from leader to leader.
        let before = self.word.atomic().fetch_or(LED, Ordering::AcqRel);
        // Lazily: a `Lead` that was made and dropped would take the lead from its holder.
        (before & LED == 0).then(|| Lead { baton: self })
    }

    /// Whether someone leads at this moment. A hint: it may be over already.
    #[must_use]
    pub fn is_led(&self) -> bool {
        self.word.atomic().load(Ordering::Acquire) & LED != 0
    }

    /// How many followers are registered. A hint.
    #[must_use]
    pub fn followers(&self) -> u32 {
        low(self.word.atomic().load(Ordering::Relaxed))
    }

    /// Registers the calling thread as a follower until the guard is dropped.
    pub fn follow(&self) -> Follow<'_> {
        self.word.atomic().fetch_add(FOLLOWER, Ordering::AcqRel);
        Follow { baton: self }
    }

    /// Wakes every follower to look at its own operation. Call it after `SlotWord::finish` said that
    /// someone waits; once for a batch of completions is enough. No system call when nobody follows.
    pub fn notify(&self) {
        // Release pairs with the Acquire of `ticket`; being a read-modify-write it also comes after the
        // registration of any follower whose `set_waiter` the finisher saw.
        let before = self.word.atomic().fetch_add(SEQUENCE, Ordering::AcqRel);
        if low(before) != 0 {
            self.word.wake_high(Wakes::All, Scope::Process);
        }
    }

    #[inline]
    fn leave(&self) -> Handed {
        // LED is set, so to add LED clears it and carries one into the sequence number: one step.
        let before = self.word.atomic().fetch_add(LED, Ordering::AcqRel);
        if low(before) == 0 {
            return Handed::Nobody;
        }
        // One is enough: it leads, or it leaves and its `Follow` hands the wake-up on.
        self.word.wake_high(Wakes::One, Scope::Process);
        Handed::Follower
    }
}

/// The lead, held until dropped.
#[derive(Debug)]
#[must_use]
pub struct Lead<'a> {
    baton: &'a Baton,
}

impl Lead<'_> {
    /// Gives the lead up and says whether a follower takes over.
    pub fn leave(self) -> Handed {
        let baton = self.baton;
        core::mem::forget(self);
        baton.leave()
    }

    /// Whether anyone follows at this moment. A hint.
    #[must_use]
    pub fn has_followers(&self) -> bool {
        self.baton.followers() != 0
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        self.baton.leave();
    }
}

/// A registered follower.
#[derive(Debug)]
#[must_use]
pub struct Follow<'a> {
    baton: &'a Baton,
}

impl Follow<'_> {
    /// The state to sleep on. Read it before the last look at the own operation.
    #[must_use]
    pub fn ticket(&self) -> Ticket {
        Ticket(high(self.baton.word.atomic().load(Ordering::Acquire)))
    }

    /// Sleeps until something happened since `ticket`, at most for `timeout` (for ever when `None`). Returns
    /// at once when the ticket was read while nobody led: the caller should try to lead. May return early
    /// for no reason: look again.
    pub fn wait_for(&self, ticket: Ticket, timeout: Option<Duration>) {
        if u64::from(ticket.0) << 32 & LED == 0 {
            return;
        }
        self.baton.word.wait_high(ticket.0, timeout, Scope::Process);
    }
}

impl Drop for Follow<'_> {
    fn drop(&mut self) {
        let before = self.baton.word.atomic().fetch_sub(FOLLOWER, Ordering::AcqRel);
        // This follower may have swallowed the one wake-up of a leader that left, and may now go away
        // with its own operation ended. If nobody leads and others follow, the next one must know.
        if before & LED == 0 && low(before) > 1 {
            self.baton.word.wake_high(Wakes::One, Scope::Process);
        }
    }
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, clippy::arithmetic_side_effects, reason = "tests may panic")]
mod tests {
    use super::{Baton, FOLLOWER, Handed, LED, SEQUENCE};
    use crate::slot::{Poll, SlotWord, Wake};
    use crate::sync::{AtomicU32, Ordering, Word64};
    use core::time::Duration;
    use std::vec::Vec;

    #[test]
    fn one_leads_and_the_lead_comes_back() {
        let baton = Baton::new();
        let lead = baton.try_lead().unwrap();
        assert!(baton.try_lead().is_none());
        assert!(baton.is_led() && !lead.has_followers());
        assert_eq!(lead.leave(), Handed::Nobody);
        assert!(!baton.is_led());
        let follow = baton.follow();
        // Nobody leads: a follower must not sleep, whatever its time-out.
        follow.wait_for(follow.ticket(), None);
        assert_eq!(baton.try_lead().unwrap().leave(), Handed::Follower);
        drop(follow);
        assert_eq!(baton.followers(), 0);
    }

    #[test]
    fn the_sequence_wraps_without_a_trace() {
        let start = (u64::MAX << 33) | FOLLOWER;
        let baton = Baton { word: Word64::new(start) };
        baton.notify();
        assert_eq!(baton.word.atomic().load(Ordering::Relaxed), start.wrapping_add(SEQUENCE));
        let baton = Baton { word: Word64::new(u64::MAX << 33) };
        drop(baton.try_lead().unwrap());
        assert_eq!(baton.word.atomic().load(Ordering::Relaxed), 0);
        assert_eq!(LED.wrapping_add(LED), SEQUENCE);
    }

    #[test]
    fn a_moved_sequence_ends_a_wait() {
        let baton = Baton::new();
        let lead = baton.try_lead().unwrap();
        let follow = baton.follow();
        let ticket = follow.ticket();
        baton.notify();
        follow.wait_for(ticket, None);
        drop(lead);
        drop(follow);
    }

    /// A wait may return early for no reason, but not each time. (Without threads of the system there is no sleep.)
    #[cfg(all(feature = "std", target_os = "linux"))]
    #[test]
    fn a_follower_sleeps_while_somebody_leads() {
        const TIMEOUT: Duration = Duration::from_millis(5);
        let baton = Baton::new();
        let _lead = baton.try_lead().unwrap();
        let follow = baton.follow();
        let sleeps = || {
            let begun = std::time::Instant::now();
            follow.wait_for(follow.ticket(), Some(TIMEOUT));
            begun.elapsed() >= TIMEOUT
        };
        assert!((0..20).any(|_| sleeps()), "no wait lasted");
    }

    /// Each thread waits for its own slots; the leader finishes whatever is pending, its own last.
    #[test]
    fn every_waiter_ends_and_leaders_exclude_each_other() {
        const THREADS: usize = 4;
        let rounds: u32 = if cfg!(miri) { 5 } else { 2000 };
        let baton = Baton::new();
        let slots: Vec<SlotWord> = (0..THREADS).map(|_| SlotWord::new()).collect();
        let inside = AtomicU32::new(0);
        let armed: Vec<AtomicU32> = (0..THREADS).map(|_| AtomicU32::new(0)).collect();
        std::thread::scope(|s| {
            for me in 0..THREADS {
                let (baton, slots, inside, armed) = (&baton, &slots, &inside, &armed);
                s.spawn(move || {
                    let mine = slots.get(me).unwrap();
                    for generation in 1..=rounds {
                        assert!(mine.arm(generation));
                        armed.get(me).unwrap().store(generation, Ordering::Release);
                        while mine.poll(generation) == Poll::Pending {
                            if let Some(lead) = baton.try_lead() {
                                assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0);
                                let mut wake = false;
                                for (slot, g) in slots.iter().zip(armed) {
                                    wake |= slot.finish(g.load(Ordering::Acquire), true)
                                        == Wake::Waiter;
                                }
                                if wake {
                                    baton.notify();
                                }
                                assert_eq!(inside.fetch_sub(1, Ordering::Relaxed), 1);
                                drop(lead);
                                continue;
                            }
                            let follow = baton.follow();
                            let ticket = follow.ticket();
                            if mine.set_waiter(generation) {
                                follow.wait_for(ticket, Some(Duration::from_secs(20)));
                            }
                        }
                        assert!(mine.retire(generation));
                    }
                });
            }
        });
        assert_eq!(baton.followers(), 0);
        assert!(!baton.is_led());
    }
}
