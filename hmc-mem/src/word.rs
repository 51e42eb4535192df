//! [`WindowWord`]: the word in a shared page that says whether a window is open and who is inside.
//!
//! The owner of the memory opens and closes; an initiator in another process enters before each copy
//! chunk and leaves after it. Low half: CLOSED (bit 31) and the epoch (31 bits). High half: how many are
//! inside; its overflow leaves the word and never reaches the epoch. Only read-modify-writes change it.
//!
//! The other process may write anything here. Then the counts lie, but nothing here panics, and no wait
//! lasts beyond its deadline. Closing is the fence only for peers that follow the protocol (same user).
//!
//! Orders: `leave` releases the chunk's copy and `is_drained`/`wait_drained` acquire it, so after a drain
//! the owner sees every byte that was written and no more will be. `open` releases what the owner put into
//! the window and `enter` acquires it.

use core::time::Duration;

#[cfg(hmc_mutants)]
use hmc_core::mutant::{self, Mutant};

use crate::sync::{Deadline, Ordering, Scope, Wakes, Word64, high, low};

const CLOSED: u64 = 1 << 31;
const EPOCH: u64 = CLOSED - 1;
/// One who is inside.
const INSIDE: u64 = 1 << 32;
/// A sleeper looks again after this long even if nobody wakes it: a killed peer wakes no one.
const LONGEST_NAP: Duration = Duration::from_millis(50);

/// The largest epoch that a word can hold.
pub const MAX_EPOCH: u32 = 0x7fff_ffff;

/// Why an initiator may not copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The owner closed the window.
    Closed,
    /// The window is open under another epoch.
    Epoch {
        /// The word's epoch.
        now: u32,
    },
    /// The count is full, which no honest word is.
    Broken,
}

/// How a wait for the last one out ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Drain {
    /// The window is closed and nobody is inside.
    Drained,
    /// The deadline passed with this many inside (a stopped, dead or hostile peer).
    TimedOut {
        /// As the word says.
        inside: u32,
    },
}

/// A view of one window word.
#[derive(Clone, Copy, Debug)]
pub struct WindowWord<'a> {
    word: &'a Word64,
}

impl<'a> WindowWord<'a> {
    /// The window word in `word`. A page of zeros is an open window of epoch 0 with nobody inside, so the
    /// owner calls [`Self::close`] before it hands the page out.
    #[must_use]
    pub const fn new(word: &'a Word64) -> Self {
        Self { word }
    }

    /// Initiator: goes in, if the window is open under `epoch`. Pair it with [`Self::leave`].
    ///
    /// # Errors
    /// [`Refused`]; the caller is not inside.
    #[inline]
    pub fn enter(&self, epoch: u32) -> Result<(), Refused> {
        // Acquire pairs with the Release of `open`. Wait-free: a hostile word cannot hold the caller.
        let before = self.word.atomic().fetch_add(INSIDE, Ordering::AcqRel);
        let why = if before & CLOSED != 0 {
            Refused::Closed
        } else if before & EPOCH != u64::from(epoch) {
            Refused::Epoch { now: low(before & EPOCH) }
        } else if high(before) == u32::MAX {
            Refused::Broken
        } else {
            return Ok(());
        };
        self.leave();
        Err(why)
    }

    /// Initiator: goes out after a chunk. The last one out of a closed window wakes the owner.
    #[inline]
    pub fn leave(&self) {
        self.go_out();
    }

    /// As [`Self::leave`]. Returns whether the window was open under `epoch` until then. If not, its owner may have put
    /// other pages under it while the caller was inside: what was written into the old ones is nobody's.
    #[inline]
    #[must_use]
    pub fn leave_open(&self, epoch: u32) -> bool {
        // The low half of an open window is its epoch.
        low(self.go_out()) == epoch
    }

    /// Takes one off the count and gives the word as it was.
    #[inline]
    fn go_out(&self) -> u64 {
        // Release: the chunk's bytes are visible to an owner that sees the count without this one.
        let before = self.word.atomic().fetch_sub(INSIDE, Ordering::AcqRel);
        if before & CLOSED != 0 && high(before) == 1 {
            self.word.wake_high(Wakes::All, Scope::Host);
        }
        before
    }

    /// Whether the window is open under `epoch` at this moment: the recheck within a long copy.
    #[must_use]
    #[inline]
    pub fn is_open(&self, epoch: u32) -> bool {
        let now = self.word.atomic().load(Ordering::Acquire);
        now & CLOSED == 0 && now & EPOCH == u64::from(epoch)
    }

    /// Owner: lets nobody in from here on. Who is inside stays until it leaves. Wait-free.
    pub fn close(&self) {
        self.word.atomic().fetch_or(CLOSED, Ordering::AcqRel);
    }

    /// Owner: opens under `epoch` and keeps the count: who was refused before may still be about to leave, and takes off
    /// what it added. Wait-free: an initiator that retries cannot hold the owner.
    ///
    /// # Errors
    /// [`Refused::Broken`] when `epoch` is larger than [`MAX_EPOCH`]; nothing changed.
    pub fn open(&self, epoch: u32) -> Result<(), Refused> {
        if epoch > MAX_EPOCH {
            return Err(Refused::Broken);
        }
        #[cfg(hmc_mutants)]
        if mutant::is(Mutant::OpenSetsCount) {
            self.word.atomic().store(u64::from(epoch), Ordering::Release);
            return Ok(());
        }
        // Only the owner changes the low half. A peer that did, too, has a window of a wrong epoch: its own loss.
        let now = low(self.word.atomic().load(Ordering::Relaxed));
        // Release: what the owner put into the window is visible to who enters it.
        self.word.atomic().fetch_xor(u64::from(now ^ epoch), Ordering::AcqRel);
        Ok(())
    }

    /// How many are inside, as the word says.
    #[must_use]
    pub fn inside(&self) -> u32 {
        high(self.word.atomic().load(Ordering::Relaxed))
    }

    /// Owner: whether the window is closed and empty. Acquire pairs with the Release of `leave`.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        let now = self.word.atomic().load(Ordering::Acquire);
        now & CLOSED != 0 && high(now) == 0
    }

    /// Owner: closes (again, should a hostile peer have opened) and sleeps until nobody is inside, at
    /// most for `timeout`. Looks at least once.
    pub fn wait_drained(&self, timeout: Duration) -> Drain {
        let mut deadline = Deadline::after(timeout);
        loop {
            let now = self.word.atomic().fetch_or(CLOSED, Ordering::AcqRel);
            if high(now) == 0 {
                return Drain::Drained;
            }
            let Some(left) = deadline.left() else {
                return Drain::TimedOut { inside: high(now) };
            };
            self.word.wait_high(high(now), Some(left.min(LONGEST_NAP)), Scope::Host);
        }
    }
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "tests may panic")]
mod tests {
    use super::{Drain, MAX_EPOCH, Refused, WindowWord};
    #[cfg(feature = "std")]
    use crate::sync::AtomicU32;
    use crate::sync::{Ordering, Word64};
    use core::time::Duration;

    #[test]
    fn only_the_right_epoch_of_an_open_window_lets_in() {
        let word = Word64::new(0);
        let w = WindowWord::new(&word);
        w.close();
        assert_eq!(w.enter(0), Err(Refused::Closed));
        w.open(4).unwrap();
        assert!(!w.is_drained(), "it is empty, but open");
        assert_eq!(w.enter(3), Err(Refused::Epoch { now: 4 }));
        assert_eq!(w.inside(), 0);
        w.enter(4).unwrap();
        assert!(w.is_open(4) && !w.is_open(3));
        w.close();
        assert!(!w.is_open(4) && !w.is_drained());
        assert_eq!(w.wait_drained(Duration::ZERO), Drain::TimedOut { inside: 1 });
        w.leave();
        assert!(w.is_drained());
        assert_eq!(w.wait_drained(Duration::ZERO), Drain::Drained);
        w.open(MAX_EPOCH).unwrap();
        w.enter(MAX_EPOCH).unwrap();
        assert_eq!(w.open(MAX_EPOCH + 1), Err(Refused::Broken));
        w.close();
        w.leave();
        assert!(w.is_drained());
    }

    #[test]
    fn who_leaves_knows_whether_the_window_was_open_until_then() {
        let word = Word64::new(0);
        let w = WindowWord::new(&word);
        w.close();
        w.open(5).unwrap();
        w.enter(5).unwrap();
        w.enter(5).unwrap();
        assert!(w.leave_open(5), "with another one inside");
        w.close();
        assert!(!w.leave_open(5), "it was closed meanwhile");
        w.open(6).unwrap();
        w.enter(6).unwrap();
        w.close();
        w.open(7).unwrap();
        assert!(!w.leave_open(6), "it was opened again, over other pages");
        assert_eq!((w.inside(), w.is_open(7)), (0, true));
    }

    #[test]
    fn opening_keeps_those_who_are_about_to_leave() {
        let word = Word64::new(0);
        let w = WindowWord::new(&word);
        w.enter(0).unwrap();
        w.close();
        w.open(1).unwrap();
        assert_eq!(w.inside(), 1);
        w.leave();
        assert_eq!(word.atomic().load(Ordering::Relaxed), 1);
    }

    /// A word that lies never touches the epoch by its count, never panics, never outlasts a deadline.
    #[test]
    fn a_hostile_word_is_harmless() {
        for hostile in [u64::MAX, u64::from(u32::MAX) << 32, 0, 1 << 31, 7] {
            let word = Word64::new(hostile);
            let w = WindowWord::new(&word);
            w.leave();
            let _ = w.enter(0);
            let _ = w.enter(7);
            w.close();
            let _ = w.wait_drained(Duration::from_millis(1));
            assert_eq!(
                crate::sync::low(word.atomic().load(Ordering::Relaxed)) & MAX_EPOCH,
                crate::sync::low(hostile) & MAX_EPOCH
            );
        }
    }

    #[cfg(feature = "std")]
    #[test]
    fn a_flipper_cannot_hold_the_owner_beyond_its_deadline() {
        let (word, stop) = (Word64::new(1 << 40), AtomicU32::new(0));
        std::thread::scope(|s| {
            s.spawn(|| {
                let mut x = 1u64;
                while stop.load(Ordering::Relaxed) == 0 {
                    x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    word.atomic().store(x | (1 << 40), Ordering::Relaxed);
                }
            });
            let begun = std::time::Instant::now();
            let w = WindowWord::new(&word);
            let got = w.wait_drained(Duration::from_millis(60));
            let _ = w.open(1);
            let _ = w.enter(1);
            // Before any assertion: the scope waits for the flipper.
            stop.store(1, Ordering::Relaxed);
            assert!(matches!(got, Drain::TimedOut { .. }));
            assert!(begun.elapsed() < Duration::from_secs(5));
        });
    }

    #[cfg(feature = "std")]
    #[test]
    fn the_last_one_out_wakes_the_owner() {
        let word = Word64::new(0);
        let w = WindowWord::new(&word);
        w.enter(0).unwrap();
        std::thread::scope(|s| {
            let owner = s.spawn(|| w.wait_drained(Duration::from_secs(20)));
            while w.is_open(0) {
                std::thread::yield_now();
            }
            w.leave();
            assert_eq!(owner.join().unwrap(), Drain::Drained);
        });
    }
}
