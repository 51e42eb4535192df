//! The data path allocates nothing: on no thread, of neither process, over 10^5 operations.
//! One test only: the allocator counts for the whole program.

#![allow(clippy::arithmetic_side_effects, clippy::unwrap_used, reason = "tests may panic")]

use hmc_testkit::buffers::{BufferTransfers as _, Copy, Direction, Ends, wait};
use std::os::fd::AsFd as _;
use std::time::Duration;

use hmc_std::{Peer, Session, Waited, wait_any};
use hmc_tests::actor::Actor;
use hmc_tests::counting::Counting;
use hmc_tests::env::{TempDir, Via};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

#[global_allocator]
static ALLOCATOR: Counting = Counting::new();

const ACTOR: &str = env!("CARGO_BIN_EXE_actor");
const LONG: Duration = Duration::from_secs(20);
const SLEEP: Timespec = Timespec { tv_sec: 20, tv_nsec: 0 };
const BUFFER: u64 = 4 << 20;
/// Operations of each kind on each transport; the whole is more than 10^5.
const ROUNDS: u32 = 36_000;

/// The allocations of the other process while `work` runs here, less what asking costs.
fn abroad(actor: &mut Actor, work: impl FnOnce()) -> u64 {
    let mut ask = || actor.request("allocations").parse::<u64>().unwrap();
    // The answers are of one length each, or the number grows by a digit once in a long while.
    let (a, b) = (ask(), ask());
    work();
    ask().saturating_sub(b).saturating_sub(b.saturating_sub(a))
}

fn all_kinds(session: &Session, peer: &Peer, rounds: u32) {
    let copies: Vec<Copy> = (0..8u32)
        .map(|n| {
            let at = u64::from(n) * 8192;
            Copy { local_offset: at, remote_offset: at, len: 512 }
        })
        .collect();
    let batch = peer.prepare_at(Direction::Put, &copies).unwrap();
    measured("put", || peer.put_at(0, 64, 64).unwrap(), rounds);
    measured("get", || peer.get_at(0, 64, 4096).unwrap(), rounds);
    measured(
        "start and wait",
        || {
            let a = peer.start_put_at(0, 0, 300).unwrap();
            let b = peer.start_put_at(4096, 4096, 70_000).unwrap();
            wait(b).unwrap();
            wait(a).unwrap();
        },
        rounds / 4,
    );
    measured(
        "prepared batch",
        || {
            let op = batch.start().unwrap();
            wait(op).unwrap();
        },
        rounds / 4,
    );
    measured(
        "put to a peer by its rank",
        || session.peer(1).unwrap().put_at(0, 64, 64).unwrap(),
        rounds,
    );
    // The first `wait_any` that sleeps makes what it sleeps on. Over TCP this one does: it moves more than a socket holds.
    let long = peer.start_get_at(0, 0, BUFFER).unwrap();
    assert_eq!(wait_any(&[&long], LONG).unwrap(), Waited::Ended(0));
    wait(long).unwrap();
    measured(
        "start and wait_any",
        || {
            let (a, b) = (
                peer.start_put_at(0, 0, 300).unwrap(),
                peer.start_get_at(4096, 4096, 70_000).unwrap(),
            );
            let first = wait_any(&[&a, &b], LONG).unwrap().ended().unwrap();
            for op in if first == 0 { [a, b] } else { [b, a] } {
                wait(op).unwrap();
            }
        },
        rounds / 4,
    );
    // A window that is kept finds its mapped pages once.
    let (remote, buffer) = (peer.buffer().unwrap(), session.buffer());
    let put = || {
        remote.put(64, buffer.range(0, 64).unwrap()).wait().unwrap();
    };
    measured("put by a window that is kept", put, rounds);
    measured("put of 2 MiB", || peer.put_at(0, 0, 2 << 20).unwrap(), rounds / 240);
}

/// The same beside the sessions' own buffers.
fn between(ends: &Ends, rounds: u32) {
    let copies = [0, 8192].map(|at| Copy { local_offset: at, remote_offset: at, len: 512 });
    let batch = ends.prepare_at(Direction::Put, &copies).unwrap();
    measured("put from another buffer", || ends.put_at(0, 64, 64).unwrap(), rounds);
    measured(
        "start between other buffers and wait",
        || {
            let a = ends.start_get_at(0, 0, 300).unwrap();
            let b = ends.start_put_at(4096, 4096, 70_000).unwrap();
            wait(b).unwrap();
            wait(a).unwrap();
        },
        rounds,
    );
    measured("batch between other buffers", || batch.run().unwrap(), rounds);
}

fn measured(what: &str, mut op: impl FnMut(), rounds: u32) {
    for _ in 0..rounds.min(100) {
        op();
    }
    let before = ALLOCATOR.count_of_test();
    for _ in 0..rounds {
        op();
    }
    let n = ALLOCATOR.count_of_test() - before;
    assert_eq!(n, 0, "{rounds} times `{what}`: {n} allocations in this process");
}

#[test]
fn the_data_path_allocates_nothing_in_either_process() {
    for via in Via::all() {
        let dir = TempDir::new();
        let settings =
            format!("rank=1 uds={} tcp=127.0.0.1:0 buffer={BUFFER}", dir.path().display());
        let mut actor = Actor::session(ACTOR, &settings);
        let session = Session::builder(0).buffer(BUFFER).start().unwrap();
        let peer =
            session.connect(&dir.address()).rank(1).over(via.conn()).within(LONG).wait().unwrap();
        all_kinds(&session, &peer, 200);
        let n = abroad(&mut actor, || all_kinds(&session, &peer, ROUNDS));
        assert!(n <= 8, "{via:?}: {n} allocations in the target's process");
        println!("allocations_of_the_target_{via:?} {n}");
        let mapped = session.memory().allocate(1 << 20).unwrap();
        let adopted =
            session.memory().register(hmc_std::memory::HeapBytes::from(vec![0; 1 << 20])).unwrap();
        // Both live until the end: to let go of a region takes a place in the list of free keys.
        let pairs = [mapped, adopted].map(|region| {
            let buffer = region.share().unwrap();
            Ends { local: buffer, remote: peer.buffer().unwrap() }
        });
        for ends in &pairs {
            between(ends, 200);
            let n = abroad(&mut actor, || between(ends, ROUNDS / 20));
            assert!(n <= 2, "{via:?}: {n} allocations in the target's process, other buffers");
        }
        // Tags are messages: each may cost its place in the inbox, none costs more.
        let tags = 1000;
        for tag in 0..tags {
            peer.put_notify_at(0, 0, 256, tag).unwrap();
            actor.request("recv 0 20000");
        }
        let before = ALLOCATOR.count_of_test();
        for tag in 0..tags {
            peer.put_notify_at(0, 0, 256, tag).unwrap();
        }
        let n = ALLOCATOR.count_of_test() - before;
        assert_eq!(n, 0, "{via:?}: {n} allocations for {tags} put_notify");
        // From here on the ends of operations show on the session's descriptor.
        let events = session.events().unwrap();
        let under_a_loop = || {
            let op = peer.start_put_at(4096, 4096, 70_000).unwrap();
            while op.wait_for(Duration::ZERO).ended().map(Result::unwrap).is_none() {
                let fd = PollFd::from_borrowed_fd(events.as_fd(), PollFlags::IN);
                assert_eq!(poll(&mut [fd], Some(&SLEEP)), Ok(1), "{via:?}: it has ended");
                events.clear().unwrap();
            }
        };
        measured("start and sleep on the descriptor", under_a_loop, 1000);
    }
}
