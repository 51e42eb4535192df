//! A list of many pieces as one operation.

use hmc_std::Piece;

use super::{Rig, pairs, with_interval};
use crate::context::Context;
use crate::error::{Res, text};
use crate::line::Line;
use crate::row::Row;

const PIECES: u64 = 1024;
const PIECE_BYTES: u64 = 4096;
/// Operations of a sample.
const TIMES: u32 = 4;

/// The row.
pub(crate) struct RdmaList;

impl Row for RdmaList {
    fn name(&self) -> &'static str {
        "rdma-list"
    }

    fn unit(&self) -> &'static str {
        "GB/s"
    }

    fn reference(&self) -> &'static str {
        "one put of as many bytes that lie together"
    }

    fn target(&self) -> &'static str {
        ">= 0.9"
    }

    fn run(&self, context: &Context) -> Res<Vec<Line>> {
        let bytes = PIECES * PIECE_BYTES;
        let rig = Rig::new(context, bytes)?;
        let (remote, buffer) = (rig.pair.remote()?, rig.pair.session.buffer());
        // The last of ours is the first there: no two pieces lie together at both ends.
        let piece = |n| {
            let here = buffer.range(n * PIECE_BYTES, PIECE_BYTES).map_err(text)?;
            Ok(Piece::new(here, (PIECES - 1 - n) * PIECE_BYTES))
        };
        let pieces = (0..PIECES).map(piece).collect::<Res<Vec<_>>>()?;
        let plan = remote.put_list(&pieces).prepare().map_err(text)?;
        let run = || plan.again().wait().map(drop).map_err(text);
        let lists = || context.delay.timed(TIMES, run);
        let range = rig.pair.first(bytes)?;
        let put = || remote.put(0, range).wait().map(drop).map_err(text);
        let one = || context.delay.timed(TIMES, put);
        let all = pairs(context, lists, one)?;
        let line = Line::bandwidth("rdma list of 1,024 x 4 KiB", bytes, &all, Some(0.9));
        Ok(vec![with_interval(line, &all, "a put of 4 MiB")])
    }
}
