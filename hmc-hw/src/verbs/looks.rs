//! When the session's thread polls for completions of requests that no caller waits for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use hmc_core::time::{Duration, Instant};

/// At least so long lies between two looks. The thread wakes each millisecond.
const BETWEEN: Duration = Duration::from_nanos(900_000);
/// After so long without a completion the thread sleeps until one comes.
const AT_MOST: Duration = Duration::from_millis(2);
/// Of `since`: it does not look.
const NEVER: u64 = 0;

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Nothing,
    /// A look.
    Look,
    /// The thread looks no more: the requests take long.
    Sleep,
}

/// Whether the host's thread looks each millisecond at the requests of one link.
#[derive(Debug)]
pub(super) struct Looks {
    /// When it began, or saw that some had completed, in nanoseconds by the host's clock, plus one.
    since: AtomicU64,
    /// Some have completed since then.
    has_progressed: AtomicBool,
    /// When it looked last.
    last: AtomicU64,
    /// Links of the domain that are looked at.
    count: Arc<AtomicUsize>,
}

impl Looks {
    /// Counts in `count` while it looks.
    pub(super) fn new(count: &Arc<AtomicUsize>) -> Self {
        let [since, last] = [NEVER; 2].map(AtomicU64::new);
        Self { since, has_progressed: AtomicBool::new(false), last, count: Arc::clone(count) }
    }

    /// The thread looks from now on. It does not yet.
    pub(super) fn begin(&self, now: Instant) {
        let now = now.as_nanos();
        self.last.store(now, Ordering::Relaxed);
        self.has_progressed.store(false, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::AcqRel);
        self.since.store(now.saturating_add(1), Ordering::Release);
    }

    /// The thread looks no more, if it did.
    pub(super) fn end(&self) {
        if self.since.swap(NEVER, Ordering::AcqRel) != NEVER {
            self.count.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Requests have completed, whoever has looked: those that are under way do not take long.
    #[inline]
    pub(super) fn note_progress(&self) {
        self.has_progressed.store(true, Ordering::Relaxed);
    }

    /// Returns what the thread is to do now.
    pub(super) fn due(&self, now: Instant) -> Due {
        let begun = self.since.load(Ordering::Acquire);
        let Some(since) = begun.checked_sub(1) else { return Due::Nothing };
        if now.since(Instant::from_nanos(since)) >= AT_MOST {
            if !self.has_progressed.swap(false, Ordering::Relaxed) {
                return Due::Sleep;
            }
            let again = now.as_nanos().saturating_add(1);
            // It may have ended, and begun once more, meanwhile.
            let _ = self.since.compare_exchange(begun, again, Ordering::AcqRel, Ordering::Relaxed);
        }
        let last = Instant::from_nanos(self.last.load(Ordering::Relaxed));
        if now.since(last) < BETWEEN {
            return Due::Nothing;
        }
        self.last.store(now.as_nanos(), Ordering::Relaxed);
        Due::Look
    }
}

impl Drop for Looks {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use hmc_core::time::Instant;

    use super::{Due, Looks};

    const US: u64 = 1000;

    #[test]
    fn looks_are_a_millisecond_apart_and_end() {
        let count = Arc::<AtomicUsize>::default();
        let counted = || count.load(Ordering::Relaxed);
        let at = |us: u64| Instant::from_nanos(us * US);
        let looks = Looks::new(&count);
        assert_eq!((looks.due(at(5000)), counted()), (Due::Nothing, 0));
        for begin in [0, 7000] {
            looks.begin(at(begin));
            assert_eq!(counted(), 1);
            for (us, due) in [
                (0, Due::Nothing),
                (899, Due::Nothing),
                (900, Due::Look),
                (901, Due::Nothing),
                (1799, Due::Nothing),
                (1800, Due::Look),
                (1999, Due::Nothing),
                (2000, Due::Sleep),
                (2001, Due::Sleep),
            ] {
                assert_eq!(looks.due(at(begin + us)), due, "after {us} us");
            }
            looks.end();
            looks.end();
            assert_eq!((looks.due(at(begin + 5000)), counted()), (Due::Nothing, 0));
        }
    }

    /// Requests of which some complete again and again are looked at for as long as that goes on.
    #[test]
    fn looks_go_on_while_requests_complete() {
        let count = Arc::<AtomicUsize>::default();
        let at = |us: u64| Instant::from_nanos(us * US);
        let looks = Looks::new(&count);
        looks.begin(at(0));
        for us in 1..100 {
            looks.note_progress();
            assert_eq!(looks.due(at(us * 1000)), Due::Look, "after {us} ms");
        }
        // The last one was seen at 99 ms at the latest.
        let due = [100, 101, 102].map(|ms| looks.due(at(ms * 1000)));
        assert_eq!(due[2], Due::Sleep, "{due:?}");
        looks.end();
        looks.note_progress();
        looks.begin(at(200_000));
        assert_eq!(looks.due(at(202_000)), Due::Sleep, "that was before it began");
    }

    #[test]
    fn one_that_is_dropped_counts_no_more() {
        let count = Arc::<AtomicUsize>::default();
        let both = [Looks::new(&count), Looks::new(&count)];
        both.iter().for_each(|looks| looks.begin(Instant::ZERO));
        assert_eq!(count.load(Ordering::Relaxed), 2);
        let [one, other] = both;
        drop(one);
        assert_eq!(count.load(Ordering::Relaxed), 1);
        drop(other);
        assert_eq!(count.load(Ordering::Relaxed), 0);
    }
}
