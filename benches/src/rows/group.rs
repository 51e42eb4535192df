//! Collectives of two and of four processes over shared memory, against the same bytes put by hand into registered memory.

use hmc_std::{Message, want};
use std::time::{Duration, Instant};

use hmc_core::types::ConnType;
use hmc_std::address::Address;
use hmc_std::group::{Element, Exchange, Group, Reduce};
use hmc_std::session::Session;

use crate::context::{Context, Folder};
use crate::error::{Res, text};
use crate::helper::Helper;
use crate::line::Line;
use crate::measure::interleave;
use crate::row::{Row, size};

/// The longest vector of one member.
const MOST: usize = 4 << 20;
/// Bytes of a sample, at the most.
const SAMPLE_BYTES: usize = 32 << 20;
/// Collectives of a sample, at the most.
const MOST_TIMES: usize = 200;
const PATIENCE: Duration = Duration::from_secs(20);

/// The row.
pub(crate) struct Groups;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum What {
    Alltoall,
    Allreduce,
    /// An alltoall by hand: puts of each block, and a tag to each that follows them.
    Puts,
    /// Two of them: what an allreduce has to move.
    PutsTwice,
}

impl What {
    pub(crate) fn parse(word: &str) -> Res<Self> {
        let all = [Self::Alltoall, Self::Allreduce, Self::Puts, Self::PutsTwice];
        let found = all.into_iter().find(|w| format!("{w:?}") == word);
        found.ok_or_else(|| format!("`{word}` is no collective"))
    }
}

/// One member, here or in a helper.
pub(crate) struct Member {
    session: Session,
    /// Made with the first collective, when all are connected.
    group: Option<Group>,
    ranks: Vec<u32>,
    send: Vec<u8>,
    recv: Vec<u8>,
}

impl Member {
    /// Member `rank` of `count`: listens in `folder` and connects to those before it.
    pub(crate) fn new(rank: u32, count: u32, folder: &std::path::Path) -> Res<Self> {
        let session = Session::builder(rank).uds(folder).buffer(2 * MOST as u64);
        let session = session.start().map_err(text)?;
        session.buffer().fill(0, 2 * MOST as u64, 1).map_err(text)?;
        for other in 0..rank {
            let listener = Address::Uds(folder.to_path_buf());
            session
                .connect(&listener)
                .rank(other)
                .over(ConnType::Shm)
                .within(PATIENCE)
                .wait()
                .map_err(text)?;
        }
        let (group, ranks) = (None, (0..count).collect());
        Ok(Self { session, group, ranks, send: vec![1; MOST], recv: vec![2; MOST] })
    }

    /// Does `what` with `len` bytes of each member, `times` times after a barrier. Gives nanoseconds for one.
    pub(crate) fn run(&mut self, what: What, len: usize, times: usize) -> Res<f64> {
        let group = match self.group.take() {
            Some(group) => group,
            None => self.session.group(&self.ranks).wait().map_err(text)?,
        };
        group.barrier().map_err(text)?;
        let begun = Instant::now();
        for _ in 0..times {
            match what {
                What::Alltoall => {
                    let (send, recv) = (&self.send[..len], &mut self.recv[..len]);
                    group.alltoall(send, recv, Exchange::Auto).map_err(text)?;
                }
                What::Allreduce => {
                    let bytes = &mut self.recv[..len];
                    group.allreduce(Element::F32, Reduce::Max, bytes).map_err(text)?;
                }
                What::Puts => self.put_all(&group, len)?,
                What::PutsTwice => {
                    self.put_all(&group, len)?;
                    self.put_all(&group, len)?;
                }
            }
        }
        let ns = begun.elapsed().as_nanos() as f64 / times as f64;
        self.group = Some(group);
        Ok(ns)
    }

    fn put_all(&self, group: &Group, len: usize) -> Res<()> {
        let (n, me) = (group.len(), group.position());
        let block = len / n;
        let peer = |of: usize| self.session.peer(group.ranks()[of % n]).map_err(text);
        for step in 1..n {
            let to = (me + step) % n;
            let (from, into) = (to * block, MOST + me * block);
            let range = self.session.buffer().range(from as u64, block as u64).map_err(text)?;
            let remote = peer(to)?.buffer().map_err(text)?;
            remote.put(into as u64, range).wait().map_err(text)?;
            peer(to)?.send(Message::Tag(1)).wait().map_err(text)?;
        }
        for step in 1..n {
            peer(me + n - step)?.recv(want::Tag).wait().map_err(text)?;
        }
        Ok(())
    }
}

impl Row for Groups {
    fn name(&self) -> &'static str {
        "group"
    }

    fn unit(&self) -> &'static str {
        "us, GB/s"
    }

    fn reference(&self) -> &'static str {
        "the same blocks by put and tag between registered buffers, of an allreduce without the reckoning; collectives \
         take any memory"
    }

    fn target(&self) -> &'static str {
        "-"
    }

    fn run(&self, context: &Context) -> Res<Vec<Line>> {
        let mut lines = Vec::new();
        // More processes than processors: they run where the system puts them.
        let _unpinned = context.unpinned()?;
        for count in [2u32, 4] {
            let folder = Folder::new(&std::env::temp_dir())?;
            let mut helpers: Vec<Helper> =
                (1..count).map(|_| Context::loose_helper()).collect::<Res<_>>()?;
            // Each connects to those before it, the first being this process.
            let mut me = Member::new(0, count, folder.path())?;
            for (rank, helper) in (1..).zip(&mut helpers) {
                helper.request(&format!("member {rank} {count} {}", folder.path().display()))?;
            }
            for (what, by_hand) in
                [(What::Alltoall, What::Puts), (What::Allreduce, What::PutsTwice)]
            {
                for len in [1 << 10, 64 << 10, MOST] {
                    let times = (SAMPLE_BYTES / len).min(MOST_TIMES);
                    let mut sample = |what: What| {
                        for helper in &mut helpers {
                            helper.send(&format!("collect {what:?} {len} {times}"))?;
                        }
                        let ns = me.run(what, len, times)?;
                        helpers.iter_mut().try_for_each(|h| h.receive().map(drop))?;
                        Ok(ns)
                    };
                    let sample = std::cell::RefCell::new(&mut sample);
                    let pairs = interleave(
                        context.pick(5, 15),
                        || (sample.borrow_mut())(what),
                        || (sample.borrow_mut())(by_hand),
                    )?;
                    let bytes = len as u64;
                    let name = format!("{what:?} of {} by {count}, shm", size(bytes));
                    lines.push(if len < MOST {
                        Line::latency(name, 1.0, &pairs, None)
                    } else {
                        Line::bandwidth(name, bytes, &pairs, None)
                    });
                }
            }
        }
        Ok(lines)
    }
}
