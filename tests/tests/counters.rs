//! The values of `Stats` and `PeerStats`, at both ends, after a script whose numbers are known.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may panic"
)]

use hmc_testkit::buffers::{BufferTransfers as _, Copy, Direction, Ends, wait};
use std::future::{Future, IntoFuture as _};
use std::net::SocketAddr;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use hmc_std::metrics::PeerStats;
use hmc_std::{
    Access, Address, ConnType, ErrorKind, Message, Rank, Session,
    want::{self, Wanted},
};
use hmc_tests::actor::Actor;
use hmc_tests::env::{TempDir, until};
use hmc_tests::listening::Listening as _;
use hmc_tests::pair::{ALL, Pair, both};
use hmc_tests::raw_frames::{dial, hello, is_closed_after, send_raw};

const ACTOR: &str = env!("CARGO_BIN_EXE_actor");
const LONG: Duration = Duration::from_secs(20);
const MIB: u64 = 1 << 20;
const BUFFER: u64 = 8 * MIB;

/// The only peer of a session.
fn of(session: &Session) -> PeerStats {
    let peers = session.stats().peers;
    assert_eq!(peers.len(), 1, "{peers:?}");
    peers[0].clone()
}

/// The result of a future that makes progress in the background.
fn result_of<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut cx = Context::from_waker(Waker::noop());
    until("it is done", LONG, || match future.as_mut().poll(&mut cx) {
        Poll::Ready(r) => Some(r),
        Poll::Pending => None,
    })
}

const fn copy(len: u64) -> Copy {
    Copy { local_offset: 0, remote_offset: BUFFER / 2, len }
}

/// What each end has counted.
struct Seen {
    puts: u64,
    gets: u64,
    put_bytes: u64,
    got_bytes: u64,
}

/// Transfers of each form.
fn transfers(p: &Pair) -> Seen {
    let (a, far) = (&p.a, BUFFER / 2);
    // At once, and in pieces.
    a.put_at(0, far, 100).unwrap();
    a.put_at(0, far, 3 * MIB).unwrap();
    a.put_at(0, far, 0).unwrap();
    assert_eq!(wait(a.start_put_at(0, far, 1000).unwrap()).unwrap(), 1000);
    let lists = [copy(10), copy(20), copy(30)];
    let list = a.prepare_at(Direction::Put, &lists).unwrap();
    assert_eq!(wait(list.start().unwrap()).unwrap(), 60);
    a.prepare_at(Direction::Put, &[copy(5), copy(6)]).unwrap().run().unwrap();
    a.put_notify_at(0, far, 64, 7).unwrap();
    let (remote, buffer) = (a.buffer().unwrap(), p.sender().buffer());
    let put = remote.put(far, buffer.range(0, 9).unwrap());
    assert_eq!(result_of(put.into_future()).unwrap().bytes, 9);
    let span = p.sender().memory().allocate(33).unwrap().take_all().unwrap();
    remote.put(far, span).start().unwrap().wait().unwrap();
    remote.put(far, &[1; 21]).wait().unwrap();
    a.get_at(0, far, 200).unwrap();
    a.get_at(0, far, 2 * MIB).unwrap();
    assert_eq!(wait(a.start_get_at(0, far, 300).unwrap()).unwrap(), 300);
    let list = a.prepare_at(Direction::Get, &[copy(7), copy(8)]).unwrap();
    assert_eq!(wait(list.start().unwrap()).unwrap(), 15);
    let get = remote.get(far, buffer.range(0, 11).unwrap());
    assert_eq!(result_of(get.into_future()).unwrap().bytes, 11);
    remote.get(far, &mut [0; 22]).wait().unwrap();
    Seen {
        puts: 10,
        gets: 6,
        put_bytes: 100 + 3 * MIB + 1000 + 60 + 11 + 64 + 9 + 33 + 21,
        got_bytes: 200 + 2 * MIB + 300 + 15 + 11 + 22,
    }
}

#[test]
fn transfers_are_counted_once_at_the_end_that_began_them() {
    for conn in ALL {
        let p = Pair::new(conn, BUFFER);
        let seen = transfers(&p);
        let (here, there) = (of(p.sender()), of(p.receiver()));
        let moved = seen.put_bytes + seen.got_bytes;
        let (out_in, in_out) = match conn {
            // The initiator copies in both directions.
            ConnType::Shm => ((moved, 0), (0, 0)),
            ConnType::Tcp => ((seen.put_bytes, seen.got_bytes), (seen.got_bytes, seen.put_bytes)),
            _ => ((moved, moved), (moved, moved)),
        };
        assert_eq!((here.puts, here.gets), (seen.puts, seen.gets), "{conn:?}");
        assert_eq!((here.bytes_out, here.bytes_in), out_in, "{conn:?}");
        assert_eq!((there.bytes_out, there.bytes_in), in_out, "{conn:?}");
        assert_eq!((here.failures, here.in_flight), (0, 0), "{conn:?}");
        assert_eq!((here.conn, here.connected), (Some(conn), true), "{conn:?}");
        if conn != ConnType::Loopback {
            assert_eq!((here.rank, there.rank), (Rank(1), Rank(0)));
            assert_eq!((there.puts, there.gets, there.failures), (0, 0, 0), "{conn:?}");
        }
    }
}

#[test]
fn messages_are_counted_once_at_each_end() {
    for conn in ALL {
        let p = Pair::new(conn, BUFFER);
        let at_start = of(p.sender());
        assert_eq!((at_start.messages_out, at_start.messages_in), (0, 0), "{conn:?}");
        p.a.send(Message::Tag(1)).wait().unwrap();
        p.a.send(Message::Int(2)).wait().unwrap();
        p.a.send(Message::bytes(b"three")).wait().unwrap();
        // As many tags of puts as may come at once.
        let ops: Vec<_> =
            (0..20).map(|tag| p.a.start_put_notify_at(0, BUFFER / 2, 8, tag).unwrap()).collect();
        for op in ops {
            wait(op).unwrap();
        }
        let all = || (of(p.receiver()).inbox == 23).then_some(());
        until("all of them are there", LONG, all);
        // None of these is a message of the application's.
        let region = p.receiver().memory().allocate(4096).unwrap();
        let window = p.b.expose(region.take_all().unwrap(), Access::all(), 1);
        let window = window.map_err(|(e, _)| e).unwrap();
        p.a.window(1).within(LONG).wait().unwrap();
        window.revoke().within(LONG).wait().unwrap();
        let mut got = vec![0; 5 << 20];
        let sent = vec![1; 5 << 20];
        let (s, r) = both(
            true,
            || p.a.send_data(&sent).wait(),
            || p.b.recv_data(&mut got).wait().map(|d| d.bytes),
        );
        assert_eq!((s.unwrap().bytes, r.unwrap()), (5 << 20, 5 << 20));
        let (here, there) = (of(p.sender()), of(p.receiver()));
        assert_eq!((here.messages_out, there.messages_in), (3, 23), "{conn:?}");
        if conn != ConnType::Loopback {
            assert_eq!((here.messages_in, here.inbox), (0, 0), "{conn:?}");
            assert_eq!(there.messages_out, 0, "{conn:?}");
        }
        // To be received changes what is there, and not what came.
        assert_eq!(p.b.recv(want::Tag).within(LONG).wait().unwrap(), 1);
        for _ in 0..22 {
            p.b.recv(Wanted::Any).within(LONG).wait().unwrap();
        }
        let there = of(p.receiver());
        assert_eq!((there.messages_in, there.inbox), (23, 0), "{conn:?}");
    }
}

#[test]
fn failures_are_counted_once_however_they_are_waited_for() {
    for conn in ALL {
        let p = Pair::new(conn, BUFFER);
        let buffer = p.receiver().memory().allocate(4096).unwrap().share().unwrap();
        let _window = p.b.expose(buffer.range(0, 4096).unwrap(), Access::WRITE, 1).unwrap();
        let window = p.a.window(1).within(LONG).wait().unwrap();
        let here = p.sender().memory().allocate(4096).unwrap().share().unwrap();
        let ends = Ends { local: here, remote: window.clone() };
        let span = || p.sender().memory().allocate(8).unwrap().take_all().unwrap();
        // In the call, started, with a span, and as futures.
        assert_eq!(ends.get_at(0, 0, 8).unwrap_err().kind(), ErrorKind::Access, "{conn:?}");
        let op = ends.start_get_at(0, 0, 8).unwrap();
        assert_eq!(wait(op).unwrap_err().kind(), ErrorKind::Access, "{conn:?}");
        let op = window.get(0, span()).start().unwrap();
        let e = op.wait().expect_err("refused");
        assert_eq!((e.kind(), e.error().peer()), (ErrorKind::Access, Some(p.a.rank())));
        let e = result_of(window.get(0, span()).start().unwrap()).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Access, "{conn:?}");
        let watched = ends.start_get_at(0, 0, 8).unwrap();
        assert_eq!(result_of(watched).unwrap_err().kind(), ErrorKind::Access, "{conn:?}");
        let stats = of(p.sender());
        assert_eq!((stats.failures, stats.gets, stats.puts), (5, 5, 0), "{conn:?}");
        assert_eq!((stats.bytes_out, stats.bytes_in), (0, 0), "{conn:?}");
        // What was never begun did not fail.
        p.a.put_at(0, BUFFER, 1).unwrap_err();
        p.a.start_get_at(BUFFER, 0, 1).unwrap_err();
        let stats = of(p.sender());
        assert_eq!((stats.failures, stats.gets, stats.puts), (5, 5, 0), "{conn:?}");
    }
}

#[test]
fn exposed_bytes_are_those_of_the_windows_that_stand() {
    for conn in ALL {
        let p = Pair::new(conn, BUFFER);
        let exposed = || of(p.receiver()).exposed_bytes;
        assert_eq!(exposed(), BUFFER, "{conn:?}: the buffer");
        let region = p.receiver().memory().allocate(3 * 4096).unwrap();
        let expose = |at, len, label| {
            let span = region.take(at, len).unwrap();
            p.b.expose(span, Access::READ, label).map_err(|(e, _)| e).unwrap()
        };
        let (first, second) = (expose(0, 4096, 1), expose(4096, 8000, 2));
        assert_eq!(exposed(), BUFFER + 4096 + 8000, "{conn:?}");
        first.revoke().within(LONG).wait().unwrap();
        assert_eq!(exposed(), BUFFER + 8000, "{conn:?}");
        drop(second);
        until("it is exposed no more", LONG, || (exposed() == BUFFER).then_some(()));
    }
}

fn listening() -> (Session, TempDir, SocketAddr) {
    let dir = TempDir::new();
    let session = Session::builder(0).uds(dir.path()).tcp("127.0.0.1:0").buffer(4096);
    let session = session.start().unwrap();
    let at = session.tcp_addr().unwrap();
    (session, dir, at)
}

#[test]
fn links_that_are_lost_are_counted_and_goodbyes_are_not() {
    let (session, dir, _) = listening();
    let address = format!("uds://{}", dir.path().display());
    let count = || session.stats().peers_lost;
    for (lost, via) in (0..).zip(["shm", "tcp"]) {
        let come = |rank: u32| {
            let mut actor = Actor::session(ACTOR, &format!("rank={rank} buffer=4096 redial=0"));
            actor.request(&format!("connect 0 {address} {via} 20000"));
            (actor, session.accept(rank).within(LONG).wait().unwrap())
        };
        let (orderly, peer) = come(1);
        assert!(orderly.dismiss().success());
        until("it has said goodbye", LONG, || (!peer.is_connected()).then_some(()));
        assert_eq!(count(), lost, "{via}: a goodbye is no loss");
        let (killed, _peer) = come(2);
        let _ = killed.kill();
        until("it is counted", LONG, || (count() == lost + 1).then_some(()));
        drop(killed);
        until("its link is gone", LONG, || session.stats().peers.is_empty().then_some(()));
        assert_eq!(count(), lost + 1, "{via}: once");
    }
    // The other end of a link that is lost counts it, too.
    let other = Session::builder(3).buffer(4096).redial(false).start().unwrap();
    let mut actor = Actor::session(ACTOR, "rank=4 tcp=127.0.0.1:0 buffer=4096");
    other.connect(&actor.address()).rank(4).wait().unwrap();
    assert_eq!(other.stats().peers_lost, 0);
    actor.request("echo it lives");
    let _ = actor.kill();
    until("it is counted", LONG, || (other.stats().peers_lost == 1).then_some(()));
}

#[test]
fn connections_that_are_refused_are_counted_once() {
    let (session, _dir, at) = listening();
    let count = || session.stats().strangers_refused;
    // A wrong job, another rank than ours, ours, and one beyond all ranks.
    for words in [hello(9, 77, 0), hello(9, 0, 3), hello(0, 0, 0), hello(5000, 0, 0)] {
        let mut client = dial(at);
        assert!(send_raw(&mut client, &words));
        assert!(is_closed_after(&mut client));
    }
    until("four are counted", LONG, || (count() == 4).then_some(()));
    // No frame, and one that hangs up without a word.
    let mut garbage = dial(at);
    assert!(send_raw(&mut garbage, &[0xFF; 16]));
    assert!(is_closed_after(&mut garbage));
    drop(dial(at));
    until("six are counted", LONG, || (count() == 6).then_some(()));
    // Who gets in is not among them.
    let friend = Session::builder(2).buffer(4096).start().unwrap();
    friend.connect(&Address::Tcp(at)).rank(0).wait().unwrap().put_at(0, 0, 8).unwrap();
    assert_eq!(count(), 6);
    let (near, far) = (session.stats(), friend.stats());
    assert_eq!((near.peers.len(), far.peers.len()), (1, 1));
    assert_eq!((near.panics_caught, near.quarantined_bytes, near.quarantined_links), (0, 0, 0));
    assert_eq!((near.ucx_registrations, near.peers_lost, far.strangers_refused), (0, 0, 0));
}
