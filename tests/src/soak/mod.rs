//! A soak: processes that put, get, notify, lend and take back memory at random, while some of them are killed and come
//! again. Every byte is compared with what was last written there.
//!
//! Ranks 0 and 1 are two sessions of one process that lives on (`crowd`); the others are processes of their own, to be
//! killed. Of every two that are connected each is initiator (`drive`) and target (`host`) at once, in a thread each. An
//! area has one writer only, so its initiator knows what must be there. Choices come from the seed; when they happen does not.

mod crowd;
mod drive;
mod host;
mod watch;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::Duration;

use hmc_sim::rng::Rng;
use hmc_std::{Error, ErrorKind, Peer, Session};

use crate::scene::Via;

pub use crowd::{run, serve};

/// The sessions of the process that lives on.
const HOMES: [u32; 2] = [0, 1];
/// Those that are killed.
const MORTALS: [u32; 2] = [2, 3];
const RANKS: u64 = 4;

/// In each buffer a slice for each rank: where it puts, and where its notified puts go.
const PUTS: u64 = 768 << 10;
const NOTES: u64 = 256 << 10;
const SLICE: u64 = PUTS + NOTES;
/// After them, for each peer, what is sent to it and what is fetched from it.
const BUFFER: u64 = RANKS * SLICE * 3;
/// A window at most.
const WINDOW: u64 = 4 << 20;

/// How long an answer, a revocation or a connection may take.
const LONG: Duration = Duration::from_secs(30);
/// How soon a thread looks whether it is to stop.
const SOON: Duration = Duration::from_millis(100);

/// What to run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The transport.
    pub via: Via,
    /// For UCX: its lanes, as in `UCX_TLS`.
    pub lanes: Option<String>,
    /// How long.
    pub time: Duration,
    /// Of all choices.
    pub seed: u64,
    /// Whether processes are killed.
    pub kills: bool,
}

/// What was done.
#[derive(Debug, Default)]
pub struct Totals {
    puts: AtomicU64,
    gets: AtomicU64,
    notes: AtomicU64,
    windows: AtomicU64,
    bytes: AtomicU64,
    lives: AtomicU64,
}

impl Totals {
    fn count(which: &AtomicU64) {
        which.fetch_add(1, Ordering::Relaxed);
    }

    fn moved(&self, which: &AtomicU64, bytes: u64) {
        Self::count(which);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn operations(&self) -> u64 {
        [&self.puts, &self.gets, &self.notes].into_iter().map(|n| n.load(Ordering::Relaxed)).sum()
    }
}

impl std::fmt::Display for Totals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let n = |a: &AtomicU64| a.load(Ordering::Relaxed);
        write!(
            f,
            "{} operations ({} puts, {} gets, {} notified puts), {} MiB, {} windows taken back, {} lives of links",
            self.operations(),
            n(&self.puts),
            n(&self.gets),
            n(&self.notes),
            n(&self.bytes) >> 20,
            n(&self.windows),
            n(&self.lives),
        )
    }
}

/// Why a thread leaves a link.
enum End {
    /// The peer is gone, or the time is up.
    Over,
    /// This must not happen.
    Wrong(String),
}

impl From<Error> for End {
    fn from(e: Error) -> Self {
        match e.kind() {
            ErrorKind::PeerDead | ErrorKind::Closed => Self::Over,
            _ => Self::Wrong(e.to_string()),
        }
    }
}

type Step<T = ()> = Result<T, End>;

/// Says what was tried.
trait Of<T> {
    /// The error, with what was tried before it.
    fn of(self, what: &str) -> Step<T>;
}

impl<T> Of<T> for Result<T, Error> {
    fn of(self, what: &str) -> Step<T> {
        self.map_err(|e| match End::from(e) {
            End::Wrong(why) => End::Wrong(format!("{what}: {why}")),
            End::Over => End::Over,
        })
    }
}

/// One end of a pair.
#[derive(Clone)]
struct Party {
    session: Arc<Session>,
    own: u32,
    other: u32,
    seed: u64,
    stop: Stop,
    totals: Arc<Totals>,
    faults: Sender<String>,
}

/// Whether initiators, and then targets, are to end: who waits for an answer finds the other half there.
#[derive(Clone, Debug, Default)]
struct Stop {
    drives: Arc<AtomicBool>,
    hosts: Arc<AtomicBool>,
}

impl Party {
    fn drives(&self) -> bool {
        !self.stop.drives.load(Ordering::Acquire)
    }

    fn hosts(&self) -> bool {
        !self.stop.hosts.load(Ordering::Acquire)
    }

    /// Where this end writes in the other's buffer.
    fn there(&self) -> u64 {
        u64::from(self.own) * SLICE
    }

    /// Where the other end writes in ours.
    fn here(&self) -> u64 {
        u64::from(self.other) * SLICE
    }

    /// Where bytes for the other end are made.
    fn outgoing(&self) -> u64 {
        (RANKS + u64::from(self.other)) * SLICE
    }

    /// Where bytes of the other end come to.
    fn incoming(&self) -> u64 {
        (2 * RANKS + u64::from(self.other)) * SLICE
    }

    /// Both halves, each in a thread of its own, for all lives of the peer until the time is up.
    fn start(&self) -> [JoinHandle<()>; 2] {
        let (driver, host) = (self.clone(), self.clone());
        [
            std::thread::spawn(move || driver.lives(0, Self::drives, drive::drive)),
            std::thread::spawn(move || host.lives(1, Self::hosts, host::host)),
        ]
    }

    fn lives(
        &self,
        half: u64,
        goes_on: fn(&Self) -> bool,
        work: fn(&Self, &Peer, &mut Rng) -> Step,
    ) {
        let pair = u64::from(self.own) << 16 | u64::from(self.other) << 8 | half;
        let mut rng = Rng::new(self.seed ^ pair << 32);
        while goes_on(self) {
            let Ok(peer) = self.session.wait_peer(self.other, SOON) else { continue };
            Totals::count(&self.totals.lives);
            // A failed assertion of a helper counts as much as a wrong byte.
            let ran = std::panic::AssertUnwindSafe(|| work(self, &peer, &mut rng));
            let why = match std::panic::catch_unwind(ran) {
                Ok(Ok(()) | Err(End::Over)) => continue,
                Ok(Err(End::Wrong(why))) => why,
                Err(_) => "a thread panicked".to_owned(),
            };
            let _ = self.faults.send(format!("rank {} with {}: {why}", self.own, self.other));
            return;
        }
    }
}

/// A session of the soak.
fn session(rank: u32, dir: &std::path::Path, settings: &Settings) -> Result<Session, Error> {
    let mut builder = Session::builder(rank).uds(dir).buffer(BUFFER);
    if let (Via::Ucx, Some(lanes)) = (settings.via, &settings.lanes) {
        builder = builder.ucx().ucx_key("TLS", lanes);
    }
    if settings.via == Via::Tcp {
        builder = builder.tcp("127.0.0.1:0");
    }
    builder.start()
}

/// Sizes of all magnitudes up to `limit`.
fn size(rng: &mut Rng, limit: u64) -> u64 {
    let bits = u64::from(limit.ilog2());
    let most = 1 << rng.below(bits + 1);
    1 + rng.below(most).min(limit - 1)
}

/// A place and a length within `room`.
fn range(rng: &mut Rng, room: u64) -> (u64, u64) {
    let len = size(rng, room);
    (rng.below(room - len + 1), len)
}

/// As an index.
fn at(n: u64) -> usize {
    usize::try_from(n).expect("64-bit machines only")
}

/// What a process that is to be killed is told.
#[derive(Clone, Debug)]
pub struct Mortal {
    /// Its rank.
    pub rank: u32,
    /// Where the others are.
    pub home: PathBuf,
    /// As everybody's.
    pub settings: Settings,
}
