//! A series of samples that are taken on request, or by number, instead of beside a reference.

use std::io::{BufRead as _, Write as _};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::error::{Res, text};

/// How samples are taken when not beside a reference.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Direction {
    /// Each when it is asked for.
    OnRequest,
    /// So many of one series of a row, by its number; none of the others.
    Fixed {
        /// The series.
        series: u32,
        /// Its samples.
        samples: u32,
    },
}

static WAY: OnceLock<Direction> = OnceLock::new();
/// The next series of the row.
static SERIES: AtomicU32 = AtomicU32::new(0);
/// The share of our time that is wasted, in its bits.
static WASTE: AtomicU64 = AtomicU64::new(0);

/// Whether another program is the reference.
pub(crate) fn are_taken() -> bool {
    WAY.get().is_some()
}

/// Takes samples that way from here on, and wastes `waste` of our time.
pub(crate) fn take(direction: Direction, waste: f64) {
    let _ = WAY.set(direction);
    WASTE.store(waste.to_bits(), Ordering::Relaxed);
}

/// Counts the series of a row from here on.
pub(crate) fn begin_row() {
    SERIES.store(0, Ordering::Relaxed);
}

/// The share of each sample that is wasted, besides what a row wastes itself.
pub(crate) fn waste() -> f64 {
    f64::from_bits(WASTE.load(Ordering::Relaxed))
}

/// The samples of a series, and its number in the row; `None` where a reference is measured.
pub(crate) fn samples(mut ours: impl FnMut() -> Res<f64>) -> Option<Res<(u32, Vec<f64>)>> {
    let direction = WAY.get()?;
    let number = SERIES.fetch_add(1, Ordering::Relaxed);
    let samples = match *direction {
        Direction::OnRequest => on_request(ours),
        Direction::Fixed { series, .. } if series != number => Ok(Vec::new()),
        Direction::Fixed { samples, .. } => (0..samples).map(|_| ours()).collect(),
    };
    Some(samples.map(|samples| (number, samples)))
}

fn on_request(mut ours: impl FnMut() -> Res<f64>) -> Res<Vec<f64>> {
    let mut samples = Vec::new();
    ours()?;
    loop {
        write_line("turn")?;
        match read_line()?.as_deref() {
            Some("go") => samples.push(ours()?),
            Some("enough") => return Ok(samples),
            other => return Err(format!("asked for {other:?} in the middle of a row")),
        }
    }
}

/// Writes a line.
pub(crate) fn write_line(line: &str) -> Res<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").map_err(text)?;
    out.flush().map_err(text)
}

/// The next line; `None` at the end.
pub(crate) fn read_line() -> Res<Option<String>> {
    std::io::stdin().lock().lines().next().transpose().map_err(text)
}

#[cfg(test)]
mod tests {
    use super::{Direction, SERIES, WAY, samples, waste};
    use crate::measure::{interleave, timed};
    use std::sync::atomic::Ordering;

    /// All in one test: how samples are taken is the program's.
    #[test]
    fn a_series_without_a_reference_has_its_samples_and_its_number() {
        assert!(samples(|| Ok(1.0)).is_none() && waste() == 0.0);
        let both = interleave(3, || Ok(2.0), || Ok(1.0)).expect("samples");
        assert!((both.time_ratio() - 2.0).abs() < 1e-9 && both.number().is_none());
        WAY.set(Direction::Fixed { series: 1, samples: 4 }).expect("samples");
        let never = || Err("the reference is not measured".to_owned());
        SERIES.store(0, Ordering::Relaxed);
        let first = interleave(3, || Ok(2.0), never).expect("samples");
        let second = interleave(3, || timed(1, || Ok(())), never).expect("samples");
        assert_eq!((first.number(), first.samples().len()), (Some(0), 0));
        assert_eq!((second.number(), second.samples().len()), (Some(1), 4));
    }
}
