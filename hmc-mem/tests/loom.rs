//! Models: every interleaving and every legal reordering of small programs over the words of hmc-mem.
//!
//! The command is in docs/TESTING.md, By hand. Preemption bound 3. Each model has a comment with its property; each
//! word has a control that must fail. A lost wake-up shows as a deadlock, since no wait times out in a model.
#![cfg(loom)]
#![allow(clippy::unwrap_used, clippy::arithmetic_side_effects, reason = "tests may panic")]

use hmc_mem::flag::Flag;
use hmc_mem::gate::{Drain, WindowGate};
use hmc_mem::leader::LeaderLock;
use hmc_mem::slot::SlotWord;
use hmc_mem::sync::{AtomicU64, Ordering, Word64};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use std::time::Duration;

#[path = "common/loom_gates.rs"]
mod gates;
#[path = "common/loom_generations.rs"]
mod generations;
#[path = "common/loom_reopen.rs"]
mod reopen;
#[path = "common/loom_ring.rs"]
mod ring;
#[path = "common/loom_rndv.rs"]
mod rndv;
#[path = "common/loom_session.rs"]
mod session;
#[path = "common/loom_socket.rs"]
mod socket;
#[path = "common/loom_waker.rs"]
mod waker;
#[path = "common/loom_watch.rs"]
mod watch;

/// Runs a model to its end: every execution with at most as many preemptions as `LOOM_MAX_PREEMPTIONS` says, or
/// 3. Nothing else may cut it short. Prints how many there were.
fn check(f: impl Fn() + Send + Sync + 'static) {
    #[cfg(hmc_mutants)]
    plant();
    let mut builder = loom::model::Builder::new();
    let bound = builder.preemption_bound.unwrap_or(3);
    builder.preemption_bound = Some(bound);
    (builder.max_permutations, builder.max_duration) = (None, None);
    let begun = std::time::Instant::now();
    let count = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let counted = std::sync::Arc::clone(&count);
    builder.check(move || {
        counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        f();
    });
    let name = thread_name();
    let (n, time) = (count.load(std::sync::atomic::Ordering::Relaxed), begun.elapsed());
    println!("loom: {name}: {n} executions, complete at preemption bound {bound}, {time:.1?}");
}

/// Switches on the planted bug that `HMC_MUTANT` names, if it names one.
#[cfg(hmc_mutants)]
fn plant() {
    if let Ok(name) = std::env::var("HMC_MUTANT") {
        let mutant = hmc_core::mutant::named(&name).expect("the name of a planted bug");
        hmc_core::mutant::activate(Some(mutant));
    }
}

/// The cases that a model met. One that never comes makes a model that cannot fail.
struct Cases(std::sync::Mutex<std::collections::BTreeSet<&'static str>>);

impl Cases {
    fn seen(&self, case: &'static str) {
        self.0.lock().unwrap().insert(case);
    }
}

/// As `check`; each of `cases` must come in some execution.
fn check_cases(cases: &[&'static str], f: impl Fn(&std::sync::Arc<Cases>) + Send + Sync + 'static) {
    let seen = std::sync::Arc::new(Cases(std::sync::Mutex::default()));
    let inner = std::sync::Arc::clone(&seen);
    check(move || f(&inner));
    let seen = seen.0.lock().unwrap();
    assert!(cases.iter().all(|c| seen.contains(c)), "of {cases:?} only {seen:?} came");
}

fn thread_name() -> String {
    std::thread::current().name().unwrap_or("?").to_owned()
}

/// A payload that one side writes and another reads; loom reports an access that is not ordered.
struct Cell(UnsafeCell<u32>);

// SAFETY: loom checks each access of the cell; an unordered one fails the model.
unsafe impl Sync for Cell {}
// SAFETY: as for `Sync`.
unsafe impl Send for Cell {}

impl Cell {
    fn new() -> Self {
        Self(UnsafeCell::new(0))
    }

    fn set(&self, value: u32) {
        // SAFETY: the pointer is to the cell's own value; loom fails the model on a race.
        self.0.with_mut(|p| unsafe { *p = value });
    }

    fn get(&self) -> u32 {
        // SAFETY: as in `set`.
        self.0.with(|p| unsafe { *p })
    }
}

/// Flag: bytes written before the store are read after the load that sees it.
#[test]
fn flag_publishes() {
    check_cases(&["seen", "not yet"], |cases| {
        let shared = Arc::new((Cell::new(), AtomicU64::new(0)));
        let writer = Arc::clone(&shared);
        let t = thread::spawn(move || {
            writer.0.set(7);
            Flag::new(&writer.1).store_release(1);
        });
        if Flag::new(&shared.1).load_acquire() == 1 {
            cases.seen("seen");
            assert_eq!(shared.0.get(), 7);
        } else {
            cases.seen("not yet");
        }
        t.join().unwrap();
    });
}

/// Control: the same with a relaxed store is a race.
#[test]
#[should_panic]
fn control_flag_relaxed() {
    check(|| {
        let shared = Arc::new((Cell::new(), AtomicU64::new(0)));
        let writer = Arc::clone(&shared);
        let t = thread::spawn(move || {
            writer.0.set(7);
            writer.1.store(1, Ordering::Relaxed);
        });
        if Flag::new(&shared.1).load_acquire() == 1 {
            assert_eq!(shared.0.get(), 7);
        }
        t.join().unwrap();
    });
}

/// Slot: a completion and a close race to end an operation. Exactly one does, and it is given back once.
#[test]
fn slot_ends_once() {
    check(|| {
        let slot = Arc::new(SlotWord::new());
        assert!(slot.arm(5));
        let race = || {
            let slot = Arc::clone(&slot);
            thread::spawn(move || slot.finish(5))
        };
        let (a, b) = (race(), race());
        let pending = slot.is_pending(5);
        assert!(pending || !slot.is_pending(5), "it does not begin again");
        assert!(a.join().unwrap() ^ b.join().unwrap());
        assert!(!slot.is_pending(5));
        assert!(slot.free(5) && !slot.free(5));
    });
}

/// Slot: what the finisher wrote is read by whoever sees that the operation has ended.
#[test]
fn slot_payload() {
    check_cases(&["pending", "ended"], |cases| {
        let shared = Arc::new((Cell::new(), SlotWord::new()));
        assert!(shared.1.arm(1));
        let finisher = Arc::clone(&shared);
        let t = thread::spawn(move || {
            finisher.0.set(3);
            assert!(finisher.1.finish(1));
        });
        let pending = shared.1.is_pending(1);
        cases.seen(if pending { "pending" } else { "ended" });
        if !pending {
            assert_eq!(shared.0.get(), 3);
        }
        t.join().unwrap();
    });
}

/// Slot: the last use of a retired slot comes before the next owner's first.
#[test]
fn slot_reuse_is_ordered() {
    check_cases(&["reused", "not yet"], |cases| {
        let shared = Arc::new((Cell::new(), SlotWord::new()));
        assert!(shared.1.arm(1));
        assert!(shared.1.finish(1));
        let first = Arc::clone(&shared);
        let t = thread::spawn(move || {
            first.0.set(1);
            assert!(first.1.free(1));
        });
        while !shared.1.arm(2) {
            cases.seen("not yet");
            thread::yield_now();
        }
        cases.seen("reused");
        shared.0.set(2);
        t.join().unwrap();
    });
}

/// Control: a slot whose finisher does not release.
#[test]
#[should_panic]
fn control_slot_relaxed() {
    check(|| {
        let shared = Arc::new((Cell::new(), AtomicU64::new(1)));
        let finisher = Arc::clone(&shared);
        let t = thread::spawn(move || {
            finisher.0.set(3);
            let _ = finisher.1.compare_exchange(1, 2, Ordering::Relaxed, Ordering::Relaxed);
        });
        if shared.1.load(Ordering::Acquire) == 2 {
            assert_eq!(shared.0.get(), 3);
        }
        t.join().unwrap();
    });
}

/// The driver of the leader models: the state that only a leader touches, and one slot for each waiter.
struct Driver<const N: usize> {
    leader_lock: LeaderLock,
    state: Cell,
    slots: [SlotWord; N],
}

impl<const N: usize> Driver<N> {
    fn new() -> Self {
        let slots = std::array::from_fn(|_| SlotWord::new());
        slots.iter().for_each(|s| assert!(s.arm(1)));
        Self { leader_lock: LeaderLock::new(), state: Cell::new(), slots }
    }

    /// One poll: ends the operations in `which` and wakes who waits for them.
    fn poll(&self, which: impl Iterator<Item = usize>) {
        self.state.set(self.state.get() + 1);
        let mut wake = false;
        for i in which {
            wake |= self.slots[i].finish(1);
        }
        if wake {
            self.leader_lock.notify();
        }
    }

    /// The loop of a waiter, as the documentation of `leader` has it; as a leader it ends `which`.
    fn wait(&self, me: usize, which: impl Fn() -> Box<dyn Iterator<Item = usize>>) {
        while self.slots[me].is_pending(1) {
            if let Some(lead) = self.leader_lock.try_lead() {
                self.poll(which());
                drop(lead);
                continue;
            }
            let follow = self.leader_lock.follow();
            let key = follow.wait_key();
            if self.slots[me].is_pending(1) {
                follow.wait_for(key, None);
            }
        }
    }
}

/// Leader: two waiters, each of whom as a leader ends only its own operation. Both end: the leader that leaves
/// hands on. The driver's state is never touched by two at once and passes from one to the next.
#[test]
fn leader_hands_the_lead_on() {
    check(|| {
        let driver = Arc::new(Driver::<2>::new());
        let other = Arc::clone(&driver);
        let t = thread::spawn(move || other.wait(1, || Box::new([1].into_iter())));
        driver.wait(0, || Box::new([0].into_iter()));
        t.join().unwrap();
        assert_eq!(driver.state.get(), 2);
    });
}

/// Leader: a leader that ends the other's operation wakes the other.
#[test]
fn leader_completion_wakes_the_follower() {
    check(|| {
        let driver = Arc::new(Driver::<2>::new());
        let other = Arc::clone(&driver);
        let t = thread::spawn(move || other.wait(1, || Box::new([0, 1].into_iter())));
        driver.wait(0, || Box::new([0, 1].into_iter()));
        t.join().unwrap();
    });
}

/// Leader: a leader ends one follower's operation and leaves; the follower that is woken and done hands the
/// lead on to the third, whose operation only a leader can end.
#[test]
fn leader_a_done_follower_hands_on() {
    check(|| {
        let driver = Arc::new(Driver::<2>::new());
        let lead = driver.leader_lock.try_lead().unwrap();
        let threads: Vec<_> = [0, 1]
            .map(|me| {
                let driver = Arc::clone(&driver);
                thread::spawn(move || driver.wait(me, move || Box::new([me].into_iter())))
            })
            .into();
        driver.poll([0].into_iter());
        drop(lead);
        threads.into_iter().for_each(|t| t.join().unwrap());
    });
}

/// Whether a broken model is found to deadlock. In a process of its own: loom aborts when guards are dropped
/// while the panic of a deadlock unwinds.
fn deadlocks(model: &str) -> bool {
    let me = std::env::current_exe().unwrap();
    let run = std::process::Command::new(me)
        .args(["--exact", model, "--ignored", "--nocapture"])
        .env("RUST_BACKTRACE", "0")
        .output()
        .unwrap();
    let said = [run.stdout, run.stderr].concat();
    !run.status.success() && String::from_utf8_lossy(&said).contains("deadlock; threads")
}

/// Control: a follower that goes away without its hand-over loses the wake-up it swallowed.
#[test]
fn control_leader_without_the_handoff() {
    assert!(deadlocks("broken_leader_without_the_handoff"));
}

#[test]
#[ignore = "deadlocks: its control runs it; see docs/TESTING.md, By hand"]
fn broken_leader_without_the_handoff() {
    check(|| {
        let driver = Arc::new(Driver::<2>::new());
        let lead = driver.leader_lock.try_lead().unwrap();
        let quitter = Arc::clone(&driver);
        let a = thread::spawn(move || {
            let follow = quitter.leader_lock.follow();
            follow.wait_for(follow.wait_key(), None);
            std::mem::forget(follow);
        });
        let other = Arc::clone(&driver);
        let b = thread::spawn(move || other.wait(1, || Box::new([1].into_iter())));
        drop(lead);
        a.join().unwrap();
        b.join().unwrap();
    });
}

/// Control: a completion that does not notify leaves its follower asleep.
#[test]
fn control_leader_without_notify() {
    assert!(deadlocks("broken_leader_without_notify"));
}

#[test]
#[ignore = "deadlocks: its control runs it; see docs/TESTING.md, By hand"]
fn broken_leader_without_notify() {
    check(|| {
        let driver = Arc::new(Driver::<1>::new());
        let lead = driver.leader_lock.try_lead().unwrap();
        let other = Arc::clone(&driver);
        let t = thread::spawn(move || other.wait(0, || Box::new([0].into_iter())));
        assert!(driver.slots[0].finish(1));
        t.join().unwrap();
        drop(lead);
    });
}

/// Window word: an initiator that is inside and an owner that closes, drains and then uses the bytes itself.
/// The two never touch the bytes unordered, and the last one out wakes the owner.
#[test]
fn window_drain_is_a_fence() {
    check_cases(&["nobody inside", "one inside"], |cases| {
        let shared = Arc::new((Word64::new(0), Cell::new()));
        let initiator = Arc::clone(&shared);
        let t = thread::spawn(move || {
            let w = WindowGate::new(&initiator.0);
            for _ in 0..2 {
                if w.enter(0).is_ok() {
                    initiator.1.set(1);
                    w.exit();
                }
            }
        });
        let w = WindowGate::new(&shared.0);
        w.close();
        cases.seen(if w.active() == 0 { "nobody inside" } else { "one inside" });
        assert_eq!(w.wait_drained(Duration::from_secs(1)), Drain::Drained);
        shared.1.set(2);
        t.join().unwrap();
        assert!(w.is_drained());
    });
}

/// Window word: bytes that the owner put in before it opened are seen by who enters; an initiator of the old
/// epoch never gets in; nobody's coming and going is lost by opening again.
#[test]
fn window_reopens_under_a_new_epoch() {
    check(|| {
        let shared = Arc::new((Word64::new(0), Cell::new()));
        WindowGate::new(&shared.0).close();
        let fresh = Arc::clone(&shared);
        let a = thread::spawn(move || {
            let w = WindowGate::new(&fresh.0);
            if w.enter(1).is_ok() {
                assert_eq!(fresh.1.get(), 8);
                w.exit();
            }
        });
        let stale = Arc::clone(&shared);
        let b = thread::spawn(move || assert!(WindowGate::new(&stale.0).enter(0).is_err()));
        let w = WindowGate::new(&shared.0);
        shared.1.set(8);
        w.open(1).unwrap();
        a.join().unwrap();
        b.join().unwrap();
        assert_eq!(w.active(), 0);
    });
}

/// Control: an owner that takes the bytes back after closing, without the drain.
#[test]
#[should_panic]
fn control_window_without_the_drain() {
    check(|| {
        let shared = Arc::new((Word64::new(0), Cell::new()));
        let initiator = Arc::clone(&shared);
        let t = thread::spawn(move || {
            let w = WindowGate::new(&initiator.0);
            if w.enter(0).is_ok() {
                initiator.1.set(1);
                w.exit();
            }
        });
        WindowGate::new(&shared.0).close();
        shared.1.set(2);
        t.join().unwrap();
    });
}
