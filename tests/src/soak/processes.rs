//! The processes of a soak: the one that lives on and checks the results, and those that are killed.

use std::io::Read as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hmc_sim::rng::Rng;
use hmc_std::{Address, Error, Session};

use super::crew::Crew;
use super::party::BUFFER;
use super::resources::{Use, check};
use super::settings::{KillableArgs, LONG, SOON, Settings};
use super::totals::Totals;
use crate::env::{TempDir, Via, until};

/// The sessions of the process that lives on.
const HOMES: [u32; 2] = [0, 1];
/// Those that are killed.
const MORTALS: [u32; 2] = [2, 3];
/// The time in parts, after each of which the process is at rest and looks at what it uses.
const ROUNDS: u32 = 6;

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

/// A process that may be killed.
struct KillableProcess {
    child: Child,
    stdin: Option<ChildStdin>,
    rank: u32,
}

impl KillableProcess {
    fn start(rank: u32, home: &Path, settings: &Settings, seed: u64) -> Result<Self, String> {
        let this = std::env::current_exe().map_err(|e| format!("where is this program? {e}"))?;
        let mut command = Command::new(this);
        command.arg("--via").arg(settings.via.conn().name());
        command.args(["--rank", &rank.to_string(), "--seed", &seed.to_string()]);
        if let Some(lanes) = &settings.lanes {
            command.args(["--lanes", lanes]);
        }
        command.arg("--home").arg(home).stdin(Stdio::piped());
        let mut child = command.spawn().map_err(|e| format!("a process cannot start: {e}"))?;
        let stdin = child.stdin.take();
        Ok(Self { child, stdin, rank })
    }

    /// How it ended, if it did without being asked to.
    fn has_ended(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok().flatten()?;
        Some(format!("the process of rank {} ended by itself: {status}", self.rank))
    }

    fn kill(&mut self) {
        // By its own handle: never anybody else's number.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Lets it end in order.
    fn dismiss(mut self) -> Result<(), String> {
        self.stdin = None;
        // If something of its own takes too long, it says itself what.
        let status = until("a process ends", 3 * LONG, || self.child.try_wait().ok().flatten());
        if status.success() { Ok(()) } else { Err(format!("rank {}: {status}", self.rank)) }
    }
}

impl Drop for KillableProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs the soak in this process and those that it starts. What was done.
///
/// # Errors
/// Words: the first thing that went wrong.
pub fn run(settings: &Settings) -> Result<String, String> {
    let dir = TempDir::new();
    let mut rng = Rng::new(settings.seed);
    let mut homes = Vec::new();
    for rank in HOMES {
        let made = session(rank, dir.path(), settings).map_err(|e| e.to_string())?;
        homes.push(Arc::new(made));
    }
    let (first, second) = (&homes[0], &homes[1]);
    second
        .connect(&dir.address())
        .rank(first.rank().0)
        .over(settings.via.conn())
        .within(LONG)
        .wait()
        .map_err(|e| format!("two sessions of one process: {e}"))?;
    let totals = Arc::default();
    let (mut kills, mut rests) = (0, Vec::new());
    for _ in 0..ROUNDS {
        kills += round(settings, &homes, dir.path(), &mut rng, &totals)?;
        rests.push(Use::when_idle());
        println!("soak: at rest after {kills} kills: {}", rests[rests.len() - 1]);
    }
    for home in homes {
        let home = Arc::into_inner(home).ok_or("a thread still has a session")?;
        home.shutdown().within(LONG).wait().map_err(|e| format!("a session does not end: {e}"))?;
    }
    if totals.operations() == 0 {
        return Err("nothing was done".to_owned());
    }
    let used = check(&rests)?;
    Ok(format!("{totals}, {kills} processes killed; {used}"))
}

/// One round; afterwards the sessions are at rest. How many processes were killed.
fn round(
    settings: &Settings,
    homes: &[Arc<Session>],
    dir: &Path,
    rng: &mut Rng,
    totals: &Arc<Totals>,
) -> Result<u64, String> {
    let all = HOMES.into_iter().chain(MORTALS);
    let mut crew = Crew::start(homes, all, rng.next_u64(), totals);
    let (kills, mortals) = keep_killing(settings, &crew, dir, rng)?;
    crew.rest();
    for mortal in mortals {
        mortal.dismiss()?;
    }
    crew.end()?;
    for home in homes {
        wait_idle(home)?;
    }
    Ok(kills)
}

/// The dead hold nothing.
///
/// # Errors
/// What is still held.
fn wait_idle(home: &Session) -> Result<(), String> {
    let start = Instant::now();
    loop {
        let stats = home.stats();
        let held = stats.quarantined_bytes != 0 || stats.quarantined_links != 0;
        if !held && stats.peers.len() < HOMES.len() {
            return Ok(());
        }
        if start.elapsed() > LONG {
            return Err(format!("not at rest after {LONG:?}: {stats:#?}, {:#?}", hmc_std::held()));
        }
        std::thread::yield_now();
    }
}

/// Starts the mortals, kills them at random and starts them again until the time is up.
fn keep_killing(
    settings: &Settings,
    crew: &Crew,
    home: &Path,
    rng: &mut Rng,
) -> Result<(u64, Vec<KillableProcess>), String> {
    let start = |rank, rng: &mut Rng| KillableProcess::start(rank, home, settings, rng.next_u64());
    let mut mortals = Vec::new();
    for rank in MORTALS {
        mortals.push(start(rank, rng)?);
    }
    let begun = Instant::now();
    let round = settings.time / ROUNDS;
    // A few in each round, however short.
    let pauses = u64::try_from((round / 2).as_millis()).unwrap_or(0).clamp(1, 1500);
    let pause = |rng: &mut Rng| Duration::from_millis(200 + rng.below(pauses));
    let (mut kills, mut next) = (0, pause(rng));
    while begun.elapsed() < round {
        if let Some(fault) = crew.fault(SOON) {
            return Err(fault);
        }
        if let Some(fault) = mortals.iter_mut().find_map(KillableProcess::has_ended) {
            return Err(fault);
        }
        if settings.kills && begun.elapsed() > next {
            let which = rng.index(mortals.len());
            let mortal = &mut mortals[which];
            mortal.kill();
            *mortal = start(mortal.rank, rng)?;
            kills += 1;
            next = begun.elapsed() + pause(rng);
        }
    }
    Ok((kills, mortals))
}

/// A process that is to be killed. It ends in order when its standard input does.
///
/// # Errors
/// Words: the first thing that went wrong.
pub fn serve(mortal: &KillableArgs) -> Result<(), String> {
    let settings = &mortal.settings;
    let asked = Arc::<AtomicBool>::default();
    let over = Arc::clone(&asked);
    std::thread::spawn(move || {
        let _ = std::io::stdin().read(&mut [0]);
        over.store(true, Ordering::Release);
    });
    let own = session(mortal.rank, &mortal.home, settings).map_err(|e| e.to_string())?;
    let own = Arc::new(own);
    for home in HOMES {
        exchange(&own, home, &mortal.home, settings.via, &asked)?;
    }
    let crew = Crew::start(&[Arc::clone(&own)], HOMES.into_iter(), settings.seed, &Arc::default());
    while !asked.load(Ordering::Acquire) {
        if let Some(fault) = crew.fault(SOON) {
            return Err(fault);
        }
    }
    crew.end()?;
    let own = Arc::into_inner(own).ok_or("a thread still has the session")?;
    own.shutdown().within(LONG).wait().map_err(|e| format!("a session does not end: {e}"))
}

/// Connects, or is connected: the others dial a rank that they have lost, and until they know that it died its place is
/// taken.
fn exchange(
    own: &Session,
    home: u32,
    dir: &Path,
    via: Via,
    asked: &AtomicBool,
) -> Result<(), String> {
    let address = Address::Uds(dir.to_owned());
    let begun = Instant::now();
    loop {
        let why = match own.connect(&address).rank(home).over(via.conn()).within(LONG).wait() {
            Ok(_) => return Ok(()),
            Err(e) => e,
        };
        if own.accept(home).within(SOON).wait().is_ok() || asked.load(Ordering::Acquire) {
            return Ok(());
        }
        if begun.elapsed() > LONG {
            return Err(format!("rank {home} cannot be reached: {why}"));
        }
    }
}
