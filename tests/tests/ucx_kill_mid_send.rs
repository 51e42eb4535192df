//! A peer that is killed in the middle of a message over UCX's shared memory: it stops the queue that the message was for,
//! and nobody else may have been using that one.
//!
//! UCX takes a place in the queue, attaches the memory that the place names, and fills it. `strace` kills a peer at each of
//! its attachments in turn, so at that one too.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::time::{Duration, Instant};

use hmc_std::{Access, ConnType, Peer, Session, Span, Window};
use hmc_testkit::buffers::BufferTransfers as _;
use hmc_tests::actor::Actor;
use hmc_tests::env::{skipped, until};
use hmc_tests::listening::Listening as _;
use hmc_tests::strace::Strace;

const ACTOR: &str = env!("CARGO_BIN_EXE_actor");
const LONG: Duration = Duration::from_secs(20);
const LANES: &str = "sysv,cma,self";
const KIB: u64 = 1 << 10;
/// Attachments that a peer makes to come here and to learn of a window: fewer than these.
const MOST: u32 = 12;

/// Somebody who kills an actor at the `nth` attachment that one of its threads makes from now.
fn killer(actor: &Actor, nth: u32) -> Result<Strace, String> {
    let inject = format!("--inject=shmat:signal=KILL:when={nth}");
    Strace::attach(actor.pid(), &["-f", "-o", "/dev/null", "-e", "trace=shmat", &inject])
}

/// The session, a window of plain memory for one of its peers, and that peer's process.
struct Bystander {
    peer: Peer,
    actor: Actor,
    label: u64,
    _window: Window<hmc_std::Span>,
}

fn settings(rank: u32) -> String {
    format!("rank={rank} ucx tls={LANES} buffer={KIB}")
}

fn memory(hub: &Session) -> Span {
    hub.memory()
        .register(hmc_std::memory::HeapBytes::from(vec![0; 64 << 10]))
        .unwrap()
        .take_all()
        .unwrap()
}

impl Bystander {
    fn new(hub: &Session, address: &str, rank: u32) -> Self {
        let mut actor = Actor::session(ACTOR, &settings(rank));
        actor.request(&format!("connect 0 {address} ucx 20000"));
        let peer = hub.accept(rank).within(LONG).wait().unwrap();
        assert_eq!(peer.explain().conn, Some(ConnType::Ucx));
        let label = u64::from(rank);
        let window = peer.expose(memory(hub), Access::all(), label).map_err(|(e, _)| e).unwrap();
        actor.request(&format!("find 0 {label} 20000"));
        Self { peer, actor, label, _window: window }
    }

    /// It reaches the session, and the session it.
    fn goes_on(&mut self) {
        let begun = Instant::now();
        self.actor.request(&format!("put_window 0 {} 8 1", self.label));
        self.actor.request(&format!("put_window 0 {} 65536 2", self.label));
        self.peer.put_at(0, 0, 8).unwrap();
        assert!(begun.elapsed() < LONG, "{:?}", begun.elapsed());
    }
}

/// When the killing begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    Start,
    Connected,
}

/// A victim killed at its `nth` attachment. Whether it was.
fn victim(hub: &Session, address: &str, rank: u32, from: From, nth: u32) -> Result<bool, String> {
    let mut actor = Actor::session(ACTOR, &settings(rank));
    let connect = format!("connect 0 {address} ucx 20000");
    let mut strace;
    if from == From::Start {
        strace = killer(&actor, nth)?;
    } else {
        actor.request(&connect);
        strace = killer(&actor, nth)?;
    }
    let mut lives = from == From::Connected || actor.survives(&connect);
    if lives {
        let window =
            hub.accept(rank).within(LONG).wait().unwrap().expose(memory(hub), Access::all(), 5);
        lives = actor.survives("find 0 5 20000") && actor.survives("put_window 0 5 65536 1");
        drop(window);
    }
    drop(actor);
    strace.wait();
    Ok(!lives)
}

#[test]
#[ignore = "needs UCX and strace: cargo xtask test-hw"]
fn who_is_killed_in_the_middle_of_a_message_takes_nobody_along() {
    hmc_tests::links::record();
    let hub = Session::builder(0).tcp("127.0.0.1:0").ucx().ucx_key("TLS", LANES).buffer(KIB);
    let hub = hub.start().unwrap();
    let address = format!("tcp://{}", hub.tcp_addr().unwrap());
    let mut bystander = Bystander::new(&hub, &address, 1);
    let mut rank = 1;
    for from in [From::Start, From::Connected] {
        let mut killed = 0;
        for nth in 1..MOST {
            rank += 2;
            match victim(&hub, &address, rank, from, nth) {
                Ok(true) => killed += 1,
                Ok(false) => break,
                Err(why) => return skipped(&why),
            }
            bystander.goes_on();
            Bystander::new(&hub, &address, rank + 1).goes_on();
        }
        println!("{from:?}: {killed} killed");
        assert!(killed > 0, "{from:?}");
    }
    until("the dead are gone", LONG, || (hub.peers().len() == 1).then_some(()));
    bystander.goes_on();
}
