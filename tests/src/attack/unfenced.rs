//! Memory that a peer may still copy from or into when its session ends. What its owner sees must not change any more after it
//! came back.

use std::time::Duration;

use hmc_core::types::Access;
use hmc_std::{ConnType, Held, Op, Peer, Session, Span, Waited};

use super::{Context, Outcome};
use crate::actor::Actor;
use crate::env::{TempDir, until};
use crate::lent::{LEN, Owner, owned};
use crate::pair::Pair;

const LONG: Duration = Duration::from_secs(20);
/// What the source of a copy holds.
pub const THEIRS: u8 = 0xAB;

/// A session here, and one of another process that exposes memory which cannot be mapped.
#[derive(Debug)]
pub struct Scene {
    /// This process's.
    pub session: Session,
    /// The other one, as the session sees it.
    pub peer: Peer,
    /// The other process.
    pub actor: Actor,
    _dir: TempDir,
}

impl Scene {
    /// With a rank that no other test has: what is held is the whole process's.
    ///
    /// # Panics
    /// When two cannot be connected.
    #[must_use]
    pub fn new(program: &str, rank: u32) -> Self {
        let dir = TempDir::new();
        let session = Session::builder(0).redial(false).start().expect("a session");
        let settings = format!("rank={rank} redial=0 uds={}", dir.path().display());
        let mut actor = Actor::session(program, &settings);
        let peer = session
            .connect(&dir.address())
            .rank(rank)
            .over(ConnType::Shm)
            .within(LONG)
            .wait()
            .expect("a peer");
        actor.request(&format!("expose 0 5 {LEN} {THEIRS} adopted"));
        Self { session, peer, actor, _dir: dir }
    }

    /// A get that has begun.
    ///
    /// # Panics
    /// When it cannot begin, or has ended.
    pub fn get(&self) -> (Owner, Op<Span>) {
        let (owner, lent) = Owner::new(0);
        let remote = self.peer.window(5).within(LONG).wait().expect("told");
        let span = self.session.memory().register(lent).expect("space").take_all().expect("free");
        let op = remote.get(0, span).start().expect("posted");
        let waited = op.wait_for(Duration::from_millis(1));
        assert!(matches!(waited, Waited::Limit), "256 MiB were copied within 1 ms: {waited:?}");
        until("the copy begins", LONG, || (owner.first_byte() == THEIRS).then_some(()));
        (owner, op)
    }
}

/// Ends everything of this end, in the order of a program that returns.
pub fn end(op: Op<Span>, peer: Peer, session: Session) {
    drop(op);
    drop(peer);
    let _ = session.shutdown().within(Duration::from_millis(1)).wait();
}

/// What the process holds of that peer, in bytes.
#[must_use]
pub fn held_of(rank: u32) -> Vec<u64> {
    hmc_std::held().into_iter().filter(|h| h.peer.0 == rank).map(|h| h.bytes).collect()
}

/// Waits until the other process knows that this session has ended.
///
/// # Panics
/// When it does not come to know it.
pub fn wait_peer_dead(actor: &mut Actor) {
    until("the target notices the end", LONG, || {
        (actor.request("connected 0") == "false").then_some(())
    });
}

fn written(bytes: usize) -> String {
    format!("{bytes} bytes were written after the memory came back")
}

/// Ends a session under its get from memory that the target copies from by itself.
///
/// # Panics
/// As [`Scene::new`] does.
pub fn get(context: &mut Context) -> Outcome {
    while context.again(2) {
        let mut s = Scene::new(&context.actor, 1);
        let (owner, op) = s.get();
        end(op, s.peer, s.session);
        until("the memory comes back", LONG, || owner.is_back().then_some(()));
        wait_peer_dead(&mut s.actor);
        match owner.changed() {
            0 => until("nothing is held", LONG, || held_of(1).is_empty().then_some(())),
            n => return context.broken(written(n)),
        }
    }
    context.held("no byte was written after the memory came back")
}

/// Stops the target of an operation that the session has begun, ends the session, and lets the target go on. What is wrong.
fn end_beside_the_stopped(mut s: Scene, owner: &Owner, op: Op<Span>, rank: u32) -> Option<String> {
    s.actor.stop();
    end(op, s.peer, s.session);
    if owner.is_back() {
        return Some("the memory came back while the stopped target may copy".to_owned());
    }
    let held = held_of(rank);
    if !held.iter().copied().eq(u64::try_from(LEN)) {
        return Some(format!("{held:?} bytes are held of {LEN}"));
    }
    let is_new = |h: &Held| h.peer.0 == rank && h.since.elapsed().is_ok_and(|e| e < LONG);
    if !hmc_std::held().iter().any(is_new) {
        return Some("what is held has no time".to_owned());
    }
    s.actor.resume();
    until("the memory comes back", LONG, || owner.is_back().then_some(()));
    wait_peer_dead(&mut s.actor);
    None
}

/// A get from a target that is stopped in the middle of the copy: its silence is no fence.
///
/// # Panics
/// As [`Scene::new`] does.
pub fn get_from_a_stopped_target(context: &mut Context) -> Outcome {
    while context.again(1) {
        let s = Scene::new(&context.actor, 2);
        let (owner, op) = s.get();
        if let Some(wrong) = end_beside_the_stopped(s, &owner, op, 2) {
            return context.broken(wrong);
        }
        match owner.changed() {
            0 => {}
            n => return context.broken(written(n)),
        }
    }
    context.held("the memory was held until the target went on, and did not change after that")
}

/// A put to a target that is stopped before, or while, it copies.
///
/// # Panics
/// As [`Scene::new`] does.
pub fn put_to_a_stopped_target(context: &mut Context) -> Outcome {
    while context.again(1) {
        let s = Scene::new(&context.actor, 4);
        let (owner, lent) = Owner::new(THEIRS);
        let remote = s.peer.window(5).within(LONG).wait().expect("told");
        let span = s.session.memory().register(lent).expect("space").take_all().expect("free");
        let op = remote.put(0, span).start().expect("posted");
        drop(remote);
        if let Some(wrong) = end_beside_the_stopped(s, &owner, op, 4) {
            return context.broken(wrong);
        }
    }
    context.held("the memory was held until the target went on")
}

/// Ends a session under its put from memory that the target reads by itself.
///
/// # Panics
/// When two cannot be connected.
pub fn put(context: &mut Context) -> Outcome {
    while context.again(2) {
        let mut pair = Pair::new(ConnType::Shm, 4096);
        let region = pair
            .receiver()
            .memory()
            .register(hmc_std::memory::HeapBytes::from(vec![0; LEN]))
            .expect("space");
        let span = region.take_all().expect("free");
        let window = pair.b.expose(span, Access::all(), 5).map_err(|(e, _)| e).expect("exposed");
        let remote = pair.a.window(5).within(LONG).wait().expect("told");
        let (owner, lent) = Owner::new(THEIRS);
        let span = pair.sender().memory().register(lent).expect("space").take_all().expect("free");
        let op = remote.put(0, span).start().expect("posted");
        drop(remote);
        let mut first = [0];
        until("the copy begins", LONG, || {
            window.read_at(0, &mut first).expect("ours");
            (first[0] == THEIRS).then_some(())
        });
        let session = pair.sessions.pop().expect("two sessions");
        end(op, pair.a, session);
        until("the memory comes back", LONG, || owner.is_back().then_some(()));
        until("the end is noticed", LONG, || (!pair.b.is_connected()).then_some(()));
        let span = window.revoke().within(LONG).wait().expect("its peer is gone");
        match owned(span.as_slice()) {
            0 => {}
            n => return context.broken(format!("{n} bytes were read after the memory came back")),
        }
    }
    context.held("no byte was read after the memory came back")
}
