//! Bulk puts and gets, several in flight.

use super::{BULK, Rig, flood, pairs, with_interval};
use crate::context::Context;
use crate::error::Res;
use crate::line::Line;
use crate::reference::ibv_perftest::Test;
use crate::row::{Row, size};

/// Operations in flight, of ours and of perftest.
const DEPTH: u32 = 16;

/// The row.
pub(crate) struct RdmaBandwidth;

impl Row for RdmaBandwidth {
    fn name(&self) -> &'static str {
        "rdma-bandwidth"
    }

    fn unit(&self) -> &'static str {
        "GB/s"
    }

    fn reference(&self) -> &'static str {
        "ib_write_bw and ib_read_bw, as many in flight"
    }

    fn target(&self) -> &'static str {
        ">= 0.95"
    }

    fn run(&self, context: &Context) -> Res<Vec<Line>> {
        let rig = Rig::new(context, BULK.iter().map(|(len, _)| *len).max().unwrap_or(1))?;
        let remote = rig.pair.remote()?;
        let mut lines = Vec::new();
        for (verb, program) in [("put", "ib_write_bw"), ("get", "ib_read_bw")] {
            for (len, times) in BULK {
                let test = Test { program, len, messages: times, depth: Some(DEPTH) };
                let range = rig.pair.first(len)?;
                let ours = || {
                    let begun = || {
                        flood(times, DEPTH as usize, || match verb {
                            "put" => remote.put(0, range).start_blocking(),
                            _ => remote.get(0, range).start_blocking(),
                        })
                    };
                    Ok(context.delay.timed(1, begun)? / f64::from(times))
                };
                let name = format!("rdma {verb} {}", size(len));
                lines.push(match pairs(context, ours, || rig.perftest.run(context, test)) {
                    Ok(all) => {
                        let line = Line::bandwidth(name, len, &all, Some(0.95));
                        with_interval(line, &all, program)
                    }
                    Err(why) => Line::missing(name, "GB/s", why),
                });
            }
        }
        Ok(lines)
    }
}
