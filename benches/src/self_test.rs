//! Test of the measurement: a delay of 10 % on our side must be visible as such in the ratio.
//!
//! Runs with the delay stand between two without. The two without are the control: when they differ
//! the machine is too noisy, and the test reports that.

use crate::context::Context;
use crate::error::Res;
use crate::measure::median;
use crate::row::Row;

/// The share of our time that is wasted.
const SHARE: f64 = 0.10;
/// Plausible ratios with over without: 1/1.1 = 0.909 and what noise may add.
const BELIEVED: std::ops::RangeInclusive<f64> = 0.87..=0.95;
/// The same for two runs without.
const QUIET: std::ops::RangeInclusive<f64> = 0.97..=1.03;
/// Attempts before the test fails: other work on the machine may spoil one.
const ATTEMPTS: usize = 5;
/// Runs without, with and without in each attempt.
const TURNS: usize = 11;

/// The result of one attempt.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Seen {
    /// The ratio with the delay over the ratio without.
    delayed: f64,
    /// The second ratio without over the first.
    control: f64,
}

/// The conclusion.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Verdict {
    Shown,
    NotShown,
    Noise,
}

fn classify(seen: Seen) -> Verdict {
    if !QUIET.contains(&seen.control) || seen.delayed < *BELIEVED.start() {
        // Of a delay too much is seen only when something else slowed us as well.
        return Verdict::Noise;
    }
    if BELIEVED.contains(&seen.delayed) { Verdict::Shown } else { Verdict::NotShown }
}

/// How fast ours is against the reference: more is faster.
fn speed(row: &dyn Row, context: &Context) -> Res<f64> {
    let lines = row.run(context)?;
    let line = lines.first().ok_or("no line")?;
    let ratio = line.ratio_value().ok_or("no ratio")?;
    // Of latencies the ratio is of times.
    Ok(if row.unit() == "us" { 1.0 / ratio } else { ratio })
}

fn attempt(row: &dyn Row, context: &Context) -> Res<Seen> {
    let slow = context.delayed(SHARE);
    let (mut delayed, mut controls) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        let before = speed(row, context)?;
        let with = speed(row, &slow)?;
        let after = speed(row, context)?;
        delayed.push(with / f64::midpoint(before, after));
        controls.push(after / before);
    }
    Ok(Seen { delayed: median(&delayed), control: median(&controls) })
}

/// Runs it with each of `rows`, of which the first line counts.
///
/// # Errors
/// The ratios, if a quiet machine did not show the delay.
pub(crate) fn run(rows: &[Box<dyn Row>], context: &Context) -> Res<()> {
    for row in rows {
        let name = row.name();
        let mut all = String::new();
        let mut last = Verdict::Noise;
        for _ in 0..ATTEMPTS {
            let seen = attempt(row.as_ref(), context)?;
            all = format!("{all} {:.3} (control {:.3})", seen.delayed, seen.control);
            match classify(seen) {
                Verdict::Noise => {}
                verdict => last = verdict,
            }
            if last == Verdict::Shown {
                break;
            }
        }
        match last {
            Verdict::Shown => {
                println!("self-test: {name}: a delay of 10 % lowers the ratio by the factor{all}");
            }
            Verdict::Noise => println!(
                "self-test: {name}: not conclusive, the machine is too busy: factors{all}; run it again"
            ),
            Verdict::NotShown => {
                return Err(format!(
                    "self-test: {name}: a delay of 10 % changed the ratio by the factors{all}, not by \
                     about 0.909: the measurement is wrong"
                ));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Seen, Verdict, classify};

    #[test]
    fn a_delay_that_does_not_show_is_a_failure_only_on_a_quiet_machine() {
        let at = |delayed, control| classify(Seen { delayed, control });
        assert_eq!(at(0.909, 1.0), Verdict::Shown);
        assert_eq!(at(1.0, 1.0), Verdict::NotShown);
        assert_eq!(at(0.96, 0.98), Verdict::NotShown);
        assert_eq!(at(0.8, 1.01), Verdict::Noise);
        assert_eq!(at(0.909, 1.1), Verdict::Noise);
        assert_eq!(at(1.0, 0.9), Verdict::Noise);
    }
}
