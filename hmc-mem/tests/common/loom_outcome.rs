//! Outcomes of operations that were over when their call returned: each is kept under a name of its own and taken once.

use hmc_mem::outcome::OutcomeWord;
use hmc_mem::sync::{AtomicU32, AtomicU64, Ordering};
use loom::sync::Arc;
use loom::thread;

use super::{check, check_cases};

/// Outcome: threads that keep one at the same place never get the same name, and each outcome is taken once, under its name.
#[test]
fn outcome_is_kept_and_taken_once() {
    check_cases(&["both", "one"], |cases| {
        let shared = Arc::new((OutcomeWord::new(), AtomicU32::new(0)));
        let first = shared.0.keep(1).unwrap();
        let other = Arc::clone(&shared);
        let t = thread::spawn(move || {
            if other.0.take(first) == Some(1) {
                other.1.fetch_add(1, Ordering::Relaxed);
            }
            other.0.keep(2)
        });
        if shared.0.take(first) == Some(1) {
            shared.1.fetch_add(1, Ordering::Relaxed);
        }
        let mine = shared.0.keep(3);
        let mine = mine.map(|name| (name, shared.0.take(name)));
        let theirs = t.join().unwrap();
        assert_eq!(shared.1.load(Ordering::Relaxed), 1);
        assert!(mine.is_none_or(|(name, bytes)| name != first && bytes == Some(3)));
        assert!(theirs.is_none_or(|name| shared.0.take(name) == Some(2)));
        assert!(mine.is_some() || theirs.is_some());
        cases.seen(if mine.is_some() && theirs.is_some() { "both" } else { "one" });
    });
}

/// Control: an outcome that is looked at and then cleared is taken twice.
#[test]
#[should_panic]
fn control_outcome_without_exchange() {
    check(|| {
        let word = Arc::new(AtomicU64::new(5));
        let take = |word: &AtomicU64| {
            let there = word.load(Ordering::Acquire) == 5;
            word.store(0, Ordering::Release);
            there
        };
        let other = Arc::clone(&word);
        let t = thread::spawn(move || take(&other));
        let mine = take(&word);
        assert!(!(mine && t.join().unwrap()));
    });
}
