//! Sessions that meet, talk and part without a blocking call: both ends on one single-threaded executor. A future that waits in
//! its poll panics here (hmc-std's test builds look).

#![allow(clippy::arithmetic_side_effects, clippy::unwrap_used, reason = "tests may panic")]

use std::future::IntoFuture as _;
use std::time::{Duration, Instant};

use hmc_std::{
    Access, Address, Done, Element, ErrorKind, Exchange, Message, Reduce, Session, Who, want,
};
use hmc_tests::env::{TempDir, Via, bound};
use hmc_tests::executor::{Task, block_on, poll_once, run};
use hmc_tests::group_fixture::GroupFixture;
use hmc_tests::pair::{ALL, Pair, pattern, transports};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const LONG: Duration = Duration::from_secs(20);

/// All that two ends do to each other, each step awaited.
async fn near(session: &Session, to: &Address, via: Via) {
    let peer = session.connect(to).over(via.conn()).within(LONG).await.unwrap();
    assert_eq!((peer.rank().0, peer.explain().conn), (1, Some(via.conn())));
    for message in [Message::Tag(7), Message::Int(-7), Message::bytes(b"seven")] {
        peer.send(message).await.unwrap();
    }
    // A rank that is here, and any.
    let (from, tag) = session.recv(1, want::Tag).await.unwrap();
    assert_eq!((from.0, tag), (1, 8));
    let (from, bytes) = session.recv(Who::Any, want::Bytes).await.unwrap();
    assert_eq!((from.0, bytes), (1, b"eight".to_vec()));
    // Messages of any size: lent, of a span, of a range.
    let long = pattern(3 * MIB + 5, 1);
    assert_eq!(peer.send_data(&long).await.unwrap().bytes, 3 * MIB + 5);
    let mut span = session.memory().allocate(MIB).unwrap().take_all().unwrap();
    span.write_at(0, &pattern(MIB, 2)).unwrap();
    let Done { memory: span, .. } = peer.send_data(span).await.unwrap();
    let Done { bytes, memory: span } = peer.recv_data(span).await.unwrap();
    assert!(span.as_slice().get(..64) == Some(&pattern(64, 3)) && bytes == 64);
    let group = session.group(&[0, 1]).await.unwrap();
    assert_eq!((group.len(), group.position()), (2, 0));
    let window = peer.window(5).await.unwrap();
    window.put(0, b"here").notify(9).await.unwrap();
    // The other end takes its window back first.
    assert_eq!(peer.recv(want::Tag).await.unwrap(), 10);
    peer.disconnect().await.unwrap();
    session.shutdown().await.unwrap();
}

async fn far(session: &Session) {
    let peer = session.accept(Who::Any).await.unwrap();
    assert_eq!(peer.recv(want::Tag).await.unwrap(), 7);
    assert_eq!(peer.recv(want::Int).await.unwrap(), -7);
    assert_eq!(peer.recv(want::Bytes).await.unwrap(), b"seven");
    peer.send(Message::Tag(8)).await.unwrap();
    peer.send(Message::bytes(b"eight")).await.unwrap();
    let mut got = vec![0; 4 << 20];
    let len = peer.recv_data(&mut got).await.unwrap().bytes;
    assert!(len == 3 * MIB + 5 && got.starts_with(&pattern(len, 1)));
    let range = session.buffer().range(0, 2 * MIB).unwrap();
    assert_eq!(peer.recv_data(range).await.unwrap().bytes, MIB);
    let mut first = [0; 64];
    session.buffer().read_at(0, &mut first).unwrap();
    assert!(pattern(MIB, 2).starts_with(&first));
    peer.send_data(&pattern(64, 3)).await.unwrap();
    let span = session.memory().allocate(4096).unwrap().take_all().unwrap();
    let window = peer.expose(span, Access::all(), 5).map_err(|(e, _)| e).unwrap();
    assert_eq!(peer.recv(want::Notify).await.unwrap(), 9);
    let group = session.group(&[0, 1]).await.unwrap();
    assert_eq!((group.len(), group.position()), (2, 1));
    let span = window.revoke().await.unwrap();
    assert!(span.as_slice().starts_with(b"here"));
    peer.send(Message::Tag(10)).await.unwrap();
    session.shutdown().await.unwrap();
}

#[test]
fn sessions_meet_talk_and_part() {
    for via in Via::all() {
        let dir = TempDir::new();
        let one = Session::builder(1).uds(dir.path()).tcp("127.0.0.1:0").buffer(4 * MIB);
        let (one, zero) = (one.start().unwrap(), Session::builder(0).buffer(4096).start().unwrap());
        let to = dir.address();
        run(vec![Box::pin(near(&zero, &to, via)), Box::pin(far(&one))]);
    }
}

/// More than the connection, the inbox and the system hold: who sends is pending until the other end receives.
#[test]
fn small_messages_wait_for_a_receiver() {
    for conn in ALL {
        let pair = Pair::with(conn, 4096, |b| b.inbox(16, 64 << 10));
        let (a, b) = (&pair.a, &pair.b);
        let bytes = |n: u64| pattern(20 * KIB, n);
        let send = async {
            for n in 0..200 {
                a.send(Message::bytes(bytes(n))).await.unwrap();
            }
        };
        let receive = async {
            for n in 0..200 {
                let got = b.recv(want::Bytes).await.unwrap();
                assert!(got == bytes(n), "{conn:?}: message {n}");
            }
        };
        run(vec![Box::pin(send), Box::pin(receive)]);
    }
}

/// More than 64 messages at a time: the others wait for a place.
#[test]
fn messages_wait_for_a_place_among_those_under_way() {
    for conn in transports() {
        let pair = Pair::new(conn, 4 * MIB);
        let (a, b, buffer) = (&pair.a, &pair.b, pair.sender().buffer());
        // Long enough for no message to go with its offer.
        let bytes: Vec<_> = (0..100).map(|n| pattern(8 * KIB, n)).collect();
        let received = std::cell::Cell::new(0);
        let mut tasks: Vec<Task<'_>> = Vec::new();
        for (n, bytes) in (0u64..).zip(&bytes) {
            tasks.push(Box::pin(async move {
                if n % 2 == 0 {
                    a.send_data(bytes).await.unwrap();
                } else {
                    buffer.write_at(n * 8 * KIB, bytes).unwrap();
                    a.send_data(buffer.range(n * 8 * KIB, 8 * KIB).unwrap()).await.unwrap();
                }
            }));
        }
        // Each receive has a window, of which there are fewer.
        for _ in 0..20 {
            tasks.push(Box::pin(async {
                for _ in 0..5 {
                    let mut got = vec![0; 9 << 10];
                    let len = b.recv_data(&mut got).await.unwrap().bytes;
                    got.truncate(usize::try_from(len).unwrap());
                    assert!(bytes.contains(&got), "{conn:?}: no message that was sent");
                    received.set(received.get() + 1);
                }
            }));
        }
        run(tasks);
        assert_eq!(received.get(), 100, "{conn:?}");
    }
}

#[test]
fn futures_that_are_dropped_take_nothing_and_withdraw_what_was_lent() {
    for conn in ALL {
        let pair = Pair::new(conn, 4096);
        let (a, b) = (&pair.a, &pair.b);
        let mut recv = b.recv(want::Tag).into_future();
        assert!(poll_once(&mut recv).is_pending());
        drop(recv);
        let mut recv = pair.receiver().recv(Who::Any, want::Tag).into_future();
        assert!(poll_once(&mut recv).is_pending());
        a.send(Message::Tag(5)).wait().unwrap();
        drop(recv);
        assert_eq!(b.recv(want::Tag).within(LONG).wait().unwrap(), 5, "{conn:?}");
        // Of a lent message nothing is under way any more: the receiver learns that it was withdrawn, or never sees it.
        let lent = vec![1; 64 << 10];
        let mut send = a.send_data(&lent).into_future();
        assert!(poll_once(&mut send).is_pending());
        drop(send);
        drop(lent);
        let mut out = vec![0; 64 << 10];
        let (sent, got) = std::thread::scope(|s| {
            let next = s.spawn(|| a.send_data(&vec![2; 64 << 10]).within(LONG).wait());
            let mut got = b.recv_data(&mut out).within(LONG).wait();
            if got.as_ref().is_err_and(|e| e.kind() == ErrorKind::Cancelled) {
                got = b.recv_data(&mut out).within(LONG).wait();
            }
            (next.join().unwrap(), got)
        });
        assert!(
            sent.is_ok() && got.is_ok() && out == vec![2; 64 << 10],
            "{conn:?}: {sent:?} {got:?}"
        );
    }
}

/// A message of which the system takes a part at first is sent to its end, and its sender is told.
#[test]
fn a_long_small_message_wakes_its_own_sender() {
    for conn in [Via::Shm.conn(), Via::Tcp.conn()] {
        let pair = Pair::new(conn, 4096);
        let (a, b) = (&pair.a, &pair.b);
        let begun = Instant::now();
        std::thread::scope(|s| {
            // Each on an executor of its own: no other task's waker makes up for a missing one.
            s.spawn(|| {
                for _ in 0..5 {
                    block_on(a.send(Message::bytes(vec![7; 1 << 20])).into_future()).unwrap();
                }
            });
            for _ in 0..5 {
                assert_eq!(b.recv(want::Bytes).within(LONG).wait().unwrap().len(), 1 << 20);
            }
        });
        assert!(
            begun.elapsed() < bound(Duration::from_secs(10)),
            "{conn:?}: {:?}",
            begun.elapsed()
        );
    }
}

/// A session that ends ends the waits for peers that have not appeared, awaited or not.
#[test]
fn the_end_of_a_session_ends_what_waits_for_peers() {
    let session = Session::builder(0).buffer(4096).start().unwrap();
    let begun = Instant::now();
    let kinds = std::cell::RefCell::new(Vec::new());
    let closed = |e: hmc_std::Error| kinds.borrow_mut().push(e.kind());
    std::thread::scope(|s| {
        let blocking = [
            s.spawn(|| session.accept(Who::Any).within(Duration::MAX).wait().map(drop)),
            s.spawn(|| session.recv(Who::Any, want::Any).within(Duration::MAX).wait().map(drop)),
            s.spawn(|| session.recv(9, want::Any).within(Duration::MAX).wait().map(drop)),
            s.spawn(|| session.group(&[0, 9]).within(Duration::MAX).wait().map(drop)),
        ];
        run(vec![
            Box::pin(async { closed(session.accept(Who::Any).await.unwrap_err()) }),
            Box::pin(async { closed(session.accept(9).await.unwrap_err()) }),
            Box::pin(async { closed(session.recv(Who::Any, want::Any).await.unwrap_err()) }),
            Box::pin(async { closed(session.recv(9, want::Any).await.unwrap_err()) }),
            Box::pin(async { closed(session.group(&[0, 9]).await.unwrap_err()) }),
            Box::pin(async { session.shutdown().await.unwrap() }),
        ]);
        for blocked in blocking {
            closed(blocked.join().unwrap().unwrap_err());
        }
    });
    assert_eq!(*kinds.borrow(), [ErrorKind::Closed; 9]);
    // Who comes later is told at once, and that the session is over.
    let late = block_on(session.accept(Who::Any).within(Duration::MAX).into_future());
    assert_eq!(late.map(drop).map_err(|e| e.kind()), Err(ErrorKind::Closed));
    session.shutdown().within(LONG).wait().unwrap();
    assert!(begun.elapsed() < bound(Duration::from_secs(5)), "{:?}", begun.elapsed());
}

#[test]
fn a_future_of_a_message_gives_its_result_once() {
    let pair = Pair::new(Via::Tcp.conn(), 4096);
    let mut send = pair.a.send(Message::Tag(1)).into_future();
    assert!(matches!(poll_once(&mut send), std::task::Poll::Ready(Ok(()))));
    pair.a.send(Message::Tag(2)).wait().unwrap();
    let again = poll_once(&mut send);
    assert!(matches!(again, std::task::Poll::Ready(Err(e)) if e.kind() == ErrorKind::Stale));
    let mut recv = pair.b.recv(want::Tag).into_future();
    while poll_once(&mut recv).is_pending() {
        std::thread::yield_now();
    }
    let again = poll_once(&mut recv);
    assert!(matches!(again, std::task::Poll::Ready(Err(e)) if e.kind() == ErrorKind::Stale));
    assert_eq!(pair.b.recv(want::Tag).within(LONG).wait().unwrap(), 2, "it was sent once");
}

/// A future ends at its time, whatever it waits for, and holds up no other one.
#[test]
fn futures_end_at_their_time() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let nowhere = Address::Tcp(silent.local_addr().unwrap());
    let pair = Pair::new(Via::Tcp.conn(), 4096);
    let (session, peer) = (pair.sender(), &pair.a);
    let short = Duration::from_millis(50);
    let begun = Instant::now();
    let kinds = std::cell::RefCell::new(Vec::new());
    let late = |what: &'static str, e: hmc_std::Error| kinds.borrow_mut().push((what, e.kind()));
    run(vec![
        Box::pin(async {
            let e = session.connect(&nowhere).rank(9).within(short).await.unwrap_err();
            late("connect", e);
        }),
        Box::pin(async { late("accept", session.accept(9).within(short).await.unwrap_err()) }),
        Box::pin(async { late("recv", peer.recv(want::Any).within(short).await.unwrap_err()) }),
        Box::pin(async {
            late("recv_from", session.recv(9, want::Any).within(short).await.unwrap_err());
        }),
        Box::pin(async {
            late("send_data", peer.send_data(&[0; 8192]).within(short).await.unwrap_err());
        }),
        Box::pin(async {
            late("recv_data", peer.recv_data(&mut [0; 8]).within(short).await.unwrap_err());
        }),
        Box::pin(async {
            let range = session.buffer().range(0, 8).unwrap();
            late("recv_data of a range", peer.recv_data(range).within(short).await.unwrap_err());
        }),
        Box::pin(async { late("group", session.group(&[0, 9]).within(short).await.unwrap_err()) }),
    ]);
    assert!(begun.elapsed() < bound(Duration::from_secs(5)), "{:?}", begun.elapsed());
    assert_eq!(kinds.borrow().len(), 8);
    for (what, kind) in kinds.borrow().iter() {
        assert_eq!(*kind, ErrorKind::DeadlineExceeded, "{what}");
    }
    // All of it is as good as before.
    pair.b.send(Message::Tag(1)).wait().unwrap();
    assert_eq!(block_on(peer.recv(want::Tag).into_future()).unwrap(), 1);
}

/// Four members on one thread, each with its collectives awaited: what the others have not sent yet leaves a task pending.
#[test]
fn collectives_of_four_members_on_one_thread() {
    for via in Via::all() {
        let members = GroupFixture::new(via, 4);
        let collect = async |session: &Session| {
            let group = session.group(&[0, 1, 2, 3]).await.unwrap();
            let me = u8::try_from(group.position()).unwrap();
            // Short and long ones, of which the long ones take many polls.
            for len in [1, 1000, 300_000] {
                group.barrier().await.unwrap();
                let mut bytes = vec![me; len];
                group.broadcast(2, &mut bytes).await.unwrap();
                assert!(bytes.iter().all(|b| *b == 2), "{via:?}");
                let (send, mut recv) = (vec![me; len], vec![9; 4 * len]);
                group.allgather(&send, &mut recv).within(LONG).await.unwrap();
                let all: Vec<u8> = (0..4).flat_map(|of| vec![of; len]).collect();
                assert!(recv == all, "{via:?}: an allgather of {len}");
                group.alltoall(&all, &mut recv, Exchange::Ring).await.unwrap();
                assert!(recv.iter().all(|b| *b == me), "{via:?}: an alltoall of {len}");
                let mut sums = vec![me; len];
                group.allreduce(Element::U8, Reduce::Sum, &mut sums).await.unwrap();
                assert!(sums.iter().all(|n| *n == 6), "{via:?}: an allreduce of {len}");
            }
            // Nobody else comes. Over shared memory a member sees that the others have left their group.
            if me == 0 {
                let late = group.barrier().within(Duration::from_millis(50)).await.unwrap_err();
                let kinds = [ErrorKind::DeadlineExceeded, ErrorKind::Closed];
                let allowed = if via == Via::Shm { &kinds[..] } else { &kinds[..1] };
                assert!(allowed.contains(&late.kind()), "{via:?}: {late}");
                assert!(group.broken().is_some());
            }
        };
        run(members.sessions.iter().map(|s| -> Task<'_> { Box::pin(collect(s)) }).collect());
    }
}
