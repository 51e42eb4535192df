//! Whole sessions over RDMA verbs, by the fake libibverbs: bytes move, windows come back, faults end what they meet, and everything is
//! given back in the end.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may panic"
)]

use std::time::{Duration, Instant};

use hmc_std::{Access, ConnType, ErrorKind, Message, Progress, Session, wait_any, want::Wanted};
use hmc_testkit::buffers::{BufferTransfers as _, Copy, Direction, has_ended, wait};
use hmc_tests::child::in_child;
use hmc_tests::env::{TempDir, count_of, until};
use hmc_tests::fake_ibv::{FakeIbv, VerbsFate, has_windows, run_ignored};
use hmc_tests::pair::pattern;
use hmc_tests::verbs_sessions::{BUFFER_PART as KIB64, Two};

const LONG: Duration = Duration::from_secs(20);
const QP_FATAL: u32 = 1;

#[test]
fn sessions_over_the_fake_library() {
    run_ignored();
}

#[test]
#[ignore = "`sessions_over_the_fake_library` runs it as a process"]
fn bytes_tags_and_messages_move() {
    let Some(fake) = FakeIbv::take_for_sessions() else { return };
    for progress in [Progress::Thread, Progress::Manual] {
        let two = Two::new(&fake, progress);
        two.put_and_compare(1);
        two.peer.get_at(KIB64, 2 * KIB64, KIB64).unwrap();
        two.peer.put_notify_at(0, 0, 4096, 77).unwrap();
        assert_eq!(two.back.recv(Wanted::Any).within(LONG).wait().unwrap(), Message::Notify(77));
        let ops: Vec<_> =
            (0..200).map(|n| two.peer.start_put_at(n * 64, n * 64, 64).unwrap()).collect();
        for op in ops {
            assert_eq!(wait(op).unwrap(), 64);
        }
        let (a, b) = (
            two.peer.start_put_at(0, 0, 300).unwrap(),
            two.peer.start_get_at(4096, 4096, 70).unwrap(),
        );
        let first = wait_any(&[&a, &b], LONG).unwrap().ended().unwrap();
        let (first, second) = if first == 0 { (a, b) } else { (b, a) };
        assert!(has_ended(&first));
        wait(first).unwrap();
        wait(second).unwrap();
        two.end(&fake);
    }
}

/// Both ends wait for accesses to windows whose binds take long, if windows are bound, and send each other the keys meanwhile.
#[test]
#[ignore = "`sessions_over_the_fake_library` runs it as a process"]
fn accesses_wait_for_keys_that_come_late() {
    let Some(fake) = FakeIbv::take_for_sessions() else { return };
    for progress in [Progress::Thread, Progress::Manual] {
        fake.rule("bind", 0, VerbsFate::Late(400));
        let two = Two::new(&fake, progress);
        let trust = two.peer.explain().to_string();
        let windows = if has_windows() {
            "windows: type 2B memory windows ("
        } else {
            "windows: a protection domain for each peer (the device does not advertise type 2B windows;"
        };
        assert!(trust.contains(windows), "{trust}");
        std::thread::scope(|s| {
            // Each drives its own end, and neither ends before the other one has sent its keys.
            s.spawn(|| two.back.get_at(0, 2 * KIB64, KIB64).unwrap());
            two.put_and_compare(1);
        });
        assert_eq!(fake.calls("bind") != 0, has_windows());
        fake.clear_rules();
        two.end(&fake);
    }
}

/// A window that the peer does not use comes back at once. One into which a put is under way comes back 1 s later, whether or not
/// somebody waits for it, and the put lands nowhere.
#[test]
#[ignore = "`sessions_over_the_fake_library` runs it as a process"]
fn windows_come_back_while_the_peer_uses_them() {
    let Some(fake) = FakeIbv::take_for_sessions() else { return };
    for (is_used, waits) in [(false, true), (false, false), (true, true), (true, false)] {
        let two = Two::new(&fake, Progress::Thread);
        let refused = fake.count("refused");
        let region =
            two.target.memory().register(hmc_std::memory::HeapBytes::from(vec![1; 4096])).unwrap();
        let window = two.back.expose(region.take_all().unwrap(), Access::all(), 3);
        let window = window.map_err(|(e, _)| e).unwrap();
        let remote = two.peer.window(3).within(LONG).wait().unwrap();
        let span = two
            .source
            .memory()
            .register(hmc_std::memory::HeapBytes::from(vec![9; 4096]))
            .unwrap()
            .take_all()
            .unwrap();
        if is_used {
            fake.rule("write", 1, VerbsFate::Held);
        }
        let put = remote.put(0, span).start().unwrap();
        let put = if is_used {
            until("it is under way", LONG, || (fake.count("held") == 1).then_some(()));
            Some(put)
        } else {
            drop(put.wait().unwrap());
            None
        };
        let start = Instant::now();
        let span = if waits {
            window.revoke().within(LONG).wait().unwrap()
        } else {
            drop(window);
            until("the memory comes back", LONG, || region.take_all().ok())
        };
        let elapsed = start.elapsed();
        println!("used {is_used}, waits {waits}: {elapsed:?}");
        assert!(!is_used || elapsed >= Duration::from_secs(1), "{elapsed:?}");
        assert!(elapsed < Duration::from_secs(5), "{elapsed:?}");
        let mut got = [0; 4096];
        span.read_at(0, &mut got).unwrap();
        assert_eq!(got, [if is_used { 1 } else { 9 }; 4096]);
        if let Some(put) = put {
            assert_eq!(fake.release(), 1);
            let failed = put.wait().expect_err("its window is gone");
            assert_eq!(failed.kind(), ErrorKind::Revoked, "{failed}");
            span.read_at(0, &mut got).unwrap();
            assert_eq!(got, [1; 4096], "it has landed");
        }
        assert_eq!(fake.count("refused"), refused + u64::from(is_used));
        drop((span, region, remote, two));
        until("all is given back", LONG, || (fake.count("live") == 0).then_some(()));
        fake.clear_rules();
    }
}

#[test]
#[ignore = "`sessions_over_the_fake_library` runs it as a process"]
fn the_end_of_a_session_ends_what_is_under_way() {
    let Some(fake) = FakeIbv::take_for_sessions() else { return };
    for ends in ["target", "source", "shutdown"] {
        let two = Two::new(&fake, Progress::Thread);
        fake.rule("write", 0, VerbsFate::Held);
        let ops: Vec<_> = (0..10).map(|n| two.peer.start_put_at(0, n * 64, 64).unwrap()).collect();
        until("they are posted", LONG, || {
            two.source.progress();
            (fake.count("held") != 0).then_some(())
        });
        let Two { target, source, peer, back, dir } = two;
        match ends {
            "target" => {
                drop((back, target));
                for op in ops {
                    let e = wait(op).expect_err("the peer is gone");
                    assert_eq!(e.kind(), ErrorKind::PeerDead, "{e}");
                }
                drop((peer, source));
            }
            // What is under way is nobody's any more, and ends with its session.
            "source" => drop((ops, peer, source, back, target)),
            _ => {
                let _ = source.shutdown().within(Duration::from_millis(50)).wait();
                drop((ops, peer, source, back, target));
            }
        }
        drop(dir);
        fake.clear_rules();
        fake.await_clean();
    }
}

#[test]
#[ignore = "`sessions_over_the_fake_library` runs it as a process"]
fn an_operation_that_does_not_complete_meets_its_deadline() {
    let Some(fake) = FakeIbv::take_for_sessions() else { return };
    let two = Two::new(&fake, Progress::Thread);
    fake.rule("read", 1, VerbsFate::AckHeld);
    let copy = Copy { local_offset: 0, remote_offset: 0, len: 64 };
    let e = two.peer.transfer_within(Direction::Put, copy, Duration::from_millis(100));
    assert_eq!(e.expect_err("it is held").kind(), ErrorKind::DeadlineExceeded);
    assert_eq!(fake.release(), 1);
    // The link goes on.
    two.put_and_compare(4);
    two.end(&fake);
}

/// A part that is held holds nothing on the other queue pair.
#[test]
#[ignore = "`sessions_over_the_fake_library` runs it as a process"]
fn a_long_transfer_is_spread_over_the_queue_pairs_of_both_ends() {
    let Some(fake) = FakeIbv::take_for_sessions() else { return };
    let half = usize::try_from(KIB64).unwrap();
    for channels in [[2, 4], [4, 2]] {
        let two = Two::with_channels(&fake, Progress::Thread, channels);
        assert_eq!(fake.count("qps"), 4, "{channels:?}");
        let (bytes, read) = (pattern(2 * KIB64, 8), |session: &Session, at| {
            let mut got = vec![0; 2 * half];
            session.buffer().read_at(at, &mut got).unwrap();
            got
        });
        two.source.buffer().write_at(0, &bytes).unwrap();
        for (operation, place) in [("write", KIB64), ("read", 2 * KIB64)] {
            fake.rule(operation, 1, VerbsFate::Held);
            let (op, end) = if operation == "write" {
                (two.peer.start_put_at(0, place, 2 * KIB64).unwrap(), &two.target)
            } else {
                (two.peer.start_get_at(place, KIB64, 2 * KIB64).unwrap(), &two.source)
            };
            until("the second half arrives", LONG, || {
                (read(end, place)[half..] == bytes[half..]).then_some(())
            });
            assert!(read(end, place)[..half].iter().all(|b| *b == 0), "{operation} is held");
            assert_eq!(fake.release(), 1);
            assert_eq!(wait(op).unwrap(), 2 * KIB64);
            assert!(read(end, place) == bytes, "{operation}: the bytes differ");
            fake.clear_rules();
        }
        two.end(&fake);
    }
}

#[test]
#[ignore = "`sessions_over_the_fake_library` runs it as a process"]
fn a_call_that_fails_is_named_by_the_error() {
    let Some(fake) = FakeIbv::take_for_sessions() else { return };
    for (function, errno, words) in [
        ("ibv_post_send", libc::EIO, "posting requests"),
        ("ibv_poll_cq", libc::EINVAL, "polling completions"),
    ] {
        let two = Two::new(&fake, Progress::Thread);
        // All of its calls: the end of a link polls once more, and a put whose completion that finds is done.
        fake.rule(function, 0, VerbsFate::Refused(errno));
        let e = two.peer.put_at(0, 0, 64).expect_err(function);
        let reason = std::io::Error::from_raw_os_error(errno).to_string();
        assert_eq!(e.kind(), ErrorKind::PeerDead, "{e}");
        assert!(e.to_string().contains(words) && e.to_string().contains(&reason), "{e}");
        fake.clear_rules();
        two.end(&fake);
    }
}

/// A status that ends a link is told with its meaning and its NIC, by what waits for the put and by its name alike.
#[test]
#[ignore = "`sessions_over_the_fake_library` runs it as a process"]
fn a_status_that_ends_a_link_is_named_by_the_error() {
    /// IBV_WC_LOC_QP_OP_ERR.
    const STATUS: u8 = 2;
    let Some(fake) = FakeIbv::take_for_sessions() else { return };
    for is_named in [false, true] {
        let two = Two::new(&fake, Progress::Thread);
        fake.rule("write", 1, VerbsFate::Failed(STATUS, 77));
        let e = if is_named {
            wait(two.peer.start_put_at(0, 0, 64).unwrap()).map(drop)
        } else {
            two.peer.put_at(0, 0, 64)
        };
        let e = e.expect_err("its completion has failed");
        assert_eq!(e.kind(), ErrorKind::Io, "{e}");
        for words in ["the NIC fake_0:1", "LOC_QP_OP_ERR", "77"] {
            assert!(e.to_string().contains(words), "{e}");
        }
        fake.clear_rules();
        two.end(&fake);
    }
}

/// A completion that is lost is reported as an event of its completion queue: the operation does not wait for its deadline.
#[test]
#[ignore = "`sessions_over_the_fake_library` runs it as a process"]
fn a_lost_completion_ends_its_link() {
    let Some(fake) = FakeIbv::take_for_sessions() else { return };
    for progress in [Progress::Thread, Progress::Manual] {
        let two = Two::new(&fake, progress);
        fake.rule("read", 1, VerbsFate::Dropped);
        let copy = Copy { local_offset: 0, remote_offset: 0, len: 64 };
        let e = two.peer.transfer_within(Direction::Put, copy, LONG).expect_err("it is lost");
        assert_eq!(e.kind(), ErrorKind::PeerDead, "{e}");
        assert!(e.to_string().contains("the NIC fake_0:1 ended it: CQ error (CQ_ERR"), "{e}");
        drop(two);
        until("all is given back", LONG, || (fake.count("live") == 0).then_some(()));
        fake.clear_rules();
    }
    assert_eq!(fake.count("findings"), 0);
}

/// Nothing is under way, and nobody waits.
#[test]
#[ignore = "`sessions_over_the_fake_library` runs it as a process"]
fn an_event_ends_a_link_that_has_nothing_to_do() {
    let Some(fake) = FakeIbv::take_for_sessions() else { return };
    for (progress, nth) in [(Progress::Thread, 1), (Progress::Manual, 1), (Progress::Manual, 2)] {
        let two = Two::new(&fake, progress);
        two.put_and_compare(9);
        fake.event(0, QP_FATAL, nth);
        until("both ends are over", LONG, || {
            two.source.progress();
            (!two.source.peer(1).is_ok_and(|p| p.is_connected())
                && !two.target.peer(0).is_ok_and(|p| p.is_connected()))
            .then_some(())
        });
        let errors =
            [&two.peer, &two.back].map(|peer| peer.put_at(0, 0, 64).expect_err("it is over"));
        assert!(errors.iter().all(|e| e.kind() == ErrorKind::PeerDead), "{errors:?}");
        let named = errors.iter().filter(|e| e.to_string().contains("(QP_FATAL, event 1)")).count();
        assert_eq!(named, 1, "{errors:?}");
        two.end(&fake);
    }
}

#[test]
#[ignore = "`sessions_over_the_fake_library` runs it as a process"]
fn a_device_that_is_gone_ends_its_links() {
    let Some(fake) = FakeIbv::take_for_sessions() else { return };
    let two = Two::new(&fake, Progress::Thread);
    two.put_and_compare(5);
    fake.event(0, 8, 0);
    let e = two.peer.put_at(0, 0, 64).expect_err("the device is gone");
    assert_eq!(e.kind(), ErrorKind::PeerDead, "{e}");
    drop(two);
    until("all is given back", LONG, || (fake.count("live") == 0).then_some(()));
}

#[test]
#[ignore = "`sessions_over_the_fake_library` runs it as a process"]
fn a_child_drops_the_sessions_without_a_call() {
    let Some(fake) = FakeIbv::take_for_sessions() else { return };
    // The thread of a session that has something under way looks at it, by the library's lock, which a child could inherit.
    for progress in [Progress::Thread, Progress::Manual] {
        let two = Two::new(&fake, progress);
        two.put_and_compare(6);
        let threads = || count_of(std::process::id(), "task");
        let before = threads();
        fake.set("ticker_us", 0);
        until("the ticker has ended", LONG, || (threads() < before).then_some(()));
        let begun =
            (progress == Progress::Manual).then(|| two.peer.start_put_at(0, 0, 64).unwrap());
        let live = fake.count("live");
        let mut all = Some((two, begun));
        let said = in_child(|| {
            drop(all.take());
            format!("{} live", fake.count("live"))
        });
        assert_eq!(said, Ok(format!("{live} live")), "{progress:?}");
        let (two, begun) = all.unwrap();
        fake.set("ticker_us", 50);
        if let Some(op) = begun {
            wait(op).unwrap();
        }
        for salt in 7..12 {
            two.put_and_compare(salt);
        }
        two.end(&fake);
    }
}

#[test]
#[ignore = "`sessions_over_the_fake_library` runs it as a process"]
fn sixty_four_links_at_once() {
    const LINKS: u32 = 64;
    let Some(fake) = FakeIbv::take_for_sessions() else { return };
    fake.set("ticker_us", 200);
    let dir = TempDir::new();
    let target = Session::builder(1000).uds(dir.path()).buffer(KIB64).start().unwrap();
    let near: Vec<_> = (0..LINKS)
        .map(|rank| {
            let source = Session::builder(rank).buffer(4096).start().unwrap();
            let peer = source
                .connect(&dir.address())
                .rank(1000)
                .over(ConnType::Rdma)
                .within(LONG)
                .wait()
                .unwrap();
            (source, peer)
        })
        .collect();
    assert_eq!(fake.count("qps"), u64::from(LINKS) * 2);
    for (n, (source, peer)) in (0_u64..).zip(&near) {
        source.buffer().fill(0, 512, u8::try_from(n + 1).unwrap()).unwrap();
        let op = peer.start_put_at(0, n * 512, 512).unwrap();
        assert_eq!(wait(op).unwrap(), 512);
    }
    let back: Vec<_> =
        (0..LINKS).map(|rank| target.accept(rank).within(LONG).wait().unwrap()).collect();
    let ops: Vec<_> = back.iter().map(|peer| peer.start_get_at(0, 0, 8).unwrap()).collect();
    let mut left = ops;
    while !left.is_empty() {
        let at = wait_any(&left.iter().collect::<Vec<_>>(), LONG).unwrap().ended().unwrap();
        assert_eq!(wait(left.swap_remove(at)).unwrap(), 8);
    }
    for n in 0..u64::from(LINKS) {
        let mut got = [0; 512];
        target.buffer().read_at(n * 512, &mut got).unwrap();
        assert!(n == 0 || got.iter().all(|b| u64::from(*b) == n + 1), "link {n}");
    }
    drop((near, back, target, dir));
    fake.await_clean();
}
