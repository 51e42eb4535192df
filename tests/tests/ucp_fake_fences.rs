//! Windows of a peer that a NIC alone connects, over the fake libucp: the end of the window's registration and of
//! our endpoint keeps it out, however the link ended.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::time::Duration;

use hmc_std::{Access, Address, ConnType, ErrorKind, Peer, Rank, Region, Session, Window};
use hmc_testkit::buffers::BufferTransfers as _;
use hmc_tests::env::until;
use hmc_tests::fake_ucp::{CONNECTION_RESET, CallResult, ENDPOINT_TIMEOUT, FakeUcp};
use hmc_tests::listening::Listening as _;

const LONG: Duration = Duration::from_secs(20);
/// Within which nothing comes back that must not.
const SHORT: Duration = Duration::from_millis(250);
const NIC: &str = "rc_mlx5/mlx5_0:1";
const LEN: u64 = 4096;

/// A session with a region, and peers of ranks 0 and 2 that reach it by a NIC. The first two endpoints are between it and
/// rank 0.
struct Exposer {
    session: Session,
    region: Region,
    peers: [(Session, Peer); 2],
}

impl Exposer {
    fn new(fake_ucp: &FakeUcp) -> Self {
        fake_ucp.lane(NIC);
        let session = Session::builder(1).tcp("127.0.0.1:0").redial(false).buffer(4096).ucx();
        let session = session.start().unwrap();
        let at = Address::Tcp(session.tcp_addr().unwrap());
        let join = |rank| {
            let other = Session::builder(rank).redial(false).buffer(LEN).ucx().start().unwrap();
            let to = other.connect(&at).rank(1).over(ConnType::Ucx).within(LONG).wait().unwrap();
            to.put_at(0, 0, 8).unwrap();
            (other, to)
        };
        let peers = [0, 2].map(join);
        let region =
            session.memory().register(hmc_std::memory::HeapBytes::from(vec![0; 4096])).unwrap();
        Self { session, region, peers }
    }

    fn expose(&self, rank: u32, label: u64) -> Window<hmc_std::Span> {
        let peer = self.session.accept(rank).within(LONG).wait().unwrap();
        let span = self.region.take_all().unwrap();
        peer.expose(span, Access::all(), label).map_err(|(e, _)| e).unwrap()
    }

    /// Bytes of windows that are held back.
    fn quarantined(&self) -> u64 {
        self.session.stats().quarantined_bytes
    }

    fn end(self, fake_ucp: &FakeUcp) {
        drop(self);
        fake_ucp.await_clean();
        fake_ucp.restart();
    }
}

/// The registration of a region lasts as long as some link uses it for operations: a window must have one of its own.
#[test]
fn a_window_s_registration_is_its_own_and_ends_with_it() {
    let fake_ucp = FakeUcp::take();
    let exposer = Exposer::new(&fake_ucp);
    let theirs = exposer.peers[1]
        .0
        .memory()
        .register(hmc_std::memory::HeapBytes::from(vec![0; 4096]))
        .unwrap();
    let back = exposer.peers[1].0.accept(1).within(LONG).wait().unwrap();
    let target = back.expose(theirs.take_all().unwrap(), Access::all(), 1);
    let target = target.map_err(|(e, _)| e).unwrap();
    let to = exposer.session.peer(2).unwrap();
    let remote = to.window(1).within(LONG).wait().unwrap();
    let span = exposer.region.take_all().unwrap();
    drop(remote.put(0, span).within(LONG).wait().unwrap());

    let before = fake_ucp.count("memories");
    let window = exposer.expose(0, 2);
    assert_eq!(fake_ucp.count("memories"), before + 1, "the window shares a registration");
    drop(window.revoke().within(LONG).wait().unwrap());
    assert_eq!(fake_ucp.count("memories"), before, "the window's registration is there");
    drop((target, theirs, back, to, remote));
    exposer.end(&fake_ucp);
}

/// A put of the peer's is under way into the window: its owner has it back once the peer says that UCX has given the put back.
#[test]
fn a_window_comes_back_when_the_put_into_it_has_ended() {
    let fake_ucp = FakeUcp::take();
    let exposer = Exposer::new(&fake_ucp);
    let window = exposer.expose(0, 1);
    let (session, to) = &exposer.peers[0];
    let remote = to.window(1).within(LONG).wait().unwrap();
    fake_ucp.rule("ucp_put_nbx", 1, CallResult::Held);
    let span = session
        .memory()
        .register(hmc_std::memory::HeapBytes::from(vec![7; 4096]))
        .unwrap()
        .take_all()
        .unwrap();
    let op = remote.put(0, span).start().unwrap();
    until("it is under way", LONG, || (fake_ucp.count("held") == 1).then_some(()));
    let e = window.revoke().within(SHORT).wait().expect_err("the put is under way");
    assert_eq!(e.kind(), ErrorKind::Quarantined, "{e}");
    assert_eq!(exposer.quarantined(), LEN);
    assert_eq!(fake_ucp.release(), 1);
    until("the peer says that the put has ended", LONG, || exposer.region.take_all().ok());
    assert_eq!(exposer.quarantined(), 0);
    drop((op, remote));
    exposer.end(&fake_ucp);
}

/// How a link ends without the peer's word.
#[derive(Clone, Copy, Debug)]
enum End {
    /// The endpoint of that number, ours to rank 0 or its to us, fails with that status.
    Fails(u64, i8),
    /// This end leaves and waits for nobody.
    Left,
}

const ENDS: [End; 4] = [
    End::Fails(1, CONNECTION_RESET),
    End::Fails(2, CONNECTION_RESET),
    End::Fails(1, ENDPOINT_TIMEOUT),
    End::Left,
];

impl End {
    /// Ends the link to rank 0.
    fn happen(self, fake_ucp: &FakeUcp, exposer: &Exposer) {
        let peer = exposer.session.peer(0).unwrap();
        match self {
            Self::Fails(number, status) => assert_eq!(fake_ucp.kill(number, status, true), 1),
            Self::Left => drop(peer.disconnect().within(Duration::ZERO).wait()),
        }
        until("the link is over", LONG, || (!peer.is_connected()).then_some(()));
    }
}

/// Lets all endpoints be closed.
fn release_all(fake_ucp: &FakeUcp) {
    fake_ucp.clear_rules();
    assert!(fake_ucp.release() >= 1, "no endpoint was being closed");
}

/// The end of the stream is no word of such a peer, and none will come: its windows come back all the same.
#[test]
fn windows_come_back_however_the_link_to_a_nic_ends() {
    let fake_ucp = FakeUcp::take();
    for end in ENDS {
        for revokes in [true, false] {
            let exposer = Exposer::new(&fake_ucp);
            let window = exposer.expose(0, 2);
            let before = fake_ucp.count("memories");
            end.happen(&fake_ucp, &exposer);
            if revokes {
                let back = window.revoke().within(LONG).wait();
                assert!(back.is_ok(), "{end:?}: {:?}", back.err());
            } else {
                drop(window);
            }
            let span = until("the window comes back", LONG, || exposer.region.take_all().ok());
            assert!(fake_ucp.count("memories") < before, "{end:?}: its registration is there");
            until("nothing is held back", LONG, || (exposer.quarantined() == 0).then_some(()));
            drop(span);
            exposer.end(&fake_ucp);
        }
    }
}

/// Until UCX has closed our endpoint the queue pair may serve the peer.
#[test]
fn no_window_comes_back_before_the_endpoint_is_closed() {
    let fake_ucp = FakeUcp::take();
    for end in ENDS {
        let exposer = Exposer::new(&fake_ucp);
        let window = exposer.expose(0, 2);
        fake_ucp.rule("ucp_ep_close_nbx", 0, CallResult::Held);
        end.happen(&fake_ucp, &exposer);
        let before = fake_ucp.count("memories");
        let e = window.revoke().within(SHORT).wait().expect_err("the endpoint is open");
        assert_eq!(e.kind(), ErrorKind::Quarantined, "{end:?}: {e}");
        assert_eq!(exposer.quarantined(), LEN, "{end:?}");
        assert!(exposer.region.take_all().is_err(), "{end:?}");
        release_all(&fake_ucp);
        drop(until("the window comes back", LONG, || exposer.region.take_all().ok()));
        assert!(fake_ucp.count("memories") < before, "{end:?}: its registration is there");
        until("nothing is held back", LONG, || (exposer.quarantined() == 0).then_some(()));
        exposer.end(&fake_ucp);
    }
}

/// The session's buffer is exposed without a window that could be taken back: the process holds it after the link's end.
#[test]
fn the_buffer_is_held_until_the_endpoint_is_closed() {
    let fake_ucp = FakeUcp::take();
    let exposer = Exposer::new(&fake_ucp);
    fake_ucp.rule("ucp_ep_close_nbx", 0, CallResult::Held);
    End::Fails(1, CONNECTION_RESET).happen(&fake_ucp, &exposer);
    let held = || {
        let all = hmc_std::held();
        all.iter().filter(|h| h.peer == Rank(0)).map(|h| h.bytes).sum::<u64>()
    };
    until("the process holds it", LONG, || (held() == LEN).then_some(()));
    release_all(&fake_ucp);
    until("it is given back", LONG, || (held() == 0).then_some(()));
    exposer.end(&fake_ucp);
}
