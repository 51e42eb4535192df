//! [`WindowGate`]: an atomic word in a shared page: whether a window is open, and how many copies are active in it.
//!
//! The owner of the memory opens and closes it; an initiator in another process enters before each copy
//! chunk and exits after it. Low half: CLOSED (bit 31) and the epoch (31 bits). High half: the number of
//! active copies; its overflow leaves the word and never reaches the epoch. Only read-modify-writes change it.
//!
//! The other process may write any value. The counts are then wrong, but no function panics, and no wait
//! lasts beyond its deadline. Closing is the fence only for peers that follow the protocol (same user).
//!
//! Orders: `exit` releases the chunk's copy and `is_drained`/`wait_drained` acquire it, so after a drain
//! the owner sees every byte that was written and no more will be. `open` releases what the owner put into
//! the window and `enter` acquires it.

use core::time::Duration;

use crate::sync::{Deadline, Ordering, Scope, Wakes, Word64, high, low};

const CLOSED: u64 = 1 << 31;
const EPOCH: u64 = CLOSED - 1;
/// One active copy.
const ACTIVE: u64 = 1 << 32;
/// A waiting thread checks again after this long even without a wake-up: a killed peer wakes nobody.
const MAX_PARK: Duration = Duration::from_millis(50);

/// The largest epoch that a gate can store.
pub const MAX_EPOCH: u32 = 0x7fff_ffff;

/// Why an initiator was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateError {
    /// The owner closed the window.
    Closed,
    /// The window is open under another epoch.
    Epoch {
        /// The gate's epoch.
        now: u32,
    },
    /// The count is full, which no correct peer causes.
    Broken,
}

/// The result of waiting for the last active copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Drain {
    /// The window is closed and no copy is active.
    Drained,
    /// The deadline passed with so many active copies (a stopped, dead or hostile peer).
    TimedOut {
        /// Their number, as the gate has it.
        active: u32,
    },
}

/// A view of the gate of one window.
#[derive(Clone, Copy, Debug)]
pub struct WindowGate<'a> {
    word: &'a Word64,
}

impl<'a> WindowGate<'a> {
    /// Returns the gate in `word`. A word of zeros is a window that is open under epoch 0, without active copies: the
    /// owner calls [`Self::close`] before it shares the word.
    #[must_use]
    pub const fn new(word: &'a Word64) -> Self {
        Self { word }
    }

    /// Initiator: enters, if the window is open under `epoch`. Wait-free. After success, call [`Self::exit`] exactly
    /// once.
    ///
    /// # Errors
    /// [`GateError`]; the caller has not entered and must not copy.
    #[inline(always)]
    pub fn enter(&self, epoch: u32) -> Result<(), GateError> {
        // Acquire pairs with the Release of `open`. Wait-free: a hostile peer cannot block the caller.
        let before = self.word.atomic().fetch_add(ACTIVE, Ordering::AcqRel);
        // The low half of an open window is its epoch.
        let is_open = low(before) == epoch && epoch <= MAX_EPOCH;
        if is_open && high(before) != u32::MAX {
            return Ok(());
        }
        Err(self.refuse(before, epoch))
    }

    /// Leaves again: `before` was no word to enter.
    #[cold]
    #[inline(never)]
    fn refuse(&self, before: u64, epoch: u32) -> GateError {
        self.exit();
        if before & CLOSED != 0 {
            GateError::Closed
        } else if before & EPOCH != u64::from(epoch) {
            GateError::Epoch { now: low(before & EPOCH) }
        } else {
            GateError::Broken
        }
    }

    /// Initiator: exits after a chunk. The last exit from a closed window wakes the owner.
    #[inline]
    pub fn exit(&self) {
        self.count_out();
    }

    /// Exits like [`Self::exit`], and returns whether the window was open under `epoch` until then. If `false`, its
    /// owner may have replaced the pages during the copy, and the bytes written may be in pages that no process reads.
    #[inline]
    #[must_use]
    pub fn exit_open(&self, epoch: u32) -> bool {
        // The low half of an open window is its epoch.
        low(self.count_out()) == epoch
    }

    /// Decrements the count and returns the word as it was.
    #[inline]
    fn count_out(&self) -> u64 {
        // Release: the chunk's bytes are visible to an owner that sees the count without this one.
        let before = self.word.atomic().fetch_sub(ACTIVE, Ordering::AcqRel);
        if before & CLOSED != 0 && high(before) == 1 {
            self.word.wake_high(Wakes::All, Scope::Host);
        }
        before
    }

    /// Returns `true` if the window is open under `epoch` at this moment. A long copy checks it between its chunks.
    #[must_use]
    #[inline]
    pub fn is_open(&self, epoch: u32) -> bool {
        let now = self.word.atomic().load(Ordering::Acquire);
        now & CLOSED == 0 && now & EPOCH == u64::from(epoch)
    }

    /// Owner: refuses all later calls of [`Self::enter`]. Copies that have entered continue until they exit. Wait-free.
    pub fn close(&self) {
        self.word.atomic().fetch_or(CLOSED, Ordering::AcqRel);
    }

    /// Owner: opens the window under `epoch`. The count of active copies is kept, because an initiator that was refused
    /// may not yet have subtracted its entry. Wait-free: an initiator that retries cannot delay the owner.
    ///
    /// # Errors
    /// [`GateError::Broken`] if `epoch` exceeds [`MAX_EPOCH`]; the gate is unchanged.
    pub fn open(&self, epoch: u32) -> Result<(), GateError> {
        if epoch > MAX_EPOCH {
            return Err(GateError::Broken);
        }
        // Only the owner changes the low half. A peer that did, too, has a window of a wrong epoch: its own loss.
        let now = low(self.word.atomic().load(Ordering::Relaxed));
        // Release: what the owner put into the window is visible to who enters it.
        self.word.atomic().fetch_xor(u64::from(now ^ epoch), Ordering::AcqRel);
        Ok(())
    }

    /// Returns the number of active copies that the gate counts. A hostile peer can falsify it.
    #[must_use]
    pub fn active(&self) -> u32 {
        high(self.word.atomic().load(Ordering::Relaxed))
    }

    /// Owner: returns `true` if the window is closed and no copy is active. Acquire pairs with the Release of `exit`.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        let now = self.word.atomic().load(Ordering::Acquire);
        now & CLOSED != 0 && high(now) == 0
    }

    /// Owner: closes the window (again, if a hostile peer opened it) and parks until no copy is active, for at most
    /// `timeout`. Checks at least once.
    pub fn wait_drained(&self, timeout: Duration) -> Drain {
        let mut deadline = Deadline::after(timeout);
        loop {
            let now = self.word.atomic().fetch_or(CLOSED, Ordering::AcqRel);
            if high(now) == 0 {
                return Drain::Drained;
            }
            let Some(left) = deadline.left() else {
                return Drain::TimedOut { active: high(now) };
            };
            self.word.wait_high(high(now), Some(left.min(MAX_PARK)), Scope::Host);
        }
    }
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "tests may panic")]
mod tests {
    use super::{Drain, GateError, MAX_EPOCH, WindowGate};
    #[cfg(feature = "std")]
    use crate::sync::AtomicU32;
    use crate::sync::{Ordering, Word64};
    use core::time::Duration;

    #[test]
    fn only_the_right_epoch_of_an_open_window_lets_in() {
        let word = Word64::new(0);
        let w = WindowGate::new(&word);
        w.close();
        assert_eq!(w.enter(0), Err(GateError::Closed));
        w.open(4).unwrap();
        assert!(!w.is_drained(), "it is empty, but open");
        assert_eq!(w.enter(3), Err(GateError::Epoch { now: 4 }));
        assert_eq!(w.active(), 0);
        w.enter(4).unwrap();
        assert!(w.is_open(4) && !w.is_open(3));
        w.close();
        assert!(!w.is_open(4) && !w.is_drained());
        assert_eq!(w.wait_drained(Duration::ZERO), Drain::TimedOut { active: 1 });
        w.exit();
        assert!(w.is_drained());
        assert_eq!(w.wait_drained(Duration::ZERO), Drain::Drained);
        w.open(MAX_EPOCH).unwrap();
        w.enter(MAX_EPOCH).unwrap();
        assert_eq!(w.open(MAX_EPOCH + 1), Err(GateError::Broken));
        w.close();
        assert_eq!(w.enter(u32::MAX), Err(GateError::Closed), "no epoch names a closed window");
        w.exit();
        assert!(w.is_drained());
    }

    #[test]
    fn who_leaves_knows_whether_the_window_was_open_until_then() {
        let word = Word64::new(0);
        let w = WindowGate::new(&word);
        w.close();
        w.open(5).unwrap();
        w.enter(5).unwrap();
        w.enter(5).unwrap();
        assert!(w.exit_open(5), "with another one inside");
        w.close();
        assert!(!w.exit_open(5), "it was closed meanwhile");
        w.open(6).unwrap();
        w.enter(6).unwrap();
        w.close();
        w.open(7).unwrap();
        assert!(!w.exit_open(6), "it was opened again, over other pages");
        assert_eq!((w.active(), w.is_open(7)), (0, true));
    }

    #[test]
    fn opening_keeps_those_who_are_about_to_leave() {
        let word = Word64::new(0);
        let w = WindowGate::new(&word);
        w.enter(0).unwrap();
        w.close();
        w.open(1).unwrap();
        assert_eq!(w.active(), 1);
        w.exit();
        assert_eq!(word.atomic().load(Ordering::Relaxed), 1);
    }

    /// A word that lies never touches the epoch by its count, never panics, never outlasts a deadline.
    #[test]
    fn a_hostile_word_is_harmless() {
        for hostile in [u64::MAX, u64::from(u32::MAX) << 32, 0, 1 << 31, 7] {
            let word = Word64::new(hostile);
            let w = WindowGate::new(&word);
            w.exit();
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
            let w = WindowGate::new(&word);
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
    fn last_exit_wakes_owner() {
        let word = Word64::new(0);
        let w = WindowGate::new(&word);
        w.enter(0).unwrap();
        std::thread::scope(|s| {
            let owner = s.spawn(|| w.wait_drained(Duration::from_secs(20)));
            while w.is_open(0) {
                std::thread::yield_now();
            }
            w.exit();
            assert_eq!(owner.join().unwrap(), Drain::Drained);
        });
    }
}
