//! A session whose thread gets no time from before its first peer is there: that time is not the peer's silence. Alone in
//! its file: a signal's handler holds the thread.

#![allow(clippy::as_conversions, clippy::unwrap_used, reason = "tests may panic")]

use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use hmc_std::{ErrorKind, Message, Session, want::Wanted};
use hmc_tests::actor::Actor;
use hmc_tests::env::{TempDir, Via, until};

const ACTOR: &str = env!("CARGO_BIN_EXE_actor");
const LONG: Duration = Duration::from_secs(20);
/// Longer than the silence after which a peer is dead.
const DEAD_AFTER: Duration = Duration::from_secs(3);

/// What the handler reads from, and how many threads have begun to.
static GATE: AtomicI32 = AtomicI32::new(-1);
static HELD: AtomicU32 = AtomicU32::new(0);

extern "C" fn hold(_: libc::c_int) {
    HELD.fetch_add(1, Ordering::SeqCst);
    let mut byte = 0_u8;
    // SAFETY: read(2) into one byte of ours, which is async-signal-safe.
    let _ = unsafe { libc::read(GATE.load(Ordering::SeqCst), (&raw mut byte).cast(), 1) };
}

/// Holds the thread of that name until a byte comes through the gate.
fn hold_thread(name: &str) {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let is_it = |path: &std::path::Path| {
        std::fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim_end() == name)
    };
    let task = tasks.map(|t| t.path()).find(|path| is_it(path)).expect("the session's thread");
    let number = task.file_name().and_then(|n| n.to_str()).and_then(|n| n.parse().ok());
    let number: libc::pid_t = number.expect("a number");
    let before = HELD.load(Ordering::SeqCst);
    let process = libc::pid_t::try_from(std::process::id()).unwrap();
    // SAFETY: tgkill(2) takes numbers only; the signal has a handler.
    let sent = unsafe { libc::syscall(libc::SYS_tgkill, process, number, libc::SIGUSR1) };
    assert_eq!(sent, 0, "no signal was sent");
    until("the thread is held", LONG, || (HELD.load(Ordering::SeqCst) > before).then_some(()));
}

#[test]
fn time_that_a_thread_did_not_get_is_not_its_first_peers_silence() {
    let (gate, mut open) = std::io::pipe().unwrap();
    GATE.store(gate.as_raw_fd(), Ordering::SeqCst);
    let handler: extern "C" fn(libc::c_int) = hold;
    // SAFETY: signal(2) with a handler that makes async-signal-safe calls only.
    let set = unsafe { libc::signal(libc::SIGUSR1, handler as libc::sighandler_t) };
    assert_ne!(set, libc::SIG_ERR, "no handler");
    for via in Via::all() {
        let dir = TempDir::new();
        let path = dir.path().display();
        let mut actor =
            Actor::session(ACTOR, &format!("rank=1 uds={path} tcp=127.0.0.1:0 buffer=4096"));
        let session = Session::builder(0).buffer(4096).start().unwrap();
        // It sleeps without a limit, since there is no peer.
        hold_thread("hmc-0");
        let peer =
            session.connect(&dir.address()).rank(1).over(via.conn()).within(LONG).wait().unwrap();
        actor.request("meet 0 20000");
        // Whatever the peer has sent by now is read: the thread finds nothing of it later.
        peer.recv(Wanted::Any).within(Duration::from_millis(100)).wait().expect_err("nobody sends");
        actor.stop();
        let (_nobody, silence) = channel::<()>();
        silence.recv_timeout(DEAD_AFTER).expect_err("nobody sends");
        open.write_all(&[0]).unwrap();
        let e = peer
            .recv(Wanted::Any)
            .within(Duration::from_millis(300))
            .wait()
            .expect_err("nobody sends");
        assert_eq!(e.kind(), ErrorKind::DeadlineExceeded, "{via:?}: {e}");
        actor.resume();
        actor.request("send 0 7");
        assert_eq!(peer.recv(Wanted::Any).within(LONG).wait().unwrap(), Message::Tag(7), "{via:?}");
    }
}
