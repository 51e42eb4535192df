//! Sessions whose buffer is made before their rank and addresses are known.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may panic"
)]

use std::time::Duration;

use hmc_std::{ErrorKind, Session};
use hmc_testkit::buffers::{BufferTransfers as _, wait};
use hmc_tests::env::{TempDir, Via};
use hmc_tests::listening::Listening as _;

const LONG: Duration = Duration::from_secs(20);
const MIB: u64 = 1 << 20;

fn server(dir: &TempDir, buffer: u64) -> Session {
    Session::builder(1).uds(dir.path()).tcp("127.0.0.1:0").buffer(buffer).start().unwrap()
}

/// A buffer can be filled before rank and addresses are known, and a start that fails can be tried again.
#[test]
fn a_prepared_session_keeps_what_was_written_until_it_starts() {
    for via in Via::all() {
        let dir = TempDir::new();
        let target = server(&dir, MIB);
        let mut prepared = Session::builder(0).buffer(MIB).prepare().unwrap();
        prepared.buffer().fill(0, 4096, 0x5A).unwrap();
        prepared.listen_uds(dir.path());
        prepared.set_rank(1);
        let e = prepared.start().expect_err("that rank lives");
        assert_eq!(e.kind(), ErrorKind::DuplicateRank, "{via:?}: {e}");
        prepared.set_rank(3);
        let source = prepared.start().unwrap();
        assert_eq!(source.rank().0, 3, "{via:?}");
        let peer =
            source.connect(&dir.address()).rank(1).over(via.conn()).within(LONG).wait().unwrap();
        peer.put_at(0, 8192, 4096).unwrap();
        let mut got = [0; 4096];
        target.buffer().read_at(8192, &mut got).unwrap();
        assert_eq!(got, [0x5A; 4096], "{via:?}");
    }
}

/// A process whose rank is taken tries another one, with the buffer that it has filled: one session after the other.
#[test]
fn a_rank_that_was_refused_is_followed_by_another() {
    for via in Via::all() {
        let dir = TempDir::new();
        let target = server(&dir, MIB);
        let holder = Session::builder(7).buffer(4096).start().unwrap();
        holder.connect(&dir.address()).rank(1).over(via.conn()).within(LONG).wait().unwrap();
        let mut prepared = Session::builder(7).buffer(MIB).tcp("127.0.0.1:0").prepare().unwrap();
        prepared.buffer().fill(0, 4096, 0x5A).unwrap();
        let refused = prepared.start().unwrap();
        let address = refused.tcp_addr().unwrap();
        let e = refused
            .connect(&dir.address())
            .rank(1)
            .over(via.conn())
            .within(LONG)
            .wait()
            .expect_err("it is taken");
        assert_eq!(e.kind(), ErrorKind::DuplicateRank, "{via:?}: {e}");
        let e = prepared.start().expect_err("the first one runs");
        assert_eq!(e.kind(), ErrorKind::InvalidConfig, "{via:?}: {e}");
        drop(refused);
        prepared.listen_tcp(&address.to_string());
        let mut kept = Vec::new();
        for rank in 8..12 {
            prepared.set_rank(rank);
            let source = prepared.start().unwrap();
            assert_eq!(source.rank().0, rank, "{via:?}");
            let peer = source
                .connect(&dir.address())
                .rank(1)
                .over(via.conn())
                .within(LONG)
                .wait()
                .unwrap();
            peer.put_at(0, 8192, 4096).unwrap();
            let mut got = [0; 4096];
            target.buffer().read_at(8192, &mut got).unwrap();
            assert_eq!(got, [0x5A; 4096], "{via:?}");
            // And the other way, into the buffer that earlier sessions had.
            target.buffer().fill(0, 64, u8::try_from(rank).unwrap()).unwrap();
            target.accept(rank).within(LONG).wait().unwrap().put_at(0, 16384, 64).unwrap();
            let mut got = [0; 64];
            prepared.buffer().read_at(16384, &mut got).unwrap();
            assert_eq!(got, [u8::try_from(rank).unwrap(); 64], "{via:?}");
            let op = peer.start_put_notify_at(0, 8192, 4096, 1).unwrap();
            source.shutdown().within(LONG).wait().unwrap();
            kept.push((peer, op));
        }
        // Handles of earlier sessions are names of what is over, whatever runs now.
        prepared.set_rank(12);
        let last = prepared.start().unwrap();
        let peer =
            last.connect(&dir.address()).rank(1).over(via.conn()).within(LONG).wait().unwrap();
        for (old, op) in kept {
            assert!(matches!(old.put_at(0, 0, 8).unwrap_err().kind(), ErrorKind::PeerDead));
            assert_eq!(wait(op).unwrap(), 4096);
            drop(old);
            peer.put_at(0, 8192, 8).unwrap();
        }
    }
}
