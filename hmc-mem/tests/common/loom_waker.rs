//! A model of the waker of a caller that waits for several links (`link/park_waker.rs` of hmc-std): no wake-up is missed,
//! and a wake-up of a caller that is not parked makes no system call.
//!
//! hmc-std does not build under loom. The model writes out the few lines it is about, with the same orders.

use super::{check, deadlocks};
use loom::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

/// A planted bug.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bug {
    Nothing,
    /// `wake` only loads the flag, and `park` stores it.
    LoadsAndStores,
    /// The owner does not check again after it set the flag.
    LooksOnce,
}

/// The waker, its eventfd, and the facts of two threads that wake.
struct Waker {
    parked: AtomicBool,
    /// The eventfd's counter is not 0.
    is_written: Mutex<bool>,
    written: Condvar,
    facts: [AtomicU8; 2],
    bug: Bug,
}

impl Waker {
    fn wake(&self) {
        let parked = if self.bug == Bug::LoadsAndStores {
            self.parked.load(Ordering::Acquire)
        } else {
            self.parked.swap(false, Ordering::AcqRel)
        };
        if parked {
            *self.is_written.lock().unwrap() = true;
            self.written.notify_all();
        }
    }

    fn park(&self) {
        if self.bug == Bug::LoadsAndStores {
            self.parked.store(true, Ordering::Release);
        } else {
            self.parked.swap(true, Ordering::AcqRel);
        }
    }

    fn unpark(&self) {
        if !self.parked.swap(false, Ordering::AcqRel) || self.bug == Bug::LoadsAndStores {
            *self.is_written.lock().unwrap() = false;
        }
    }

    fn sleep(&self) {
        let mut is_written = self.is_written.lock().unwrap();
        while !*is_written {
            is_written = self.written.wait(is_written).unwrap();
        }
    }

    /// `Members::wait` with `Several::rest`: looks, parks, looks again, sleeps.
    fn wait(&self) {
        let mut parked = false;
        // The facts need no order but the waker's.
        while self.facts.iter().any(|fact| fact.load(Ordering::Relaxed) == 0) {
            if !parked {
                self.park();
                parked = true;
                if self.bug != Bug::LooksOnce {
                    continue;
                }
            }
            self.sleep();
            self.unpark();
            parked = false;
        }
    }
}

fn waker(bug: Bug) {
    let waker = Arc::new(Waker {
        parked: AtomicBool::new(false),
        is_written: Mutex::new(false),
        written: Condvar::new(),
        facts: [AtomicU8::new(0), AtomicU8::new(0)],
        bug,
    });
    let threads: Vec<_> = (0..2)
        .map(|i| {
            let waker = Arc::clone(&waker);
            thread::spawn(move || {
                waker.facts[i].store(1, Ordering::Relaxed);
                waker.wake();
            })
        })
        .collect();
    waker.wait();
    for t in threads {
        t.join().unwrap();
    }
}

/// Waker: a thread that waits for two facts sees both, although a wake-up of a thread that is not parked writes nothing.
#[test]
fn a_waker_misses_nothing() {
    check(|| waker(Bug::Nothing));
}

/// Control: a load may miss one that parks, whose look misses the fact.
#[test]
fn control_a_waker_of_loads_and_stores() {
    assert!(deadlocks("waker::broken_waker_of_loads_and_stores"));
}

#[test]
#[ignore = "deadlocks: its control runs it; see docs/TESTING.md, By hand"]
fn broken_waker_of_loads_and_stores() {
    check(|| waker(Bug::LoadsAndStores));
}

/// Control: what came before it parked wrote nothing.
#[test]
fn control_a_waker_without_a_second_check() {
    assert!(deadlocks("waker::broken_waker_without_a_second_check"));
}

#[test]
#[ignore = "deadlocks: its control runs it; see docs/TESTING.md, By hand"]
fn broken_waker_without_a_second_check() {
    check(|| waker(Bug::LooksOnce));
}
