//! Small puts over UCX. Over lanes of shared memory until the target sees them, over TCP until they are acknowledged.

use std::cell::Cell;

use hmc_hw::ucx::testing::RawCalls;

use super::{RUNS, Rig};
use crate::context::Context;
use crate::error::{Res, text};
use crate::line::Line;
use crate::measure::{interleave, median, timed};
use crate::reference::pages::spin;
use crate::reference::ucx_raw::{End, put_now};
use crate::row::{Row, size};

const WARM_ROUNDS: u64 = 100;
const ROUNDS: u64 = 2_000;
/// Rounds over TCP, and calls of a sample where nobody answers.
const TCP_ROUNDS: u32 = 300;
const CALLS: u32 = 1_000;
/// Messages of a run of `ucx_perftest`.
const MESSAGES: (u64, u64) = (20_000, 2_000);
const BOUND: f64 = 1.05;

/// The row.
pub(crate) struct UcxLatency;

impl Row for UcxLatency {
    fn name(&self) -> &'static str {
        "ucx-latency"
    }

    fn unit(&self) -> &'static str {
        "us"
    }

    fn reference(&self) -> &'static str {
        "ucp_put_nbx and a flush, bare, seen in the same way; ucp_put_lat of ucx_perftest and one bare flush"
    }

    fn target(&self) -> &'static str {
        "<= 1.05"
    }

    fn run(&self, context: &Context) -> Res<Vec<Line>> {
        context.two_cpus()?;
        let rig = Rig::new(context, 1 << 20)?;
        let seq = Cell::new(1);
        let mut lines = Vec::new();
        for len in [8, 64, 512, 4096] {
            lines.extend(if rig.tcp {
                acknowledged(context, &rig, len)?
            } else {
                seen(context, &rig, &seq, len)?
            });
        }
        Ok(lines)
    }
}

/// Half a round trip of a ping-pong, and the call alone.
fn seen(context: &Context, rig: &Rig, seq: &Cell<u64>, len: u64) -> Res<Vec<Line>> {
    let ours = || Ok(ours_seen(context, rig, seq, len)? / 2.0);
    let pairs = interleave(context.pick(9, 31), ours, || Ok(raw_seen(rig, seq, len)? / 2.0))?;
    let name = format!("{} put {} until seen", rig.lanes(), size(len));
    let line = Line::latency(name, 1.0, &pairs, None);
    let mut lines = vec![line.noted("bare put and flush")];
    lines.push(beside_perftest(context, rig, len, "until seen", ours)?);
    let name = format!("{} put {}, the call alone", rig.lanes(), size(len));
    let line = Line::latency(name, 1.0, &calls(context, rig, len)?, None);
    lines.push(line.noted("bare put and flush; nobody reads"));
    Ok(lines)
}

/// The call, which returns when the bytes are there.
fn acknowledged(context: &Context, rig: &Rig, len: u64) -> Res<Vec<Line>> {
    let name = format!("{} put {}, acknowledged", rig.lanes(), size(len));
    let line = Line::latency(name, 1.0, &calls(context, rig, len)?, None);
    let mut lines = vec![line.noted("bare ends that never sleep")];
    let ours = || ours_alone(context, rig, len, TCP_ROUNDS);
    lines.push(beside_perftest(context, rig, len, "acknowledged", ours)?);
    Ok(lines)
}

fn beside_perftest(
    context: &Context,
    rig: &Rig,
    len: u64,
    how: &str,
    ours: impl FnMut() -> Res<f64>,
) -> Res<Line> {
    let name = format!("{} put {} {how}, ucp_put_lat + flush", rig.lanes(), size(len));
    let flush = flush_ns(context, rig, len)?;
    let messages = if rig.tcp { MESSAGES.1 } else { MESSAGES.0 };
    let (mut alone, mut middles) = (Vec::new(), Vec::new());
    let pairs = rig.perftest.clone().and_then(|perftest| {
        interleave(RUNS, ours, || {
            let said = perftest.run(context, "ucp_put_lat", len, messages)?;
            alone.push(said.ns);
            middles.push(said.middle_ns);
            // The middle one: its runs are longer than our samples, and one interruption would show in the mean.
            Ok(said.middle_ns + flush)
        })
    });
    Ok(match pairs {
        Ok(pairs) => Line::latency(name, 1.0, &pairs, Some(BOUND)).noted(format!(
            "ucx_perftest {:.3} us (its middle message; {:.3} in the mean), a flush {:.3}",
            median(&middles) / 1e3,
            median(&alone) / 1e3,
            flush / 1e3
        )),
        Err(why) => Line::missing(name, "us", why),
    })
}

fn ours_seen(context: &Context, rig: &Rig, seq: &Cell<u64>, len: u64) -> Res<f64> {
    let first = seq.get();
    seq.set(first + WARM_ROUNDS + ROUNDS);
    let pair = &mut *rig.pair.borrow_mut();
    pair.helper.send(&format!("flags 1 0 {len} {first} {} last", WARM_ROUNDS + ROUNDS))?;
    let buffer = pair.session.buffer();
    let seen = |at: u64, n: u64| buffer.load_flag(at).is_ok_and(|v| v == n);
    let (remote, range) = (rig.remote()?, rig.first(len)?);
    let mut n = first;
    let mut round = || {
        buffer.store_flag(len - 8, n).map_err(text)?;
        remote.put(0, range).wait().map_err(text)?;
        spin(|| seen(8192 + len - 8, n))?;
        n += 1;
        Ok(())
    };
    for _ in 0..WARM_ROUNDS {
        round()?;
    }
    let ns = context.delay.timed(ROUNDS as u32, round)?;
    pair.helper.receive()?;
    Ok(ns)
}

fn raw_seen(rig: &Rig, seq: &Cell<u64>, len: u64) -> Res<f64> {
    let first = seq.get();
    seq.set(first + WARM_ROUNDS + ROUNDS);
    let pair = &mut *rig.pair.borrow_mut();
    pair.helper.send(&format!("rawflags {len} {first} {}", WARM_ROUNDS + ROUNDS))?;
    let len = usize::try_from(len).map_err(text)?;
    let end = rig.raw.borrow();
    let calls = end.calls()?;
    let mut n = first;
    let mut round = || {
        end.ping(&calls, 0, 0, len, n)?;
        end.pong(&calls, 8192, len, n)?;
        n += 1;
        Ok(())
    };
    for _ in 0..WARM_ROUNDS {
        round()?;
    }
    let ns = timed(ROUNDS as u32, round)?;
    pair.helper.receive()?;
    Ok(ns)
}

/// The passive end of [`raw_seen`].
pub(crate) fn answer(end: &End, len: usize, first: u64, rounds: u64) -> Res<()> {
    let calls = end.calls()?;
    for n in first..first + rounds {
        end.pong(&calls, 0, len, n)?;
        end.ping(&calls, 16384, 8192, len, n)?;
    }
    Ok(())
}

fn ours_alone(context: &Context, rig: &Rig, len: u64, times: u32) -> Res<f64> {
    let (remote, range) = (rig.remote()?, rig.first(len)?);
    context.delay.timed(times, || remote.put(0, range).wait().map(drop).map_err(text))
}

/// Puts that nobody reads, with their flushes, of both.
fn calls(context: &Context, rig: &Rig, len: u64) -> Res<crate::measure::Pairs> {
    let times = if rig.tcp { TCP_ROUNDS } else { CALLS };
    let n = usize::try_from(len).map_err(text)?;
    interleave(
        context.pick(11, 51),
        || ours_alone(context, rig, len, times),
        || with_raw(rig, |calls| timed(times, || put_now(calls, 0, 0, n))),
    )
}

/// The cost of a flush after a raw put.
fn flush_ns(context: &Context, rig: &Rig, len: u64) -> Res<f64> {
    let times = if rig.tcp { TCP_ROUNDS } else { CALLS };
    let n = usize::try_from(len).map_err(text)?;
    let pairs = interleave(
        context.pick(11, 51),
        || with_raw(rig, |calls| timed(times, || put_now(calls, 0, 0, n))),
        || {
            with_raw(rig, |calls| {
                let put = || calls.put(0, 0, n).and_then(|put| calls.wait(put)).map_err(text);
                let ns = timed(times, put)?;
                calls.flush().and_then(|flush| calls.wait(flush)).map_err(text)?;
                Ok(ns)
            })
        },
    )?;
    Ok((pairs.ours_ns() - pairs.reference_ns()).max(0.0))
}

fn with_raw(rig: &Rig, job: impl FnOnce(&RawCalls<'_>) -> Res<f64>) -> Res<f64> {
    let pair = &mut *rig.pair.borrow_mut();
    rig.raw.borrow_mut().served(&mut pair.helper, false, job)
}
