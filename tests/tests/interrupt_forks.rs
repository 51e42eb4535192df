//! An interrupt hook that forks in the middle of a call: the child has no part in it. Alone in its file: a fork copies whatever
//! other threads hold.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may panic"
)]

use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use hmc_std::{
    ErrorKind, Message, Session,
    want::{self, Wanted},
};
use hmc_tests::actor::Actor;
use hmc_tests::env::{TempDir, until};
use hmc_tests::listening::Listening as _;

const ACTOR: &str = env!("CARGO_BIN_EXE_actor");
const LONG: Duration = Duration::from_secs(30);
const LEN: u64 = 4096;

/// Whether the hook below is to fork: 1. It has: 0, and 2 in the child. And the child's number.
static FORKED: [AtomicI32; 2] = [const { AtomicI32::new(0) }; 2];

fn forks() -> bool {
    if FORKED[0].compare_exchange(1, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
        // SAFETY: fork(2). The child comes back to its call, which ends, and then ends itself.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            FORKED[0].store(2, Ordering::SeqCst);
            // SAFETY: alarm(2) takes a number.
            unsafe { libc::alarm(60) };
        }
        FORKED[1].store(pid, Ordering::SeqCst);
    }
    false
}

/// Has the hook fork in that call, which gives what it ended with. The child's must be `Forked`; it ends here.
fn fork_in<R>(call: impl FnOnce() -> hmc_std::Result<R>) -> hmc_std::Result<R> {
    FORKED[0].store(1, Ordering::SeqCst);
    fork_later_in(call)
}

/// As [`fork_in`], once another thread sets `FORKED`.
fn fork_later_in<R>(call: impl FnOnce() -> hmc_std::Result<R>) -> hmc_std::Result<R> {
    let got = call();
    if FORKED[0].load(Ordering::SeqCst) == 2 {
        let told = got.is_err_and(|e| e.kind() == ErrorKind::Forked);
        // SAFETY: _exit(2) takes a number.
        unsafe { libc::_exit(if told { 7 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: waitpid(2) on the child made above; `status` is a valid place for the answer.
    unsafe { libc::waitpid(FORKED[1].load(Ordering::SeqCst), &raw mut status, 0) };
    assert_eq!(status, 7 << 8, "{status:#x}");
    got
}

#[test]
fn a_child_that_the_hook_forks_has_no_part_in_the_call() {
    let dir = TempDir::new();
    let target = Session::builder(1).uds(dir.path()).buffer(LEN).start().unwrap();
    let source = Session::builder(0).interrupt(forks).heartbeat(None).uds(dir.path());
    let source = source.buffer(LEN).start().unwrap();
    let peer = source.connect(&dir.address()).rank(1).wait().unwrap();
    let back = target.accept(0).within(LONG).wait().unwrap();
    let goes_on = |n: u64| {
        back.send(Message::Tag(n)).wait().unwrap();
        assert_eq!(peer.recv(want::Tag).wait().unwrap(), n);
        assert!(source.uds_paths().into_iter().next().unwrap().exists());
    };
    let short = Duration::from_secs(2);
    for want in [Wanted::Tag, Wanted::Any] {
        let got = fork_in(|| peer.recv(want).within(short).wait());
        assert_eq!(got.map_err(|e| e.kind()), Err(ErrorKind::DeadlineExceeded));
        goes_on(9);
    }
    // The other member of the group does not come.
    let group = source.group(&[0, 1]).wait().unwrap();
    let got = fork_in(|| group.barrier().within(short).wait());
    assert_eq!(got.map_err(|e| e.kind()), Err(ErrorKind::DeadlineExceeded));
    goes_on(10);
    // A stopped process says no goodbye.
    let settings = format!("rank=2 uds={} buffer={LEN} heartbeat=0", dir.path().display());
    let stopped = Actor::session(ACTOR, &settings);
    source.connect(&dir.address()).rank(2).wait().unwrap();
    stopped.stop();
    // Nor does it answer a member that gives up.
    let (began, deadline) = (Instant::now(), Duration::from_secs(1));
    let group = source.group(&[0, 2]).wait().unwrap();
    let got = std::thread::scope(|s| {
        s.spawn(|| {
            let by = deadline + Duration::from_millis(100);
            until("it gives up", LONG, || (began.elapsed() > by).then_some(()));
            FORKED[0].store(1, Ordering::SeqCst);
        });
        fork_later_in(|| group.barrier().within(deadline).wait())
    });
    assert_eq!(got.map_err(|e| e.kind()), Err(ErrorKind::DeadlineExceeded));
    let socket = source.uds_paths().into_iter().next().unwrap();
    let got = fork_in(|| {
        let ended = source.shutdown().within(short).wait();
        let is_child = FORKED[0].load(Ordering::SeqCst) == 2;
        assert!(!is_child || socket.exists(), "the child removed the socket");
        ended
    });
    stopped.resume();
    assert_eq!(got.map_err(|e| e.kind()), Err(ErrorKind::DeadlineExceeded));
}
