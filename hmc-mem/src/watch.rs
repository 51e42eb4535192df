//! [`CompletionWatch`]: who polls the completions of a queue: waiting callers, an event of the queue, or a thread
//! that polls at intervals.
//!
//! One word has the whole state, so all changes have a total order. After each step its caller calls
//! [`CompletionWatch::next`]: the later of two callers sees the change of the earlier one, and performs the
//! remaining work.
//!
//! Bits 0 to 3 are the four flags; the high half counts callers.

use crate::sync::{AtomicU64, Ordering};

/// Requests are under way.
const BUSY: u64 = 1;
/// A waiter is to be notified of each completion as it comes.
const AWAITED: u64 = 1 << 1;
/// The next completion makes an event.
const ARMED: u64 = 1 << 2;
/// A thread looks at intervals.
const LOOKED_AT: u64 = 1 << 3;
/// One caller that waits.
const CALLER: u64 = 1 << 32;

/// What the caller of [`CompletionWatch::next`] has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Next {
    /// Nothing: no request is in flight, or another thread polls.
    Nothing,
    /// Arm the queue's event, then poll the completions once more.
    Arm,
    /// Have a thread poll at intervals from now on.
    Look,
}

/// Which thread polls the completions of one queue. All methods may be called by several threads at a time.
#[derive(Debug)]
pub struct CompletionWatch {
    word: AtomicU64,
}

impl Default for CompletionWatch {
    fn default() -> Self {
        Self::new()
    }
}

impl CompletionWatch {
    /// Returns the watch of a queue without requests.
    #[must_use]
    pub fn new() -> Self {
        Self { word: AtomicU64::new(0) }
    }

    /// Records that requests are in flight. The owner of the requests calls it before they can complete.
    #[inline]
    pub fn set_busy(&self) {
        // Only the owner changes this flag.
        if self.word.load(Ordering::Relaxed) & BUSY == 0 {
            self.word.fetch_or(BUSY, Ordering::AcqRel);
        }
    }

    /// Records that no request is in flight and no caller waits for one. The owner of the requests calls it.
    #[inline]
    pub fn set_idle(&self) {
        if self.word.load(Ordering::Relaxed) & BUSY != 0 {
            self.word.fetch_and(!(BUSY | AWAITED), Ordering::AcqRel);
        }
    }

    /// Requests that the completions of requests in flight are reported when they occur.
    #[inline]
    pub fn set_awaited(&self) {
        self.word.fetch_or(AWAITED, Ordering::AcqRel);
    }

    /// Records that the caller polls completions itself, until [`Self::release`].
    #[inline]
    pub fn claim(&self) {
        self.word.fetch_add(CALLER, Ordering::AcqRel);
    }

    /// Ends a claim. Returns `true` if it was the last one.
    #[inline]
    pub fn release(&self) -> bool {
        self.word.fetch_sub(CALLER, Ordering::AcqRel) >> 32 == 1
    }

    /// Returns `true` if a caller polls completions.
    #[must_use]
    #[inline]
    pub fn is_claimed(&self) -> bool {
        self.word.load(Ordering::Acquire) >= CALLER
    }

    /// Returns `true` if no caller polls completions and none was requested to be reported.
    #[must_use]
    #[inline]
    pub fn is_unattended(&self) -> bool {
        let word = self.word.load(Ordering::Acquire);
        word < CALLER && word & AWAITED == 0
    }

    /// Returns `true` if requests are in flight.
    #[must_use]
    #[inline]
    pub fn is_busy(&self) -> bool {
        self.word.load(Ordering::Acquire) & BUSY != 0
    }

    /// Arms the queue's event for the caller. Returns `true` if it was armed already.
    #[inline]
    pub fn arm(&self) -> bool {
        self.word.fetch_or(ARMED, Ordering::AcqRel) & ARMED != 0
    }

    /// Records that the event of the armed queue was taken.
    #[inline]
    pub fn disarm(&self) {
        self.word.fetch_and(!ARMED, Ordering::AcqRel);
    }

    /// Records that the progress thread has stopped polling.
    pub fn end_looks(&self) {
        self.word.fetch_and(!LOOKED_AT, Ordering::AcqRel);
    }

    /// Returns what the caller has to do so that the requests in flight are polled by some thread.
    #[inline]
    pub fn next(&self) -> Next {
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            let (flag, next) = match word {
                _ if word >= CALLER || word & BUSY == 0 => return Next::Nothing,
                _ if word & AWAITED != 0 => (ARMED, Next::Arm),
                _ => (LOOKED_AT, Next::Look),
            };
            if word & flag != 0 {
                return Next::Nothing;
            }
            let set = word | flag;
            match self.word.compare_exchange_weak(word, set, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return next,
                Err(now) => word = now,
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{CompletionWatch, Next};

    #[test]
    fn what_is_under_way_is_seen_to_once() {
        let watch = CompletionWatch::default();
        assert_eq!((watch.next(), watch.is_busy()), (Next::Nothing, false));
        watch.set_busy();
        watch.set_busy();
        assert!(watch.is_busy());
        assert_eq!([watch.next(), watch.next()], [Next::Look, Next::Nothing]);
        watch.end_looks();
        assert_eq!([watch.next(), watch.next()], [Next::Look, Next::Nothing]);
        watch.set_awaited();
        assert_eq!([watch.next(), watch.next()], [Next::Arm, Next::Nothing]);
        assert!(watch.arm());
        watch.disarm();
        assert_eq!([watch.next(), watch.next()], [Next::Arm, Next::Nothing]);
        watch.disarm();
        watch.set_idle();
        watch.set_idle();
        assert_eq!((watch.next(), watch.is_busy()), (Next::Nothing, false));
        watch.end_looks();
        watch.set_busy();
        assert_eq!(watch.next(), Next::Look, "no notification is requested for later ones");
        assert!(!watch.arm() && watch.arm());
    }

    #[test]
    fn nothing_is_to_be_done_while_callers_look() {
        let watch = CompletionWatch::new();
        watch.claim();
        watch.claim();
        watch.set_busy();
        watch.set_awaited();
        assert_eq!((watch.next(), watch.is_claimed()), (Next::Nothing, true));
        assert!(!watch.release());
        assert_eq!((watch.next(), watch.is_claimed()), (Next::Nothing, true));
        assert!(watch.release());
        assert!(!watch.is_claimed());
        assert_eq!([watch.next(), watch.next()], [Next::Arm, Next::Nothing]);
        watch.claim();
        watch.disarm();
        assert_eq!(watch.next(), Next::Nothing);
        assert!(watch.release());
        assert_eq!(watch.next(), Next::Arm);
    }
}
