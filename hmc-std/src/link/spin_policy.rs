//! Whether a waiting thread spins before it parks, and for how long.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, Ordering};
use std::time::Duration as StdDuration;

use hmc_core::time::Duration;

use crate::base::clock;

/// Waits in a row that slept although they had spun, after which waiters stop to spin.
const FUTILE: u8 = 4;
/// A long spin is so many times as long as a short one. Two waiters that both sleep wake each other: to be worth trying, a spin has
/// to last as long as that takes, which is several times a short spin in a virtual machine.
const LONG: u32 = 10;
/// After so many waits without a spin one spins, to test whether it would help again. Each time that it would not, twice as many.
const FIRST_PROBE: u16 = 16;
const LAST_PROBE: u16 = 1024;

/// Whether spinning helps on this link: it is worth its time only where answers come within it. While it goes
/// on in vain it takes a processor, or half of one, from whoever prepares the answer.
#[derive(Debug)]
pub(crate) struct SpinPolicy {
    /// Waits in a row that spun in vain, [`FUTILE`] at most.
    futile: AtomicU8,
    /// Answers came soon after a short spin, or in a long one.
    is_long: AtomicBool,
    /// Waits without a spin since the last probe.
    parks: AtomicU16,
    /// Waits without a spin before the next probe.
    interval: AtomicU16,
}

impl Default for SpinPolicy {
    fn default() -> Self {
        Self {
            futile: AtomicU8::new(0),
            is_long: AtomicBool::new(false),
            parks: AtomicU16::new(0),
            interval: AtomicU16::new(FIRST_PROBE),
        }
    }
}

impl SpinPolicy {
    /// For how long the next waiter spins, where `short` is a short spin.
    pub(crate) fn spin(&self, short: StdDuration) -> StdDuration {
        if self.futile.load(Ordering::Relaxed) < FUTILE {
            let times = if self.is_long.load(Ordering::Relaxed) { LONG } else { 1 };
            return short.saturating_mul(times);
        }
        let parks = self.parks.load(Ordering::Relaxed);
        let interval = self.interval.load(Ordering::Relaxed);
        if parks < interval {
            self.parks.store(parks.saturating_add(1), Ordering::Relaxed);
            return StdDuration::ZERO;
        }
        self.parks.store(0, Ordering::Relaxed);
        self.interval.store(interval.saturating_mul(2).min(LAST_PROBE), Ordering::Relaxed);
        self.is_long.store(true, Ordering::Relaxed);
        short.saturating_mul(LONG)
    }

    /// Records a wait that is over; `short` is a short spin.
    pub(crate) fn record(&self, outcome: WaitOutcome, short: StdDuration) {
        match outcome {
            WaitOutcome::Found => {}
            WaitOutcome::Spun => {
                self.futile.store(0, Ordering::Relaxed);
                self.parks.store(0, Ordering::Relaxed);
                self.interval.store(FIRST_PROBE, Ordering::Relaxed);
            }
            WaitOutcome::Slept(pause) => {
                let is_soon = pause <= clock::from_std(short.saturating_mul(LONG));
                if is_soon && !self.is_long.load(Ordering::Relaxed) {
                    // A long one might have had it.
                    self.is_long.store(true, Ordering::Relaxed);
                    return;
                }
                let futile = self.futile.load(Ordering::Relaxed);
                if futile < FUTILE {
                    self.futile.store(futile.saturating_add(1), Ordering::Relaxed);
                }
            }
        }
    }
}

/// How one wait went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitOutcome {
    /// What it waited for was there at the first look.
    Found,
    /// It came during the spin.
    Spun,
    /// The wait slept; for so long in all.
    Slept(Duration),
}

impl WaitOutcome {
    /// Goes round once more without a sleep.
    pub(crate) fn spun(&mut self) {
        if *self == Self::Found {
            *self = Self::Spun;
        }
    }

    pub(crate) fn slept(&mut self, pause: Duration) {
        let before = if let Self::Slept(before) = self { before.as_nanos() } else { 0 };
        *self = Self::Slept(Duration::from_nanos(before.saturating_add(pause.as_nanos())));
    }
}

#[cfg(test)]
mod tests {
    use super::{FIRST_PROBE, FUTILE, LAST_PROBE, LONG, SpinPolicy, WaitOutcome};
    use hmc_core::time::Duration;
    use std::time::Duration as StdDuration;

    const SHORT: StdDuration = StdDuration::from_micros(20);
    /// A spin that is worth its time where two waiters wake each other.
    const LONGER: StdDuration = SHORT.saturating_mul(LONG);
    const LATE: WaitOutcome = WaitOutcome::Slept(Duration::from_millis(5));
    const SOON: WaitOutcome = WaitOutcome::Slept(Duration::from_nanos(60_000));

    fn tired() -> SpinPolicy {
        let p = SpinPolicy::default();
        for _ in 0..FUTILE {
            assert_eq!(p.spin(SHORT), SHORT);
            p.record(LATE, SHORT);
        }
        p
    }

    /// Waits until one spins; how many do not.
    fn until_probe(p: &SpinPolicy) -> u16 {
        (0..)
            .find(|_| {
                let spin = p.spin(SHORT);
                assert!(spin == LONGER || spin.is_zero());
                p.record(LATE, SHORT);
                !spin.is_zero()
            })
            .expect("one does")
    }

    #[test]
    fn waiters_stop_to_spin_where_it_is_in_vain_and_try_again_ever_more_rarely() {
        let p = tired();
        let mut want = FIRST_PROBE;
        for _ in 0..12 {
            assert_eq!(until_probe(&p), want);
            want = (2 * want).min(LAST_PROBE);
        }
        assert_eq!(want, LAST_PROBE);
        // As soon as it helps, all spin again, and the next probe comes early.
        p.record(WaitOutcome::Spun, SHORT);
        for _ in 0..FUTILE {
            assert_eq!(p.spin(SHORT), LONGER);
            p.record(LATE, SHORT);
        }
        assert_eq!(until_probe(&p), FIRST_PROBE);
    }

    #[test]
    fn a_waiter_that_slept_for_a_short_time_spins_longer_until_that_is_in_vain() {
        let p = SpinPolicy::default();
        p.record(SOON, SHORT);
        for _ in 0..10 * FUTILE {
            assert_eq!(p.spin(SHORT), LONGER);
            p.record(WaitOutcome::Spun, SHORT);
        }
        // Two waiters on one processor: each spin keeps the answer from being made, and the sleep is short.
        for _ in 0..FUTILE {
            assert_eq!(p.spin(SHORT), LONGER);
            p.record(SOON, SHORT);
        }
        assert_eq!(p.spin(SHORT), StdDuration::ZERO);
    }

    #[test]
    fn a_wait_that_spun_for_nothing_proves_nothing() {
        let p = tired();
        p.record(WaitOutcome::Found, SHORT);
        assert_eq!(p.spin(SHORT), StdDuration::ZERO);
        let p = SpinPolicy::default();
        for _ in 0..2 * FUTILE {
            p.record(SOON, StdDuration::ZERO);
            assert_eq!(p.spin(StdDuration::ZERO), StdDuration::ZERO, "nobody is to spin");
        }
    }

    #[test]
    fn a_wait_of_many_parks_is_one_wait() {
        let p = SpinPolicy::default();
        let mut outcome = WaitOutcome::Found;
        outcome.spun();
        assert_eq!(outcome, WaitOutcome::Spun);
        for _ in 0..4 * FUTILE {
            outcome.slept(Duration::from_nanos(15_000));
            outcome.spun();
        }
        let all = Duration::from_nanos(4 * u64::from(FUTILE) * 15_000);
        assert_eq!(outcome, WaitOutcome::Slept(all));
        for _ in 1..FUTILE {
            p.record(outcome, SHORT);
            assert_eq!(p.spin(SHORT), SHORT, "too few waits");
        }
        p.record(outcome, SHORT);
        assert_eq!(p.spin(SHORT), StdDuration::ZERO);
    }
}
