//! Two hosts whose path is cut without a word: nothing hangs, nothing burns, nothing comes late; and when it heals,
//! everything goes on.
//!
//! Rank 0 is in this process, rank 1 in another one; each is in a network namespace of its own ([`hmc_tests::net`]).

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may panic"
)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use hmc_core::types::Access;
use hmc_std::{Error, ErrorKind, Op, Peer, Region, Session, Span, Waited, Window, want::Wanted};
use hmc_testkit::buffers::{BufferTransfers as _, Copy, Direction, has_ended};
use hmc_tests::actor::Actor;
use hmc_tests::env::{Via, bound, cpu_of, skipped, until};
use hmc_tests::net::{DEVICE, Host, Net};
use hmc_tests::pair::pattern;

const ACTOR: &str = env!("CARGO_BIN_EXE_actor");
const LONG: Duration = Duration::from_secs(20);
/// The size of one put.
const PUT: u64 = 16 << 20;
/// A peer from which nothing is received is dead after 2.5 s; the rest is time to notice that.
const DEAD_AFTER: Duration = Duration::from_millis(2500);
const DEAD_BY: Duration = Duration::from_millis(3500);
/// What the owner writes into its memory when it has it back, and what the peer puts there.
const OWN: u8 = 0x0F;
const FOREIGN: u8 = 0xF0;

/// One at a time: they measure time and the processor.
static TURN: Mutex<()> = Mutex::new(());

struct Scene<'a> {
    net: &'a Net,
    session: Session,
    actor: Actor,
    peer: Peer,
    via: Via,
}

impl<'a> Scene<'a> {
    fn new(net: &'a Net, via: Via) -> Self {
        hmc_tests::links::record();
        let (a, b) = (Host::A.ip(), Host::B.ip());
        let mut here = Session::builder(0).tcp(&format!("{a}:0")).insecure().buffer(2 * PUT);
        let mut there = format!("rank=1 tcp={b}:0 insecure buffer={}", 2 * PUT);
        if via == Via::Ucx {
            // The loopback device is named alike on both hosts and leads nowhere.
            here = here.ucx().ucx_key("TLS", "tcp").ucx_key("NET_DEVICES", DEVICE);
            there.push_str(&format!(" ucx tls=tcp devices={DEVICE}"));
        }
        let session = here.start().expect("a session");
        let mut actor = net.on(Host::B, || Actor::session(ACTOR, &there));
        let peer = session
            .connect(&actor.address())
            .rank(1)
            .over(via.conn())
            .within(LONG)
            .wait()
            .expect("connected");
        actor.request(&format!("meet 0 {}", LONG.as_millis()));
        assert_eq!(peer.explain().conn, Some(via.conn()));
        Self { net, session, actor, peer, via }
    }

    /// The link that comes after the one that was lost.
    fn met_again(&mut self) -> Peer {
        let peer = self.session.accept(1).within(bound(Duration::from_secs(15))).wait();
        let peer =
            peer.unwrap_or_else(|e| panic!("{e}; there: {:?}", self.actor.try_request("peers")));
        assert_eq!(peer.explain().conn, Some(self.via.conn()));
        self.actor.request(&format!("meet 0 {}", LONG.as_millis()));
        let e = self.peer.put_at(0, 0, 8).expect_err("the old life stays over");
        assert_dead("the old life", &e);
        peer
    }

    /// Bytes go both ways.
    fn moves_bytes(&mut self, peer: &Peer, salt: u64) {
        self.session.buffer().write_at(0, &pattern(PUT, salt)).unwrap();
        peer.put_at(0, 0, PUT).expect("a put");
        let crc = self.session.buffer().crc32c(0, PUT).unwrap();
        assert_eq!(self.actor.request(&format!("crc 0 {PUT}")), crc.to_string());
        peer.get_at(PUT, 0, PUT).expect("a get");
        assert_eq!(self.session.buffer().crc32c(PUT, PUT).unwrap(), crc);
    }
}

/// Runs a test on two hosts, or says why it cannot.
fn on_two_hosts(via: Via, test: fn(Scene<'_>)) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    match Net::new() {
        Ok(net) => net.on(Host::A, || test(Scene::new(&net, via))),
        Err(why) => skipped(&why),
    }
}

fn assert_dead(what: &str, e: &Error) {
    assert_eq!(e.kind(), ErrorKind::PeerDead, "{what}: {e}");
}

/// It was noticed by silence, and in time.
fn assert_by_silence(what: &str, took: Duration) {
    assert!(took > DEAD_AFTER - Duration::from_secs(1), "{what}: dead after only {took:?}");
    assert!(took < bound(DEAD_BY), "{what}: dead after {took:?}");
}

/// Keeps four puts in flight until one fails. When and how it did, and all that came after.
fn put_repeatedly(peer: &Peer, done: &AtomicU64) -> (Vec<Error>, Instant) {
    let mut flight = std::collections::VecDeque::new();
    let mut ends = Vec::new();
    loop {
        while flight.len() < 4 && ends.is_empty() {
            match peer.start_put_at(0, 0, PUT) {
                Ok(op) => flight.push_back(op),
                Err(e) => ends.push(e),
            }
        }
        let Some(op) = flight.pop_front() else { return (ends, Instant::now()) };
        match op.wait_for(LONG) {
            Waited::Ended(Ok(n)) => {
                assert_eq!(n, PUT);
                done.fetch_add(1, Ordering::Release);
            }
            Waited::Ended(Err(e)) => ends.push(e),
            other => panic!("a put gave {other:?}"),
        }
    }
}

/// Waits for a put of a span that cannot succeed: its memory comes back.
fn ends_dead(op: Op<Span>, region: &Region) {
    let Waited::Ended(_) = op.wait_for(LONG) else { panic!("a put of a span runs on") };
    match op.wait() {
        Err(failed) => assert_dead("a put of a span", failed.error()),
        Ok(done) => panic!("a put of a span gave {done:?}"),
    }
    until("its memory is free", Duration::from_secs(5), || region.take_all().ok());
}

/// Revokes a window of a lost peer. Over TCP it is at once the owner's again, since nobody else ever wrote it. Over UCX it
/// may take the peer's word, which does not come: the memory is in quarantine then.
fn taken_back(window: Window<hmc_std::Span>, via: Via) -> Option<Span> {
    match window.revoke().within(Duration::from_millis(100)).wait() {
        Ok(span) => Some(span),
        Err(e) => {
            assert_eq!((e.kind(), via), (ErrorKind::Quarantined, Via::Ucx), "{e}");
            None
        }
    }
}

fn cut_in_the_middle_of_puts(mut s: Scene<'_>) {
    let lent = s.session.memory().allocate(PUT).unwrap();
    let window = s.peer.expose(lent.take_all().unwrap(), Access::all(), 9).expect("exposed");
    s.actor.request(&format!("expose 0 5 {PUT} 0 own"));
    let remote = s.peer.window(5).within(LONG).wait().expect("told");
    let region = s.session.memory().allocate(PUT).unwrap();
    // Both ends put, more than they can before the cut.
    s.actor.request("find 0 9 20000");
    s.actor.send(&format!("put_window 0 9 {PUT} {FOREIGN} 100000"));
    let done = AtomicU64::new(0);
    let (ends, took, cpu) = std::thread::scope(|threads| {
        let putting = threads.spawn(|| put_repeatedly(&s.peer, &done));
        until("puts are moving", LONG, || (done.load(Ordering::Acquire) > 1).then_some(()));
        s.net.cut();
        let cut = Instant::now();
        // After the cut: before it, this one could end well.
        let op = remote.put(0, region.take_all().unwrap()).start().expect("posted");
        let busy = || cpu_of(std::process::id()) + cpu_of(s.actor.pid());
        let before = busy();
        // One with a deadline of its own, sooner than the death.
        let short = Duration::from_millis(800);
        let copy = Copy { local_offset: 0, remote_offset: 0, len: PUT };
        let e = s.peer.transfer_within(Direction::Put, copy, short).expect_err("cut");
        assert_eq!(e.kind(), ErrorKind::DeadlineExceeded, "{e}");
        assert!(cut.elapsed() < bound(2 * short), "a deadline took {:?}", cut.elapsed());
        let (ends, at) = putting.join().unwrap();
        ends_dead(op, &region);
        (ends, at - cut, busy() - before)
    });
    assert_by_silence("puts", took);
    assert!(!ends.is_empty());
    for e in &ends {
        assert_dead("a put", e);
    }
    // Two processes at rest but for heartbeats and a few copies that were under way.
    assert!(cpu < Duration::from_millis(900), "{cpu:?} of processor time in {took:?}");
    // The other end says the same of its own.
    let e = s.actor.answer().expect_err("cut in the middle of many");
    assert!(e.starts_with("PeerDead"), "{e}");
    println!("{:?}: {took:?}, {cpu:?}", s.via);
    // What was lent to the lost one.
    match taken_back(window, s.via) {
        Some(span) => assert_eq!(span.len(), PUT),
        None => assert_eq!(s.session.stats().quarantined_bytes, PUT),
    }
    s.net.heal();
    let peer = s.met_again();
    s.moves_bytes(&peer, 3);
}

fn cut_while_idle(mut s: Scene<'_>) {
    let peer = s.peer.clone();
    s.moves_bytes(&peer, 1);
    s.net.cut();
    let cut = Instant::now();
    s.actor.send(&format!("recv 0 {}", LONG.as_millis()));
    assert_dead(
        "a receive",
        &peer.recv(Wanted::Any).within(LONG).wait().expect_err("nobody is heard"),
    );
    assert_by_silence("here", cut.elapsed());
    let e = s.actor.answer().expect_err("nobody is heard");
    assert!(e.starts_with("PeerDead"), "{e}");
    assert_by_silence("there", cut.elapsed());
}

/// The end that receives nothing declares the other one dead; the other one, whose frames still arrive, is told that.
fn cut_in_one_direction(mut s: Scene<'_>) {
    for (round, host) in [(1, Host::A), (2, Host::B)] {
        let peer = s.session.accept(1).within(LONG).wait().expect("connected");
        s.moves_bytes(&peer, round);
        s.net.cut_from(host);
        let cut = Instant::now();
        s.actor.send(&format!("recv 0 {}", LONG.as_millis()));
        assert_dead("a receive", &peer.recv(Wanted::Any).within(LONG).wait().expect_err("cut"));
        assert_by_silence("here", cut.elapsed());
        let e = s.actor.answer().expect_err("cut");
        assert!(e.starts_with("PeerDead"), "{e}");
        assert_by_silence("there", cut.elapsed());
        s.net.heal_from(host);
        s.peer = peer;
        let peer = s.met_again();
        s.moves_bytes(&peer, 7);
    }
}

fn cut_and_healed_at_once(mut s: Scene<'_>) {
    for round in 0..3 {
        let (first, second) = (pattern(PUT, 2 * round), pattern(PUT, 2 * round + 1));
        s.session.buffer().write_at(0, &first).unwrap();
        s.session.buffer().write_at(PUT, &second).unwrap();
        let (peer, net) = (s.peer.clone(), s.net);
        net.cut();
        let ops =
            [peer.start_put_at(0, 0, PUT).unwrap(), peer.start_put_at(PUT, PUT, PUT).unwrap()];
        // Nothing arrives for as long as this: the kernel tries again at 0.2, 0.6 and 1.4 s, which is before the limit.
        let e = peer.recv(Wanted::Any).within(Duration::from_millis(700)).wait().expect_err("cut");
        assert_eq!(e.kind(), ErrorKind::DeadlineExceeded, "{e}");
        assert!(!has_ended(&ops[0]) && !has_ended(&ops[1]), "through a cut");
        net.heal();
        for op in ops {
            let ended = op.wait_for(LONG).ended().expect("in time");
            assert_eq!(ended.expect("it goes on"), PUT);
        }
        for at in [0, PUT] {
            let crc = s.session.buffer().crc32c(at, PUT).unwrap();
            assert_eq!(
                s.actor.request(&format!("crc {at} {PUT}")),
                crc.to_string(),
                "round {round}"
            );
        }
    }
    assert!(s.peer.is_connected(), "the link is the first one");
    assert_eq!(s.session.stats().peers_lost, 0);
}

/// The owner takes its memory back while the path is cut, and uses it: what was under way never arrives there.
fn nothing_comes_late(mut s: Scene<'_>) {
    let mut held = 0;
    for round in 0..3 {
        let region = s.session.memory().allocate(PUT).unwrap();
        let mut span = region.take_all().unwrap();
        span.fill(0);
        let peer = s.session.accept(1).within(LONG).wait().expect("connected");
        let window = peer.expose(span, Access::all(), 5).map_err(|(e, _)| e).expect("exposed");
        s.actor.request("find 0 5 20000");
        s.actor.send(&format!("put_window 0 5 {PUT} {FOREIGN} 1000"));
        let mut seen = [0];
        until("bytes arrive", LONG, || {
            window.read_at(PUT - 1, &mut seen).unwrap();
            (seen[0] == FOREIGN).then_some(())
        });
        s.net.cut();
        let cut = Instant::now();
        assert_dead("a receive", &peer.recv(Wanted::Any).within(LONG).wait().expect_err("cut"));
        assert_by_silence("here", cut.elapsed());
        let e = s.actor.answer().expect_err("cut in the middle of a thousand");
        assert!(e.starts_with("PeerDead"), "{e}");
        let mut back = taken_back(window, s.via);
        match &mut back {
            Some(span) => span.fill(OWN),
            None => held += PUT,
        }
        s.peer = peer;
        s.net.heal();
        let peer = s.met_again();
        s.moves_bytes(&peer, round);
        assert_eq!(s.session.stats().quarantined_bytes, held);
        let Some(span) = back else {
            assert_eq!(region.take(0, 1).unwrap_err().kind(), ErrorKind::Busy);
            continue;
        };
        assert!(span.as_slice().iter().all(|b| *b == OWN), "round {round}: a late byte");
        // Used again for the peer's next life.
        let window = peer.expose(span, Access::all(), 5).map_err(|(e, _)| e).expect("exposed");
        s.actor.request("find 0 5 20000");
        s.actor.request(&format!("put_window 0 5 {PUT} 77"));
        let span = window.revoke().within(LONG).wait().expect("a living peer");
        assert!(span.as_slice().iter().all(|b| *b == 77), "round {round}");
    }
}

#[test]
fn tcp_cut_in_the_middle_of_puts() {
    on_two_hosts(Via::Tcp, cut_in_the_middle_of_puts);
}

#[test]
fn tcp_cut_while_idle() {
    on_two_hosts(Via::Tcp, cut_while_idle);
}

#[test]
fn tcp_cut_in_one_direction() {
    on_two_hosts(Via::Tcp, cut_in_one_direction);
}

#[test]
fn tcp_cut_and_healed_at_once() {
    on_two_hosts(Via::Tcp, cut_and_healed_at_once);
}

#[test]
fn tcp_nothing_comes_late() {
    on_two_hosts(Via::Tcp, nothing_comes_late);
}

#[test]
#[ignore = "needs UCX: cargo xtask test-hw"]
fn ucx_cut_in_the_middle_of_puts() {
    on_two_hosts(Via::Ucx, cut_in_the_middle_of_puts);
}

#[test]
#[ignore = "needs UCX: cargo xtask test-hw"]
fn ucx_cut_while_idle() {
    on_two_hosts(Via::Ucx, cut_while_idle);
}

#[test]
#[ignore = "needs UCX: cargo xtask test-hw"]
fn ucx_cut_in_one_direction() {
    on_two_hosts(Via::Ucx, cut_in_one_direction);
}

#[test]
#[ignore = "needs UCX: cargo xtask test-hw"]
fn ucx_cut_and_healed_at_once() {
    on_two_hosts(Via::Ucx, cut_and_healed_at_once);
}

#[test]
#[ignore = "needs UCX: cargo xtask test-hw"]
fn ucx_nothing_comes_late() {
    on_two_hosts(Via::Ucx, nothing_comes_late);
}
