//! A storm of signals: system calls end early with EINTR all the time, and nobody notices.

#![allow(
    clippy::as_conversions,
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may panic"
)]

use hmc_std::{Message, Session};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hmc_testkit::buffers::BufferTransfers as _;
use hmc_tests::actor::Actor;
use hmc_tests::env::{TempDir, Via};

const ACTOR: &str = env!("CARGO_BIN_EXE_actor");
const LONG: Duration = Duration::from_secs(20);
const MIB: u64 = 1 << 20;

/// Signals that must have come before the transfers count as disturbed.
const ENOUGH: u64 = 300;

static CAME: AtomicU64 = AtomicU64::new(0);

extern "C" fn count(_: libc::c_int) {
    CAME.fetch_add(1, Ordering::Relaxed);
}

/// SIGALRM a thousand times a second, to whatever thread, without `SA_RESTART`.
fn storm(micros: libc::suseconds_t) {
    let handler: extern "C" fn(libc::c_int) = count;
    // SAFETY: all zeros are a valid `sigaction`: no flags (so calls are not restarted), empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as libc::sighandler_t;
    // SAFETY: sigaction(2) with a valid action and no place for the old one. The handler only adds
    // to an atomic number, which is async-signal-safe.
    let set = unsafe { libc::sigaction(libc::SIGALRM, &raw const action, std::ptr::null_mut()) };
    assert_eq!(set, 0, "no handler");
    let every = libc::timeval { tv_sec: 0, tv_usec: micros };
    let timer = libc::itimerval { it_interval: every, it_value: every };
    // SAFETY: setitimer(2) with a valid value and no place for the old one.
    let set = unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) };
    assert_eq!(set, 0, "no timer");
}

#[test]
fn a_storm_of_signals_disturbs_nothing() {
    storm(1000);
    for via in Via::all() {
        let dir = TempDir::new();
        let path = dir.path().display().to_string();
        let mut actor =
            Actor::session(ACTOR, &format!("rank=1 uds={path} tcp=127.0.0.1:0 buffer=4194304"));
        let s = Session::builder(0).buffer(4 * MIB).start().unwrap();
        let peer = s.connect(&dir.address()).rank(1).over(via.conn()).within(LONG).wait().unwrap();
        actor.request("meet 0 20000");
        let before = CAME.load(Ordering::Relaxed);
        let mut round = 0_u8;
        while CAME.load(Ordering::Relaxed) < before + ENOUGH {
            round = round.wrapping_add(1);
            s.buffer().fill(0, 4 * MIB, round).unwrap();
            let sum = s.buffer().crc32c(0, 4 * MIB).unwrap();
            peer.put_at(0, 0, 4 * MIB).expect("a put");
            s.buffer().fill(0, 4 * MIB, !round).unwrap();
            peer.get_at(0, 0, 4 * MIB).expect("a get");
            assert_eq!(s.buffer().crc32c(0, 4 * MIB).unwrap(), sum, "{via:?}, round {round}");
            peer.send(Message::Tag(u64::from(round))).wait().expect("a tag");
        }
        assert!(peer.is_connected(), "{via:?}");
        assert_eq!(s.stats().peers_lost, 0, "{via:?}");
    }
    storm(0);
}
