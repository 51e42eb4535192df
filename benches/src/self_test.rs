//! The measurement measured: a delay of 10 % on our side must show as that in the ratio.

use crate::context::Context;
use crate::measure::median;
use crate::rows::{Row, self_test_rows};
use crate::{Res, text};

/// The share of our time that is wasted.
const SHARE: f64 = 0.10;
/// Ratios with over without that are believed: 1/1.1 = 0.909 and what noise may add.
const BELIEVED: std::ops::RangeInclusive<f64> = 0.87..=0.95;
/// Whole attempts before it counts as failed: other work on the machine may spoil one.
const ATTEMPTS: usize = 4;
/// Runs with and without in turn in each attempt.
const TURNS: usize = 5;

/// How fast ours is against the reference: more is faster.
fn speed(row: &dyn Row, context: &Context) -> Res<f64> {
    let lines = row.run(context)?;
    let line = lines.first().ok_or("no line")?;
    let ratio = line.ratio_value().ok_or("no ratio")?;
    // Of latencies the ratio is of times.
    Ok(if row.unit() == "us" { 1.0 / ratio } else { ratio })
}

fn factor(row: &dyn Row, context: &Context) -> Res<f64> {
    let slow = context.delayed(SHARE);
    let mut factors = Vec::new();
    for _ in 0..TURNS {
        let without = speed(row, context)?;
        let with = speed(row, &slow)?;
        factors.push(with / without);
    }
    Ok(median(&factors))
}

/// Runs it.
///
/// # Errors
/// What was seen, when no attempt was believable.
pub(crate) fn run(context: &Context) -> Res<()> {
    for row in self_test_rows() {
        let mut seen = Vec::new();
        let ok = loop {
            let f = factor(row.as_ref(), context).map_err(text)?;
            seen.push(format!("{f:.3}"));
            if BELIEVED.contains(&f) {
                break true;
            }
            if seen.len() == ATTEMPTS {
                break false;
            }
        };
        let seen = seen.join(", ");
        if !ok {
            return Err(format!(
                "self-test: {}: a delay of 10 % changed the ratio by the factors {seen}, not by about \
                 0.909; the machine is too noisy or the measurement is wrong",
                row.name()
            ));
        }
        println!(
            "self-test: {}: a delay of 10 % lowers the ratio by the factor {seen}",
            row.name()
        );
    }
    Ok(())
}
