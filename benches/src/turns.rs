//! Samples on request: a program of old code and one of new code take the same series, one sample each at a time.
//!
//! Who runs them (`cargo xtask bench --against`) writes `row NAME`, and after each `turn` either `go` or `enough`; the program
//! answers a row with one line of JSON. Neither measures a reference then: each is the other's. With `--count` a series has a
//! fixed number of samples instead, whose instructions callgrind counts.

use std::io::{BufRead as _, Write as _};
use std::process::ExitCode;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use serde_json::json;

use crate::context::Context;
use crate::error::{Res, text};
use crate::measure::Delay;
use crate::row::Row;

/// How samples are taken when not beside a reference.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    /// Each when it is asked for.
    Asked,
    /// So many of one series of a row, by its number; none of the others.
    Fixed {
        /// The series.
        series: u32,
        /// Its samples.
        samples: u32,
    },
}

static WAY: OnceLock<Way> = OnceLock::new();
/// The next series of the row.
static SERIES: AtomicU32 = AtomicU32::new(0);
/// The share of our time that is wasted, in its bits.
static WASTE: AtomicU64 = AtomicU64::new(0);

/// Whether another program is the reference.
pub(crate) fn are_taken() -> bool {
    WAY.get().is_some()
}

/// What is wasted of each sample, besides what a row does itself.
pub(crate) fn waste() -> Delay {
    Delay(f64::from_bits(WASTE.load(Ordering::Relaxed)))
}

/// The samples of a series, and its number in the row; `None` where a reference is measured.
pub(crate) fn series(mut ours: impl FnMut() -> Res<f64>) -> Option<Res<(u32, Vec<f64>)>> {
    let way = WAY.get()?;
    let number = SERIES.fetch_add(1, Ordering::Relaxed);
    let samples = match *way {
        Way::Asked => asked(ours),
        Way::Fixed { series, .. } if series != number => Ok(Vec::new()),
        Way::Fixed { samples, .. } => (0..samples).map(|_| ours()).collect(),
    };
    Some(samples.map(|samples| (number, samples)))
}

fn asked(mut ours: impl FnMut() -> Res<f64>) -> Res<Vec<f64>> {
    let mut samples = Vec::new();
    ours()?;
    loop {
        say("turn")?;
        match hear()?.as_deref() {
            Some("go") => samples.push(ours()?),
            Some("enough") => return Ok(samples),
            other => return Err(format!("asked for {other:?} in the middle of a row")),
        }
    }
}

fn say(line: &str) -> Res<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").map_err(text)?;
    out.flush().map_err(text)
}

/// The next line; `None` at the end.
fn hear() -> Res<Option<String>> {
    std::io::stdin().lock().lines().next().transpose().map_err(text)
}

/// Runs the rows that are named, until there are no more lines.
pub(crate) fn serve(rows: &[Box<dyn Row>], context: &Context, delay: f64) -> Res<ExitCode> {
    let _ = WAY.set(Way::Asked);
    WASTE.store(delay.to_bits(), Ordering::Relaxed);
    while let Some(line) = hear()? {
        let name = line.strip_prefix("row ").unwrap_or_default();
        let row = rows.iter().find(|row| row.name() == name);
        SERIES.store(0, Ordering::Relaxed);
        let answer = match row.map(|row| row.run(context)) {
            Some(Ok(lines)) => {
                let lines: Vec<_> = lines.iter().map(|line| line.json(name)).collect();
                json!({ "lines": lines })
            }
            Some(Err(why)) => json!({ "error": why }),
            None => json!({ "error": format!("no row `{name}`") }),
        };
        say(&answer.to_string())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Does `samples` samples of one series of a row, and says which the row has.
pub(crate) fn count(row: &dyn Row, context: &Context, series: u32, samples: u32) -> Res<ExitCode> {
    let _ = WAY.set(Way::Fixed { series, samples });
    row.run(context)?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::{SERIES, WAY, Way, series, waste};
    use crate::measure::{interleave, timed};
    use std::sync::atomic::Ordering;

    /// All in one test: how samples are taken is the program's.
    #[test]
    fn a_series_without_a_reference_has_its_samples_and_its_number() {
        assert!(series(|| Ok(1.0)).is_none() && waste().0 == 0.0);
        let both = interleave(3, || Ok(2.0), || Ok(1.0)).expect("samples");
        assert!((both.time_ratio() - 2.0).abs() < 1e-9 && both.number().is_none());
        WAY.set(Way::Fixed { series: 1, samples: 4 }).expect("samples");
        let never = || Err("the reference is not measured".to_owned());
        SERIES.store(0, Ordering::Relaxed);
        let first = interleave(3, || Ok(2.0), never).expect("samples");
        let second = interleave(3, || timed(1, || Ok(())), never).expect("samples");
        assert_eq!((first.number(), first.samples().len()), (Some(0), 0));
        assert_eq!((second.number(), second.samples().len()), (Some(1), 4));
    }
}
