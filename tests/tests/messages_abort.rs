//! How messages of `send_data` end early: deadlines, cancellation, a session that leaves, a peer that
//! dies or stands still in the middle.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::as_conversions,
    reason = "tests may panic"
)]

use std::time::{Duration, Instant};

use hmc_core::limits::RNDV_HALF_BYTES;
use hmc_std::{ErrorKind, Op, Session, Span};
use hmc_testkit::buffers::{BufferMessages as _, BufferTransfers as _};
use hmc_tests::actor::Actor;
use hmc_tests::env::{TempDir, Via, bound, until};
use hmc_tests::pair::{Pair, both, pattern, transports};

const ACTOR: &str = env!("CARGO_BIN_EXE_actor");
const LONG: Duration = Duration::from_secs(30);
const HALF: u64 = RNDV_HALF_BYTES;
const MIB: u64 = 1 << 20;

#[test]
fn deadlines_end_one_end_and_the_next_message_passes() {
    for conn in transports() {
        let p = Pair::new(conn, 8 * MIB);
        let short = Duration::from_millis(60);
        let bytes = pattern(2 * HALF + 3, 4);
        // Nobody receives.
        let start = Instant::now();
        let e = p.a.send_data(&bytes).within(short).wait().unwrap_err();
        assert_eq!(e.kind(), ErrorKind::DeadlineExceeded, "{conn:?}: {e}");
        // Nobody sends.
        let mut out = vec![0xEE; bytes.len()];
        let e = p.b.recv_data(&mut out).within(short).wait().map(|d| d.bytes).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::DeadlineExceeded, "{conn:?}: {e}");
        assert!(start.elapsed() < bound(Duration::from_secs(2)), "{:?}", start.elapsed());
        // Neither is matched with what comes later.
        let (sent, got) = both(
            true,
            || p.a.send_data(&bytes).wait(),
            || p.b.recv_data(&mut out).wait().map(|d| d.bytes),
        );
        sent.unwrap();
        got.unwrap();
        assert!(out == bytes, "{conn:?}");
        // A range of a receive that ended is free again.
        let dst = p.receiver().memory().allocate(4 * HALF).unwrap();
        let receive = p.b.recv_data(dst.take_all().unwrap()).within(short).start().unwrap();
        let e = receive.wait().unwrap_err();
        assert_eq!(e.kind(), ErrorKind::DeadlineExceeded);
        drop(e);
        until("the range is free", LONG, || dst.take_all().ok());
    }
}

#[test]
fn refused_messages_leave_no_memory_exposed() {
    for conn in transports() {
        let p = Pair::new(conn, 64);
        let dst = p.receiver().memory().allocate(2 * MIB).unwrap();
        let exposed = || p.receiver().stats().peers.iter().map(|s| s.exposed_bytes).sum::<u64>();
        let before = exposed();
        // Windows are 32 for a peer.
        for round in 0..40 {
            let receive = p.b.recv_data(dst.take_all().unwrap()).start().unwrap();
            let bytes = vec![7; 3 << 20];
            let (sent, got) =
                both(round % 2 == 0, || p.a.send_data(&bytes).wait(), || receive.wait());
            assert_eq!(sent.unwrap_err().kind(), ErrorKind::Length, "{conn:?} {round}");
            assert_eq!(got.unwrap_err().kind(), ErrorKind::Length, "{conn:?} {round}");
            until("the range is free", LONG, || dst.take_all().ok());
        }
        until("nothing is exposed", LONG, || (exposed() == before).then_some(()));
        let receive = p.b.recv_data(dst.take_all().unwrap()).start().unwrap();
        let (sent, got) = both(true, || p.a.send_data(&[9; 2 << 20]).wait(), || receive.wait());
        sent.unwrap();
        assert_eq!(got.unwrap().bytes, 2 * MIB, "{conn:?}");
    }
}

#[test]
fn cancellation_is_sent_to_the_other_end() {
    for conn in transports() {
        let p = Pair::new(conn, 64 * MIB);
        let send = p.a.start_send_at(0, 32 * MIB).unwrap();
        send.cancel();
        assert_eq!(send.wait().unwrap_err().kind(), ErrorKind::Cancelled);
        let receive = p.b.start_recv_at(0, 32 * MIB).unwrap();
        receive.cancel();
        let e = receive.wait().unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Cancelled, "{conn:?}: {e}");
        // In the middle: the first bytes are here, most are not.
        let lent = pattern(48 * MIB, 5);
        let mut cut = 0;
        for _ in 0..5 {
            p.receiver().buffer().fill(0, 8, 0).unwrap();
            let receive = p.b.start_recv_at(0, 48 * MIB).unwrap();
            let (sent, ended) = both(
                true,
                || p.a.send_data(&lent).wait(),
                || {
                    until("bytes come", LONG, || {
                        let mut seen = [0; 8];
                        p.receiver().buffer().read_at(0, &mut seen).unwrap();
                        (seen == lent[..8]).then_some(())
                    });
                    receive.cancel();
                    receive.wait()
                },
            );
            match (sent, ended) {
                // The cancellation came too late.
                (Ok(_), Ok(_)) => {}
                (Err(e), Err(r)) => {
                    cut += 1;
                    assert_eq!(e.kind(), ErrorKind::Cancelled, "{conn:?}: {e}");
                    assert_eq!(r.kind(), ErrorKind::Cancelled, "{conn:?}: {r}");
                }
                (sent, ended) => panic!("{conn:?}: {sent:?}, {ended:?}"),
            }
        }
        println!("{conn:?}: {cut} of 5 were cut");
        // A whole message passes afterwards.
        let receive = p.b.start_recv_at(0, 48 * MIB).unwrap();
        let (sent, got) = both(true, || p.a.send_data(&lent).wait(), || receive.wait());
        sent.unwrap_or_else(|e| panic!("{conn:?}: {e}"));
        assert_eq!(got.unwrap().bytes, 48 * MIB, "{conn:?}");
        let mut bytes = vec![0; lent.len()];
        p.receiver().buffer().read_at(0, &mut bytes).unwrap();
        assert!(bytes == lent, "{conn:?}: the bytes differ");
    }
}

#[test]
fn an_orderly_shutdown_finishes_matched_messages_and_ends_the_others() {
    for via in Via::all() {
        let p = Pair::new(via.conn(), 64 * MIB);
        let Pair { mut sessions, a, b, dir: _dir } = p;
        let receiver = sessions.remove(0);
        let sender = sessions.remove(0);
        let bytes = pattern(48 * MIB, 8);
        sender.buffer().write_at(0, &bytes).unwrap();
        let receive = b.start_recv_at(0, 48 * MIB).unwrap();
        let extra = b.start_recv_at(63 * MIB, 10).unwrap();
        let send = a.start_send_at(0, 48 * MIB).unwrap();
        let lonely = sender.peer(sender.rank().0).unwrap().start_send_at(0, 1).unwrap();
        // Surely matched, perhaps done.
        until("it is under way", LONG, || {
            let mut seen = [0; 8];
            receiver.buffer().read_at(0, &mut seen).unwrap();
            (seen == bytes[..8]).then_some(())
        });
        sender.shutdown().within(LONG).wait().expect("in order");
        assert!(
            send.wait_for(Duration::ZERO).ended().expect("it ended").is_ok(),
            "{via:?}: what was matched is finished"
        );
        assert_eq!(receive.wait().unwrap().bytes, 48 * MIB, "{via:?}");
        let e = extra.wait().unwrap_err();
        assert!(matches!(e.kind(), ErrorKind::Closed | ErrorKind::PeerDead), "{via:?}: {e}");
        let e = lonely.wait().unwrap_err();
        assert!(matches!(e.kind(), ErrorKind::Closed | ErrorKind::PeerDead), "{via:?}: {e}");
    }
}

/// A peer in another process that dies in the middle: both kinds of ends, with all kinds of memory.
#[test]
fn a_peer_killed_in_the_middle_ends_its_messages() {
    for via in Via::all() {
        let dir = TempDir::new();
        let path = dir.path().display().to_string();
        let s = Session::builder(0).uds(dir.path()).tcp("127.0.0.1:0").buffer(64 * MIB);
        let s = s.start().unwrap();
        for sends in [true, false] {
            let settings = format!("rank=1 uds={path} tcp=127.0.0.1:0 buffer=67108864 redial=0");
            let mut actor = Actor::session(ACTOR, &settings);
            actor.request(&format!("connect 0 uds://{path} {} 20000", via.conn().name()));
            let peer = s.accept(1).within(LONG).wait().unwrap();
            let region = s.memory().allocate(64 * MIB).unwrap();
            let many: Vec<Op<Span>> = (0..4)
                .map(|i| {
                    let span = region.take(i * 16 * MIB, 16 * MIB).unwrap();
                    if sends { peer.send_data(span).start() } else { peer.recv_data(span).start() }
                        .unwrap()
                })
                .collect();
            // The first is whole, the second begins; then it dies.
            let verb = if sends { "recv_data" } else { "send_data" };
            actor.request(&format!("{verb} 0 0 16777216"));
            actor.send(&format!("{verb} 0 0 16777216"));
            let killed = actor.kill();
            let mut failed = 0;
            for (i, d) in many.into_iter().enumerate() {
                match d.wait() {
                    Ok(_) if i < 2 => {}
                    Ok(_) => panic!("{via:?}: message {i} to the dead arrived"),
                    Err(e) => {
                        assert_eq!(e.kind(), ErrorKind::PeerDead, "{via:?}: {e}");
                        // Over UCX the hanging up is no fence, the end of its process is: a moment later.
                        let is_back = e.reclaim().within(Duration::ZERO).wait().is_ok();
                        let back = is_back || via == Via::Ucx;
                        assert!(back, "{via:?}: the dead touch nothing");
                        failed += 1;
                    }
                }
            }
            assert!(failed >= 2, "{via:?}");
            let took = killed.elapsed();
            assert!(took < bound(Duration::from_secs(2)), "{via:?}: {took:?}");
            until("every range is back", Duration::from_secs(5), || region.take_all().ok());
        }
    }
}

/// A peer that is stopped, not dead: receives end at their deadline, and their memory comes back as
/// the transport's fence allows.
#[test]
fn a_stopped_peer_holds_no_message_up() {
    for via in Via::all() {
        let dir = TempDir::new();
        let path = dir.path().display().to_string();
        let s = Session::builder(0).uds(dir.path()).tcp("127.0.0.1:0").buffer(64 * MIB);
        let s = s.start().unwrap();
        let settings = format!("rank=1 uds={path} tcp=127.0.0.1:0 buffer=67108864 redial=0");
        let mut actor = Actor::session(ACTOR, &settings);
        actor.request(&format!("connect 0 uds://{path} {} 20000", via.conn().name()));
        let peer = s.accept(1).within(LONG).wait().unwrap();
        peer.put_at(0, 0, 4096).expect("it is well so far");
        actor.stop();
        let region = s.memory().allocate(16 * MIB).unwrap();
        let short = Duration::from_millis(50);
        let receive = peer.recv_data(region.take_all().unwrap()).within(short).start().unwrap();
        let bytes = pattern(3 * HALF, 9);
        let e = peer.send_data(&bytes).within(short).wait().unwrap_err();
        assert_eq!(e.kind(), ErrorKind::DeadlineExceeded, "{via:?}: {e}");
        let e = receive.wait().unwrap_err();
        assert_eq!(e.kind(), ErrorKind::DeadlineExceeded, "{via:?}");
        drop(e);
        let out_of_reach = via != Via::Ucx || peer.explain().target_checks;
        if !out_of_reach {
            // Nothing here can take the window from it: only its end shows that it is out of reach.
            let e = region.take_all().expect_err("a stopped peer may still write there");
            assert_eq!(e.kind(), ErrorKind::Busy);
            let _ = actor.kill();
        }
        until("the range is back", LONG, || region.take_all().ok());
        if out_of_reach {
            actor.resume();
        }
    }
}
