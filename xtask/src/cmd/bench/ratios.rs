//! What two series of samples that were taken in turns say: the median of the neighbours' ratios, its interval, and whether a
//! row is lost by that.

/// A row of times is lost when its whole interval lies above this, one of rates when it lies below the other.
const MOST_TIME: f64 = 1.03;
const LEAST_RATE: f64 = 0.97;
/// The widest interval of the same program against itself that says anything.
const WIDEST: f64 = 0.10;
/// The chance that the median lies outside of the interval, at one of its ends.
const TAIL: f64 = 0.025;

/// What a line counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Less is better.
    Time,
    /// More is better.
    Rate,
}

impl Kind {
    /// By the unit of the line.
    pub(crate) fn of(unit: &str) -> Self {
        if unit.ends_with("/s") { Self::Rate } else { Self::Time }
    }
}

/// The median of ratios and the interval in which it lies with 95 % certainty.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ratio {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl std::fmt::Display for Ratio {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.3} [{:.3}, {:.3}]", self.median, self.low, self.high)
    }
}

impl Ratio {
    /// The ratios of samples that stand beside each other in time, both in nanoseconds: of times or of rates, `ours` over
    /// `other`. `None` below six pairs, of which no interval can be said.
    pub(crate) fn of(kind: Kind, ours: &[f64], other: &[f64]) -> Option<Self> {
        let mut all: Vec<f64> = ours
            .iter()
            .zip(other)
            .map(|(a, b)| if kind == Kind::Rate { b / a } else { a / b })
            .collect();
        all.sort_by(f64::total_cmp);
        let skipped = skipped(all.len())?;
        let last = all.len().checked_sub(1)?;
        let middle = (all.get(last / 2)?, all.get(all.len() / 2)?);
        Some(Self {
            median: f64::midpoint(*middle.0, *middle.1),
            low: *all.get(skipped)?,
            high: *all.get(last.checked_sub(skipped)?)?,
        })
    }

    /// Whether this is a loss, however the noise is taken.
    pub(crate) fn is_lost(&self, kind: Kind) -> bool {
        match kind {
            Kind::Time => self.low > MOST_TIME,
            Kind::Rate => self.high < LEAST_RATE,
        }
    }

    /// Whether a program can be told from itself: if so, nothing can be measured here.
    fn is_noise(&self) -> bool {
        self.high - self.low > WIDEST
            || self.is_lost(Kind::Time)
            || self.is_lost(Kind::Rate)
            || !self.median.is_finite()
    }
}

/// How many of `n` sorted samples lie outside of the interval of their median at each end (order statistics: the number of
/// samples below the median is binomial).
fn skipped(n: usize) -> Option<usize> {
    let halves = f64::from(u32::try_from(n).ok()?);
    let mut term = 0.5_f64.powf(halves);
    let (mut below, mut k) = (term, 0_usize);
    if n == 0 || below > TAIL {
        return None;
    }
    loop {
        let step = f64::from(u32::try_from(k).ok()?);
        term *= (halves - step) / (step + 1.0);
        below += term;
        if below > TAIL {
            return Some(k);
        }
        k = k.checked_add(1)?;
    }
}

/// What is made of a line.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Assessment {
    /// Within the bound, or better.
    Held,
    /// Worse, whatever the noise.
    Lost,
    /// The machine is too busy for this line, and why that is said.
    NotMeasurable(String),
}

/// Old code against itself, with a planted delay, and new code, each against old code.
pub(crate) fn assess(kind: Kind, control: Ratio, planted: Ratio, new: Ratio) -> Assessment {
    if control.is_noise() {
        return Assessment::NotMeasurable(format!("old against old {control}"));
    }
    if !planted.is_lost(kind) {
        return Assessment::NotMeasurable(format!("a delay of 10 % does not show: {planted}"));
    }
    if new.is_lost(kind) { Assessment::Lost } else { Assessment::Held }
}

#[cfg(test)]
mod tests {
    use super::{Assessment, Kind, Ratio, assess, skipped};

    /// Samples of a program that takes `factor` times as long, with noise that is the neighbours' own.
    fn series(factor: f64, noise: f64, seed: u64) -> Vec<f64> {
        let mut state = seed;
        (0..21)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let share = f64::from(u32::try_from(state >> 33).unwrap()) / 2_147_483_648.0;
                100.0 * factor * (1.0 + noise * (share - 0.5))
            })
            .collect()
    }

    fn assessed(kind: Kind, factor: f64, noise: f64) -> Assessment {
        let old = series(1.0, noise, 1);
        let of = |factor, seed| Ratio::of(kind, &series(factor, noise, seed), &old).unwrap();
        assess(kind, of(1.0, 2), of(1.1, 3), of(factor, 4))
    }

    #[test]
    fn the_interval_is_that_of_the_binomial_distribution() {
        // Of 21 samples the sixth and the sixteenth: 2 * P(B(21, 1/2) <= 5) = 0.027.
        assert_eq!(
            (skipped(5), skipped(6), skipped(21), skipped(101)),
            (None, Some(0), Some(5), Some(40))
        );
        let old = [100.0; 21];
        let new: Vec<f64> = (0..21).map(|i| f64::from(i) + 90.0).collect();
        let r = Ratio::of(Kind::Time, &new, &old).unwrap();
        assert!(
            (r.median - 1.0).abs() < 1e-9
                && (r.low - 0.95).abs() < 1e-9
                && (r.high - 1.05).abs() < 1e-9
        );
        let r = Ratio::of(Kind::Rate, &[50.0; 21], &old).unwrap();
        assert!((r.median - 2.0).abs() < 1e-9, "half the time is twice the rate");
        assert_eq!(Ratio::of(Kind::Time, &[], &[]), None);
    }

    #[test]
    fn a_tenth_is_lost_and_nothing_is_held() {
        for kind in [Kind::Time, Kind::Rate] {
            assert_eq!(assessed(kind, 1.0, 0.02), Assessment::Held);
            assert_eq!(assessed(kind, 0.8, 0.02), Assessment::Held);
            assert_eq!(assessed(kind, 1.02, 0.001), Assessment::Held);
            assert_eq!(assessed(kind, 1.1, 0.02), Assessment::Lost);
            assert_eq!(assessed(kind, 1.04, 0.001), Assessment::Lost);
        }
    }

    #[test]
    fn a_busy_machine_decides_neither() {
        for factor in [1.0, 1.5] {
            assert!(matches!(assessed(Kind::Time, factor, 1.0), Assessment::NotMeasurable(_)));
        }
        let near = |m: f64| Ratio { median: m, low: m - 0.01, high: m + 0.01 };
        let blind = assess(Kind::Time, near(1.0), near(1.0), near(1.0));
        assert!(matches!(blind, Assessment::NotMeasurable(why) if why.contains("does not show")));
        let itself = assess(Kind::Time, near(1.05), near(1.1), near(1.0));
        assert!(
            matches!(itself, Assessment::NotMeasurable(why) if why.contains("old against old"))
        );
        let itself = assess(Kind::Time, near(0.9), near(1.1), near(1.0));
        assert!(matches!(itself, Assessment::NotMeasurable(_)));
    }
}
