//! Puts of 8 bytes over UCX, 64 in flight: how many in a second.

use std::collections::VecDeque;

use hmc_std::Piece;

use super::{RUNS, Rig};
use crate::context::Context;
use crate::error::{Res, text};
use crate::in_flight::InFlight;
use crate::line::Line;
use crate::measure::{interleave, timed};
use crate::row::Row;

const LEN: u64 = 8;
const DEPTH: u32 = 64;
/// Puts of a sample.
const PUTS: u32 = 64 * 64;
/// Messages of a run of `ucx_perftest`, over shared memory and over TCP.
const MESSAGES: (u64, u64) = (200_000, 20_000);

/// The row.
pub(crate) struct UcxRate;

impl Row for UcxRate {
    fn name(&self) -> &'static str {
        "ucx-rate"
    }

    fn unit(&self) -> &'static str {
        "M/s"
    }

    fn reference(&self) -> &'static str {
        "bare ucp_put_nbx and one flush at the end; ucp_put_bw of ucx_perftest"
    }

    fn target(&self) -> &'static str {
        ">= 0.9"
    }

    fn run(&self, context: &Context) -> Res<Vec<Line>> {
        let rig = Rig::new(context, 1 << 20)?;
        let (remote, range) = (rig.remote()?, rig.first(LEN)?);
        let put = || remote.put(0, range).start_blocking();
        let per_put = |ns: f64| ns / f64::from(PUTS);
        let raw = || {
            let pair = &mut *rig.pair.borrow_mut();
            rig.raw.borrow_mut().served(&mut pair.helper, false, |calls| {
                let mut in_flight = VecDeque::with_capacity(DEPTH as usize);
                let ns = timed(1, || {
                    for _ in 0..PUTS {
                        if in_flight.len() == DEPTH as usize {
                            let oldest = in_flight.pop_front().ok_or("nothing in flight")?;
                            calls.wait(oldest).map_err(text)?;
                        }
                        in_flight.push_back(calls.put(0, 0, LEN as usize).map_err(text)?);
                    }
                    for pending in in_flight.drain(..) {
                        calls.wait(pending).map_err(text)?;
                    }
                    calls.flush().and_then(|flush| calls.wait(flush)).map_err(text)
                })?;
                Ok(per_put(ns))
            })
        };
        let ours = || {
            let ns = context.delay.timed(1, || {
                let mut ops = InFlight::new(DEPTH as usize);
                for _ in 0..PUTS {
                    ops.begin(put)?;
                }
                ops.finish()
            })?;
            Ok(per_put(ns))
        };
        let count = context.pick(9, 31);
        // Where bytes go in the call itself, a name for each costs more than the copy: lists are for that.
        let bound = rig.tcp.then_some(0.9);
        let name = format!("{} puts of 8 B, 64 named ones in flight", rig.lanes());
        let pairs = interleave(count, ours, raw)?;
        let mut lines = vec![Line::rate(&name, &pairs, bound).noted("bare ucp_put_nbx")];
        let pieces = [Piece::new(range, 0); DEPTH as usize];
        let plan = remote.put_list(&pieces).prepare().map_err(text)?;
        let run = || plan.again().wait().map(drop).map_err(text);
        let batches = || {
            let ns = context.delay.timed(PUTS / DEPTH, run)?;
            Ok(ns / f64::from(DEPTH))
        };
        let name = format!("{} puts of 8 B, prepared lists of 64", rig.lanes());
        let pairs = interleave(count, batches, raw)?;
        lines.push(Line::rate(&name, &pairs, Some(0.9)).noted("bare ucp_put_nbx"));
        let messages = if rig.tcp { MESSAGES.1 } else { MESSAGES.0 };
        let beside = rig.perftest.clone().and_then(|perftest| {
            interleave(RUNS, batches, || Ok(perftest.run(context, "ucp_put_bw", LEN, messages)?.ns))
        });
        let name = format!("{name}, ucp_put_bw");
        lines.push(match beside {
            Ok(pairs) => Line::rate(name, &pairs, Some(0.9)).noted("ucx_perftest"),
            Err(why) => Line::missing(name, "M/s", why),
        });
        if !rig.tcp {
            let put = || remote.put(0, range).wait().map(drop).map_err(text);
            let one = || context.delay.timed(PUTS, put);
            let name = format!("{} puts of 8 B, each waited for", rig.lanes());
            lines.push(Line::rate(name, &interleave(count, one, raw)?, None));
        }
        Ok(lines)
    }
}
