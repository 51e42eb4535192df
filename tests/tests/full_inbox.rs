//! Full inboxes: their limits hold for each waiter, and stopped connections continue as soon as there is space.

#![allow(clippy::arithmetic_side_effects, clippy::unwrap_used, reason = "tests may panic")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hmc_std::{
    ConnType, ErrorKind, Message, Op, Waited, Who,
    want::{self, Wanted},
};
use hmc_testkit::buffers::{BufferTransfers as _, has_ended, wait};
use hmc_tests::env::until;
use hmc_tests::pair::Pair;

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_secs(5);

/// Messages in the inbox of the receiver's one peer.
fn held(pair: &Pair) -> usize {
    pair.receiver().stats().peers.iter().map(|p| p.inbox).sum()
}

/// A peer sends what nobody wants as fast as it can, while somebody waits for something else.
#[test]
fn who_waits_for_one_message_keeps_no_more_of_the_others_than_the_limit() {
    const LIMIT: usize = 8;
    for conn in [ConnType::Shm, ConnType::Tcp] {
        let pair = Pair::with(conn, 4096, |b| b.inbox(LIMIT, 1 << 20));
        let over = AtomicBool::new(false);
        let (e, held) = std::thread::scope(|s| {
            s.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let _ = pair.a.send(Message::Tag(1)).within(Duration::from_millis(20)).wait();
                }
            });
            let waited = pair.b.recv(Wanted::ThisTag(7)).within(Duration::from_millis(500)).wait();
            let held = held(&pair);
            over.store(true, Ordering::Relaxed);
            (waited.unwrap_err(), held)
        });
        assert_eq!(held, LIMIT, "{conn:?}");
        assert_eq!(e.kind(), ErrorKind::DeadlineExceeded);
        assert!(e.to_string().contains("the inbox of this peer is full"), "{e}");
        // The message comes after the inbox has space.
        for _ in 0..LIMIT {
            assert_eq!(pair.b.recv(want::Tag).within(LONG).wait().unwrap(), 1);
        }
        let last = || loop {
            match pair.b.recv(Wanted::Any).within(LONG).wait().unwrap() {
                Message::Tag(7) => return,
                other => assert_eq!(other, Message::Tag(1)),
            }
        };
        std::thread::scope(|s| {
            s.spawn(|| pair.a.send(Message::Tag(7)).within(LONG).wait().unwrap());
            last();
        });
    }
}

/// Space that a waiter frees is used although the waiter itself has returned: the peer's puts need no caller here.
#[test]
fn a_stream_that_stopped_for_a_waiter_goes_on_without_it() {
    let pair = Pair::with(ConnType::Tcp, 4096, |b| b.inbox(1, 1 << 20));
    for round in 0..300 {
        std::thread::scope(|s| {
            let sender = s.spawn(|| {
                let put = |tag| pair.a.start_put_notify_at(0, 0, 8, tag).unwrap();
                let ops = [put(2 * round), put(2 * round + 1)];
                ops.map(|op: Op| match op.wait_for(SHORT) {
                    Waited::Ended(result) => result.map_err(|e| e.to_string()),
                    other => Err(format!("{other:?}")),
                })
            });
            let first = pair.b.recv(Wanted::Notify).within(LONG).wait().unwrap();
            let ended = sender.join().unwrap();
            assert_eq!(ended, [Ok(8), Ok(8)], "round {round}: one of the two was taken");
            let second = pair.b.recv(Wanted::Notify).within(LONG).wait().unwrap();
            assert_eq!(
                (first, second),
                (Message::Notify(2 * round), Message::Notify(2 * round + 1))
            );
        });
    }
}

/// A connection that stopped because the bytes, not the number of messages, were too many goes on too, whoever receives;
/// and a message that is longer than all that may wait is received when none waits.
#[test]
fn a_connection_that_stopped_for_bytes_goes_on() {
    // Of two lengths, so that the connection stops with a part of the next message at hand.
    for (limit, lens, count) in [(4 << 20, [10_000, 3_000], 1300), (1000, [4000, 4000], 12)] {
        let pair = Pair::with(ConnType::Shm, 4096, |b| b.inbox(4096, limit));
        let message = |n: usize| vec![n.to_le_bytes()[0]; *lens.get(n % 2).unwrap()];
        std::thread::scope(|s| {
            s.spawn(|| {
                for n in 0..count {
                    pair.a.send(Message::bytes(message(n))).within(LONG).wait().unwrap();
                }
            });
            // Its capacity is a little less than this.
            let most = limit / 6500;
            until("its inbox is full", LONG, || (held(&pair) + 4 > most).then_some(()));
            for n in 0..count {
                let (_, got) =
                    pair.receiver().recv(Who::Any, Wanted::Bytes).within(SHORT).wait().unwrap();
                assert!(got == Message::bytes(message(n)), "message {n} of limit {limit}");
            }
        });
    }
}

/// A put with a tag that finds the inbox full waits by itself, also in a session's link to itself: no call of its owner is
/// needed but those that make space.
#[test]
fn a_put_whose_tag_finds_no_space_waits_and_keeps_no_caller() {
    const LIMIT: usize = 4;
    for conn in [ConnType::Loopback, ConnType::Shm, ConnType::Tcp] {
        let pair = Pair::with(conn, 4096, |b| b.inbox(LIMIT, 1 << 20));
        let mut ops: Vec<_> = (0..10)
            .map(|tag| pair.a.start_put_notify_at(0, 0, 8, tag).expect("it waits"))
            .collect();
        until("the inbox is full", LONG, || (held(&pair) == LIMIT).then_some(()));
        let given_up = ops.pop().unwrap();
        if conn == ConnType::Loopback {
            assert!(!has_ended(&given_up));
            given_up.cancel();
        }
        let others = if conn == ConnType::Loopback { 9 } else { 10 };
        for tag in 0..others {
            assert_eq!(pair.b.recv(want::Notify).within(LONG).wait().unwrap(), tag, "{conn:?}");
        }
        for op in ops {
            assert_eq!(wait(op).unwrap(), 8);
        }
        let last = wait(given_up).map_err(|e| e.kind());
        let cancelled = conn == ConnType::Loopback;
        assert_eq!(last.err(), cancelled.then_some(ErrorKind::Cancelled), "{conn:?}");
    }
}
