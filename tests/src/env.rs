//! Where and how long a test runs: folders that go away, bounds that grow with the machine's load.

use std::fs::Permissions;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Which sessions of a test are connected how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// Shared memory.
    Shm,
    /// TCP over 127.0.0.1.
    Tcp,
    /// UCX, where it is installed; the sessions take part in it by `HMC_UCX=1`.
    Ucx,
    /// RDMA verbs, where there is a device.
    Rdma,
}

impl Via {
    /// Those that every machine has, or what `HMC_TEST_VIA` names: the same tests run over UCX and
    /// RDMA verbs by `cargo xtask test-hw`.
    ///
    /// # Panics
    /// When it names none.
    #[must_use]
    pub fn all() -> Vec<Self> {
        match std::env::var("HMC_TEST_VIA").as_deref() {
            Err(std::env::VarError::NotPresent) => vec![Self::Shm, Self::Tcp],
            Ok("ucx") => vec![Self::Ucx],
            Ok("rdma") => vec![Self::Rdma],
            other => panic!("HMC_TEST_VIA={other:?}: give ucx or rdma, or unset it"),
        }
    }

    /// This one, or the one that `HMC_TEST_VIA` names: for tests that are written for one transport and hold for each.
    ///
    /// # Panics
    /// As [`Via::all`].
    #[must_use]
    pub fn or_requested(self) -> Self {
        match Self::all().as_slice() {
            [one] => *one,
            _ => self,
        }
    }

    /// As `connect_with` wants it.
    #[must_use]
    pub const fn conn(self) -> hmc_std::ConnType {
        match self {
            Self::Shm => hmc_std::ConnType::Shm,
            Self::Tcp => hmc_std::ConnType::Tcp,
            Self::Ucx => hmc_std::ConnType::Ucx,
            Self::Rdma => hmc_std::ConnType::Rdma,
        }
    }
}

/// A folder of its own, private to this user, that goes with the value.
#[derive(Debug)]
pub struct TempDir(PathBuf);

impl TempDir {
    /// Makes one. A test with sessions begins with it, and so does the record of its links ([`crate::links`]).
    ///
    /// # Panics
    /// When the system refuses.
    #[must_use]
    pub fn new() -> Self {
        crate::links::record();
        Self::within(&std::env::temp_dir())
    }

    fn within(parent: &Path) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("hmc-t{}-{n}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::DirBuilder::new().mode(0o700).create(&path).expect("a new folder");
        Self(path)
    }

    /// Makes one that other users can enter, in `TMPDIR` if they can enter that. `None`: this machine has no place for it.
    ///
    /// # Panics
    /// When the system refuses.
    #[must_use]
    pub fn for_all_users() -> Option<Self> {
        let parents = [std::env::temp_dir(), "/tmp".into(), "/var/tmp".into(), "/dev/shm".into()];
        let dir = Self::within(parents.iter().find(|parent| all_may_enter(parent))?);
        std::fs::set_permissions(&dir.0, Permissions::from_mode(0o755)).expect("it is ours");
        Some(dir)
    }

    /// `program`, or a copy of it here if other users cannot enter the folder in which it is.
    ///
    /// # Panics
    /// When it cannot be copied.
    #[must_use]
    pub fn runnable(&self, program: &str) -> PathBuf {
        let program = Path::new(program);
        let folder = program.parent().expect("a folder");
        if all_may_enter(folder) {
            return program.to_path_buf();
        }
        let copy = self.0.join("program");
        std::fs::copy(program, &copy).expect("space for a copy");
        copy
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// As an address of peers that listen in it.
    #[must_use]
    pub fn address(&self) -> hmc_std::Address {
        hmc_std::Address::Uds(self.0.clone())
    }
}

/// Whether every user may enter that folder.
fn all_may_enter(folder: &Path) -> bool {
    let open = |p: &Path| std::fs::metadata(p).is_ok_and(|m| m.permissions().mode() & 0o1 != 0);
    folder.canonicalize().is_ok_and(|path| path.ancestors().all(open))
}

impl Default for TempDir {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The bound that a time has to keep: three times as long on a machine that is busy with other
/// things, as /proc/loadavg says, and `HMC_TEST_SLOWDOWN` times as long where that is set.
#[must_use]
pub fn bound(time: Duration) -> Duration {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load: f64 = text.split(' ').next().and_then(|t| t.parse().ok()).unwrap_or(0.0);
    let times = u32::try_from(number("HMC_TEST_SLOWDOWN", 1)).unwrap_or(1);
    time * if load > 4.0 { 3 } else { 1 } * times
}

/// Looks until `look` finds something.
///
/// # Panics
/// When it does not in `limit`.
pub fn until<R>(what: &str, limit: Duration, mut look: impl FnMut() -> Option<R>) -> R {
    let start = Instant::now();
    loop {
        if let Some(r) = look() {
            return r;
        }
        assert!(start.elapsed() < limit, "waited {limit:?} until {what}");
        std::thread::yield_now();
    }
}

/// Says, where people and scripts can see it, that a test was not run and why. Not by `println!`, which the test's
/// harness keeps to itself: `cargo xtask` counts these lines.
///
/// # Panics
/// When standard output is closed.
pub fn skipped(why: &str) {
    use std::io::Write as _;
    // In one piece: other tests print too.
    let line = format!("\nSKIPPED: {why}\n");
    std::io::stdout().write_all(line.as_bytes()).expect("standard output is open");
}

/// Processor time that a process has used.
///
/// # Panics
/// When it is gone.
#[must_use]
pub fn cpu_of(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("a process");
    // proc(5): the fields after the name, of which the 12th and 13th are ticks; 100 of them are a second.
    let (_, rest) = stat.rsplit_once(") ").expect("a name in brackets");
    let ticks = rest.split(' ').skip(11).take(2).map(|n| n.parse::<u64>().expect("a number"));
    Duration::from_millis(ticks.sum::<u64>() * 10)
}

/// A number that /proc/PID/status names, as in `VmRSS` or `Threads`.
///
/// # Panics
/// When the process or the line is not there.
#[must_use]
pub fn status_of(pid: u32, name: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let line = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':'));
    let number = line.and_then(|l| l.split_whitespace().next()).and_then(|n| n.parse().ok());
    number.expect("a number")
}

/// How many entries a folder of /proc/PID has: `fd` for descriptors, `task` for threads.
///
/// # Panics
/// When the process is gone.
#[must_use]
pub fn count_of(pid: u32, folder: &str) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/{folder}")).expect("a process").count()
}

/// Descriptors that this process may open.
#[must_use]
pub fn files() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX))
}

/// The seed of a test's chance: `HMC_TEST_SEED`, or `default`. Printed, so that a failure can be
/// played again.
#[must_use]
pub fn seed(default: u64) -> u64 {
    let seed = number("HMC_TEST_SEED", default);
    println!("HMC_TEST_SEED={seed}");
    seed
}

/// The number that a variable of the environment says, or `default`.
///
/// # Panics
/// When it says something else: a run that was asked for and is another one would pass for it.
#[must_use]
pub fn number<N: std::str::FromStr>(name: &str, default: N) -> N {
    parsed(name).unwrap_or(default)
}

/// The number that a variable of the environment says, if it is set.
///
/// # Panics
/// When it says something else.
#[must_use]
pub fn parsed<N: std::str::FromStr>(name: &str) -> Option<N> {
    let given = std::env::var_os(name)?;
    let number = given.to_str().and_then(|n| n.parse().ok());
    assert!(number.is_some(), "{name}={given:?}: give a whole number, 0 or more, or unset it");
    number
}
