//! Models: two initiators inside one window by gates of their own, and an owner that closes both.

use super::{Cases, Cell, check, check_cases};
use hmc_mem::gate::{Drain, WindowGate};
use hmc_mem::gates::WindowGates;
use hmc_mem::sync::Word64;
use loom::sync::Arc;
use loom::thread;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(1);

/// The words of a window's two gates, and the bytes that each initiator writes.
type Shared = ([Word64; 2], [Cell; 2]);

fn shared() -> Arc<Shared> {
    let word = || Word64::new(0);
    Arc::new(([word(), word()], [Cell::new(), Cell::new()]))
}

/// Puts by the gate `number`; whether the put counts as a success.
fn put(shared: &Shared, number: usize, cases: Option<&Cases>) {
    let gate = WindowGate::new(&shared.0[number]);
    if gate.enter(0).is_err() {
        return;
    }
    shared.1[number].set(1);
    let stayed_open = gate.exit_open(0);
    if let Some(cases) = cases {
        cases.seen(if stayed_open { "success" } else { "closed meanwhile" });
    }
}

/// The drain of all gates is a fence for both initiators, and the last one out of any gate wakes the owner. A put that was a
/// success came before the close, so its owner reads its bytes.
#[test]
fn the_drain_of_two_gates_is_a_fence() {
    check_cases(&["success", "closed meanwhile"], |cases| {
        let shared = shared();
        let initiators = [0, 1].map(|number| {
            let (shared, seen) = (Arc::clone(&shared), std::sync::Arc::clone(cases));
            thread::spawn(move || put(&shared, number, Some(&seen)))
        });
        let gates = WindowGates::new(shared.0.iter());
        assert_eq!(gates.wait_drained(LONG), Drain::Drained);
        shared.1.iter().for_each(|bytes| bytes.set(2));
        initiators.into_iter().for_each(|t| t.join().unwrap());
        assert!(gates.is_drained());
    });
}

/// A look that finds all gates drained is a fence, too, although it looks at one after the other.
#[test]
fn a_window_that_is_seen_drained_stays_so() {
    check_cases(&["drained", "not yet"], |cases| {
        let shared = shared();
        let initiators = [0, 1].map(|number| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || put(&shared, number, None))
        });
        let gates = WindowGates::new(shared.0.iter());
        gates.close();
        if gates.is_drained() {
            cases.seen("drained");
            shared.1.iter().for_each(|bytes| bytes.set(2));
        } else {
            cases.seen("not yet");
        }
        initiators.into_iter().for_each(|t| t.join().unwrap());
    });
}

/// Control: an owner that drains the first gate alone.
#[test]
#[should_panic]
fn control_one_gate_of_two() {
    check(|| {
        let shared = shared();
        let initiator = Arc::clone(&shared);
        let t = thread::spawn(move || put(&initiator, 1, None));
        assert_eq!(WindowGates::new(shared.0.iter().take(1)).wait_drained(LONG), Drain::Drained);
        shared.1[1].set(2);
        t.join().unwrap();
    });
}
