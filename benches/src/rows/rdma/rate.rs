//! Puts of 8 bytes, 64 in flight.

use hmc_std::{CompleteWhen, Piece};

use super::{Rig, flood, pairs, with_interval};
use crate::context::Context;
use crate::error::{Res, text};
use crate::line::Line;
use crate::reference::ibv_perftest::Test;
use crate::row::Row;

const LEN: u64 = 8;
const DEPTH: u32 = 64;
/// Puts of a sample.
const PUTS: u32 = 64 * 32;

/// The row.
pub(crate) struct RdmaRate;

impl Row for RdmaRate {
    fn name(&self) -> &'static str {
        "rdma-rate"
    }

    fn unit(&self) -> &'static str {
        "M/s"
    }

    fn reference(&self) -> &'static str {
        "ib_write_bw -s 8, as many in flight, which counts completions of the initiator"
    }

    fn target(&self) -> &'static str {
        ">= 0.9"
    }

    fn run(&self, context: &Context) -> Res<Vec<Line>> {
        let rig = Rig::new(context, 1 << 20)?;
        let (remote, range) = (rig.pair.remote()?, rig.pair.first(LEN)?);
        let test = Test { program: "ib_write_bw", len: LEN, messages: PUTS, depth: Some(DEPTH) };
        let perftest = || rig.perftest.run(context, test);
        let named = |when| {
            let put = || remote.put(0, range).when(when).start_blocking();
            let begun = || flood(PUTS, DEPTH as usize, put);
            Ok(context.delay.timed(1, begun)? / f64::from(PUTS))
        };
        // A completion of ib_write_bw is the write's own.
        let local = pairs(context, || named(CompleteWhen::Local), perftest)?;
        let visible = pairs(context, || named(CompleteWhen::Visible), perftest)?;
        let pieces = [Piece::new(range, 0); DEPTH as usize];
        let plan = remote.put_list(&pieces).prepare().map_err(text)?;
        let run = || plan.again().wait().map(drop).map_err(text);
        let lists = || {
            let ns = context.delay.timed(PUTS / DEPTH, run)?;
            Ok(ns / f64::from(DEPTH))
        };
        let lists = pairs(context, lists, perftest)?;
        let lines = [
            ("rdma puts of 8 B, 64 in flight", &local, Some(0.9)),
            ("rdma visible puts of 8 B, 64 in flight", &visible, None),
            ("rdma visible puts of 8 B, prepared lists of 64", &lists, None),
        ];
        let line = |(name, pairs, bound)| {
            with_interval(Line::rate(name, pairs, bound), pairs, "ib_write_bw -s 8")
        };
        Ok(lines.map(line).into())
    }
}
