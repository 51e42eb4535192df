//! One row: an operation of one size, one at a time and several at a time.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use hmc_std::{OpId, Peer};

use super::row::Row;
use crate::fail::Result;
use crate::units::gb_per_s;

/// How long one half of a row takes, about.
const SHARE: Duration = Duration::from_millis(250);
/// Operations before the clock counts.
const WARM_UP: u32 = 10;
/// The most operations that are chosen by time.
const MOST: u32 = 200_000;
/// The fewest.
const FEWEST: u32 = 5;

/// Measures one size.
pub(super) fn row(
    peer: &Peer,
    op: &'static str,
    size: u64,
    depth: u16,
    iters: Option<u32>,
) -> Result<Row> {
    let one = |peer: &Peer| if op == "put" { peer.put(0, 0, size) } else { peer.get(0, 0, size) };
    let mut slowest = Duration::ZERO;
    for _ in 0..WARM_UP {
        let begun = Instant::now();
        one(peer)?;
        slowest = begun.elapsed();
        // A large size is warm after one.
        if slowest > SHARE / WARM_UP {
            break;
        }
    }
    let by_time = SHARE.as_nanos() / slowest.as_nanos().max(1);
    let by_time = u32::try_from(by_time).unwrap_or(MOST).clamp(FEWEST, MOST);
    let count = iters.unwrap_or(by_time);
    let mut times = Vec::with_capacity(usize::try_from(count).unwrap_or(0));
    for _ in 0..count {
        let begun = Instant::now();
        one(peer)?;
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    let flood = iters.unwrap_or_else(|| count.max(u32::from(depth)).min(MOST));
    Ok(Row {
        op,
        size,
        latency_iters: count,
        p50_us: at_percent(&times, 50),
        p99_us: at_percent(&times, 99),
        bandwidth_iters: flood,
        depth,
        gb_per_s: bandwidth(peer, op, size, depth, flood)?,
    })
}

/// The time that `percent` of the sorted times do not exceed, in microseconds.
fn at_percent(times: &[Duration], percent: usize) -> f64 {
    let at = (times.len() * percent).div_ceil(100).saturating_sub(1);
    times.get(at).map_or(0.0, |t| t.as_nanos() as f64 / 1e3)
}

fn bandwidth(peer: &Peer, op: &str, size: u64, depth: u16, count: u32) -> Result<f64> {
    let post = |peer: &Peer| -> hmc_std::Result<OpId> {
        if op == "put" { peer.put_nb(0, 0, size) } else { peer.get_nb(0, 0, size) }
    };
    let mut flying = VecDeque::with_capacity(usize::from(depth));
    let begun = Instant::now();
    for _ in 0..count {
        if flying.len() >= usize::from(depth)
            && let Some(oldest) = flying.pop_front()
        {
            peer.wait(oldest)?;
        }
        flying.push_back(post(peer)?);
    }
    for op in flying {
        peer.wait(op)?;
    }
    Ok(gb_per_s(size.saturating_mul(u64::from(count)), begun.elapsed().as_secs_f64()))
}

#[cfg(test)]
mod tests {
    use super::at_percent;
    use std::time::Duration;

    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        let times: Vec<Duration> = (1..=100).map(Duration::from_micros).collect();
        assert_eq!(at_percent(&times, 50), 50.0);
        assert_eq!(at_percent(&times, 99), 99.0);
        assert_eq!(at_percent(&times[..1], 99), 1.0);
        assert_eq!(at_percent(&[], 50), 0.0);
    }
}
