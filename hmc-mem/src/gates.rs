//! [`WindowGates`]: all gates of one window. Each initiator enters one of them; the owner opens and closes all.
//!
//! A thread that enters a gate writes its cache line twice, so threads that copy into one window at a time enter by gates of
//! their own. Each gate is a [`WindowGate`] with its rules. The window is closed when all gates are closed, and drained when
//! all are drained: only the owner opens a gate, so nobody gets in by one that was seen drained while the owner looks at the next.

use core::time::Duration;

use crate::gate::{Drain, GateError, WindowGate};
use crate::sync::{Deadline, Word64};

/// A view of all gates of a window: an iterator of their words.
#[derive(Clone, Debug)]
pub struct WindowGates<I>(I);

impl<'a, I: Iterator<Item = &'a Word64> + Clone> WindowGates<I> {
    /// Returns the gates in `words`.
    #[must_use]
    pub const fn new(words: I) -> Self {
        Self(words)
    }

    fn each(&self) -> impl Iterator<Item = WindowGate<'a>> + use<'a, I> {
        self.0.clone().map(WindowGate::new)
    }

    /// Owner: closes all gates ([`WindowGate::close`]). Wait-free.
    pub fn close(&self) {
        self.each().for_each(|gate| gate.close());
    }

    /// Owner: opens all gates under `epoch` ([`WindowGate::open`]). Wait-free. Initiators that enter meanwhile may be refused.
    ///
    /// # Errors
    /// [`GateError::Broken`] if the epoch is too large; the gates are unchanged.
    pub fn open(&self, epoch: u32) -> Result<(), GateError> {
        self.each().try_for_each(|gate| gate.open(epoch))
    }

    /// Owner: returns `true` if all gates are closed and no copy is active.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.each().all(|gate| gate.is_drained())
    }

    /// Owner: closes all gates and parks until no copy is active, for at most `timeout` ([`WindowGate::wait_drained`]). Looks at
    /// each gate at least once.
    pub fn wait_drained(&self, timeout: Duration) -> Drain {
        self.close();
        let mut deadline = Deadline::after(timeout);
        let mut still: u32 = 0;
        for gate in self.each() {
            let left = deadline.left().unwrap_or(Duration::ZERO);
            if let Drain::TimedOut { active } = gate.wait_drained(left) {
                still = still.saturating_add(active);
            }
        }
        if still == 0 { Drain::Drained } else { Drain::TimedOut { active: still } }
    }
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "tests may panic")]
mod tests {
    use super::WindowGates;
    use crate::gate::{Drain, GateError, MAX_EPOCH, WindowGate};
    use crate::sync::Word64;
    use core::time::Duration;

    #[test]
    fn a_window_is_drained_when_nobody_is_inside_by_any_gate() {
        let words = [Word64::new(0), Word64::new(0), Word64::new(0)];
        let gates = WindowGates::new(words.iter());
        gates.close();
        let each = || words.iter().map(WindowGate::new);
        assert!(each().all(|gate| gate.enter(0) == Err(GateError::Closed)));
        assert_eq!(gates.open(MAX_EPOCH + 1), Err(GateError::Broken));
        assert!(gates.is_drained());
        gates.open(4).unwrap();
        assert!(each().all(|gate| gate.is_open(4)) && !gates.is_drained());
        for gate in each() {
            gate.enter(4).unwrap();
            gates.close();
            assert!(!gates.is_drained());
            assert_eq!(gates.wait_drained(Duration::ZERO), Drain::TimedOut { active: 1 });
            gate.exit();
            assert!(gates.is_drained());
            assert_eq!(gates.wait_drained(Duration::ZERO), Drain::Drained);
            gates.open(4).unwrap();
        }
        each().for_each(|gate| gate.enter(4).unwrap());
        assert_eq!(gates.wait_drained(Duration::ZERO), Drain::TimedOut { active: 3 });
    }
}
