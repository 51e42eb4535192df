//! Sessions of this process that are all connected with each other, and their groups, each in a thread.

use std::time::Duration;

use hmc_std::request::Collective;
use hmc_std::{Address, Element, Exchange, Group, Reduce, Request, Session, SessionBuilder};

use crate::env::{TempDir, Via};
use crate::listening::Listening as _;

const LONG: Duration = Duration::from_secs(30);

/// Sessions of ranks 0, 1, ... that are all connected with each other.
#[derive(Debug)]
pub struct GroupFixture {
    /// By rank.
    pub sessions: Vec<Session>,
    /// Where they listen.
    pub dir: TempDir,
    via: Via,
}

impl GroupFixture {
    /// Connects `count` sessions.
    ///
    /// # Panics
    /// When they cannot be.
    #[must_use]
    pub fn new(via: Via, count: u32) -> Self {
        Self::with(via, count, |b| b)
    }

    /// The same, of sessions that are set up by `more`.
    ///
    /// # Panics
    /// When they cannot be.
    #[must_use]
    pub fn with(via: Via, count: u32, more: impl Fn(SessionBuilder) -> SessionBuilder) -> Self {
        let mut all = Self { sessions: Vec::new(), dir: TempDir::new(), via };
        for rank in 0..count {
            let builder = Session::builder(rank).buffer(4096).uds(all.dir.path());
            let session = more(builder.tcp("127.0.0.1:0")).start().expect("a session");
            for other in &all.sessions {
                session
                    .connect(&all.address(other))
                    .rank(other.rank().0)
                    .over(via.conn())
                    .within(LONG)
                    .wait()
                    .expect("connected");
            }
            all.sessions.push(session);
        }
        all
    }

    /// Where a session of theirs listens.
    ///
    /// # Panics
    /// When it does not.
    #[must_use]
    pub fn address(&self, session: &Session) -> Address {
        match self.via {
            Via::Tcp => Address::Tcp(session.tcp_addr().expect("it listens")),
            Via::Shm | Via::Ucx | Via::Rdma => self.dir.address(),
        }
    }

    /// Returns the number of parks that timed out although work was there (`PeerStats::overslept`), of all sessions.
    #[must_use]
    pub fn overslept(&self) -> u64 {
        self.sessions.iter().flat_map(|s| s.stats().peers).map(|p| p.overslept).sum()
    }

    /// Does `work` as each member of the group of all, in a thread each, and returns their results, by rank.
    ///
    /// # Panics
    /// As `work` does.
    pub fn each<R: Send>(&self, work: impl Fn(&Group) -> R + Sync) -> Vec<R> {
        let ranks: Vec<u32> = (0..self.sessions.len()).map(|r| r as u32).collect();
        self.each_of(&ranks, work)
    }

    /// The same as each member of the group of `ranks`, by position.
    ///
    /// # Panics
    /// As `work` does.
    pub fn each_of<R: Send>(&self, ranks: &[u32], work: impl Fn(&Group) -> R + Sync) -> Vec<R> {
        let work = &work;
        std::thread::scope(|s| {
            let run = |rank: &u32| {
                let session = &self.sessions[*rank as usize];
                s.spawn(move || work(&session.group(ranks).wait().expect("a group")))
            };
            let threads: Vec<_> = ranks.iter().map(run).collect();
            threads.into_iter().map(|t| t.join().expect("a member")).collect()
        })
    }
}

/// The collectives that [`Blocks::collect`] knows.
pub const COLLECTIVES: [&str; 8] = [
    "barrier",
    "broadcast",
    "gather",
    "scatter",
    "allgather",
    "alltoall",
    "reduce_scatter",
    "allreduce",
];

/// Memory for collectives: a block, and one for each member.
#[derive(Debug)]
pub struct Blocks {
    one: Vec<u8>,
    all: Vec<u8>,
    more: Vec<u8>,
}

impl Blocks {
    /// Blocks of `len` bytes, for `members` members.
    #[must_use]
    pub fn new(len: usize, members: usize) -> Self {
        let all = vec![1; len * members];
        Self { one: vec![1; len], more: all.clone(), all }
    }

    /// The collective of that name. Its root, if it has one, is the first member.
    ///
    /// # Panics
    /// When there is none of that name.
    pub fn collect<'a>(&'a mut self, group: &'a Group, name: &str) -> Request<Collective<'a>> {
        let Self { one, all, more } = self;
        match name {
            "barrier" => group.barrier(),
            "broadcast" => group.broadcast(0, one),
            "gather" => group.gather(0, one, all),
            "scatter" => group.scatter(0, all, one),
            "allgather" => group.allgather(one, all),
            "alltoall" => group.alltoall(all, more, Exchange::Direct),
            "reduce_scatter" => group.reduce_scatter(Element::U8, Reduce::Max, all, one),
            "allreduce" => group.allreduce(Element::U8, Reduce::Max, one),
            _ => panic!("no collective is called {name}"),
        }
    }
}
