//! Windows over the fake libucp: a peer that gets an advert has the window's key, and a window that cannot be announced is closed.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::time::Duration;

use hmc_std::{Access, ConnType, ErrorKind, Message, Peer, Session, want::Wanted};
use hmc_tests::env::{TempDir, until};
use hmc_tests::fake_ucp::FakeUcp;

const LONG: Duration = Duration::from_secs(20);
const LEN: u64 = 4096;
/// The messages that the dialer's inbox takes.
const INBOX: usize = 16;

/// Two sessions of this process over a lane that only sends messages: its windows are fenced at once. The dialer's handle of
/// the other, and the other's of the dialer.
fn pair(dir: &TempDir) -> (Session, Session, Peer, Peer) {
    let builder = |rank| Session::builder(rank).buffer(LEN).ucx().heartbeat(None);
    let target = builder(1).uds(dir.path()).start().unwrap();
    let source = builder(0).inbox(INBOX, 1 << 16).start().unwrap();
    let peer =
        source.connect(&dir.address()).rank(1).over(ConnType::Ucx).within(LONG).wait().unwrap();
    let back = target.accept(0).within(LONG).wait().unwrap();
    (target, source, peer, back)
}

/// Threads that expose to the same peer at the same moment: each tells the key to its window before it tells of the window.
#[test]
fn a_window_that_is_known_can_be_used() {
    const ROUNDS: u64 = 3000;
    const THREADS: u64 = 4;
    let fake_ucp = FakeUcp::take();
    fake_ucp.lane("rc_mlx5/mlx5_0:1");
    let dir = TempDir::new();
    let (target, source, peer, back) = pair(&dir);
    std::thread::scope(|s| {
        for thread in 0..THREADS {
            let region =
                target.memory().register(hmc_std::memory::HeapBytes::from(vec![0; 64])).unwrap();
            let ours =
                source.memory().register(hmc_std::memory::HeapBytes::from(vec![7; 64])).unwrap();
            let (back, peer) = (&back, &peer);
            s.spawn(move || {
                let mut own = ours.take_all().unwrap();
                for round in 0..ROUNDS {
                    // They get into one another's way where messages are sent.
                    back.send(Message::Tag(round)).wait().unwrap();
                    let window = back.expose(region.take_all().unwrap(), Access::all(), thread);
                    let window = window.map_err(|(e, _)| e).unwrap();
                    let remote = peer.window(thread).within(LONG).wait().unwrap();
                    let op = remote.put(0, own).within(LONG).start().unwrap();
                    own = op.wait().expect("a put into an open window").memory;
                    drop(window.revoke().within(LONG).wait().unwrap());
                    // The peer is notified of that before the label names the next one.
                    let gone = || peer.window(thread).within(Duration::ZERO).wait().err();
                    until("the peer has forgotten it", LONG, gone);
                    peer.recv(Wanted::Any).within(LONG).wait().unwrap();
                }
            });
        }
    });
    drop((peer, back, source, target));
    fake_ucp.await_clean();
}

/// The peer does not read, so that nothing more can be said to it: what it cannot be told of is not exposed, and takes none of
/// its places.
#[test]
fn a_window_that_cannot_be_announced_is_closed() {
    let fake_ucp = FakeUcp::take();
    fake_ucp.lane("tcp/eth0");
    let dir = TempDir::new();
    let (target, source, peer, back) = pair(&dir);
    let tags = 4 * INBOX;
    (0..tags).for_each(|_| back.send(Message::Tag(5)).wait().unwrap());
    let region = target.memory().register(hmc_std::memory::HeapBytes::from(vec![0; 4096])).unwrap();
    let exposed = || target.stats().peers.first().map_or(0, |p| p.exposed_bytes);
    let before = exposed();
    let expose = |label| back.expose(region.take_all().unwrap(), Access::all(), label);
    let full = (0..100_000).find_map(|label| expose(label).err()).expect("it reads nothing").0;
    assert_eq!(full.kind(), ErrorKind::Full, "{full}");
    // More often than there are places.
    for label in 0..300 {
        let (e, span) = expose(label).expect_err("it still reads nothing");
        assert_eq!(e.kind(), ErrorKind::Full, "{e}");
        assert!(e.to_string().contains("control messages that wait"), "{e}");
        drop(span);
        assert_eq!(exposed(), before, "failure {label}");
    }
    (0..tags).for_each(|_| drop(peer.recv(Wanted::Any).within(LONG).wait().unwrap()));
    let window = until("there is space", LONG, || expose(7).ok());
    peer.window(7).within(LONG).wait().unwrap();
    drop(window.revoke().within(LONG).wait().unwrap());
    drop((region, peer, back, source, target));
    fake_ucp.await_clean();
}
