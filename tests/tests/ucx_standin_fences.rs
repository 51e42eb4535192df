//! Windows of a peer that a NIC alone connects, over the stand-in for libucp: the end of the window's registration keeps it
//! out.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::time::Duration;

use hmc_std::{Access, Address, ConnType, Peer, Region, Session, Window};
use hmc_tests::standin::StandIn;

const LONG: Duration = Duration::from_secs(20);
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
    fn new(stand_in: &StandIn) -> Self {
        stand_in.lane(NIC);
        let session = Session::builder(1).tcp("127.0.0.1:0").redial(false).buffer(4096).ucx();
        let session = session.start().unwrap();
        let at = Address::Tcp(session.tcp_addr().unwrap());
        let join = |rank| {
            let other = Session::builder(rank).redial(false).buffer(LEN).ucx().start().unwrap();
            let to = other.connect_with(1, &at, ConnType::Ucx, LONG).unwrap();
            to.put(0, 0, 8).unwrap();
            (other, to)
        };
        let peers = [0, 2].map(join);
        let region = session.register_vec(vec![0; 4096]).unwrap();
        Self { session, region, peers }
    }

    fn expose(&self, rank: u32, label: u64) -> Window {
        let peer = self.session.wait_peer(rank, LONG).unwrap();
        let span = self.region.take_all().unwrap();
        peer.expose(span, Access::all(), label).map_err(|(e, _)| e).unwrap()
    }

    fn end(self, stand_in: &StandIn) {
        drop(self);
        stand_in.await_clean();
        stand_in.restart();
    }
}

/// The registration of a region lasts as long as some link uses it for operations: a window must have one of its own.
#[test]
fn a_window_s_registration_is_its_own_and_ends_with_it() {
    let stand_in = StandIn::take();
    let exposer = Exposer::new(&stand_in);
    let theirs = exposer.peers[1].0.register_vec(vec![0; 4096]).unwrap();
    let back = exposer.peers[1].0.wait_peer(1, LONG).unwrap();
    let target = back.expose(theirs.take_all().unwrap(), Access::all(), 1);
    let target = target.map_err(|(e, _)| e).unwrap();
    let to = exposer.session.peer(2).unwrap();
    let remote = to.remote_window(1, LONG).unwrap();
    let span = exposer.region.take_all().unwrap();
    drop(to.put_span(span, &remote, 0).unwrap().wait(LONG).unwrap());

    let before = stand_in.count("memories");
    let window = exposer.expose(0, 2);
    assert_eq!(stand_in.count("memories"), before + 1, "the window shares a registration");
    drop(window.revoke(LONG).unwrap());
    assert_eq!(stand_in.count("memories"), before, "the window's registration is there");
    drop((target, theirs, back, to, remote));
    exposer.end(&stand_in);
}
