//! A caller that waits, and sleeps at once, serves its link by itself: the session's own thread sleeps meanwhile.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use hmc_tests::listening::Listening as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hmc_std::{Address, ConnType, Session};
use hmc_testkit::buffers::BufferTransfers as _;

/// Waits of one round.
const PUTS: u64 = 500;
const LONG: Duration = Duration::from_secs(30);

/// This process's thread of that name.
fn thread(name: &str) -> PathBuf {
    let all = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let is = |path: &PathBuf| std::fs::read_to_string(path.join("comm")).unwrap().trim() == name;
    all.into_iter().find(is).expect("the session's thread")
}

/// How often it went to sleep (`voluntary_ctxt_switches` of proc_pid_status(5)).
fn sleeps(thread: &Path) -> u64 {
    let text = std::fs::read_to_string(thread.join("status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.unwrap().trim().parse().unwrap()
}

#[test]
fn a_session_s_thread_sleeps_while_a_caller_waits() {
    let target = Session::builder(1).buffer(4096).tcp("127.0.0.1:0").start().unwrap();
    let source = Session::builder(0).buffer(4096).spin(Duration::ZERO).start().unwrap();
    let address = Address::Tcp(target.tcp_addr().unwrap());
    let peer = source
        .connect(&address)
        .rank(1)
        .over(ConnType::Tcp)
        .within(Duration::from_secs(20))
        .wait()
        .unwrap();
    let thread = thread("hmc-0");
    // It is sometimes woken for reasons of its own, in one round or the other; and by answers that come before the caller
    // waits, where others keep it from its processor.
    let begun = Instant::now();
    let mut fewest = PUTS;
    while fewest >= PUTS / 20 {
        assert!(begun.elapsed() < LONG, "it was woken {fewest} times in {PUTS} waits");
        let before = sleeps(&thread);
        (0..PUTS).for_each(|_| peer.put_at(0, 0, 8).unwrap());
        fewest = fewest.min(sleeps(&thread) - before);
    }
}
