//! Rows over RDMA verbs beside perftest, on one device.
//!
//! With a soft device they measure its driver as much as ours. `cargo xtask test-hw --vm --perf` runs them in a VM, where the
//! processor may be emulated: only their ratios are figures then.

pub(crate) mod bandwidth;
pub(crate) mod control;
pub(crate) mod latency;
pub(crate) mod list;
pub(crate) mod rate;

use hmc_core::types::ConnType;
use hmc_std::{Op, Result};

use crate::context::{Context, SessionPair};
use crate::error::Res;
use crate::in_flight::InFlight;
use crate::line::Line;
use crate::measure::{Pairs, interleave};
use crate::reference::ibv_perftest::Perftest;

/// Samples: each of the reference is two new processes.
const RUNS: (usize, usize) = (7, 21);

/// Sizes of bulk transfers, with the operations of a sample.
const BULK: [(u64, u32); 4] = [(64 << 10, 64), (256 << 10, 24), (1 << 20, 12), (4 << 20, 6)];

/// Two connected sessions, and perftest over the same device.
struct Rig {
    pair: SessionPair,
    perftest: Perftest,
}

impl Rig {
    fn new(context: &Context, bytes: u64) -> Res<Self> {
        let perftest = Perftest::of_sessions()?;
        Ok(Self { pair: context.pair(bytes, ConnType::Rdma)?, perftest })
    }
}

/// Pairs of ours and a reference, who goes first by turns.
fn pairs(
    context: &Context,
    ours: impl FnMut() -> Res<f64>,
    reference: impl FnMut() -> Res<f64>,
) -> Res<Pairs> {
    interleave(context.pick(RUNS.0, RUNS.1), ours, reference)
}

/// A line with the interval of its ratio.
fn with_interval(line: Line, pairs: &Pairs, reference: &str) -> Line {
    line.noted(reference).with_interval(pairs)
}

/// Does `times` operations, `depth` of them in flight.
fn flood(times: u32, depth: usize, begin: impl Fn() -> Result<Op>) -> Res<()> {
    let mut ops = InFlight::new(depth);
    for _ in 0..times {
        ops.begin(&begin)?;
    }
    ops.finish()
}
