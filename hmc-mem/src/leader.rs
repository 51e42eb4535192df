//! [`LeaderLock`]: which of the waiting threads makes progress for all (leader/follower).
//!
//! At most one thread leads at a time: it runs progress for all, so no thread hop lies between
//! the wire and the waiting thread. The others follow: they park until their own operation may have completed
//! or until there is no leader. A leader that releases the lock wakes one follower; a follower that leaves while there is
//! no leader passes that wake-up on. Nothing is allocated and there is no list of threads.
//!
//! One word stores the state: followers registered (low half), the LED bit (bit 32) and a sequence number
//! (bits 33 to 63). Followers park on the high half. To take the lock is one `fetch_or`; to release it is one
//! `fetch_add`, and a system call only if a follower is registered.
//!
//! How a waiter uses it (the order of the four steps of the follower matters):
//! ```text
//! loop {
//!     if my operation has ended { return }
//!     if let Some(lead) = lock.try_lead() { drive until it has ended; drop(lead); return }
//!     let follow = lock.follow();            // 1 register
//!     let key = follow.wait_key();           // 2 read the sequence
//!     if my operation has ended { return }   // 3 look again
//!     follow.wait_for(key, timeout);         // 4 park unless the sequence moved since step 2
//! }
//! ```
//! The thread that finishes an operation calls [`LeaderLock::notify`] after it.

use core::time::Duration;

use crate::sync::{Ordering, Scope, Wakes, Word64, high, low};

/// Bit 32: there is a leader.
const LED: u64 = 1 << 32;
/// The sequence number counts in bits 33 to 63; it wraps off the top and disturbs nothing.
const SEQUENCE: u64 = 1 << 33;
/// The low half counts registered followers: fewer than 2^32, as each is a thread.
const FOLLOWER: u64 = 1;

/// The value that [`Follower::wait_key`] read: whether there was a leader, and a sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitKey(u32);

/// Whether a follower takes over from a leader that released the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handoff {
    /// A follower was woken and takes the lock or passes the wake-up on.
    Follower,
    /// There is no follower: the progress thread must take over what is in flight.
    None,
}

/// A lock whose holder makes progress for all waiting threads.
#[derive(Debug)]
pub struct LeaderLock {
    word: Word64,
}

impl Default for LeaderLock {
    fn default() -> Self {
        Self::new()
    }
}

impl LeaderLock {
    /// Returns a lock without a leader.
    #[cfg(not(loom))]
    #[must_use]
    pub const fn new() -> Self {
        Self { word: Word64::new(0) }
    }

    /// Returns a lock without a leader. (loom's atomics have no constant constructor.)
    #[cfg(loom)]
    #[must_use]
    pub fn new() -> Self {
        Self { word: Word64::new(0) }
    }

    /// Takes the lock if there is no leader; `None` otherwise. Never blocks. The new leader sees everything that
    /// earlier leaders wrote.
    #[must_use]
    #[inline]
    pub fn try_lead(&self) -> Option<LeaderGuard<'_>> {
        // The load spares the word's cache line while there is a leader. Relaxed: it decides nothing.
        if self.word.atomic().load(Ordering::Relaxed) & LED != 0 {
            return None;
        }
        // Acquire pairs with the Release of `release`: the driver's state passes from leader to leader.
        let before = self.word.atomic().fetch_or(LED, Ordering::AcqRel);
        // Lazily: a `LeaderGuard` that was made and dropped would take the lock from its holder.
        (before & LED == 0).then(|| LeaderGuard { lock: self })
    }

    /// Returns `true` if there is a leader. The result may be out of date when it returns.
    #[must_use]
    pub fn has_leader(&self) -> bool {
        self.word.atomic().load(Ordering::Acquire) & LED != 0
    }

    /// Returns the number of registered followers. The result may be out of date when it returns.
    #[must_use]
    pub fn followers(&self) -> u32 {
        low(self.word.atomic().load(Ordering::Relaxed))
    }

    /// Registers the calling thread as a follower until the guard is dropped.
    pub fn follow(&self) -> Follower<'_> {
        self.word.atomic().fetch_add(FOLLOWER, Ordering::AcqRel);
        Follower { lock: self }
    }

    /// Wakes all followers, which then check their own operations. Call it after `SlotWord::finish`, once for any
    /// number of completions. Makes no system call if there is no follower.
    pub fn notify(&self) {
        // Release pairs with the Acquire of `wait_key`; being a read-modify-write it also comes after the
        // registration of any follower that read the sequence before it.
        let before = self.word.atomic().fetch_add(SEQUENCE, Ordering::AcqRel);
        if low(before) != 0 {
            self.word.wake_high(Wakes::All, Scope::Process);
        }
    }

    #[inline]
    fn release(&self) -> Handoff {
        // LED is set, so to add LED clears it and carries one into the sequence number: one step.
        let before = self.word.atomic().fetch_add(LED, Ordering::AcqRel);
        if low(before) == 0 {
            return Handoff::None;
        }
        // One is enough: it leads, or it leaves and its `Follower` hands the wake-up on.
        self.word.wake_high(Wakes::One, Scope::Process);
        Handoff::Follower
    }
}

/// Guard of the lock, held until dropped.
#[derive(Debug)]
#[must_use]
pub struct LeaderGuard<'a> {
    lock: &'a LeaderLock,
}

impl LeaderGuard<'_> {
    /// Releases the lock and returns whether a follower takes over.
    pub fn release(self) -> Handoff {
        let lock = self.lock;
        core::mem::forget(self);
        lock.release()
    }
}

impl Drop for LeaderGuard<'_> {
    fn drop(&mut self) {
        self.lock.release();
    }
}

/// A registered follower.
#[derive(Debug)]
#[must_use]
pub struct Follower<'a> {
    lock: &'a LeaderLock,
}

impl Follower<'_> {
    /// Returns the state for [`Self::wait_for`]. Read it before the last check of the own operation, so that no
    /// completion is missed.
    #[must_use]
    pub fn wait_key(&self) -> WaitKey {
        WaitKey(high(self.lock.word.atomic().load(Ordering::Acquire)))
    }

    /// Parks until the lock was released or [`LeaderLock::notify`] was called since `wait_key` was read, for at most
    /// `timeout` (`None`: no limit). Returns at once if there was no leader then; the caller should call
    /// [`LeaderLock::try_lead`]. May return early without a reason: check the own operation again.
    pub fn wait_for(&self, wait_key: WaitKey, timeout: Option<Duration>) {
        if u64::from(wait_key.0) << 32 & LED == 0 {
            return;
        }
        self.lock.word.wait_high(wait_key.0, timeout, Scope::Process);
    }
}

impl Drop for Follower<'_> {
    fn drop(&mut self) {
        let before = self.lock.word.atomic().fetch_sub(FOLLOWER, Ordering::AcqRel);
        // This follower may have swallowed the one wake-up of a leader that left, and may now go away
        // with its own operation ended. If nobody leads and others follow, the next one must know.
        if before & LED == 0 && low(before) > 1 {
            self.lock.word.wake_high(Wakes::One, Scope::Process);
        }
    }
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, clippy::arithmetic_side_effects, reason = "tests may panic")]
mod tests {
    use super::{FOLLOWER, Handoff, LED, LeaderLock, SEQUENCE};
    use crate::slot::SlotWord;
    use crate::sync::{AtomicU32, Ordering, Word64};
    use core::time::Duration;
    use std::vec::Vec;

    #[test]
    fn one_thread_leads_and_the_lock_is_released() {
        let lock = LeaderLock::new();
        let lead = lock.try_lead().unwrap();
        assert!(lock.try_lead().is_none());
        assert!(lock.has_leader() && lock.followers() == 0);
        assert_eq!(lead.release(), Handoff::None);
        assert!(!lock.has_leader());
        let follow = lock.follow();
        // Nobody leads: a follower must not sleep, whatever its time-out.
        follow.wait_for(follow.wait_key(), None);
        assert_eq!(lock.try_lead().unwrap().release(), Handoff::Follower);
        drop(follow);
        assert_eq!(lock.followers(), 0);
    }

    #[test]
    fn the_sequence_wraps_without_a_trace() {
        let start = (u64::MAX << 33) | FOLLOWER;
        let lock = LeaderLock { word: Word64::new(start) };
        lock.notify();
        assert_eq!(lock.word.atomic().load(Ordering::Relaxed), start.wrapping_add(SEQUENCE));
        let lock = LeaderLock { word: Word64::new(u64::MAX << 33) };
        drop(lock.try_lead().unwrap());
        assert_eq!(lock.word.atomic().load(Ordering::Relaxed), 0);
        assert_eq!(LED.wrapping_add(LED), SEQUENCE);
    }

    #[test]
    fn a_moved_sequence_ends_a_wait() {
        let lock = LeaderLock::new();
        let lead = lock.try_lead().unwrap();
        let follow = lock.follow();
        let wait_key = follow.wait_key();
        lock.notify();
        follow.wait_for(wait_key, None);
        drop(lead);
        drop(follow);
    }

    /// A wait may return early for no reason, but not each time. (Without threads of the system there is no sleep.)
    #[cfg(all(feature = "std", target_os = "linux"))]
    #[test]
    fn a_follower_sleeps_while_somebody_leads() {
        const TIMEOUT: Duration = Duration::from_millis(5);
        let lock = LeaderLock::new();
        let _lead = lock.try_lead().unwrap();
        let follow = lock.follow();
        let sleeps = || {
            let begun = std::time::Instant::now();
            follow.wait_for(follow.wait_key(), Some(TIMEOUT));
            begun.elapsed() >= TIMEOUT
        };
        assert!((0..20).any(|_| sleeps()), "no wait lasted");
    }

    /// Each thread waits for its own slots; the leader finishes whatever is pending, its own last.
    #[test]
    fn every_waiter_ends_and_leaders_exclude_each_other() {
        const THREADS: usize = 4;
        let rounds: u32 = if cfg!(miri) { 5 } else { 2000 };
        let lock = LeaderLock::new();
        let slots: Vec<SlotWord> = (0..THREADS).map(|_| SlotWord::new()).collect();
        let inside = AtomicU32::new(0);
        let armed: Vec<AtomicU32> = (0..THREADS).map(|_| AtomicU32::new(0)).collect();
        std::thread::scope(|s| {
            for me in 0..THREADS {
                let (lock, slots, inside, armed) = (&lock, &slots, &inside, &armed);
                s.spawn(move || {
                    let mine = slots.get(me).unwrap();
                    for generation in 1..=rounds {
                        assert!(mine.arm(generation));
                        armed.get(me).unwrap().store(generation, Ordering::Release);
                        while mine.is_pending(generation) {
                            if let Some(lead) = lock.try_lead() {
                                assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0);
                                let mut wake = false;
                                for (slot, g) in slots.iter().zip(armed) {
                                    wake |= slot.finish(g.load(Ordering::Acquire));
                                }
                                if wake {
                                    lock.notify();
                                }
                                assert_eq!(inside.fetch_sub(1, Ordering::Relaxed), 1);
                                drop(lead);
                                continue;
                            }
                            let follow = lock.follow();
                            let wait_key = follow.wait_key();
                            if mine.is_pending(generation) {
                                follow.wait_for(wait_key, Some(Duration::from_secs(20)));
                            }
                        }
                        assert!(mine.free(generation));
                    }
                });
            }
        });
        assert_eq!(lock.followers(), 0);
        assert!(!lock.has_leader());
    }
}
