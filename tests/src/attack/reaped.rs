//! Operations that begin after the peer was killed and waited for.

use hmc_testkit::buffers::BufferTransfers as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use hmc_std::config::Progress;
use hmc_std::{ConnType, ErrorKind, Message, Peer, Session};

use super::{Context, Outcome};
use crate::actor::Actor;
use crate::env::{TempDir, until};

const LONG: Duration = Duration::from_secs(20);
const THREADS: usize = 4;

/// Late puts after which a thread stops: nothing may ever tell it of the end.
const ENOUGH: u64 = 1000;

/// What the threads of one kill counted.
#[derive(Default)]
struct Seen {
    /// Puts of the living peer.
    before: AtomicU64,
    /// Puts and tags that began after the peer was waited for, and reported success.
    late: AtomicU64,
    reaped: AtomicBool,
}

impl Seen {
    /// Puts until one fails, or a tag if those are sent once the peer was waited for. How that failed, unless too many are late.
    fn put(&self, peer: &Peer, sends: bool) -> Option<ErrorKind> {
        let mut puts = 0;
        while self.late.load(Ordering::Relaxed) < ENOUGH {
            let reaped = self.reaped.load(Ordering::SeqCst);
            if sends && !reaped && puts >= 1000 {
                // A put that finds the end would tell the tags of it.
                std::thread::yield_now();
                continue;
            }
            puts += 1;
            let done = if sends && reaped {
                peer.send(Message::Tag(1)).within(LONG).wait()
            } else {
                peer.put_at(0, 0, 8)
            };
            match done {
                Ok(()) if reaped => self.late.fetch_add(1, Ordering::Relaxed),
                Ok(()) => self.before.fetch_add(1, Ordering::Relaxed),
                Err(e) => return Some(e.kind()),
            };
        }
        None
    }
}

/// Kills a peer under four threads that put, waits for it, and counts the puts, or the tags, that began after that and report
/// success. Every other session has no thread that could receive the end before: then only the peer's mark shows it.
///
/// # Panics
/// When a peer cannot be started.
pub fn successes_after_the_end(context: &mut Context) -> Outcome {
    let dir = TempDir::new();
    let start = |progress| {
        let builder = Session::builder(0).buffer(4096).redial(false).progress(progress);
        builder.start().expect("a session")
    };
    let sessions = [start(Progress::Thread), start(Progress::Manual)];
    let settings = format!("rank=1 uds={} buffer=4096", dir.path().display());
    let (mut before, mut late, mut dirty) = (0, 0, 0);
    // A busy machine tells the threads of the end before they are on again: one kill shows little.
    while late == 0 && context.again(100) {
        let mut actor = Actor::session(&context.actor, &settings);
        let session = &sessions[usize::from(context.attempts().is_multiple_of(2))];
        let peer = session
            .connect(&dir.address())
            .rank(1)
            .over(ConnType::Shm)
            .within(LONG)
            .wait()
            .expect("a peer");
        let seen = Seen::default();
        let sends = context.attempts() % 4 >= 2;
        let ends = std::thread::scope(|s| {
            let (seen, peer) = (&seen, &peer);
            let threads = [(); THREADS].map(|()| s.spawn(move || seen.put(peer, sends)));
            until("the puts are under way", LONG, || {
                (seen.before.load(Ordering::Relaxed) >= 1000).then_some(())
            });
            let _ = actor.kill();
            while !actor.has_ended() {
                std::thread::yield_now();
            }
            // It was waited for.
            seen.reaped.store(true, Ordering::SeqCst);
            threads.map(|t| t.join().expect("no panic"))
        });
        let n = seen.late.into_inner();
        if n == 0 && ends != [Some(ErrorKind::PeerDead); THREADS] {
            return context.broken(format!("the threads ended with {ends:?}"));
        }
        before += seen.before.into_inner();
        late += n;
        dirty += u32::from(n > 0);
        // Unless they were late, a put found the end, and the session knows it.
        if n == 0 && session.peer(1).is_ok_and(|p| p.is_connected()) {
            return context.broken("a put found the end, and the session does not know it");
        }
        until("the link is over", LONG, || {
            session.progress();
            (!session.peer(1).is_ok_and(|p| p.is_connected())).then_some(())
        });
    }
    match late {
        0 => context.held(format!("{before} puts before the ends, none after")),
        n => context.broken(format!("{n} puts and tags succeeded after the end, in {dirty} kills")),
    }
}
