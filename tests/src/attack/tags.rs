//! Messages whose sender ends right after it sent them.

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hmc_core::wire::message::ControlMessage;
use hmc_std::{Address, ConnType, ErrorKind, Message, Peer, Session, want::Wanted};

use super::{Context, Outcome};
use crate::actor::Actor;
use crate::env::{TempDir, until};
use crate::listening::Listening as _;
use crate::raw_frames::frame;
use crate::rogue::Rogue;

const LONG: Duration = Duration::from_secs(20);
/// Messages of one batch.
pub const BATCH: u64 = 30;

/// What connects the two ends.
#[derive(Clone, Copy, Debug)]
pub enum Path {
    /// Control connection over a local socket, data plane in shared memory.
    Shm,
    /// Both over TCP.
    Tcp,
    /// Control connection over a local socket, data plane over TCP.
    Uds,
}

/// Each of them.
pub const PATHS: [Path; 3] = [Path::Shm, Path::Tcp, Path::Uds];
/// How a sender ends: by _exit(2), by SIGKILL, or by closing its session.
pub const ENDS: [&str; 3] = ["exit", "kill", "close"];

impl Path {
    /// The transport of its data plane.
    #[must_use]
    pub const fn conn(self) -> ConnType {
        match self {
            Self::Shm => ConnType::Shm,
            Self::Tcp | Self::Uds => ConnType::Tcp,
        }
    }

    /// Where `session` is for a peer on this path.
    ///
    /// # Panics
    /// When it does not listen there.
    #[must_use]
    pub fn address(self, session: &Session, dir: &TempDir) -> Address {
        match self {
            Self::Tcp => Address::Tcp(session.tcp_addr().expect("it listens")),
            Self::Shm | Self::Uds => dir.address(),
        }
    }
}

/// A session to receive with.
///
/// # Panics
/// When there can be none.
#[must_use]
pub fn receiver(dir: &TempDir) -> Session {
    Session::builder(0)
        .uds(dir.path())
        .tcp("127.0.0.1:0")
        .buffer(4096)
        .redial(false)
        .start()
        .expect("a session")
}

/// Receives tags until the end of the link.
///
/// # Panics
/// When something else comes, or nothing.
#[must_use]
pub fn tags_of(peer: &Peer) -> Vec<u64> {
    let mut tags = Vec::new();
    loop {
        match peer.recv(Wanted::Any).within(LONG).wait() {
            Ok(Message::Tag(tag)) => tags.push(tag),
            Ok(other) => panic!("nobody sent {other:?}"),
            Err(e) => {
                assert!(matches!(e.kind(), ErrorKind::PeerDead | ErrorKind::Closed), "{e}");
                return tags;
            }
        }
    }
}

/// One batch: the sender sends `BATCH` tags and ends in the way of `end`, while both ends receive and this one sends.
fn batch(program: &str, session: &Session, address: &Address, path: Path, end: &str) -> Vec<u64> {
    let mut actor = Actor::session(program, "rank=1 buffer=4096 redial=0");
    actor.request(&format!("connect 0 {} {} 20000", address, path.conn().name()));
    actor.request("listen 0");
    let peer = session.accept(1).within(LONG).wait().expect("it came");
    assert_eq!(peer.explain().conn, Some(path.conn()));
    let over = AtomicBool::new(false);
    // The other end has seldom read everything when it goes: over TCP its kernel resets the connection then.
    let tags = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) && peer.send(Message::Tag(7)).wait().is_ok() {
                std::thread::yield_now();
            }
        });
        actor.send(&format!("tags 0 0 {BATCH} {end}"));
        let tags = tags_of(&peer);
        over.store(true, Ordering::Relaxed);
        tags
    });
    drop(actor);
    // The next one takes the same rank.
    until("the link is over", LONG, || {
        (!session.peer(1).is_ok_and(|p| p.is_connected())).then_some(())
    });
    tags
}

/// Batches of a hostile peer whose data connection ends before its tags are sent: connections are not ordered against each
/// other. How many tags of how many were lost.
fn lost_after_the_data(batches: u32) -> (u64, u64) {
    let session = Session::builder(0).tcp("127.0.0.1:0").insecure_loopback().redial(false);
    let session = session.buffer(4096).start().expect("a session");
    let at = Address::Tcp(session.tcp_addr().expect("it listens"));
    let mut received = 0;
    for rank in 1..=batches {
        let Rogue { mut control, data, .. } = Rogue::join(rank, &at, &at);
        let peer = session.accept(rank).within(LONG).wait().expect("it came");
        drop(data);
        until("the end of the data is known", LONG, || (!peer.is_connected()).then_some(()));
        let tags: Vec<u8> = (0..BATCH).flat_map(|tag| frame(&ControlMessage::Tag(tag))).collect();
        // The session may have hung up.
        let _ = control.write_all(&tags);
        drop(control);
        received += tags_of(&peer).len() as u64;
    }
    let sent = u64::from(batches) * BATCH;
    (sent - received, sent)
}

/// Batches of tags whose sender ends at once, in each way, over each path.
///
/// # Panics
/// When a sender cannot be started.
pub fn lost(context: &mut Context) -> Outcome {
    let (lost, sent) = lost_after_the_data(10);
    if lost > 0 {
        context.count(10);
        return context
            .broken(format!("{lost} of {sent} tags after the end of the data were lost"));
    }
    let mut kinds: Vec<_> = PATHS.iter().flat_map(|path| ENDS.map(|end| (*path, end, 0))).collect();
    let ends: Vec<(TempDir, Session)> = (0..PATHS.len())
        .map(|_| TempDir::new())
        .map(|dir| {
            let session = receiver(&dir);
            (dir, session)
        })
        .collect();
    let (mut at, count) = (0, kinds.len());
    while context.again(18) {
        let (path, end, lost) = &mut kinds[at % count];
        let (dir, session) = &ends[at % count / ENDS.len()];
        at += 1;
        let address = path.address(session, dir);
        let tags = batch(&context.actor, session, &address, *path, end);
        if !tags.iter().copied().eq(0..tags.len() as u64) {
            return context.broken(format!("{path:?} {end}: out of order: {tags:?}"));
        }
        *lost += BATCH - tags.len() as u64;
    }
    context.count(10);
    let lost: Vec<_> = kinds.iter().filter(|(_, _, lost)| *lost > 0).collect();
    match lost.is_empty() {
        true => context.held(format!("each of {BATCH} tags a sender was received, in order")),
        false => context.broken(format!("tags were lost: {lost:?}")),
    }
}
