//! One row: an operation of one size, one at a time and several at a time.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use hmc_std::{LocalRange, Op, Remote};

use super::row::Row;
use crate::failure::Result;
use crate::units::gb_per_s;

/// How long one half of a row takes, about.
const SHARE: Duration = Duration::from_millis(250);
/// Operations before the clock counts.
const WARM_UP: u32 = 10;
/// The most operations that are chosen by time.
const MOST: u32 = 200_000;
/// The fewest.
const FEWEST: u32 = 5;

/// Measures one size: transfers between `range` and the start of the peer's window.
pub(super) fn row(
    remote: &Remote,
    range: LocalRange<'_>,
    op: &'static str,
    depth: u16,
    iters: Option<u32>,
) -> Result<Row> {
    let size = range.len();
    let one = || {
        if op == "put" { remote.put(0, range).wait() } else { remote.get(0, range).wait() }
    };
    let mut slowest = Duration::ZERO;
    for _ in 0..WARM_UP {
        let begun = Instant::now();
        one()?;
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
        one()?;
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
        gb_per_s: bandwidth(remote, range, op, depth, flood)?,
    })
}

/// The time that `percent` of the sorted times do not exceed, in microseconds.
fn at_percent(times: &[Duration], percent: usize) -> f64 {
    let at = (times.len() * percent).div_ceil(100).saturating_sub(1);
    times.get(at).map_or(0.0, |t| t.as_nanos() as f64 / 1e3)
}

fn bandwidth(
    remote: &Remote,
    range: LocalRange<'_>,
    op: &str,
    depth: u16,
    count: u32,
) -> Result<f64> {
    let start = || -> hmc_std::Result<Op> {
        if op == "put" {
            remote.put(0, range).start_blocking()
        } else {
            remote.get(0, range).start_blocking()
        }
    };
    let mut in_flight: VecDeque<Op> = VecDeque::with_capacity(usize::from(depth));
    let begun = Instant::now();
    for _ in 0..count {
        if in_flight.len() >= usize::from(depth)
            && let Some(oldest) = in_flight.pop_front()
        {
            oldest.wait()?;
        }
        in_flight.push_back(start()?);
    }
    for op in in_flight {
        op.wait()?;
    }
    Ok(gb_per_s(range.len().saturating_mul(u64::from(count)), begun.elapsed().as_secs_f64()))
}

#[cfg(test)]
mod tests {
    use super::{WARM_UP, at_percent, row};
    use hmc_std::{ConnType, Session};
    use std::time::Duration;

    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        let times: Vec<Duration> = (1..=100).map(Duration::from_micros).collect();
        assert_eq!(at_percent(&times, 50), 50.0);
        assert_eq!(at_percent(&times, 99), 99.0);
        assert_eq!(at_percent(&times[..1], 99), 1.0);
        assert_eq!(at_percent(&[], 50), 0.0);
    }

    #[test]
    fn a_row_is_of_the_operation_that_it_names() {
        const ITERS: u32 = 20;
        let start = |rank| Session::builder(rank).buffer(4096);
        let there = start(0).tcp("127.0.0.1:0").start().unwrap();
        let here = start(1).start().unwrap();
        let address = there.info().listeners.remove(0).address().clone();
        let peer = here
            .connect(&address)
            .rank(0)
            .over(ConnType::Tcp)
            .within(Duration::from_secs(20))
            .wait()
            .unwrap();
        let counts = || here.stats().peers.first().map(|p| (p.puts, p.gets)).unwrap();
        let least = u64::from(2 * ITERS) + 1;
        let most = least - 1 + u64::from(WARM_UP);
        let remote = peer.buffer().unwrap();
        let range = here.buffer().range(0, 8).unwrap();
        let put = row(&remote, range, "put", 4, Some(ITERS)).unwrap();
        let (puts, gets) = counts();
        assert!((least..=most).contains(&puts) && gets == 0, "{puts} puts, {gets} gets");
        let get = row(&remote, range, "get", 4, Some(ITERS)).unwrap();
        let (after, gets) = counts();
        assert!(after == puts && (least..=most).contains(&gets), "{after} puts, {gets} gets");
        for row in [put, get] {
            assert_eq!((row.size, row.depth), (8, 4));
            assert_eq!((row.latency_iters, row.bandwidth_iters), (ITERS, ITERS));
            assert!(row.gb_per_s > 0.0 && row.p50_us > 0.0 && row.p99_us >= row.p50_us, "{row:?}");
        }
    }
}
