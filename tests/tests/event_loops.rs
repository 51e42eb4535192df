//! The descriptor of a session (`Session::events`): a program that sleeps on it alone misses nothing.

#![allow(clippy::arithmetic_side_effects, clippy::unwrap_used, reason = "tests may panic")]

use std::collections::VecDeque;
use std::os::fd::AsFd as _;
use std::time::Duration;

use hmc_std::{ConnType, ErrorKind, Message, Op, Peer, Session, Waited, want::Wanted};
use hmc_testkit::buffers::BufferMessages as _;
use hmc_tests::actor::Actor;
use hmc_tests::env::TempDir;
use hmc_tests::pair::Pair;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

const ACTOR: &str = env!("CARGO_BIN_EXE_actor");
const LONG: Duration = Duration::from_secs(20);
/// Longer than what follows an event takes.
const QUIET: Duration = Duration::from_millis(150);

/// Sleeps on the descriptor, and on nothing else. Whether it was readable.
fn sleep(session: &Session, limit: Duration) -> bool {
    let limit = Timespec::try_from(limit).unwrap();
    let events = session.events().unwrap();
    let fd = events.as_fd();
    poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&limit)).unwrap() == 1
}

/// Clears it until nothing more happens.
fn settle(session: &Session) {
    for _ in 0..100 {
        session.events().unwrap().clear().unwrap();
        if !sleep(session, QUIET) {
            return;
        }
    }
    panic!("the descriptor is readable although nothing happens");
}

/// The next message, if there is one.
fn message(peer: &Peer) -> Option<Message<'static>> {
    match peer.recv(Wanted::Any).within(Duration::ZERO).wait() {
        Ok(message) => Some(message),
        Err(e) if e.kind() == ErrorKind::DeadlineExceeded => None,
        Err(e) => panic!("{e}"),
    }
}

fn ended(op: &Op) -> Option<u64> {
    op.wait_for(Duration::ZERO).ended().map(Result::unwrap)
}

#[test]
fn it_is_readable_when_it_is_made_and_idle_links_leave_it_alone() {
    let pair = Pair::new(ConnType::Tcp, 1 << 16);
    let session = pair.sender();
    assert!(
        sleep(session, Duration::ZERO),
        "nobody asked for it before: a loop begins with a look"
    );
    settle(session);
    assert!(!sleep(session, Duration::from_millis(1200)), "two heartbeats of 500 ms are no events");
}

#[test]
fn the_end_of_an_operation_makes_it_readable_once() {
    for via in [ConnType::Tcp, ConnType::Shm, ConnType::Loopback] {
        let pair = Pair::new(via, 1 << 23);
        let session = pair.sender();
        settle(session);
        // Of several pieces, and with a tag: it is not over when it is started.
        let range = session.buffer().range(0, 1 << 22).unwrap();
        let op = pair.a.buffer().unwrap().put(1 << 22, range).notify(1).start().unwrap();
        loop {
            assert!(sleep(session, LONG), "{via:?}: it has ended");
            session.events().unwrap().clear().unwrap();
            if let Some(bytes) = ended(&op) {
                assert_eq!(bytes, 1 << 22);
                break;
            }
        }
        settle(session);
    }
}

/// It ends by its deadline, which passes while nobody looks at the operation.
#[test]
fn a_deadline_makes_it_readable() {
    let dir = TempDir::new();
    let actor =
        Actor::session(ACTOR, &format!("rank=1 uds={} buffer=33554432", dir.path().display()));
    let session = Session::builder(0).buffer(1 << 25).start().unwrap();
    let peer =
        session.connect(&dir.address()).rank(1).over(ConnType::Shm).within(LONG).wait().unwrap();
    actor.stop();
    settle(&session);
    let range = session.buffer().range(0, 64).unwrap();
    // A notification needs the peer.
    let remote = peer.buffer().unwrap();
    let op = remote.get(0, range).within(Duration::from_millis(100)).start().unwrap();
    let late = remote.put(0, range).notify(1).within(Duration::from_millis(100)).start().unwrap();
    for op in [op, late] {
        while let Waited::Limit = op.wait_for(Duration::ZERO) {
            assert!(sleep(&session, LONG), "its deadline has passed");
            session.events().unwrap().clear().unwrap();
        }
    }
}

#[test]
fn a_message_makes_it_readable_once() {
    let pair = Pair::new(ConnType::Tcp, 1 << 16);
    let session = pair.receiver();
    settle(session);
    let put_with_tag = || {
        let range = pair.sender().buffer().range(0, 8).unwrap();
        pair.a.buffer().unwrap().put(0, range).notify(4).wait().unwrap();
    };
    let sends: [(&dyn Fn(), Message); 4] = [
        (&|| pair.a.send(Message::Tag(3)).wait().unwrap(), Message::Tag(3)),
        (&|| pair.a.send(Message::Int(-1)).wait().unwrap(), Message::Int(-1)),
        (&|| pair.a.send(Message::bytes(b"abc")).wait().unwrap(), Message::bytes(b"abc".to_vec())),
        (&put_with_tag, Message::Notify(4)),
    ];
    for (send, sent) in sends {
        send();
        assert!(sleep(session, LONG), "{sent:?} has come");
        session.events().unwrap().clear().unwrap();
        let got = message(&pair.b);
        assert_eq!(got, Some(sent));
        settle(session);
    }
    // One that stays unread does not count again.
    pair.a.send(Message::Tag(5)).wait().unwrap();
    assert!(sleep(session, LONG));
    settle(session);
    assert_eq!(message(&pair.b), Some(Message::Tag(5)));
}

#[test]
fn a_message_of_any_size_makes_it_readable_when_it_has_ended() {
    let pair = Pair::new(ConnType::Tcp, 1 << 23);
    let sessions = [pair.sender(), pair.receiver()];
    sessions.into_iter().for_each(settle);
    let sent = pair.a.start_send_at(0, 1 << 22).unwrap();
    let received = pair.b.start_recv_at(0, 1 << 22).unwrap();
    for (session, message) in sessions.into_iter().zip([&sent, &received]) {
        loop {
            assert!(sleep(session, LONG), "it has ended");
            session.events().unwrap().clear().unwrap();
            if let Some(ended) = message.wait_for(Duration::ZERO).ended() {
                assert_eq!(ended.unwrap(), 1 << 22);
                break;
            }
        }
    }
}

#[test]
fn the_death_and_the_leave_of_a_peer_make_it_readable() {
    for kills in [true, false] {
        let dir = TempDir::new();
        let settings = format!("rank=1 uds={} buffer=4096", dir.path().display());
        let actor = Actor::session(ACTOR, &settings);
        let session = Session::builder(0).buffer(4096).start().unwrap();
        let peer = session.connect(&dir.address()).rank(1).wait().unwrap();
        settle(&session);
        if kills {
            let _ = actor.kill();
        } else {
            assert!(actor.dismiss().success());
        }
        while peer.is_connected() {
            assert!(sleep(&session, LONG), "the peer has gone");
            session.events().unwrap().clear().unwrap();
        }
        settle(&session);
    }
}

#[test]
fn a_peer_that_connects_makes_it_readable() {
    let dir = TempDir::new();
    let target = Session::builder(1).uds(dir.path()).buffer(4096).start().unwrap();
    settle(&target);
    let source = Session::builder(0).buffer(4096).start().unwrap();
    let _peer = source.connect(&dir.address()).rank(1).wait().unwrap();
    loop {
        assert!(sleep(&target, LONG), "a peer has come");
        target.events().unwrap().clear().unwrap();
        if !target.peers().is_empty() {
            break;
        }
    }
}

/// Never more than 16 at a time; the loop's only sleep is poll(2) on the descriptor.
#[test]
fn a_loop_over_the_descriptor_drives_puts_and_messages() {
    const PUTS: u64 = 1000;
    const MESSAGES: u64 = 100;
    let pair = Pair::new(ConnType::Tcp, 1 << 20);
    let (session, peer) = (pair.sender(), &pair.a);
    let remote = peer.buffer().unwrap();
    std::thread::scope(|threads| {
        threads.spawn(|| (0..MESSAGES).for_each(|n| pair.b.send(Message::Tag(n)).wait().unwrap()));
        let mut running: VecDeque<Op> = VecDeque::new();
        let (mut started, mut done, mut tags) = (0, 0, 0);
        while done < PUTS || tags < MESSAGES {
            while running.len() < 16 && started < PUTS {
                let range = session.buffer().range(started * 64, 64).unwrap();
                running.push_back(remote.put(started * 64, range).start().unwrap());
                started += 1;
            }
            assert!(sleep(session, LONG), "after {done} puts and {tags} messages");
            session.events().unwrap().clear().unwrap();
            running.retain(|op| {
                ended(op).is_none_or(|bytes| {
                    assert_eq!(bytes, 64);
                    done += 1;
                    false
                })
            });
            while let Some(got) = message(peer) {
                assert_eq!(got, Message::Tag(tags));
                tags += 1;
            }
        }
    });
}

/// A loop that still sleeps on it is woken by the end, and its number names nothing else meanwhile.
#[test]
fn the_descriptor_outlives_its_session() {
    let session = Session::builder(0).buffer(4096).start().unwrap();
    let own = session.peer(0).unwrap();
    let events = session.events().unwrap();
    events.clear().unwrap();
    drop(session);
    let mut fds = [PollFd::from_borrowed_fd(events.as_fd(), PollFlags::IN)];
    assert_eq!(poll(&mut fds, Some(&Timespec::try_from(LONG).unwrap())), Ok(1));
    assert_eq!(fds[0].revents(), PollFlags::IN);
    assert!(!own.is_connected());
}
