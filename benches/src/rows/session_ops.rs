//! Small puts between two sessions over shared memory: what the whole way costs, from the caller to the copy and back.
//!
//! Both sessions are in this process, without heartbeats, so that callgrind counts the puts and next to nothing else.

use std::time::Duration;

use hmc_core::types::ConnType;
use hmc_std::address::Address;
use hmc_std::{ConnBuffer, Op, Remote, Session};

use crate::context::{Context, Folder};
use crate::error::{Res, text};
use crate::instructions::{self, Over};
use crate::line::Line;
use crate::measure::{alone, timed};
use crate::row::Row;
use crate::{allocations, series};

/// Operations in one sample.
const OPS: u32 = 2_000;
const BUFFER: u64 = 1 << 16;
const LIMIT: Duration = Duration::from_secs(10);

/// Two sessions of this process, connected over shared memory.
pub(super) struct Pair {
    remote: Remote,
    // Dropped in this order: the end that dialed first.
    near: Session,
    _far: Session,
    _folder: Folder,
}

impl Pair {
    pub(super) fn new() -> Res<Self> {
        let folder = Folder::new(&std::env::temp_dir())?;
        let start = |rank: u32, listens: bool| {
            let builder = Session::builder(rank).buffer(BUFFER).heartbeat(None);
            let builder = if listens { builder.uds(folder.path()) } else { builder };
            builder.start().map_err(text)
        };
        let (far, near) = (start(1, true)?, start(0, false)?);
        let at = Address::Uds(folder.path().to_path_buf());
        let peer =
            near.connect(&at).rank(1).over(ConnType::Shm).within(LIMIT).wait().map_err(text)?;
        let remote = peer.buffer().map_err(text)?;
        Ok(Self { remote, near, _far: far, _folder: folder })
    }

    /// The far end's buffer.
    pub(super) fn remote(&self) -> &Remote {
        &self.remote
    }

    /// The near end's.
    pub(super) fn buffer(&self) -> &ConnBuffer {
        self.near.buffer()
    }

    fn rounds(&self, over: Over, count: u32) -> Res<()> {
        let (remote, buffer) = (&self.remote, self.near.buffer());
        let range = buffer.range(0, 8).map_err(text)?;
        for n in 0..count {
            let at = u64::from(n % 512) * 64;
            match over {
                Over::SessionRoute => {
                    buffer.range(at, 8).and_then(|range| remote.put(at, range).wait())
                }
                Over::SessionNamed => remote.put(at, range).start().and_then(Op::wait),
                _ => remote.put(at, range).wait(),
            }
            .map_err(text)?;
        }
        Ok(())
    }
}

/// Does that many puts, for the count of instructions.
pub(crate) fn run_ops(over: Over, count: u32) -> Res<()> {
    Pair::new()?.rounds(over, count)
}

/// The row.
pub(crate) struct SessionOps;

impl Row for SessionOps {
    fn name(&self) -> &'static str {
        "session-ops"
    }

    fn unit(&self) -> &'static str {
        "instructions"
    }

    fn reference(&self) -> &'static str {
        "nothing"
    }

    fn target(&self) -> &'static str {
        "<= 160 instructions, <= 300 with an operation; 0 allocations"
    }

    fn run(&self, context: &Context) -> Res<Vec<Line>> {
        let pair = Pair::new()?;
        let mut lines = Vec::new();
        let mut allocated = 0;
        let all = [
            (Over::SessionPut, "put, 8 B", 160.0),
            (Over::SessionRoute, "put by a route, 8 B", 160.0),
            (Over::SessionNamed, "put_nb + wait, 8 B", 300.0),
        ];
        for (over, name, _) in all {
            // The first one finds out how the window is reached.
            pair.rounds(over, 1)?;
            let samples = alone(context.pick(101, 2_001), || {
                let before = allocations::so_far();
                let ns = timed(1, || pair.rounds(over, OPS))?;
                allocated += allocations::so_far() - before;
                Ok(ns / f64::from(OPS))
            })?;
            lines.push(Line::alone(
                format!("session over shm: {name}"),
                &samples,
                ("ns", 1.0),
                None,
            ));
        }
        let name = "session over shm: allocations in all of these";
        lines.push(Line::value(name, allocated as f64, "", Some(0.0)));
        if series::are_taken() {
            return Ok(lines);
        }
        for (over, name, bound) in all {
            let name = format!("session over shm: instructions for {name}");
            lines.push(match instructions::count(over) {
                Ok(count) => Line::value(name, count, "", Some(bound)),
                Err(why) => Line::missing(name, "", why),
            });
        }
        Ok(lines)
    }
}
