//! A model of the bell of a caller that waits for several links (`link/park_waker.rs` of hmc-std): nobody who rings is missed,
//! and who rings for one that is awake makes no system call.
//!
//! hmc-std does not build under loom. The model writes out the few lines it is about, with the same orders.

use super::{check, deadlocks};
use loom::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

/// What is done wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Slip {
    Nothing,
    /// Who rings looks by a load first, and who parks stores.
    LoadsAndStores,
    /// The owner does not look again after it parked.
    LooksOnce,
}

/// `Bell`, its eventfd, and what two who ring have to tell.
struct Bell {
    parked: AtomicBool,
    /// The eventfd's counter is not 0.
    rung: Mutex<bool>,
    written: Condvar,
    facts: [AtomicU8; 2],
    slip: Slip,
}

impl Bell {
    fn ring(&self) {
        let parked = if self.slip == Slip::LoadsAndStores {
            self.parked.load(Ordering::Acquire)
        } else {
            self.parked.swap(false, Ordering::AcqRel)
        };
        if parked {
            *self.rung.lock().unwrap() = true;
            self.written.notify_all();
        }
    }

    fn park(&self) {
        if self.slip == Slip::LoadsAndStores {
            self.parked.store(true, Ordering::Release);
        } else {
            self.parked.swap(true, Ordering::AcqRel);
        }
    }

    fn unpark(&self) {
        if !self.parked.swap(false, Ordering::AcqRel) || self.slip == Slip::LoadsAndStores {
            *self.rung.lock().unwrap() = false;
        }
    }

    fn sleep(&self) {
        let mut rung = self.rung.lock().unwrap();
        while !*rung {
            rung = self.written.wait(rung).unwrap();
        }
    }

    /// `Members::wait` with `Several::rest`: looks, parks, looks again, sleeps.
    fn wait(&self) {
        let mut parked = false;
        // What is told needs no order but the bell's.
        while self.facts.iter().any(|fact| fact.load(Ordering::Relaxed) == 0) {
            if !parked {
                self.park();
                parked = true;
                if self.slip != Slip::LooksOnce {
                    continue;
                }
            }
            self.sleep();
            self.unpark();
            parked = false;
        }
    }
}

fn bell(slip: Slip) {
    let bell = Arc::new(Bell {
        parked: AtomicBool::new(false),
        rung: Mutex::new(false),
        written: Condvar::new(),
        facts: [AtomicU8::new(0), AtomicU8::new(0)],
        slip,
    });
    let ringers: Vec<_> = (0..2)
        .map(|i| {
            let bell = Arc::clone(&bell);
            thread::spawn(move || {
                bell.facts[i].store(1, Ordering::Relaxed);
                bell.ring();
            })
        })
        .collect();
    bell.wait();
    for t in ringers {
        t.join().unwrap();
    }
}

/// A bell: who waits for two facts learns of both, although who finds it awake does not ring.
#[test]
fn a_bell_is_heard() {
    check(|| bell(Slip::Nothing));
}

/// Control: a load may miss one that parks, whose look misses the fact.
#[test]
fn control_a_bell_of_loads_and_stores() {
    assert!(deadlocks("bell::broken_bell_of_loads_and_stores"));
}

#[test]
#[ignore = "deadlocks: its control runs it; see docs/TESTING.md, By hand"]
fn broken_bell_of_loads_and_stores() {
    check(|| bell(Slip::LoadsAndStores));
}

/// Control: what came before it parked rang for nobody.
#[test]
fn control_a_bell_without_a_second_look() {
    assert!(deadlocks("bell::broken_bell_without_a_second_look"));
}

#[test]
#[ignore = "deadlocks: its control runs it; see docs/TESTING.md, By hand"]
fn broken_bell_without_a_second_look() {
    check(|| bell(Slip::LooksOnce));
}
