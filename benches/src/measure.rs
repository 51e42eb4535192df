//! How samples are taken: ours and the reference alternately, medians at the end.

use std::time::Instant;

use crate::error::Res;
use crate::series;

/// A share of our own time that is wasted on purpose after each operation: 0 in a measurement, 0.1 in
/// the self-test, which must see it in the ratio.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delay(pub(crate) f64);

impl Delay {
    /// Does `op` `times` times and gives nanoseconds for one, waste included.
    pub(crate) fn timed(self, times: u32, mut op: impl FnMut() -> Res<()>) -> Res<f64> {
        let begun = Instant::now();
        if self.0 <= 0.0 {
            for _ in 0..times {
                op()?;
            }
        } else {
            for _ in 0..times {
                let start = Instant::now();
                op()?;
                self.waste(start.elapsed().as_nanos() as f64);
            }
        }
        // At the end: looking at the clock after each operation would be more than a tenth of a short one.
        Delay(series::waste()).waste(begun.elapsed().as_nanos() as f64);
        Ok(begun.elapsed().as_nanos() as f64 / f64::from(times))
    }

    /// Spins for this share of `ns`.
    pub(crate) fn waste(self, ns: f64) {
        if self.0 <= 0.0 {
            return;
        }
        let start = Instant::now();
        while (start.elapsed().as_nanos() as f64) < ns * self.0 {
            std::hint::spin_loop();
        }
    }
}

/// Does `op` `times` times and gives nanoseconds for one.
pub(crate) fn timed(times: u32, op: impl FnMut() -> Res<()>) -> Res<f64> {
    Delay(0.0).timed(times, op)
}

/// The middle one.
pub(crate) fn median(samples: &[f64]) -> f64 {
    let mut all = samples.to_vec();
    all.sort_by(f64::total_cmp);
    let mid = all.len() / 2;
    match all.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => all[mid],
        _ => f64::midpoint(all[mid - 1], all[mid]),
    }
}

/// Neighbouring samples of ours and of the reference, in nanoseconds for one operation.
#[derive(Debug, Default)]
pub(crate) struct Pairs {
    ours: Vec<f64>,
    reference: Vec<f64>,
    /// Where samples are taken in turns with another program: which series of its row this is.
    number: Option<u32>,
}

impl Pairs {
    /// Ours, in the order of time.
    pub(crate) fn samples(&self) -> &[f64] {
        &self.ours
    }

    /// Which series of its row this is, where there is no reference beside it.
    pub(crate) fn number(&self) -> Option<u32> {
        self.number
    }

    /// Median of ours.
    pub(crate) fn ours_ns(&self) -> f64 {
        median(&self.ours)
    }

    /// Median of the reference.
    pub(crate) fn reference_ns(&self) -> f64 {
        median(&self.reference)
    }

    /// Median of ours/reference over neighbours, as times: more is slower.
    pub(crate) fn time_ratio(&self) -> f64 {
        median(&self.time_ratios())
    }

    /// The 95 % interval of [`Self::time_ratio`] by order statistics; from the least to the greatest ratio where fewer than six pairs
    /// give none.
    pub(crate) fn time_ratio_interval(&self) -> (f64, f64) {
        let mut all = self.time_ratios();
        all.sort_by(f64::total_cmp);
        let cut = outside(all.len());
        match (all.get(cut), all.len().checked_sub(cut + 1).and_then(|last| all.get(last))) {
            (Some(low), Some(high)) => (*low, *high),
            _ => (f64::NAN, f64::NAN),
        }
    }

    fn time_ratios(&self) -> Vec<f64> {
        self.ours.iter().zip(&self.reference).map(|(o, r)| o / r).collect()
    }
}

/// How many of `count` sorted samples lie below the 95 % interval of their median, and as many above it: the most for which the
/// binomial distribution has at most 2.5 % up to it.
fn outside(count: usize) -> usize {
    let mut chance = 0.5_f64.powi(i32::try_from(count).unwrap_or(i32::MAX));
    let mut below = chance;
    let mut cut = 0;
    while below <= 0.025 && cut + 1 < count.div_ceil(2) {
        cut += 1;
        chance *= (count - cut + 1) as f64 / cut as f64;
        below += chance;
    }
    cut.saturating_sub(1)
}

/// Takes `count` pairs of samples after one that does not count. Who goes first alternates, so that
/// neither always finds the caches that the other left.
pub(crate) fn interleave(
    count: usize,
    mut ours: impl FnMut() -> Res<f64>,
    mut reference: impl FnMut() -> Res<f64>,
) -> Res<Pairs> {
    if let Some(samples) = series::samples(&mut ours) {
        let (number, ours) = samples?;
        return Ok(Pairs { ours, number: Some(number), ..Pairs::default() });
    }
    reference()?;
    ours()?;
    let mut pairs = Pairs::default();
    for i in 0..count {
        if i % 2 == 0 {
            pairs.ours.push(ours()?);
            pairs.reference.push(reference()?);
        } else {
            pairs.reference.push(reference()?);
            pairs.ours.push(ours()?);
        }
    }
    Ok(pairs)
}

/// Takes `count` samples of ours after one that does not count, without a reference.
pub(crate) fn alone(count: usize, mut ours: impl FnMut() -> Res<f64>) -> Res<Pairs> {
    if let Some(samples) = series::samples(&mut ours) {
        let (number, ours) = samples?;
        return Ok(Pairs { ours, number: Some(number), ..Pairs::default() });
    }
    ours()?;
    let ours = (0..count).map(|_| ours()).collect::<Res<_>>()?;
    Ok(Pairs { ours, ..Pairs::default() })
}

#[cfg(test)]
mod tests {
    use super::{Delay, Pairs, median, outside};

    #[test]
    fn the_median_is_the_middle() {
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!((median(&[4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-9);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn ratios_are_of_neighbours() {
        // The machine got twice as slow half-way: the ratio of neighbours does not notice.
        let pairs = Pairs {
            ours: vec![11.0, 11.0, 22.0, 22.0],
            reference: vec![10.0, 10.0, 20.0, 20.0],
            number: None,
        };
        assert!((pairs.time_ratio() - 1.1).abs() < 1e-9);
    }

    #[test]
    fn the_interval_leaves_out_what_chance_reaches() {
        // Of 21, the 6th and the 16th (a table of the sign test).
        assert_eq!([1, 5, 6, 7, 9, 21, 31].map(outside), [0, 0, 0, 0, 1, 5, 9]);
        let times = (1..=21).map(f64::from).collect();
        let pairs = Pairs { ours: times, reference: vec![1.0; 21], number: None };
        assert_eq!(pairs.time_ratio_interval(), (6.0, 16.0));
        assert!(Pairs::default().time_ratio_interval().0.is_nan());
    }

    #[test]
    fn waste_takes_its_share() {
        let start = std::time::Instant::now();
        Delay(0.5).waste(2e6);
        assert!(start.elapsed().as_nanos() >= 1_000_000);
        let start = std::time::Instant::now();
        Delay(0.0).waste(1e12);
        assert!(start.elapsed().as_secs() < 60);
    }
}
