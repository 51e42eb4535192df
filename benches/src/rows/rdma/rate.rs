//! Puts of 8 bytes, 64 in flight.

use hmc_std::Piece;

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
        "ib_write_bw -s 8, as many in flight"
    }

    fn target(&self) -> &'static str {
        ">= 0.9"
    }

    fn run(&self, context: &Context) -> Res<Vec<Line>> {
        let rig = Rig::new(context, 1 << 20)?;
        let (remote, range) = (rig.pair.remote()?, rig.pair.first(LEN)?);
        let test = Test { program: "ib_write_bw", len: LEN, messages: PUTS, depth: Some(DEPTH) };
        let perftest = || rig.perftest.run(context, test);
        let named = || {
            let put = || remote.put(0, range).start_blocking();
            let begun = || flood(PUTS, DEPTH as usize, put);
            Ok(context.delay.timed(1, begun)? / f64::from(PUTS))
        };
        let pieces = [Piece::new(range, 0); DEPTH as usize];
        let plan = remote.put_list(&pieces).prepare().map_err(text)?;
        let run = || plan.again().wait().map(drop).map_err(text);
        let lists = || {
            let ns = context.delay.timed(PUTS / DEPTH, run)?;
            Ok(ns / f64::from(DEPTH))
        };
        let (first, second) = (pairs(context, named, perftest)?, pairs(context, lists, perftest)?);
        let named = Line::rate("rdma puts of 8 B, 64 in flight", &first, Some(0.9));
        let lists = Line::rate("rdma puts of 8 B, prepared lists of 64", &second, None);
        Ok(vec![
            with_interval(named, &first, "ib_write_bw -s 8"),
            with_interval(lists, &second, "ib_write_bw -s 8"),
        ])
    }
}
