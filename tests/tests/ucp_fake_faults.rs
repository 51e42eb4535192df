//! UCX's transport under faults that real UCX cannot be made to show: completions that are late, failed, out of order or
//! never come, endpoints that fail, calls that are refused. Every operation ends once, memory outlives its requests, and
//! everything is given back.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may panic"
)]

use std::collections::BTreeMap;
use std::sync::Arc;

use hmc_core::slots::SlotId;
use hmc_core::transport::{PostErrorKind, Transport as _};
use hmc_core::types::Access;
use hmc_core::work::{Completion, Failure, Opcode};
use hmc_hw::ucx::context::Context;
use hmc_hw::ucx::memory::Memory;
use hmc_hw::ucx::result::Status;
use hmc_hw::ucx::settings::Settings;
use hmc_hw::ucx::worker::Worker;
use hmc_tests::fake_ucp::{CONNECTION_RESET, CallResult, FakeUcp, IO_ERROR, NO_MEMORY};
use hmc_tests::ucx_pair::{Built, CountingNotify, connect};

const LEN: u64 = 1 << 16;
const NOBODY: Completion = Completion { op: SlotId { index: 9, generation: 9 }, result: Ok(0) };

fn built(fake_ucp: &FakeUcp) -> Built {
    Built::new(fake_ucp.library(), LEN, LEN, Access::all(), 1).unwrap()
}

/// What became of each operation, by its index; each came once.
fn outcomes(completions: &[Completion]) -> BTreeMap<u16, Result<u64, Failure>> {
    let map: BTreeMap<_, _> = completions.iter().map(|c| (c.op.index, c.result)).collect();
    assert_eq!(map.len(), completions.len(), "one came twice: {completions:?}");
    map
}

/// Drops the pair with all that is under way, and sees that everything comes back.
fn end(fake_ucp: &FakeUcp, pair: Built) {
    drop(pair);
    fake_ucp.assert_clean();
}

#[test]
fn a_late_put_is_not_reported_early_and_holds_up_nobody() {
    let fake_ucp = FakeUcp::take();
    let mut pair = built(&fake_ucp);
    pair.write_local(0, &[7; 64]);
    fake_ucp.rule("ucp_put_nbx", 2, CallResult::Late(200));
    let mut first = Vec::new();
    for (index, at) in [(0, 0), (1, 1000), (2, 2000)] {
        let work = pair.request(index, Opcode::Put, 0, at, 64);
        pair.near.post(&work).unwrap();
        // Each gets a flush of its own.
        (0..5).for_each(|_| first.extend(pair.poll()));
    }
    assert_eq!(outcomes(&first), BTreeMap::from([(0, Ok(64))]), "the others wait for the late one");
    assert_eq!((pair.read_remote(0, 64), pair.read_remote(1000, 1)), (vec![7; 64], vec![0]));
    let rest = outcomes(&pair.wait(2));
    assert_eq!(rest, BTreeMap::from([(1, Ok(64)), (2, Ok(64))]));
    assert_eq!(
        (pair.read_remote(1000, 64), pair.read_remote(2000, 64)),
        (vec![7; 64], vec![7; 64])
    );
    end(&fake_ucp, pair);
}

#[test]
fn a_refused_put_fails_alone() {
    let fake_ucp = FakeUcp::take();
    for opcode in [Opcode::Put, Opcode::Get] {
        let mut pair = built(&fake_ucp);
        fake_ucp.rule("ucp_put_nbx", 2, CallResult::Refused(IO_ERROR));
        fake_ucp.rule("ucp_get_nbx", 2, CallResult::Refused(IO_ERROR));
        for index in 0..3 {
            pair.near.post(&pair.request(index, opcode, 0, 0, 64)).unwrap();
        }
        let all = outcomes(&pair.wait(3));
        let failed = Err(Failure::Transport(i32::from(IO_ERROR)));
        assert_eq!(all, BTreeMap::from([(0, Ok(64)), (1, failed), (2, Ok(64))]), "{opcode:?}");
        end(&fake_ucp, pair);
        fake_ucp.restart();
    }
}

/// Its puts end with the endpoint, whose close shows that UCX has nothing of them any more.
#[test]
fn a_flush_that_is_lost_ends_with_its_endpoint() {
    let fake_ucp = FakeUcp::take();
    let mut pair = built(&fake_ucp);
    fake_ucp.rule("ucp_ep_flush_nbx", 1, CallResult::Lost);
    for index in 0..3 {
        pair.near.post(&pair.request(index, Opcode::Put, 0, 0, 64)).unwrap();
    }
    let transport = &mut pair.near.0;
    for _ in 0..10 {
        assert_eq!(transport.poll(&mut [NOBODY; 4]), 0, "it may still come");
    }
    transport.close();
    let dead = Err(Failure::PeerDead);
    let all = outcomes(&pair.wait(3));
    assert_eq!(all, BTreeMap::from([(0, dead), (1, dead), (2, dead)]));
    assert!(pair.near.0.is_idle() && pair.near.0.is_closed());
    end(&fake_ucp, pair);
}

#[test]
fn a_put_that_fails_later_fails_alone() {
    let fake_ucp = FakeUcp::take();
    let broken = Failure::Transport(i32::from(IO_ERROR));
    // The endpoint's failure may be told after those of its requests.
    let lost = (CONNECTION_RESET, Failure::PeerDead);
    for (opcode, (status, failure)) in [
        (Opcode::Put, (IO_ERROR, broken)),
        (Opcode::Get, (IO_ERROR, broken)),
        (Opcode::Put, lost),
        (Opcode::Get, lost),
    ] {
        let mut pair = built(&fake_ucp);
        fake_ucp.set("put_delay", 2);
        fake_ucp.rule("ucp_put_nbx", 2, CallResult::Failed(status));
        fake_ucp.rule("ucp_get_nbx", 2, CallResult::Failed(status));
        for index in 0..3 {
            pair.near.post(&pair.request(index, opcode, 0, 0, 64)).unwrap();
        }
        let all = outcomes(&pair.wait(3));
        let failed = Err(failure);
        assert_eq!(all, BTreeMap::from([(0, Ok(64)), (1, failed), (2, Ok(64))]), "{opcode:?}");
        end(&fake_ucp, pair);
        fake_ucp.restart();
    }
}

/// Nobody can tell when bytes that were not flushed stop arriving: the endpoint has failed with its flush, and the puts end
/// when it is closed.
#[test]
fn a_failed_flush_is_no_fence() {
    let fake_ucp = FakeUcp::take();
    for fate in [CallResult::Refused(IO_ERROR), CallResult::Failed(IO_ERROR)] {
        let mut pair = built(&fake_ucp);
        fake_ucp.rule("ucp_ep_flush_nbx", 1, fate);
        for index in 0..3 {
            pair.near.post(&pair.request(index, Opcode::Put, 0, 0, 64)).unwrap();
        }
        let window = pair.window.window;
        let transport = &mut pair.near.0;
        for _ in 0..10 {
            assert_eq!(transport.poll(&mut [NOBODY; 4]), 0, "{fate:?}: they end with the endpoint");
        }
        assert_eq!(transport.failure(), Some(Status(IO_ERROR)));
        assert!(!transport.remove_window(window), "the window is in use");
        let all = outcomes(&pair.wait(3));
        let dead = Err(Failure::PeerDead);
        assert_eq!(all, BTreeMap::from([(0, dead), (1, dead), (2, dead)]));
        assert!(pair.near.0.is_window_unused(window));
        end(&fake_ucp, pair);
        fake_ucp.restart();
    }
}

#[test]
fn out_of_order_each_put_ends_once_and_when_its_bytes_are_there() {
    let fake_ucp = FakeUcp::take();
    fake_ucp.set("order", 1);
    let mut pair = built(&fake_ucp);
    fake_ucp.set("put_delay", 5);
    fake_ucp.set("flush_delay", 3);
    let mut seen = 0;
    for round in 0..50u8 {
        for index in 0..40u16 {
            let at = u64::from(index) * 64;
            pair.write_local(at, &[round + 1; 64]);
            pair.near.post(&pair.request(index, Opcode::Put, at, at, 64)).unwrap();
            if index % 7 == 0 {
                seen += check_round(&mut pair, round);
            }
        }
        while seen < 40 * (usize::from(round) + 1) {
            seen += check_round(&mut pair, round);
        }
    }
    assert_eq!(seen, 2000);
    assert_eq!(fake_ucp.count("flushes_max"), 4, "no more than four flushes are of use");
    end(&fake_ucp, pair);
}

/// One turn; what it reports must be true already.
fn check_round(pair: &mut Built, round: u8) -> usize {
    let done = pair.poll();
    for c in &done {
        assert_eq!(c.result, Ok(64));
        let bytes = pair.read_remote(u64::from(c.op.index) * 64, 64);
        assert_eq!(bytes, [round + 1; 64], "{:?} was reported before its bytes", c.op);
    }
    done.len()
}

#[test]
fn what_never_ends_keeps_its_memory_until_a_forced_close() {
    let fake_ucp = FakeUcp::take();
    for close_delay in [0, 1, 20] {
        let mut pair = built(&fake_ucp);
        fake_ucp.set("close_delay", close_delay);
        fake_ucp.rule("ucp_put_nbx", 1, CallResult::Held);
        fake_ucp.rule("ucp_get_nbx", 1, CallResult::Held);
        pair.near.post(&pair.request(0, Opcode::Put, 0, 0, 64)).unwrap();
        pair.near.post(&pair.request(1, Opcode::Get, 0, 0, 64)).unwrap();
        pair.near.post(&pair.request(2, Opcode::Put, 0, 64, 64)).unwrap();
        for _ in 0..1000 {
            assert_eq!(pair.poll(), [], "nothing has ended");
        }
        assert!(!pair.near.0.is_idle());
        // The deadline of the operations has passed, and their owner gives the peer up.
        let users = Arc::strong_count(&pair.here);
        pair.near.0.close();
        if close_delay > 1 {
            assert!(!pair.near.0.is_idle(), "UCX still has the requests");
            assert_eq!(Arc::strong_count(&pair.here), users);
        }
        let all = outcomes(&pair.wait(3));
        let dead = Err(Failure::PeerDead);
        assert_eq!(all, BTreeMap::from([(0, dead), (1, dead), (2, dead)]));
        for _ in 0..30 {
            pair.poll();
        }
        assert!(pair.near.0.is_idle() && pair.near.0.is_closed());
        let refused = pair.near.post(&pair.request(3, Opcode::Put, 0, 0, 64));
        assert_eq!(refused, Err(PostErrorKind::Disconnected));
        end(&fake_ucp, pair);
        fake_ucp.restart();
    }
}

/// A transport that goes while UCX has its requests leaves them, and what they use, to its worker.
#[test]
fn memory_outlives_a_transport_whose_requests_do_not_come_back() {
    let fake_ucp = FakeUcp::take();
    let mut pair = built(&fake_ucp);
    fake_ucp.rule("ucp_put_nbx", 1, CallResult::Held);
    fake_ucp.rule("ucp_ep_close_nbx", 1, CallResult::Held);
    pair.near.post(&pair.request(0, Opcode::Put, 0, 0, 64)).unwrap();
    pair.poll();
    let worker = Arc::clone(pair.near.0.worker());
    let (here, unmapped) = (Arc::downgrade(&pair.here), fake_ucp.calls("ucp_mem_unmap"));
    let Built { near, far, am_target, here: ours, there, .. } = pair;
    drop((near, ours));
    // The put was withdrawn by the close; the endpoint itself is not closed yet.
    for _ in 0..50 {
        let guard = worker.lock();
        guard.progress();
        drop(guard.reap_orphans());
    }
    assert!(here.upgrade().is_some(), "its registration is held");
    assert_eq!(fake_ucp.calls("ucp_mem_unmap"), unmapped);
    assert_eq!(fake_ucp.release(), 1);
    for _ in 0..3 {
        let guard = worker.lock();
        guard.progress();
        drop(guard.reap_orphans());
    }
    assert!(here.upgrade().is_none(), "nothing uses it any more");
    drop((worker, far, am_target, there));
    fake_ucp.assert_clean();
}

/// A worker that goes waits for requests of peers that are gone, but not for ever: what they use stays then.
#[test]
fn a_worker_that_goes_leaks_what_ucx_does_not_give_back() {
    let fake_ucp = FakeUcp::take();
    let mut pair = built(&fake_ucp);
    fake_ucp.rule("ucp_put_nbx", 1, CallResult::Held);
    fake_ucp.rule("ucp_ep_close_nbx", 1, CallResult::Held);
    pair.near.post(&pair.request(0, Opcode::Put, 0, 0, 64)).unwrap();
    let begun = std::time::Instant::now();
    drop(pair);
    assert!(begun.elapsed() >= std::time::Duration::from_secs(2), "it waited");
    assert_eq!((fake_ucp.count("workers"), fake_ucp.calls("ucp_worker_destroy")), (1, 1));
    // The initiator's memory; the target's worker and memory, and both wireup pages, are gone.
    assert_eq!((fake_ucp.count("memories"), fake_ucp.count("contexts")), (1, 1));
    assert_eq!(fake_ucp.count("late"), 0);
}

#[test]
fn an_endpoint_that_fails_under_operations_ends_each_once() {
    let fake_ucp = FakeUcp::take();
    for purge in [true, false] {
        let mut pair = built(&fake_ucp);
        fake_ucp.set("put_delay", 40);
        fake_ucp.set("get_delay", 40);
        for index in 0..20 {
            let opcode = if index % 3 == 0 { Opcode::Get } else { Opcode::Put };
            pair.near.post(&pair.request(index, opcode, 0, 0, 64)).unwrap();
            pair.poll();
        }
        let notifications = pair.notifications.count();
        assert_eq!(fake_ucp.kill(0, CONNECTION_RESET, purge), 1);
        // Another thread's progress meets it.
        pair.near.0.worker().lock().progress();
        assert!(pair.notifications.count() > notifications, "whoever waits is told");
        assert_eq!(pair.near.0.failure(), Some(Status(CONNECTION_RESET)));
        let all = outcomes(&pair.wait(20));
        assert_eq!(all.len(), 20);
        assert!(all.values().all(|r| r.is_err()), "purge {purge}: {all:?}");
        let dead = all.values().filter(|r| **r == Err(Failure::PeerDead)).count();
        assert_eq!(dead, 20, "purge {purge}: {all:?}");
        let refused = pair.near.post(&pair.request(30, Opcode::Put, 0, 0, 64));
        assert_eq!(refused, Err(PostErrorKind::Disconnected));
        end(&fake_ucp, pair);
        fake_ucp.restart();
    }
}

#[test]
fn a_failed_registration_reports_a_remedy_and_harms_nothing() {
    let fake_ucp = FakeUcp::take();
    let mut pair = built(&fake_ucp);
    let context = Arc::clone(pair.near.0.worker().context());
    fake_ucp.rule("ucp_mem_map", 0, CallResult::Refused(NO_MEMORY));
    let e = Memory::allocate(&context, 1 << 20).expect_err("scripted");
    let text = e.to_string();
    for part in ["registering memory", "1048576 bytes", "Out of memory", "ulimit -l"] {
        assert!(text.contains(part), "{text}");
    }
    pair.near.post(&pair.request(0, Opcode::Put, 0, 0, 64)).unwrap();
    assert_eq!(
        outcomes(&pair.wait(1)),
        BTreeMap::from([(0, Ok(64))]),
        "what is registered serves on"
    );
    drop(context);
    end(&fake_ucp, pair);
}

/// Every call of setting up fails once: an error with its status comes of it, and all that was made is given back.
#[test]
fn a_set_up_that_fails_half_way_gives_everything_back() {
    let fake_ucp = FakeUcp::take();
    let calls = [
        "ucp_config_read",
        "ucp_config_modify",
        "ucp_init_version",
        "ucp_worker_create",
        "ucp_worker_get_address",
        "ucp_mem_map",
        "ucp_mem_query",
        "ucp_worker_get_efd",
        "ucp_rkey_pack",
        "ucp_ep_create",
        "ucp_ep_rkey_unpack",
    ];
    for function in calls {
        let mut failed = 0;
        for nth in 1..=20 {
            fake_ucp.rule(function, nth, CallResult::Refused(IO_ERROR));
            let made = Built::new(fake_ucp.library(), LEN, LEN, Access::all(), 1);
            let reached = fake_ucp.calls(function) >= nth;
            if let Err(text) = &made {
                assert!(text.contains("UCX status -3"), "{function}, call {nth}: {text}");
                failed += 1;
            }
            drop(made);
            fake_ucp.assert_clean();
            fake_ucp.restart();
            if !reached {
                break;
            }
        }
        // Of the settings the one that ends registrations at once has to be made; the others are passed over.
        let settings = function == "ucp_config_modify";
        assert!(if settings { failed == 1 } else { failed > 0 }, "{function}: {failed}");
    }
}

/// The fake libucp knows the keys in capitals.
#[test]
fn a_setting_that_is_refused_is_named() {
    let fake_ucp = FakeUcp::take();
    let keys = vec![("tls".to_owned(), "tcp".to_owned())];
    let settings = Settings { keys, ..Settings::default() };
    let text = Context::new(fake_ucp.library(), &settings).expect_err("no key").to_string();
    assert!(text.contains("tls=tcp"), "{text}");
    fake_ucp.assert_clean();
}

#[test]
fn a_first_put_that_fails_is_a_failed_endpoint() {
    let fake_ucp = FakeUcp::take();
    for fate in [CallResult::Refused(IO_ERROR), CallResult::Failed(IO_ERROR)] {
        let context = Context::new(fake_ucp.library(), &Settings::default()).unwrap();
        let (near, far) = (Worker::new(&context).unwrap(), Worker::new(&context).unwrap());
        fake_ucp.rule("ucp_put_nbx", 1, fate);
        let mut transport = connect(&near, &far, &CountingNotify::default()).unwrap().transport;
        for _ in 0..10 {
            transport.advance();
        }
        assert_eq!(transport.failure(), Some(Status(IO_ERROR)), "{fate:?}");
        drop((transport, near, far, context));
        fake_ucp.assert_clean();
        fake_ucp.restart();
    }
}

/// Ten thousand puts need one registration, free each request once, and no more than four flushes at a time.
#[test]
fn registrations_are_used_again() {
    let fake_ucp = FakeUcp::take();
    let mut pair = built(&fake_ucp);
    let (mapped, packed) = (fake_ucp.calls("ucp_mem_map"), fake_ucp.calls("ucp_rkey_pack"));
    let (mut posted, mut ended) = (0u32, 0);
    while ended < 10_000 {
        while posted < 10_000 {
            let index = u16::try_from(posted % 256).unwrap();
            let work = pair.request(index, Opcode::Put, u64::from(index), u64::from(index), 8);
            match pair.near.post(&work) {
                Ok(()) => posted += 1,
                Err(e) => {
                    assert_eq!(e, PostErrorKind::Busy);
                    break;
                }
            }
        }
        ended += pair.poll().len();
    }
    assert_eq!(fake_ucp.calls("ucp_mem_map"), mapped);
    assert_eq!(fake_ucp.calls("ucp_rkey_pack"), packed);
    assert!(fake_ucp.count("flushes_max") <= 4);
    assert_eq!(fake_ucp.calls("ucp_request_free"), fake_ucp.count("ended"));
    end(&fake_ucp, pair);
}

/// A first small put over messages goes at once; those that come before its answer share the next message, and nothing is
/// begun with UCX for them until then: nobody has to be woken.
#[test]
fn small_puts_over_messages_share_the_next_one() {
    let fake_ucp = FakeUcp::take();
    fake_ucp.lane("tcp/eth0");
    let mut pair = built(&fake_ucp);
    assert!(pair.near.0.uses_am());
    let _ = pair.near.0.take_posted();
    let before = fake_ucp.calls("ucp_am_send_nbx");
    let sent = || fake_ucp.calls("ucp_am_send_nbx") - before;
    pair.near.post(&pair.request(0, Opcode::Put, 0, 0, 8)).unwrap();
    assert_eq!((sent(), pair.near.0.take_posted()), (1, true), "the first goes at once");
    for index in 1..40 {
        let at = u64::from(index) * 8;
        pair.near.post(&pair.request(index, Opcode::Put, at, at, 8)).unwrap();
        assert!(pair.near.0.can_coalesce());
    }
    assert_eq!((sent(), pair.near.0.take_posted()), (1, false), "the others wait for company");
    let all = outcomes(&pair.wait(40));
    assert!(all.len() == 40 && all.values().all(|r| *r == Ok(8)));
    // Each of ours is answered by one.
    assert!(sent() <= 6, "{} messages for forty puts", sent());
    end(&fake_ucp, pair);
}

/// What is small: a put of one byte more goes at once and alone.
#[test]
fn puts_of_a_kibibyte_share_a_message_and_longer_ones_do_not() {
    let fake_ucp = FakeUcp::take();
    fake_ucp.lane("tcp/eth0");
    let mut pair = built(&fake_ucp);
    for (len, at_once, most) in [(1024, 1, 4), (1025, 5, 10)] {
        let before = fake_ucp.calls("ucp_am_send_nbx");
        let sent = || fake_ucp.calls("ucp_am_send_nbx") - before;
        for index in 0..5 {
            let at = u64::from(index) * 2048;
            pair.near.post(&pair.request(index, Opcode::Put, at, at, len)).unwrap();
        }
        assert_eq!(sent(), at_once, "puts of {len} bytes");
        let all = outcomes(&pair.wait(5));
        assert!(all.len() == 5 && all.values().all(|r| *r == Ok(len)), "{all:?}");
        // With the target's answers, of which each may serve several.
        assert!(sent() <= most, "{} messages for five puts of {len} bytes", sent());
    }
    end(&fake_ucp, pair);
}

/// One flush serves all puts that were posted before it, and no more than four are under way.
#[test]
fn one_flush_serves_many_puts() {
    let fake_ucp = FakeUcp::take();
    let mut pair = built(&fake_ucp);
    let before = fake_ucp.calls("ucp_ep_flush_nbx");
    for index in 0..64 {
        let at = u64::from(index) * 8;
        pair.near.post(&pair.request(index, Opcode::Put, at, at, 8)).unwrap();
    }
    assert_eq!(outcomes(&pair.wait(64)).len(), 64);
    assert_eq!(fake_ucp.calls("ucp_ep_flush_nbx") - before, 1);
    assert_eq!(fake_ucp.calls("ucp_put_nbx"), 65, "with the wireup put");
    end(&fake_ucp, pair);
}
