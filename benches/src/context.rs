//! The context of each row: thoroughness, processors, a folder of its own.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use hmc_core::types::ConnType;
use hmc_std::{Address, LocalRange, Peer, Remote, Session};
use std::time::Duration;

use crate::error::{Res, text};
use crate::helper::Helper;
use crate::machine;
use crate::measure::Delay;

/// Settings of one run.
#[derive(Debug)]
pub(crate) struct Context {
    /// Fewer samples and sizes.
    pub(crate) quick: bool,
    /// The delay that is added on our side, for the self-test.
    pub(crate) delay: Delay,
    home: Option<usize>,
    away: Option<usize>,
}

/// A folder that is removed with everything in it.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// A new private folder below `parent`.
    pub(crate) fn new(parent: &Path) -> Res<Self> {
        use std::os::unix::fs::DirBuilderExt as _;
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("hmc-bench-{}-{n}", std::process::id()));
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(|e| format!("cannot make {}: {e}", path.display()))?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// See [`Context::unpinned`].
pub(crate) struct Unpinned {
    home: Option<usize>,
}

impl Drop for Unpinned {
    fn drop(&mut self) {
        if let Some(home) = self.home {
            // It was possible before.
            let _ = machine::pin(home);
        }
    }
}

/// Two connected sessions: ours here (rank 0) and one in a helper process (rank 1).
pub(crate) struct SessionPair {
    /// The peer, seen from here.
    pub(crate) peer: Peer,
    /// Ours.
    pub(crate) session: Session,
    /// The other process. It also serves the reference.
    pub(crate) helper: Helper,
    _folder: Folder,
}

impl SessionPair {
    /// The other's buffer.
    pub(crate) fn remote(&self) -> Res<Remote> {
        self.peer.buffer().map_err(text)
    }

    /// The first `len` bytes of our buffer.
    pub(crate) fn first(&self, len: u64) -> Res<LocalRange<'_>> {
        self.session.buffer().range(0, len).map_err(text)
    }
}

impl Context {
    /// Pins this process where there is more than one processor.
    pub(crate) fn new(quick: bool) -> Res<Self> {
        let cpus = machine::cpus();
        let (home, away) = match cpus.as_slice() {
            [first, second, ..] => (Some(*first), Some(*second)),
            _ => (None, None),
        };
        if let Some(home) = home {
            machine::pin(home)?;
        }
        Ok(Self { quick, delay: Delay(0.0), home, away })
    }

    /// The same, wasting `share` of our time.
    pub(crate) fn delayed(&self, share: f64) -> Self {
        Self { quick: self.quick, delay: Delay(share), home: self.home, away: self.away }
    }

    /// Checks that two processes can run at the same time; spinning rows need that.
    pub(crate) fn two_cpus(&self) -> Res<()> {
        if self.away.is_some() {
            return Ok(());
        }
        Err("two spinning processes need two processors, this one may use one only".to_owned())
    }

    /// `quick` or `thorough`, by what was asked.
    pub(crate) fn pick<T>(&self, quick: T, thorough: T) -> T {
        if self.quick { quick } else { thorough }
    }

    /// The processors of this process and of the passive one, where they are pinned.
    pub(crate) fn processors(&self) -> (Option<usize>, Option<usize>) {
        (self.home, self.away)
    }

    /// A helper process on the other processor.
    pub(crate) fn helper(&self) -> Res<Helper> {
        Helper::start(self.away)
    }

    /// Lets this process and those that it starts run anywhere until the result is dropped.
    pub(crate) fn unpinned(&self) -> Res<Unpinned> {
        machine::unpin()?;
        Ok(Unpinned { home: self.home })
    }

    /// A helper process without a pinned processor.
    pub(crate) fn loose_helper() -> Res<Helper> {
        Helper::start(None)
    }

    /// Two connected sessions with warm buffers of `bytes` each.
    pub(crate) fn pair(&self, bytes: u64, via: ConnType) -> Res<SessionPair> {
        let folder = Folder::new(&std::env::temp_dir())?;
        let mut helper = self.helper()?;
        let over = match via {
            ConnType::Ucx => "ucx",
            ConnType::Rdma => "still",
            _ => "",
        };
        let told =
            helper.request(&format!("session 1 {} {bytes} {over}", folder.path().display()))?;
        let mut session = Session::builder(0).buffer(bytes);
        if via == ConnType::Ucx {
            session = session.ucx();
        }
        if !over.is_empty() {
            // Both ends spin beside the heartbeat threads: on a busy machine a heartbeat may be late without a fault.
            session = session.heartbeat(None);
        }
        let session = session.start().map_err(text)?;
        session.buffer().fill(0, bytes, 7).map_err(text)?;
        let address = if via == ConnType::Tcp {
            told.parse().map_err(text)?
        } else {
            Address::Uds(folder.path().to_path_buf())
        };
        let peer = session
            .connect(&address)
            .rank(1)
            .over(via)
            .within(Duration::from_secs(10))
            .wait()
            .map_err(text)?;
        if peer.explain().conn != Some(via) {
            return Err(format!("asked for {via:?}, got {:?}", peer.explain().conn));
        }
        Ok(SessionPair { peer, session, helper, _folder: folder })
    }
}
