//! System calls of transfers, counted by strace.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::time::{Duration, Instant};

use hmc_std::{ConnType, Session};
use hmc_tests::actor::Actor;
use hmc_tests::env::{TempDir, skipped, until};
use hmc_tests::strace::Strace;

const ACTOR: &str = env!("CARGO_BIN_EXE_actor");
const LONG: Duration = Duration::from_secs(2);

/// Neither the copy nor entering and leaving the window needs the kernel. The thread that moves the bytes makes calls for the command
/// and its answer alone.
#[test]
fn puts_and_gets_of_mapped_windows_make_none() {
    let dir = TempDir::new();
    let target = Session::builder(0).uds(dir.path()).buffer(4096).start().unwrap();
    let mut actor = Actor::session(ACTOR, "rank=1 buffer=4096");
    actor.request(&format!("connect 0 {} shm 20000", dir.address()));
    assert_eq!(target.peer(1).unwrap().explain().conn, Some(ConnType::Shm));
    let log = dir.path().join("calls");
    let counted = ["-o", log.to_str().unwrap()];
    let strace = match Strace::attach(actor.pid(), &counted) {
        Ok(strace) => strace,
        Err(why) => return skipped(&why),
    };
    actor.request("put 0 0 0 8 1000");
    actor.request("get 0 0 0 8 1000");
    drop(strace);
    let text = std::fs::read_to_string(&log).unwrap();
    let calls = text.lines().count();
    assert!(text.contains("write("), "strace saw not even the answer: {text}");
    assert!(
        calls < 100,
        "{calls} calls for 2000 transfers: {}",
        text.lines().take(20).collect::<String>()
    );
}

/// Over shared memory a counter is the heartbeat: the control connection of an idle link is silent.
#[test]
fn an_idle_link_over_shared_memory_sends_nothing() {
    let dir = TempDir::new();
    let period = Duration::from_millis(100);
    let target = Session::builder(0).uds(dir.path()).buffer(4096).heartbeat(Some(period));
    let target = target.start().unwrap();
    let mut actor = Actor::session(ACTOR, "rank=1 buffer=4096 heartbeat=100");
    actor.request(&format!("connect 0 {} shm 20000", dir.address()));
    let log = dir.path().join("calls");
    let counted = ["-f", "-e", "trace=sendto,sendmsg,write", "-o", log.to_str().unwrap()];
    let strace = match Strace::attach(actor.pid(), &counted) {
        Ok(strace) => strace,
        Err(why) => return skipped(&why),
    };
    let begun = Instant::now();
    until("ten periods are over", 10 * LONG, || (begun.elapsed() > 10 * period).then_some(()));
    // What strace is seen to see: the answer.
    actor.request("peers");
    drop(strace);
    let text = std::fs::read_to_string(&log).unwrap();
    assert!(text.contains("write("), "strace saw not even the answer: {text}");
    let sent = text.lines().filter(|line| line.contains("sendto(") || line.contains("sendmsg("));
    assert!(sent.count() < 3, "{text}");
    assert!(target.peer(1).unwrap().is_connected());
}
