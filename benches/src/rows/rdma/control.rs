//! perftest beside itself: what the other rows say of two equal programs.

use super::{pairs, with_interval};
use crate::context::Context;
use crate::error::Res;
use crate::line::Line;
use crate::reference::ibv_perftest::{Perftest, Test};
use crate::row::{Row, size};

const LEN: u64 = 64 << 10;

/// The row.
pub(crate) struct RdmaControl;

impl Row for RdmaControl {
    fn name(&self) -> &'static str {
        "rdma-control"
    }

    fn unit(&self) -> &'static str {
        "GB/s"
    }

    fn reference(&self) -> &'static str {
        "the same program once more"
    }

    fn target(&self) -> &'static str {
        "none"
    }

    fn run(&self, context: &Context) -> Res<Vec<Line>> {
        let perftest = Perftest::of_sessions()?;
        let bulk = Test { program: "ib_write_bw", len: LEN, messages: 64, depth: Some(16) };
        let small = Test { program: "ib_write_lat", len: 8, messages: 300, depth: None };
        let of =
            |test| pairs(context, || perftest.run(context, test), || perftest.run(context, test));
        let (all, each) = (of(bulk)?, of(small)?);
        let name = format!("perftest write {}", size(LEN));
        let bandwidth = Line::bandwidth(name, LEN, &all, None);
        let latency = Line::latency("perftest write 8 B until seen", 1.0, &each, None);
        Ok(vec![
            with_interval(bandwidth, &all, bulk.program),
            with_interval(latency, &each, small.program),
        ])
    }
}
