//! Models: a window's place is used again while initiators of the window before are still refused at its word.

use super::{Cases, Cell, check, check_cases};
use hmc_mem::gate::{Drain, GateError, WindowGate};
use hmc_mem::sync::{Ordering, Word64};
use loom::sync::Arc;
use loom::thread;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(1);

/// Takes a window back and opens its place for the next one, as the owner of the page does.
fn reuse(w: WindowGate<'_>, epoch: u32, bytes: &Cell) {
    w.close();
    assert_eq!(w.wait_drained(LONG), Drain::Drained);
    bytes.set(epoch);
    w.open(epoch).unwrap();
}

/// A put into the window of `epoch`.
fn put(w: WindowGate<'_>, epoch: u32, bytes: &Cell, cases: &Cases) {
    match w.enter(epoch) {
        Ok(()) => {
            bytes.set(epoch + 8);
            w.exit();
            cases.seen("let in");
        }
        Err(GateError::Closed) => cases.seen("refused: closed"),
        Err(GateError::Epoch { .. }) => cases.seen("refused: another epoch"),
        Err(GateError::Broken) => panic!("the count is honest"),
    }
}

/// A place is used again under an initiator that retries: it is refused without a trace, the next window lets its own
/// initiator in, and both windows' drains are fences.
#[test]
fn window_place_is_used_again_under_one_that_retries() {
    let cases = ["let in", "refused: closed", "refused: another epoch"];
    check_cases(&cases, |cases| {
        let shared = Arc::new((Word64::new(0), Cell::new()));
        let (stale, seen) = (Arc::clone(&shared), std::sync::Arc::clone(cases));
        let t = thread::spawn(move || {
            for _ in 0..2 {
                put(WindowGate::new(&stale.0), 0, &stale.1, &seen);
            }
        });
        let w = WindowGate::new(&shared.0);
        reuse(w, 1, &shared.1);
        // The initiator of the new window, while the old one's may be at the word.
        w.enter(1).expect("the window is open");
        w.exit();
        reuse(w, 2, &shared.1);
        t.join().unwrap();
        assert_eq!(w.active(), 0, "nobody's coming or going was lost");
        assert!(w.is_open(2));
    });
}

/// A window that was closed with nobody inside is opened again under its epoch, without a look at the count: an initiator that was
/// refused may still be at the word. The owner has the bytes to itself between close and open, and after the last drain.
#[test]
fn window_is_opened_again_under_an_entry_that_was_refused() {
    let cases = ["let in", "refused: closed", "somebody inside", "opened under a refused entry"];
    check_cases(&cases, |cases| {
        let shared = Arc::new((Word64::new(0), Cell::new()));
        let (initiator, seen) = (Arc::clone(&shared), std::sync::Arc::clone(cases));
        let t = thread::spawn(move || {
            for _ in 0..2 {
                put(WindowGate::new(&initiator.0), 0, &initiator.1, &seen);
            }
        });
        let w = WindowGate::new(&shared.0);
        w.close();
        if w.is_drained() {
            shared.1.set(1);
            if w.active() != 0 {
                cases.seen("opened under a refused entry");
            }
            w.open(0).unwrap();
        } else {
            cases.seen("somebody inside");
        }
        w.close();
        assert_eq!(w.wait_drained(LONG), Drain::Drained);
        shared.1.set(2);
        t.join().unwrap();
        assert_eq!(w.active(), 0, "nobody's coming or going was lost");
    });
}

/// Control: an owner that sets the word when its window is drained, as if nobody could be at it.
#[test]
#[should_panic]
fn control_window_place_with_its_count_set() {
    check(|| {
        let word = Arc::new(Word64::new(0));
        WindowGate::new(&word).close();
        let stale = Arc::clone(&word);
        let t = thread::spawn(move || assert!(WindowGate::new(&stale).enter(0).is_err()));
        assert_eq!(WindowGate::new(&word).wait_drained(LONG), Drain::Drained);
        word.atomic().store(1, Ordering::Release);
        t.join().unwrap();
        assert_eq!(WindowGate::new(&word).active(), 0);
    });
}
