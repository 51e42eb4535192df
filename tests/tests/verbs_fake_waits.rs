//! Who learns of the end of what sessions do over RDMA verbs, and when, by the fake libibverbs.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may panic"
)]

use std::future::{Future as _, IntoFuture as _};
use std::pin::Pin;
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use hmc_std::{Done, Message, Progress, want::Wanted};
use hmc_testkit::buffers::{BufferTransfers as _, wait};
use hmc_tests::env::until;
use hmc_tests::fake_ibv::{FakeIbv, run_ignored};
use hmc_tests::verbs_sessions::Two;

const LONG: Duration = Duration::from_secs(20);

#[test]
fn waits_over_the_fake_library() {
    run_ignored();
}

/// Nobody waits for these puts: the session's thread posts them, and their flushes.
#[test]
#[ignore = "`waits_over_the_fake_library` runs it as a process"]
fn puts_that_nobody_waits_for_arrive() {
    let Some(fake) = FakeIbv::take_for_sessions() else { return };
    let two = Two::new(&fake, Progress::Thread);
    fake.set("poll_progress", 0);
    for round in 1..=30_u8 {
        two.source.buffer().fill(0, 4096, round).unwrap();
        let ops: Vec<_> =
            (0..40).map(|n| two.peer.start_put_at(n * 64, n * 64, 64).unwrap()).collect();
        until("the bytes arrive", LONG, || {
            let mut got = [0; 40 * 64];
            two.target.buffer().read_at(0, &mut got).unwrap();
            got.iter().all(|b| *b == round).then_some(())
        });
        until("nothing is under way", LONG, || (fake.count("posted") == 0).then_some(()));
        for op in ops {
            assert_eq!(wait(op).unwrap(), 64);
        }
    }
    two.end(&fake);
}

/// Puts that nobody waits for go out at once, one by one, and share a flush once somebody asks, or before they fill the queue. Their own
/// completions would tell nothing.
#[test]
#[ignore = "`waits_over_the_fake_library` runs it as a process"]
fn puts_share_a_flush_when_somebody_asks() {
    let Some(fake) = FakeIbv::take_for_sessions() else { return };
    let two = Two::new(&fake, Progress::Manual);
    // Nothing of the link's beginning is under way after it.
    two.put_and_compare(1);
    let counted = || ["doorbells", "signalled"].map(|what| fake.count(what));
    let put = |n: u64| two.peer.start_put_at(n % 64 * 64, n % 64 * 64, 64).unwrap();
    for round in 1..=3_u8 {
        two.source.buffer().fill(0, 4096, round).unwrap();
        let (before, reads) = (counted(), fake.calls("read"));
        let ops: Vec<_> = (0..100).map(put).collect();
        let begun = counted();
        assert_eq!([begun[0] - before[0], begun[1] - before[1]], [100, 0], "each goes out");
        until("the bytes arrive", LONG, || {
            let mut got = [0; 4096];
            two.target.buffer().read_at(0, &mut got).unwrap();
            got.iter().all(|b| *b == round).then_some(())
        });
        assert_eq!(fake.calls("read") - reads, 0, "nobody has asked");
        for op in ops {
            assert_eq!(wait(op).unwrap(), 64);
        }
        assert_eq!((fake.calls("read") - reads, counted()[1] - before[1]), (1, 1));
    }
    let reads = fake.calls("read");
    let ops: Vec<_> = (0..2000).map(put).collect();
    let flushes = fake.calls("read") - reads;
    assert!((4..=100).contains(&flushes), "{flushes} flushes");
    for op in ops {
        assert_eq!(wait(op).unwrap(), 64);
    }
    two.end(&fake);
}

/// A waiter sleeps on the completion channel and is woken by it: it does not poll meanwhile.
#[test]
#[ignore = "`waits_over_the_fake_library` runs it as a process"]
fn a_waiter_sleeps_until_its_completion() {
    let Some(fake) = FakeIbv::take_for_sessions() else { return };
    for progress in [Progress::Thread, Progress::Manual] {
        let two = Two::new(&fake, progress);
        two.put_and_compare(1);
        fake.set("poll_progress", 0);
        fake.set("ticker_us", 20_000);
        let (events, polls) = (fake.count("notifications"), fake.calls("ibv_poll_cq"));
        let start = Instant::now();
        for _ in 0..10 {
            two.peer.put_at(0, 0, 64).unwrap();
        }
        let elapsed = start.elapsed();
        let (events, polls) =
            (fake.count("notifications") - events, fake.calls("ibv_poll_cq") - polls);
        println!("{progress:?}: 10 puts, {elapsed:?}, {events} events, {polls} polls");
        assert!((1..=12).contains(&events), "{progress:?}: {events} events");
        // A waiter that polled would have looked some 100,000 times.
        assert!(polls <= 2000, "{progress:?}: {polls} polls");
        // One that is not woken sleeps for 50 ms.
        let slept = u64::try_from(elapsed.as_millis()).unwrap();
        println!("{slept} ms");
        fake.set("poll_progress", 1);
        two.end(&fake);
    }
}

/// Another thread that waits for a message does not keep a put waiting: a leader that nobody wakes sleeps for 50 ms.
#[test]
#[ignore = "`waits_over_the_fake_library` runs it as a process"]
fn a_put_beside_a_receive_ends_with_its_completion() {
    let Some(fake) = FakeIbv::take_for_sessions() else { return };
    for progress in [Progress::Thread, Progress::Manual] {
        let two = Two::new(&fake, progress);
        fake.set("poll_progress", 0);
        let (begins, begun) = mpsc::channel();
        let mut times = std::thread::scope(|s| {
            let receives = s.spawn(|| {
                begins.send(()).unwrap();
                two.peer.recv(Wanted::Any).within(LONG).wait().unwrap()
            });
            begun.recv().unwrap();
            let put = |_| {
                let start = Instant::now();
                two.peer.put_at(0, 0, 64).unwrap();
                start.elapsed()
            };
            let times: Vec<_> = (0..31).map(put).collect();
            two.back.send(Message::Tag(5)).wait().unwrap();
            assert_eq!(receives.join().unwrap(), Message::Tag(5));
            times
        });
        times.sort_unstable();
        println!("{progress:?}: {:?} in the median", times[15]);
        assert!(times[15] < Duration::from_millis(15), "{progress:?}: {times:?}");
        fake.set("poll_progress", 1);
        two.end(&fake);
    }
}

/// Nothing is posted of a transfer without bytes, so that no completion and no poll follows.
#[test]
#[ignore = "`waits_over_the_fake_library` runs it as a process"]
fn a_future_without_bytes_is_over_at_its_first_poll() {
    let Some(fake) = FakeIbv::take_for_sessions() else { return };
    let two = Two::new(&fake, Progress::Manual);
    let remote = two.peer.buffer().unwrap();
    let none = two.source.buffer().range(0, 0).unwrap();
    let mut cx = Context::from_waker(Waker::noop());
    let mut put = remote.put(0, none).into_future();
    assert!(matches!(Pin::new(&mut put).poll(&mut cx), Poll::Ready(Ok(Done { bytes: 0, .. }))));
    let mut list = remote.get_list(&[]).into_future();
    assert!(matches!(Pin::new(&mut list).poll(&mut cx), Poll::Ready(Ok(Done { bytes: 0, .. }))));
    let op = remote.get(0, none).start().unwrap();
    assert!(matches!(op.poll_ended(&mut cx), Poll::Ready(Ok(0))));
    drop((op, put, list));
    drop(remote);
    two.end(&fake);
}
