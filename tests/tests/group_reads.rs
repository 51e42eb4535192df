//! Long messages of collectives between processes of one host, which the receiver reads in the sender's memory (docs/WIRE.md, 9).
//! The tests of the words are those of `channel/tests.rs` in hmc-std.

#![allow(
    clippy::unwrap_used,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::indexing_slicing,
    reason = "tests may panic"
)]

use std::future::IntoFuture as _;
use std::time::{Duration, Instant};

use hmc_mem::os::cma;
use hmc_mem::os::io::IoError;
use hmc_mem::shared::SharedBytes;
use hmc_std::ErrorKind;
use hmc_tests::actor::Actor;
use hmc_tests::env::{Via, seed, until};
use hmc_tests::executor::{block_on, poll_once};
use hmc_tests::group_fixture::GroupFixture;
use hmc_tests::random_collectives;
use rustix::process::Pid;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

const ACTOR: &str = env!("CARGO_BIN_EXE_actor");
const LONG: Duration = Duration::from_secs(20);

/// Processes with those settings, connected with each other and with rank 0, which is this process.
fn actors(members: &GroupFixture, settings: &[&str]) -> Vec<Actor> {
    let at = members.dir.path().display();
    let start = |(rank, settings): (u32, &&str)| {
        let mut actor = Actor::session(ACTOR, &format!("rank={rank} uds={at} {settings}"));
        for other in 0..rank {
            actor.request(&format!("connect {other} {at} shm 20000"));
        }
        actor
    };
    (1..).zip(settings).map(start).collect()
}

/// Two and four processes, of which some do not read, nor let others read.
#[test]
fn random_collectives_of_processes_give_what_they_must() {
    let seed = seed(1);
    let cases: [(bool, &[&str]); 5] = [
        (true, &["cma=1"]),
        (true, &["cma=0"]),
        (false, &["cma=1"]),
        (true, &["cma=1", "cma=1", "cma=1"]),
        (true, &["cma=0", "cma=1", "cma=1"]),
    ];
    for (n, (reads, settings)) in cases.into_iter().enumerate() {
        let members = GroupFixture::with(Via::Shm, 1, |b| b.cma(reads));
        let mut others = actors(&members, settings);
        let ranks: Vec<u32> = (0..).take(settings.len() + 1).collect();
        let words: Vec<String> = ranks.iter().map(u32::to_string).collect();
        let seed = seed + n as u64;
        others.iter_mut().for_each(|a| a.send(&format!("random {seed} 40 {}", words.join(" "))));
        let group = members.sessions[0].group(&ranks).wait().unwrap();
        random_collectives::run(&group, seed, 40).unwrap_or_else(|e| panic!("case {n}: {e}"));
        for other in &mut others {
            other.answer().unwrap_or_else(|e| panic!("case {n}: {e}"));
        }
    }
}

/// The sender has its memory back at once, and writes to it.
#[test]
fn a_sender_whose_time_is_over_has_sent_nothing_or_the_right_bytes() {
    const TIMES: u64 = 300;
    let members = GroupFixture::new(Via::Shm, 1);
    let mut sender = actors(&members, &[""]).remove(0);
    let mut bytes = vec![0; 1 << 20];
    sender.send(&format!("send_late {} {TIMES} 2 1 0", bytes.len()));
    let mut received = 0;
    for n in 0..TIMES {
        let group = members.sessions[0].group(&[1, 0]).within(LONG).wait().unwrap();
        group.barrier().within(LONG).wait().unwrap();
        bytes.fill(0);
        match group.broadcast(0, &mut bytes).within(LONG).wait() {
            Ok(()) => {
                received += 1;
                assert!(bytes.iter().all(|b| *b == 1), "time {n}: bytes of after its end");
            }
            Err(e) => assert_eq!(e.kind(), ErrorKind::DeadlineExceeded, "time {n}: {e}"),
        }
    }
    let sent: u64 = sender.answer().unwrap().parse().unwrap();
    assert!(sent <= received, "{sent} were sent, {received} received");
    assert!(received < TIMES, "the first one had no time");
}

/// A poll reads a part of such a message, and nobody else tells the task to go on. A park ends after 50 ms at the latest.
#[test]
fn a_task_reads_a_whole_message_without_a_sleep() {
    const TIMES: usize = 20;
    const LEN: usize = 9 << 20;
    let members = GroupFixture::new(Via::Shm, 1);
    let mut sender = actors(&members, &[""]).remove(0);
    sender.send(&format!("collect broadcast {LEN} 1 0"));
    let group = members.sessions[0].group(&[1, 0]).wait().unwrap();
    let mut bytes = vec![0; LEN];
    let mut took = || {
        let begun = Instant::now();
        block_on(group.broadcast(0, &mut bytes).within(LONG).into_future()).unwrap();
        begun.elapsed()
    };
    let slow = (0..TIMES).map(|_| took()).filter(|took| *took >= Duration::from_millis(45)).count();
    assert!(slow < TIMES / 2, "{slow} of {TIMES} slept");
}

/// What is read where it lies needs nothing of its sender: one that is stopped then is no hindrance, and puts no ring full.
#[test]
fn a_long_message_of_a_sender_that_is_stopped_is_received() {
    const LEN: usize = 64 << 20;
    let members = GroupFixture::new(Via::Shm, 1);
    let mut sender = actors(&members, &[""]).remove(0);
    sender.send(&format!("collect broadcast {LEN} 1 0"));
    let group = members.sessions[0].group(&[1, 0]).wait().unwrap();
    let mut bytes = vec![0; LEN];
    let view = SharedBytes::of_mut(&mut bytes);
    let mut receive = Box::pin(group.broadcast_view(0, view).within(LONG).into_future());
    let has = |at: u64| {
        let mut byte = [0];
        view.read_at(view.span(at, 1).unwrap(), &mut byte).unwrap();
        byte == [1]
    };
    until("a part has come", LONG, || {
        assert!(poll_once(&mut receive).is_pending());
        has(0).then_some(())
    });
    sender.stop();
    assert!(!has(LEN as u64 - 1), "the rest has not come");
    let received = block_on(receive);
    sender.resume();
    received.unwrap();
    assert!(bytes.iter().all(|byte| *byte == 1));
}

/// A process that forbids it (prctl(2), PR_SET_DUMPABLE), and one that may not do it nevertheless.
#[test]
fn messages_that_the_system_forbids_to_read_come_through_the_ring() {
    let members = GroupFixture::new(Via::Shm, 1);
    let mut other = actors(&members, &[""]).remove(0);
    other.request("forbid_reads");
    let mut sets = capabilities(None).unwrap();
    sets.effective.remove(CapabilitySet::SYS_PTRACE);
    // Those of this thread.
    set_capabilities(None, sets).unwrap();
    let pid = Pid::from_raw(i32::try_from(other.pid()).unwrap()).unwrap();
    let mut byte = [0];
    let into = SharedBytes::of_mut(&mut byte);
    // SAFETY: it is another process.
    let read = unsafe { cma::read(pid, 1, &into, into.extent().whole()) };
    assert!(matches!(read, Err(IoError::Os { errno: libc::EPERM })), "{read:?}");
    let seed = seed(2);
    other.send(&format!("random {seed} 40 0 1"));
    let group = members.sessions[0].group(&[0, 1]).wait().unwrap();
    random_collectives::run(&group, seed, 40).unwrap();
    other.answer().unwrap();
}
