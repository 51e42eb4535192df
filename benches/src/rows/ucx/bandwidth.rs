//! Bulk puts and gets over UCX: over lanes of shared memory one after the other, over TCP several in flight.

use std::collections::VecDeque;

use hmc_core::types::ConnType;
use hmc_hw::ucx::testing::RawCalls;

use super::{RUNS, Rig};
use crate::context::Context;
use crate::error::{Res, text};
use crate::in_flight::InFlight;
use crate::line::Line;
use crate::measure::{interleave, timed};
use crate::row::{Row, size};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// Bytes that one sample moves at least over shared memory, and over TCP.
const SAMPLE_BYTES: (u64, u64) = (32 * MIB, 32 * MIB);
/// Bytes on their way at a time over TCP, at the least two operations, and no more than so many.
const IN_FLIGHT_BYTES: u64 = 16 * MIB;
const IN_FLIGHT: u64 = 32;
const BOUND: f64 = 0.97;

/// The row.
pub(crate) struct UcxBandwidth;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Direction {
    Put,
    Get,
}

impl Row for UcxBandwidth {
    fn name(&self) -> &'static str {
        "ucx-bandwidth"
    }

    fn unit(&self) -> &'static str {
        "GB/s"
    }

    fn reference(&self) -> &'static str {
        "bare ucp_put_nbx or ucp_get_nbx and one flush; ucx_perftest"
    }

    fn target(&self) -> &'static str {
        ">= 0.97"
    }

    fn run(&self, context: &Context) -> Res<Vec<Line>> {
        let sizes = context
            .pick(vec![64 * KIB, MIB], vec![64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB]);
        let most = sizes.last().copied().unwrap_or(MIB);
        let rig = Rig::new(context, most)?;
        let mut lines = Vec::new();
        for direction in [Direction::Put, Direction::Get] {
            for &len in &sizes {
                lines.extend(rows(context, &rig, direction, len)?);
            }
        }
        Ok(lines)
    }
}

fn rows(context: &Context, rig: &Rig, direction: Direction, len: u64) -> Res<Vec<Line>> {
    let sample = if rig.tcp { SAMPLE_BYTES.1 } else { SAMPLE_BYTES.0 };
    let times = (sample / len).clamp(if rig.tcp { 2 } else { 1 }, 512);
    let depth = if rig.tcp { (IN_FLIGHT_BYTES / len).clamp(2, IN_FLIGHT) } else { 1 };
    let ours = || timed_ours(context, rig, direction, len, times, depth);
    let raw = || {
        let pair = &mut *rig.pair.borrow_mut();
        rig.raw.borrow_mut().served(&mut pair.helper, direction == Direction::Get, |calls| {
            raw(calls, direction, len, times, depth)
        })
    };
    let pairs = interleave(context.pick(5, 21), ours, raw)?;
    let (verb, test) = match direction {
        Direction::Put => ("put", "ucp_put_bw"),
        Direction::Get => ("get", "ucp_get"),
    };
    let name = format!("{} {verb} {}", rig.lanes(), size(len));
    let mut lines = vec![Line::bandwidth(name, len, &pairs, None).noted("bare calls")];
    // Over TCP fewer: on a busy machine each takes milliseconds. Through shared memory so many that it takes some tens of
    // them: two processes are never placed alike.
    let (samples, most) = if rig.tcp { (8, 1_000) } else { (64, 40_000) };
    let count = (samples * sample / len).clamp(8, most);
    let beside = |safe: bool| {
        let perftest = rig.perftest.clone()?;
        // It warms itself up; after its two processes our caches are cold. Then both move as many bytes.
        let long = || {
            ours()?;
            timed_ours(context, rig, direction, len, count, depth)
        };
        interleave(RUNS, long, || {
            let said = if safe {
                perftest.run_safe(context, test, len, count)
            } else {
                perftest.run(context, test, len, count)
            };
            Ok(said?.ns)
        })
    };
    let name = format!("{} {verb} {}, {test}", rig.lanes(), size(len));
    // Its passive end looks at a socket once a millisecond; see docs/PERFORMANCE.md.
    if rig.tcp {
        // Without error handling UCX uses lanes and protocols that it does not offer with it.
        let line =
            |pairs| Line::bandwidth(&name, len, &pairs, Some(BOUND)).noted("ucx_perftest -e");
        lines.push(beside(true).map_or_else(|why| Line::missing(&name, "GB/s", why), line));
        let name = format!("{name} without error handling");
        let line = |pairs| Line::bandwidth(&name, len, &pairs, None).noted("ucx_perftest");
        lines.push(beside(false).map_or_else(|why| Line::missing(&name, "GB/s", why), line));
    } else {
        let line = |pairs| Line::bandwidth(&name, len, &pairs, Some(BOUND)).noted("ucx_perftest");
        lines.push(beside(false).map_or_else(|why| Line::missing(&name, "GB/s", why), line));
    }
    Ok(lines)
}

/// Nanoseconds for one of ours.
fn timed_ours(
    context: &Context,
    rig: &Rig,
    direction: Direction,
    len: u64,
    times: u64,
    depth: u64,
) -> Res<f64> {
    debug_assert_eq!(rig.peer.explain().conn, Some(ConnType::Ucx));
    let count = u32::try_from(times).map_err(text)?;
    let (remote, range) = (rig.remote()?, rig.first(len)?);
    if depth == 1 {
        let put = || remote.put(0, range).wait().map(drop).map_err(text);
        let get = || remote.get(0, range).wait().map(drop).map_err(text);
        return match direction {
            Direction::Put => context.delay.timed(count, put),
            Direction::Get => context.delay.timed(count, get),
        };
    }
    let depth = usize::try_from(depth).map_err(text)?;
    let ns = context.delay.timed(1, || {
        let mut ops = InFlight::new(depth);
        for _ in 0..times {
            ops.begin(|| match direction {
                Direction::Put => remote.put(0, range).start_blocking(),
                Direction::Get => remote.get(0, range).start_blocking(),
            })?;
        }
        ops.finish()
    })?;
    Ok(ns / f64::from(count))
}

/// Nanoseconds for one bare one. One flush serves all, as in `ucx_perftest`.
fn raw(calls: &RawCalls<'_>, direction: Direction, len: u64, times: u64, depth: u64) -> Res<f64> {
    let len = usize::try_from(len).map_err(text)?;
    let mut in_flight = VecDeque::new();
    let ns = timed(1, || {
        for _ in 0..times {
            if in_flight.len() as u64 == depth {
                let oldest = in_flight.pop_front().ok_or("nothing in flight")?;
                calls.wait(oldest).map_err(text)?;
            }
            let begun = match direction {
                Direction::Put => calls.put(0, 0, len),
                Direction::Get => calls.get(0, 0, len),
            };
            in_flight.push_back(begun.map_err(text)?);
        }
        for pending in in_flight.drain(..) {
            calls.wait(pending).map_err(text)?;
        }
        calls.flush().and_then(|flush| calls.wait(flush)).map_err(text)
    })?;
    Ok(ns / times as f64)
}
