//! Tags of puts between whole sessions over RDMA verbs, by the fake libibverbs: full inboxes, ends of senders, threads that sleep.

#![allow(clippy::arithmetic_side_effects, clippy::unwrap_used, reason = "tests may panic")]

use std::time::Duration;

use hmc_std::{ConnType, Message, Peer, Progress, Session, want::Wanted};
use hmc_testkit::buffers::{BufferTransfers as _, wait};
use hmc_tests::env::TempDir;
use hmc_tests::fake_ibv::{FakeIbv, run_ignored};

const LONG: Duration = Duration::from_secs(20);

#[test]
fn sessions_over_the_fake_library() {
    run_ignored();
}

/// Two sessions of this process; the target's inbox takes so many messages.
fn connected(
    fake: &FakeIbv,
    inbox: usize,
    progress: Progress,
) -> (Session, Session, Peer, Peer, TempDir) {
    fake.set("ticker_us", 50);
    let dir = TempDir::new();
    let target = Session::builder(1).uds(dir.path()).buffer(4096).inbox(inbox, 1 << 20);
    let target = target.start().unwrap();
    let source = Session::builder(0).buffer(4096).progress(progress).start().unwrap();
    let peer =
        source.connect(&dir.address()).rank(1).over(ConnType::Rdma).within(LONG).wait().unwrap();
    let back = target.accept(0).within(LONG).wait().unwrap();
    (target, source, peer, back, dir)
}

/// Tags of any length, the first of which is 0.
fn tag(n: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Bytes are there with their tag, whatever waits for space.
#[test]
#[ignore = "`sessions_over_the_fake_library` runs it as a process"]
fn tags_wait_for_an_inbox_that_is_full() {
    const COUNT: u64 = 300;
    let Some(fake) = FakeIbv::take_for_sessions() else { return };
    for progress in [Progress::Thread, Progress::Manual] {
        let (target, source, peer, back, _dir) = connected(&fake, 4, progress);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0..COUNT {
                    let slot = 8 * (n % 400);
                    source.buffer().write_at(slot, &n.to_le_bytes()).unwrap();
                    peer.put_notify_at(slot, slot, 8, tag(n)).unwrap();
                }
            });
            for n in 0..COUNT {
                let got = back.recv(Wanted::Any).within(LONG).wait().unwrap();
                assert_eq!(got, Message::Notify(tag(n)), "{progress:?}: {n}");
                let mut bytes = [0; 8];
                target.buffer().read_at(8 * (n % 400), &mut bytes).unwrap();
                assert_eq!(bytes, n.to_le_bytes(), "{progress:?}: {n}");
            }
        });
        drop((peer, back, target, source));
        fake.await_clean();
    }
}

/// A put that has returned has its tag at the target, though its sender ends at once and the inbox is full.
#[test]
#[ignore = "`sessions_over_the_fake_library` runs it as a process"]
fn tags_of_a_sender_that_ends_at_once_are_all_received() {
    let Some(fake) = FakeIbv::take_for_sessions() else { return };
    for count in [1, 3, 20, 40] {
        let (target, source, peer, back, _dir) = connected(&fake, 8, Progress::Thread);
        (0..count).for_each(|n| peer.put_notify_at(0, 0, 8, n).unwrap());
        drop((peer, source));
        for n in 0..count {
            assert_eq!(
                back.recv(Wanted::Any).within(LONG).wait().unwrap(),
                Message::Notify(n),
                "{count}"
            );
        }
        assert!(back.recv(Wanted::Any).within(LONG).wait().is_err(), "the end of the link");
        drop((back, target));
        fake.await_clean();
    }
}

/// Nobody waits at either end: the target's thread sleeps until a tag comes, and the source's calls make no progress after the post.
#[test]
#[ignore = "`sessions_over_the_fake_library` runs it as a process"]
fn a_tag_that_nobody_waits_for_arrives() {
    let Some(fake) = FakeIbv::take_for_sessions() else { return };
    let (target, source, peer, back, _dir) = connected(&fake, 64, Progress::Thread);
    for n in 0..20 {
        let op = peer.start_put_notify_at(0, 0, 8, n).unwrap();
        assert_eq!(back.recv(Wanted::Any).within(LONG).wait().unwrap(), Message::Notify(n));
        assert_eq!(wait(op).unwrap(), 8);
    }
    drop((peer, back, target, source));
    fake.await_clean();
}
