//! Peers that say nothing, or only that they live: no call waits for them for ever.

use hmc_testkit::buffers::{BufferTransfers as _, wait};
use std::io::Write as _;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use hmc_core::wire::message::ControlMessage;
use hmc_std::{Address, Error, ErrorKind, Peer, Session, Waited, want::Wanted};

use super::{Context, Outcome};
use crate::env::bound;
use crate::listening::Listening as _;
use crate::raw_frames::frame;
use crate::rogue::Rogue;

const LONG: Duration = Duration::from_secs(10);
/// A peer is dead after 2.5 s of silence; what waits for longer than this was not told.
const TOLD_BY: Duration = Duration::from_secs(4);

fn victim(deadline: Duration) -> (Session, Address) {
    let session = Session::builder(0).tcp("127.0.0.1:0").insecure_loopback().buffer(1 << 16);
    let session = session.redial(false).deadline(deadline).start().expect("a session");
    let at = Address::Tcp(session.tcp_addr().expect("it listens"));
    (session, at)
}

/// Ways to wait for a peer.
type Call = (&'static str, fn(&Peer) -> Result<(), Error>);
const CALLS: [Call; 5] = [
    ("put", |peer| peer.put_at(0, 0, 64)),
    ("get", |peer| peer.get_at(0, 0, 64)),
    ("a started put", |peer| peer.start_put_at(0, 0, 64).and_then(wait).map(drop)),
    ("recv", |peer| peer.recv(Wanted::Any).within(LONG).wait().map(drop)),
    ("send_data", |peer| peer.send_data(&[7; 1 << 16]).wait().map(drop)),
];

/// Each call in a thread of its own: how it ended, and when. Threads of calls that do not end stay.
fn call_all(peer: &Peer, limit: Duration) -> Vec<(&'static str, Option<(ErrorKind, Duration)>)> {
    let began = Instant::now();
    let ends = CALLS.map(|(name, call)| {
        let (tell, told) = channel();
        let peer = peer.clone();
        std::thread::spawn(move || {
            let kind = call(&peer).err().map_or(ErrorKind::Protocol, |e| e.kind());
            let _ = tell.send((kind, began.elapsed()));
        });
        (name, told)
    });
    let end = |(name, told): (&'static str, std::sync::mpsc::Receiver<_>)| {
        (name, told.recv_timeout(limit.saturating_sub(began.elapsed())).ok())
    };
    ends.into_iter().map(end).collect()
}

/// Peers that say nothing once they are connected: every call ends, since they are dead.
///
/// # Panics
/// When they are not let in.
pub fn dead(context: &mut Context) -> Outcome {
    let (session, at) = victim(LONG);
    let mut latest = Duration::ZERO;
    while context.again(1) {
        let rank = u32::try_from(context.attempts() % 4000).expect("small") + 1;
        let _rogue = Rogue::join(rank, &at, &at);
        let peer = session.accept(rank).within(LONG).wait().expect("it is connected");
        for (call, end) in call_all(&peer, bound(TOLD_BY)) {
            match end {
                Some((ErrorKind::PeerDead, after)) => latest = latest.max(after),
                Some((kind, after)) => {
                    return context.broken(format!("{call} ended as {kind:?} after {after:?}"));
                }
                None => return context.broken(format!("{call} still waits for a silent peer")),
            }
        }
    }
    context.held(format!("{} calls ended as PeerDead within {latest:?}", CALLS.len()))
}

/// Peers that beat and do nothing else: every call ends at its deadline.
///
/// # Panics
/// When they are not let in.
pub fn deaf(context: &mut Context) -> Outcome {
    let deadline = Duration::from_millis(500);
    let (session, at) = victim(deadline);
    let mut latest = Duration::ZERO;
    while context.again(1) {
        let rank = u32::try_from(context.attempts() % 4000).expect("small") + 1;
        let mut rogue = Rogue::join(rank, &at, &at);
        let peer = session.accept(rank).within(LONG).wait().expect("it is connected");
        let (tell, told) = channel();
        let waits = std::thread::spawn(move || {
            let put = peer.start_put_at(0, 0, 64);
            let began = Instant::now();
            // The operation's own deadline, not that of the wait.
            let end = put.map(|op| op.wait_for(LONG));
            let kind = match end {
                Ok(Waited::Ended(result)) => result.err().map(|e| e.kind()),
                Ok(Waited::Limit | Waited::Interrupted) => None,
                Err(e) => Some(e.kind()),
            };
            let _ = tell.send((kind, began.elapsed()));
        });
        let limit = bound(Duration::from_secs(3));
        let began = Instant::now();
        let end = loop {
            // A heartbeat.
            rogue.control.write_all(&frame(&ControlMessage::Ping(1))).expect("space");
            if let Ok(end) = told.recv_timeout(Duration::from_millis(200)) {
                waits.join().expect("no panic");
                break Some(end);
            }
            if began.elapsed() > limit {
                break None;
            }
        };
        match end {
            Some((Some(ErrorKind::DeadlineExceeded), after)) if after < limit => {
                latest = latest.max(after);
            }
            Some((kind, after)) => {
                return context.broken(format!("a put ended as {kind:?} after {after:?}"));
            }
            None => return context.broken(format!("a put with {deadline:?} waits for {limit:?}")),
        }
    }
    context.held(format!("a put with a deadline of {deadline:?} ended after {latest:?}"))
}
