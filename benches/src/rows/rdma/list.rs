//! A list of many pieces as one operation.

use hmc_std::batch::{Copy, Direction};

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
        let peer = &rig.pair.peer;
        // The last of ours is the first there: no two pieces lie together at both ends.
        let copy = |n| Copy {
            local_offset: n * PIECE_BYTES,
            remote_offset: (PIECES - 1 - n) * PIECE_BYTES,
            len: PIECE_BYTES,
        };
        let copies: Vec<_> = (0..PIECES).map(copy).collect();
        let list = peer.prepare(Direction::Put, &copies).map_err(text)?;
        let lists = || context.delay.timed(TIMES, || peer.run_batch(&list).map_err(text));
        let one = || context.delay.timed(TIMES, || peer.put(0, 0, bytes).map_err(text));
        let all = pairs(context, lists, one)?;
        let line = Line::bandwidth("rdma list of 1,024 x 4 KiB", bytes, &all, Some(0.9));
        Ok(vec![with_interval(line, &all, true, "a put of 4 MiB")])
    }
}
