//! Whether whoever waits on a link spins before it sleeps.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration as StdDuration;

use hmc_core::time::Duration;

use crate::base::clock;

/// Waits in a row that slept longer than they had spun, after which waiters stop to spin.
const FUTILE: u8 = 4;
/// After so many waits without a spin one spins, to test whether it would help again.
const PROBE: u8 = 16;

/// Whether spinning helps on this link: it is worth its time only where answers come within it. While it goes
/// on in vain it takes a processor, or half of one, from whoever prepares the answer.
#[derive(Debug, Default)]
pub(crate) struct SpinPolicy(AtomicU8);

impl SpinPolicy {
    /// For how long the next waiter spins.
    pub(super) fn spin(&self, most: StdDuration) -> StdDuration {
        let parks = self.0.load(Ordering::Relaxed);
        if parks < FUTILE {
            return most;
        }
        let next =
            if parks < FUTILE.saturating_add(PROBE) { parks.saturating_add(1) } else { FUTILE };
        self.0.store(next, Ordering::Relaxed);
        if next == FUTILE { most } else { StdDuration::ZERO }
    }

    /// Records a wait that is over; `most` is the longest spin.
    pub(super) fn record(&self, outcome: WaitOutcome, most: StdDuration) {
        match outcome {
            WaitOutcome::Found => {}
            WaitOutcome::Spun => self.0.store(0, Ordering::Relaxed),
            // Some of a park is the wake-up: a short one might have been spun away.
            WaitOutcome::Slept(pause) if pause <= clock::from_std(most) => {
                self.0.store(0, Ordering::Relaxed)
            }
            WaitOutcome::Slept(_) => {
                let parks = self.0.load(Ordering::Relaxed);
                if parks < FUTILE {
                    self.0.store(parks.saturating_add(1), Ordering::Relaxed);
                }
            }
        }
    }
}

/// How one wait went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitOutcome {
    /// What it waited for was there at the first look.
    Found,
    /// It came during the spin.
    Spun,
    /// The wait slept; for so long in all.
    Slept(Duration),
}

impl WaitOutcome {
    /// Goes round once more without a sleep.
    pub(super) fn spun(&mut self) {
        if *self == Self::Found {
            *self = Self::Spun;
        }
    }

    pub(super) fn slept(&mut self, pause: Duration) {
        let before = if let Self::Slept(before) = self { before.as_nanos() } else { 0 };
        *self = Self::Slept(Duration::from_nanos(before.saturating_add(pause.as_nanos())));
    }
}

#[cfg(test)]
mod tests {
    use super::{FUTILE, PROBE, SpinPolicy, WaitOutcome};
    use hmc_core::time::Duration;
    use std::time::Duration as StdDuration;

    const MOST: StdDuration = StdDuration::from_micros(20);
    const LONG: WaitOutcome = WaitOutcome::Slept(Duration::from_millis(5));

    fn tired() -> SpinPolicy {
        let p = SpinPolicy::default();
        for _ in 0..FUTILE {
            assert_eq!(p.spin(MOST), MOST);
            p.record(LONG, MOST);
        }
        p
    }

    #[test]
    fn waiters_stop_to_spin_where_it_is_in_vain_and_try_again_now_and_then() {
        let p = tired();
        for _ in 0..3 {
            for _ in 0..PROBE {
                assert_eq!(p.spin(MOST), StdDuration::ZERO);
                p.record(LONG, MOST);
            }
            assert_eq!(p.spin(MOST), MOST, "a probe");
            p.record(LONG, MOST);
        }
    }

    #[test]
    fn they_spin_again_as_soon_as_it_helps_or_would_have() {
        let p = tired();
        assert_eq!(p.spin(MOST), StdDuration::ZERO);
        p.record(WaitOutcome::Slept(Duration::from_nanos(15_000)), MOST);
        assert_eq!(p.spin(MOST), MOST, "the park was shorter than the spin");
        let p = tired();
        p.record(WaitOutcome::Spun, MOST);
        assert_eq!(p.spin(MOST), MOST);
        let p = tired();
        p.record(WaitOutcome::Found, MOST);
        assert_eq!(p.spin(MOST), StdDuration::ZERO, "nothing was spun for");
    }

    #[test]
    fn a_wait_of_many_parks_is_one_wait() {
        let p = SpinPolicy::default();
        let mut outcome = WaitOutcome::Found;
        outcome.spun();
        assert_eq!(outcome, WaitOutcome::Spun);
        for _ in 0..2 * FUTILE {
            outcome.slept(Duration::from_nanos(15_000));
            outcome.spun();
        }
        assert_eq!(
            outcome,
            WaitOutcome::Slept(Duration::from_nanos(2 * u64::from(FUTILE) * 15_000))
        );
        for _ in 1..FUTILE {
            p.record(outcome, MOST);
            assert_eq!(p.spin(MOST), MOST, "too few waits");
        }
        p.record(outcome, MOST);
        assert_eq!(p.spin(MOST), StdDuration::ZERO);
    }
}
