//! Many who connect at once, and connections that say nothing beside them.

use hmc_testkit::buffers::BufferTransfers as _;
use std::io::Read as _;
use std::net::{SocketAddr, TcpStream};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use hmc_std::{Address, Session};

use super::{Context, Outcome};
use crate::actor::Actor;
use crate::env::{TempDir, bound};
use crate::raw_frames::{dial, hello, read_frame, send_raw};

const LONG: Duration = Duration::from_secs(20);
/// How many connect at the same moment.
const AT_ONCE: u32 = 64;
/// A process that says nothing is sent away after 2 s.
const SILENT_FOR: Duration = Duration::from_secs(2);

/// A server of rank 0 in a process of its own, so that its descriptors and its memory are not the test's.
///
/// # Panics
/// When it cannot be started.
#[must_use]
pub fn server(program: &str, more: &str) -> (Actor, SocketAddr) {
    let actor = Actor::session(program, &format!("rank=0 tcp=127.0.0.1:0 buffer=65536 {more}"));
    let at = actor.tcp.expect("it listens");
    (actor, at)
}

/// Connects as `rank`, puts, and says how long the connecting took.
///
/// # Errors
/// As its calls.
pub fn connect(at: &Address, rank: u32) -> hmc_std::Result<Duration> {
    let s = Session::builder(rank).buffer(1 << 12).start()?;
    let start = Instant::now();
    let peer = s.connect(at).rank(0).within(LONG).wait()?;
    let took = start.elapsed();
    peer.put_at(0, 0, 64)?;
    Ok(took)
}

/// Threads that connect at the same moment: how long each took, or why it did not.
fn connect_at_once(at: &Address) -> Vec<hmc_std::Result<Duration>> {
    let gate = Barrier::new(usize::try_from(AT_ONCE).expect("small"));
    std::thread::scope(|scope| {
        let gate = &gate;
        let one = |n: u32| {
            scope.spawn(move || {
                gate.wait();
                connect(at, n)
            })
        };
        let threads: Vec<_> = (1..=AT_ONCE).map(one).collect();
        threads.into_iter().map(|t| t.join().expect("no panic")).collect()
    })
}

/// Connects 64 sessions at the same moment, over TCP and by the local socket.
///
/// # Panics
/// When there is no server.
pub fn at_once(context: &mut Context) -> Outcome {
    let mut slowest = Duration::ZERO;
    while context.again(2) {
        let dir = TempDir::new();
        let (_server, tcp) = server(&context.actor, &format!("uds={}", dir.path().display()));
        let at = if context.attempts() % 2 == 1 { Address::Tcp(tcp) } else { dir.address() };
        let ends = connect_at_once(&at);
        let got_in: Vec<Duration> = ends.iter().filter_map(|r| r.as_ref().ok()).copied().collect();
        if let Some(e) = ends.iter().find_map(|r| r.as_ref().err()) {
            let count = got_in.len();
            return context.broken(format!("{count} of {AT_ONCE} got in at {at}; another: {e}"));
        }
        slowest = got_in.into_iter().fold(slowest, Duration::max);
    }
    context.held(format!("{AT_ONCE} at once got in, the last one after {slowest:?}"))
}

/// Connects beside more and more connections that say nothing.
///
/// # Panics
/// When there is no server.
pub fn beside_the_silent(context: &mut Context) -> Outcome {
    let (_server, at) = server(&context.actor, "");
    let (mut silent, mut slowest) = (Vec::new(), Duration::ZERO);
    while context.again(3) {
        let already = [1500, 16, 64][usize::try_from(context.attempts() % 3).expect("small")];
        if silent.len() > already {
            silent.clear();
        }
        silent.extend((silent.len()..already).map(|_| dial(at)));
        let rank = 1 + u32::try_from(context.attempts() % 4000).expect("small");
        // However late the answer comes: there is one.
        let mut speaks = dial(at);
        let _ = send_raw(&mut speaks, &hello(rank, 0, 0));
        if read_frame(&mut speaks).is_none() {
            let what = "one that spoke was closed without an answer";
            return context.broken(format!("beside {already} silent connections {what}"));
        }
        let began = Instant::now();
        if let Err(e) = connect(&Address::Tcp(at), rank) {
            return context.broken(format!("beside {already} silent connections: {e}"));
        }
        let took = began.elapsed();
        if took >= bound(Duration::from_secs(1)) {
            return context.broken(format!("beside {already} silent connections: {took:?}"));
        }
        slowest = slowest.max(took);
    }
    context.held(format!("beside up to 1500 silent connections: {slowest:?} at most"))
}

/// How long the other end keeps a connection. `None`: longer than it may.
fn kept(mut s: TcpStream, began: Instant) -> Option<Duration> {
    let limit = bound(SILENT_FOR + Duration::from_secs(1));
    let left = limit.saturating_sub(began.elapsed()).max(Duration::from_millis(1));
    s.set_read_timeout(Some(left)).expect("a socket");
    let end = s.read(&mut [0; 512]);
    (!end.is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock)).then(|| began.elapsed())
}

/// Connections that say nothing, or half of their first words.
///
/// # Panics
/// When there is no server.
pub fn silent(context: &mut Context) -> Outcome {
    let (_server, at) = server(&context.actor, "");
    let words = hello(9, 0, 0);
    let mut longest = Duration::ZERO;
    while context.again(1) {
        let began = Instant::now();
        let all: Vec<_> = (0..20)
            .map(|n| {
                let mut s = dial(at);
                assert!(n % 2 == 0 || send_raw(&mut s, &words[..words.len() - 1]));
                s
            })
            .collect();
        context.count(19);
        for s in all {
            match kept(s, began) {
                Some(kept) => longest = longest.max(kept),
                None => return context.broken("a silent connection was kept"),
            }
        }
    }
    context.held(format!("all were closed, the last one after {longest:?}"))
}
