//! Two sessions of a process, connected over RDMA verbs by the fake libibverbs.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use hmc_testkit::buffers::BufferTransfers as _;
use std::time::Duration;

use hmc_std::{ConnType, Peer, Progress, Session};

use crate::env::TempDir;
use crate::fake_ibv::FakeIbv;
use crate::pair::pattern;

const LONG: Duration = Duration::from_secs(20);

/// A quarter of the buffer of each.
pub const BUFFER_PART: u64 = 64 << 10;

/// Two sessions of this process, connected over RDMA.
pub struct Two {
    /// Who is connected to, with a thread.
    pub target: Session,
    /// Who connects.
    pub source: Session,
    /// The target, for the source.
    pub peer: Peer,
    /// The source, for the target.
    pub back: Peer,
    /// Where the target listens.
    pub dir: TempDir,
}

impl Two {
    /// Two with one queue pair for the link. `progress` is the source's.
    ///
    /// # Panics
    /// When they cannot be connected.
    #[must_use]
    pub fn new(fake: &FakeIbv, progress: Progress) -> Self {
        Self::with_channels(fake, progress, [1, 1])
    }

    /// The source has so many queue pairs for a link, and the target.
    ///
    /// # Panics
    /// As [`Self::new`].
    #[must_use]
    pub fn with_channels(fake: &FakeIbv, progress: Progress, [ours, theirs]: [u32; 2]) -> Self {
        fake.set("ticker_us", 50);
        let dir = TempDir::new();
        let buffer = 4 * BUFFER_PART;
        let target = Session::builder(1).uds(dir.path()).buffer(buffer).num_channels(theirs);
        let source = Session::builder(0).buffer(buffer).progress(progress).num_channels(ours);
        let (target, source) = (target.start().unwrap(), source.start().unwrap());
        let peer = source
            .connect(&dir.address())
            .rank(1)
            .over(ConnType::Rdma)
            .within(LONG)
            .wait()
            .unwrap();
        let back = target.accept(0).within(LONG).wait().unwrap();
        Self { target, source, peer, back, dir }
    }

    /// Puts 64 KiB and looks at them.
    ///
    /// # Panics
    /// When they are not there.
    pub fn put_and_compare(&self, salt: u64) {
        let bytes = pattern(BUFFER_PART, salt);
        self.source.buffer().write_at(0, &bytes).unwrap();
        self.peer.put_at(0, BUFFER_PART, BUFFER_PART).unwrap();
        let mut got = vec![0; bytes.len()];
        self.target.buffer().read_at(BUFFER_PART, &mut got).unwrap();
        assert!(got == bytes, "the bytes differ");
    }

    /// Ends them, and looks whether all was given back.
    ///
    /// # Panics
    /// When it was not.
    pub fn end(self, fake: &FakeIbv) {
        drop(self);
        fake.await_clean();
    }
}
