//! Collectives of two and of four processes over shared memory, against the same bytes put by hand into registered memory.

use hmc_std::{Message, want};
use std::time::Duration;

use hmc_core::types::ConnType;
use hmc_std::address::Address;
use hmc_std::group::{Element, Exchange, Group, Reduce};
use hmc_std::session::Session;

use crate::context::{Context, Folder};
use crate::error::{Res, text};
use crate::helper::Helper;
use crate::line::Line;
use crate::measure::{Delay, interleave};
use crate::row::{Row, size};

/// The longest vector of one member.
pub(crate) const MOST: usize = 4 << 20;
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
    /// Of sums, where the other one is of maxima.
    AllreduceSum,
    /// Of as many bytes as the others have in the end: each member sends its share.
    Allgather,
    /// From the first member.
    Broadcast,
    /// An alltoall by hand: puts of each block, and a tag to each that follows them.
    Puts,
    /// Two of them: what an allreduce has to move.
    PutsTwice,
}

impl What {
    pub(crate) fn parse(word: &str) -> Res<Self> {
        let all = [
            Self::Alltoall,
            Self::Allreduce,
            Self::AllreduceSum,
            Self::Allgather,
            Self::Broadcast,
            Self::Puts,
            Self::PutsTwice,
        ];
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

    /// Does `what` with `len` bytes of each member, `times` times between two barriers, and wastes the share `delay` of that
    /// time. Returns nanoseconds for one, the second barrier included.
    pub(crate) fn run(&mut self, what: What, len: usize, times: usize, delay: Delay) -> Res<f64> {
        let group = match self.group.take() {
            Some(group) => group,
            None => self.session.group(&self.ranks).wait().map_err(text)?,
        };
        if what == What::AllreduceSum {
            // Sums of zeros stay numbers, however many there are.
            self.recv[..len].fill(0);
        }
        group.barrier().wait().map_err(text)?;
        let ns = delay.timed(1, || {
            (0..times).try_for_each(|_| self.collect(&group, what, len))?;
            group.barrier().wait().map_err(text)
        })?;
        self.group = Some(group);
        Ok(ns / times as f64)
    }

    fn collect(&mut self, group: &Group, what: What, len: usize) -> Res<()> {
        let (send, recv) = (&self.send[..len], &mut self.recv[..len]);
        match what {
            What::Alltoall => group.alltoall(send, recv, Exchange::Auto).wait(),
            What::Allreduce => group.allreduce(Element::F32, Reduce::Max, recv).wait(),
            What::AllreduceSum => group.allreduce(Element::F32, Reduce::Sum, recv).wait(),
            What::Allgather => group.allgather(&send[..len / group.len()], recv).wait(),
            What::Broadcast => group.broadcast(0, recv).wait(),
            What::Puts => return self.put_all(group, len),
            What::PutsTwice => {
                self.put_all(group, len)?;
                return self.put_all(group, len);
            }
        }
        .map_err(text)
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

/// All members: the first is this process, the others are helpers.
pub(crate) struct Members {
    me: Member,
    helpers: Vec<Helper>,
    _folder: Folder,
}

impl Members {
    /// `count` members, connected over shared memory. They run where the system puts them.
    pub(crate) fn start(count: u32) -> Res<Self> {
        let folder = Folder::new(&std::env::temp_dir())?;
        let mut helpers: Vec<Helper> =
            (1..count).map(|_| Context::loose_helper()).collect::<Res<_>>()?;
        // Each connects to those before it, the first being this process.
        let me = Member::new(0, count, folder.path())?;
        for (rank, helper) in (1..).zip(&mut helpers) {
            helper.request(&format!("member {rank} {count} {}", folder.path().display()))?;
        }
        Ok(Self { me, helpers, _folder: folder })
    }

    /// Does as many of `what` with `len` bytes as a sample has. Returns nanoseconds for one.
    pub(crate) fn sample(&mut self, what: What, len: usize, delay: Delay) -> Res<f64> {
        let times = times(len);
        for helper in &mut self.helpers {
            helper.send(&format!("collect {what:?} {len} {times}"))?;
        }
        let ns = self.me.run(what, len, times, delay)?;
        self.helpers.iter_mut().try_for_each(|h| h.receive().map(drop))?;
        Ok(ns)
    }
}

/// How many collectives of `len` bytes a sample has.
pub(crate) fn times(len: usize) -> usize {
    (SAMPLE_BYTES / len).min(MOST_TIMES)
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
            let members = std::cell::RefCell::new(Members::start(count)?);
            for (what, by_hand) in
                [(What::Alltoall, What::Puts), (What::Allreduce, What::PutsTwice)]
            {
                for len in [1 << 10, 64 << 10, MOST] {
                    let sample = |what| members.borrow_mut().sample(what, len, context.delay);
                    let by_hand = || members.borrow_mut().sample(by_hand, len, Delay(0.0));
                    let pairs = interleave(context.pick(5, 15), || sample(what), by_hand)?;
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
