//! Collectives between members of one host, which put bytes straight into each other's windows (docs/WIRE.md, 9): a member is
//! killed in each of them, stays away, leaves, or sends wrong notices; groups at once; members that sleep.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may panic"
)]

use std::cell::Cell;
use std::future::IntoFuture as _;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use hmc_std::{Access, Error, ErrorKind, Exchange, Group, Session, SessionBuilder};
use hmc_tests::actor::Actor;
use hmc_tests::env::{Via, bound};
use hmc_tests::executor::{block_on, poll_once};
use hmc_tests::group_fixture::{Blocks, COLLECTIVES, GroupFixture};

const ACTOR: &str = env!("CARGO_BIN_EXE_actor");
const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(200);
/// After so long all survivors know of a death.
const DEAD_BY: Duration = Duration::from_secs(3);
/// The rank of the process that is killed, and of the hostile member.
const DOOMED: u32 = 3;

/// Messages that fit into a ring, and longer ones.
#[test]
fn a_member_that_is_killed_in_any_collective_fails_all_others() {
    for name in COLLECTIVES {
        for len in [1 << 10, 1 << 20] {
            let members = GroupFixture::new(Via::Shm, DOOMED);
            let at = members.dir.path().display();
            let mut doomed = Actor::session(ACTOR, &format!("rank={DOOMED} uds={at}"));
            for rank in 0..DOOMED {
                doomed.request(&format!("connect {rank} {at} shm 20000"));
            }
            let (tell, moving) = channel();
            std::thread::scope(|s| {
                let run = |session| {
                    let (session, tell): (&hmc_std::Session, _) = (session, tell.clone());
                    s.spawn(move || {
                        let group = session.group(&[0, 1, 2, DOOMED]).wait().unwrap();
                        let mut blocks = Blocks::new(len, 4);
                        loop {
                            if let Err(e) = blocks.collect(&group, name).wait() {
                                return (e, Instant::now());
                            }
                            let _ = tell.send(());
                        }
                    })
                };
                let threads: Vec<_> = members.sessions.iter().map(run).collect();
                doomed.send(&format!("collect {name} {len} 0 1 2 {DOOMED}"));
                for _ in 0..30 {
                    moving.recv_timeout(LONG).expect("collectives");
                }
                let killed = doomed.kill();
                for (rank, thread) in threads.into_iter().enumerate() {
                    let (e, at) = thread.join().unwrap();
                    let what = format!("{name} of {len}, rank {rank}: {e}");
                    assert_eq!(e.kind(), ErrorKind::PeerDead, "{what}");
                    assert_eq!(e.peer().map(|r| r.0), Some(DOOMED), "{what}");
                    let took = at.saturating_duration_since(killed);
                    assert!(took < bound(DEAD_BY), "{what}: after {took:?}");
                }
            });
        }
    }
}

/// Without heartbeats it would never see that the doomed one has stopped.
#[test]
fn a_member_that_sees_a_death_tells_the_others_who_died() {
    let first = Cell::new(true);
    let setup = |b: SessionBuilder| if first.take() { b } else { b.heartbeat(None) };
    let members = GroupFixture::with(Via::Shm, 2, setup);
    let path = members.dir.path().display();
    let mut doomed = Actor::session(ACTOR, &format!("rank={DOOMED} uds={path} heartbeat=0"));
    (0..2).for_each(|rank| drop(doomed.request(&format!("connect {rank} {path} shm 20000"))));
    doomed.stop();
    let met = std::thread::scope(|s| {
        let run = |session: &'_ Session| {
            let group = session.group(&[0, 1, DOOMED]).wait().unwrap();
            group.barrier().within(LONG).wait().expect_err("a member is dead")
        };
        let threads = [0, 1].map(|rank| {
            s.spawn({
                let m = &members.sessions[rank];
                move || run(m)
            })
        });
        threads.map(|thread| thread.join().unwrap())
    });
    for (rank, e) in met.iter().enumerate() {
        assert_eq!(e.kind(), ErrorKind::PeerDead, "rank {rank}: {e}");
        assert_eq!(e.peer().map(|r| r.0), Some(DOOMED), "rank {rank}: {e}");
    }
    assert!(met[1].to_string().contains("rank 0 says so"), "{}", met[1]);
}

/// It has its windows and writes nothing into them. The group is broken then; a new one works.
#[test]
fn a_member_that_stays_away_is_waited_for_until_the_deadline() {
    for name in COLLECTIVES {
        let members = GroupFixture::new(Via::Shm, 2);
        let (tell, told) = channel();
        let told = std::sync::Mutex::new(told);
        members.each(|group| {
            let mut blocks = Blocks::new(1 << 20, 2);
            blocks.collect(group, name).wait().expect("both do it");
            if group.position() == 1 {
                return told.lock().unwrap().recv_timeout(LONG).expect("the other gave up");
            }
            // The root of a scatter waits for its receiver, that of a gather for its sender.
            let begun = Instant::now();
            let e = blocks.collect(group, name).within(SHORT).wait().expect_err("nobody else");
            assert_eq!(e.kind(), ErrorKind::DeadlineExceeded, "{name}: {e}");
            let took = begun.elapsed();
            assert!(took >= SHORT && took < bound(Duration::from_secs(3)), "{name}: {took:?}");
            let again = blocks.collect(group, name).wait().expect_err("it is broken");
            assert!(again.to_string().contains("broken"), "{again}");
            tell.send(()).unwrap();
        });
        let sums = members.each(|group| {
            let mut recv = vec![0; 2 * 300_000];
            group.allgather(&vec![group.position() as u8 + 1; 300_000], &mut recv).wait().unwrap();
            recv.iter().map(|b| u64::from(*b)).sum::<u64>()
        });
        assert_eq!(sums, [900_000; 2], "{name}: a new group");
    }
}

/// In the middle of a long message: the other one does not wait until its own deadline.
#[test]
fn a_member_whose_deadline_passes_tells_its_partner() {
    let members = GroupFixture::new(Via::Shm, 2);
    let (tell, told) = channel();
    let told = std::sync::Mutex::new(told);
    members.each(|group| {
        group.barrier().within(LONG).wait().expect("both do it");
        let mut bytes = vec![1; 16 << 20];
        if group.position() == 0 {
            let e = group.broadcast(0, &mut bytes).within(SHORT).wait().expect_err("it is alone");
            assert_eq!(e.kind(), ErrorKind::DeadlineExceeded, "{e}");
            return tell.send(()).unwrap();
        }
        let all = Duration::from_secs(30);
        let mut receives = Box::pin(group.broadcast(0, &mut bytes).within(all).into_future());
        assert!(poll_once(&mut receives).is_pending());
        told.lock().unwrap().recv_timeout(LONG).expect("the other gave up");
        let begun = Instant::now();
        let e = block_on(receives).expect_err("the other gave up");
        assert_eq!(e.kind(), ErrorKind::DeadlineExceeded, "{e}");
        assert_eq!(e.peer().map(|r| r.0), Some(0), "{e}");
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    });
}

/// The group of the other one may be gone by then.
#[test]
fn a_member_that_comes_after_a_deadline_ends_at_once() {
    for stays in [true, false] {
        let members = GroupFixture::new(Via::Shm, 2);
        let groups = members.sessions.iter().map(|s| s.group(&[0, 1]).wait().unwrap());
        let mut groups: Vec<_> = groups.collect();
        std::thread::scope(|s| {
            let both = |group| s.spawn(move || Group::barrier(group).within(LONG).wait());
            let barriers: Vec<_> = groups.iter().map(both).collect();
            barriers.into_iter().for_each(|barrier| barrier.join().unwrap().unwrap());
        });
        let first = groups.remove(0);
        let e = first.broadcast(1, &mut [0; 1 << 20]).within(SHORT).wait().expect_err("alone");
        assert_eq!(e.kind(), ErrorKind::DeadlineExceeded, "{e}");
        let first = stays.then_some(first);
        let begun = Instant::now();
        let late = groups[0].broadcast(1, &mut [0; 1 << 20]).within(LONG).wait();
        let e = late.expect_err("the other gave up");
        assert_eq!(e.kind(), ErrorKind::DeadlineExceeded, "{e}");
        assert_eq!(e.peer().map(|r| r.0), Some(0), "{e}");
        assert!(begun.elapsed() < bound(Duration::from_secs(3)), "{:?}", begun.elapsed());
        drop(first);
    }
}

/// It has no channel but to the one whose deadline passes. A member that comes later has none at all, and learns of it.
#[test]
fn a_member_that_was_told_of_a_deadline_tells_those_who_come_late() {
    let members = GroupFixture::with(Via::Shm, 3, |b| b.windows(8));
    let memory = members.sessions.iter().map(|s| s.memory().allocate(4096).unwrap().share());
    let memory: Vec<_> = memory.map(Result::unwrap).collect();
    // Half of the places are taken.
    let _windows: Vec<_> = [(0, 2), (1, 2)]
        .into_iter()
        .flat_map(|pair| [pair; 4])
        .map(|(of, to)| {
            let peer = members.sessions[of].peer(to).unwrap();
            peer.expose(&memory[of], Access::all(), u64::from(to)).unwrap()
        })
        .collect();
    let told = std::sync::Barrier::new(2);
    let met = members.each(|group| {
        let me = group.position();
        group.barrier().within(LONG).wait().expect("all do it");
        if me == 2 {
            told.wait();
        }
        let begun = Instant::now();
        let (send, mut recv) = (vec![1; 3 << 20], vec![0; 3 << 20]);
        let done = if me == 0 {
            let alone = group.broadcast(2, &mut recv).within(SHORT).wait();
            told.wait();
            alone
        } else {
            group.alltoall(&send, &mut recv, Exchange::Direct).within(LONG).wait()
        };
        (done.expect_err("one had no time").kind(), begun.elapsed())
    });
    for (rank, (kind, took)) in met.into_iter().enumerate() {
        let expected = if rank == 2 { ErrorKind::Cancelled } else { ErrorKind::DeadlineExceeded };
        assert_eq!(kind, expected, "rank {rank}");
        assert!(took < bound(Duration::from_secs(5)), "rank {rank}: {took:?}");
    }
}

/// Each waits for the other one, and they give up at about the same time.
#[test]
fn members_with_equal_deadlines_end_by_these() {
    let members = GroupFixture::new(Via::Shm, 2);
    for round in 0..10 {
        members.each(|group| {
            group.barrier().within(LONG).wait().expect("both do it");
            let root = 1 - group.position();
            let late = group.broadcast(root, &mut [0; 8]).within(SHORT / 2).wait();
            let e = late.expect_err("nobody sends");
            assert_eq!(e.kind(), ErrorKind::DeadlineExceeded, "round {round}: {e}");
        });
    }
}

/// However it leaves, and however far it has come with that: it did not die, and it did not fail.
#[test]
fn a_member_that_leaves_before_its_part_has_left() {
    /// Returns what is left of it.
    type Leaves = fn(Group, Session) -> Option<Session>;
    let disconnects: Leaves = |_group, session| {
        session.peer(0).unwrap().disconnect().within(LONG).wait().unwrap();
        Some(session)
    };
    let ends: Leaves = |_group, session| {
        session.shutdown().within(LONG).wait().unwrap();
        None
    };
    let goes: Leaves = |_, _| None;
    let drops: Leaves = |_, session| Some(session);
    for via in Via::all() {
        // Without windows nobody learns that a group was dropped.
        let all = [disconnects, ends, goes, drops];
        for (n, leaves) in all.iter().enumerate().take(if via == Via::Shm { 4 } else { 3 }) {
            let mut members = GroupFixture::new(via, 2);
            let gone = members.sessions.pop().unwrap();
            let stays = &members.sessions[0];
            std::thread::scope(|s| {
                let waits = s.spawn(|| {
                    let group = stays.group(&[0, 1]).wait().unwrap();
                    group.barrier().within(LONG).wait().expect("both come");
                    let mut bytes = vec![0; 1 << 20];
                    group.broadcast(1, &mut bytes).within(LONG).wait().expect_err("it leaves")
                });
                let group = gone.group(&[0, 1]).wait().unwrap();
                group.barrier().within(LONG).wait().expect("both come");
                let _left = leaves(group, gone);
                let e = waits.join().unwrap();
                assert_eq!(e.kind(), ErrorKind::Closed, "{via:?}, way {n}: {e}");
                assert_eq!(e.peer().map(|r| r.0), Some(1), "{via:?}, way {n}: {e}");
            });
        }
    }
}

/// Exchanges with each other member, and says what is wrong with what came.
fn exchange(group: &Group, salt: u8, round: usize) {
    let (me, n) = (group.position(), group.len());
    let len = [1, 1000, 70_000, 600_000][round % 4];
    let byte = |from: usize, to: usize| salt.wrapping_add((round * 16 + from * 4 + to) as u8);
    let send: Vec<u8> = (0..n).flat_map(|to| vec![byte(me, to); len]).collect();
    let mut recv = vec![0; n * len];
    group.alltoall(&send, &mut recv, Exchange::Direct).within(LONG).wait().expect("all take part");
    for (from, part) in recv.chunks(len).enumerate() {
        assert!(
            part.iter().all(|b| *b == byte(from, me)),
            "salt {salt}, round {round}: {from} to {me}"
        );
    }
}

/// Groups that share one member, in threads of their own, and two groups of the same members in turn.
#[test]
fn groups_have_windows_of_their_own() {
    let members = GroupFixture::new(Via::Shm, 3);
    std::thread::scope(|s| {
        for (salt, ranks) in [(0, [0, 1]), (100, [2, 0])] {
            let members = &members;
            s.spawn(move || {
                members.each_of(&ranks, |group| (0..200).for_each(|n| exchange(group, salt, n)));
            });
        }
    });
    members.each(|first| {
        let session = &members.sessions[first.position()];
        let second = session.group(&[2, 0, 1]).wait().unwrap();
        for n in 0..40 {
            exchange(first, 0, n);
            exchange(&second, 128, n);
        }
    });
}

/// Groups leave half of the places for windows to messages and to the application.
#[test]
fn many_groups_leave_windows_for_others() {
    for windows in [12, 32] {
        let members = GroupFixture::with(Via::Shm, 2, |b| b.windows(windows).buffer(0));
        members.each(|first| {
            let me = first.position();
            let session = &members.sessions[me];
            let group = |_| session.group(&[0, 1]).wait().unwrap();
            let groups: Vec<Group> = (0..40).map(group).collect();
            for n in 0..2 {
                groups.iter().for_each(|group| exchange(group, 0, n));
            }
            let peer = session.peer(1 - me as u32).unwrap();
            // The others are of memory that serves messages.
            let free = windows / 2 - 4;
            let span = || session.memory().allocate(8).unwrap().take_all().unwrap();
            let expose = |_| peer.expose(span(), Access::READ, 7);
            let exposed: Vec<_> = (0..free).map(|n| expose(n).expect("a place")).collect();
            let sent = vec![7; 1 << 20];
            let mut received = vec![0; sent.len()];
            if me == 0 {
                peer.send_data(&sent[..]).within(LONG).wait().expect("taken");
            } else {
                peer.recv_data(&mut received[..]).within(LONG).wait().expect("a place");
                assert!(received == sent, "{windows} windows");
            }
            drop(exposed);
            exchange(&groups[39], 0, 2);
        });
    }
}

/// Members that have no place for windows. The sender comes while the root of the gather, which failed, still agrees with it.
#[test]
fn a_member_that_fails_tells_senders_without_a_channel() {
    let members = GroupFixture::with(Via::Shm, 3, |b| b.windows(3));
    let begun = Instant::now();
    let met = members.each(|group| {
        let me = group.position();
        while me == 2 && begun.elapsed() < Duration::from_millis(50) {
            std::thread::yield_now();
        }
        let part = vec![1; if me == 1 { 9_000 } else { 10_000 }];
        let gathered = group.gather(0, &part, &mut vec![0; 30_000]).within(LONG).wait();
        (gathered.expect_err("lengths differ").kind(), begun.elapsed())
    });
    for (rank, (kind, took)) in met.into_iter().enumerate() {
        let expected = if rank == 2 { ErrorKind::Cancelled } else { ErrorKind::Length };
        assert_eq!(kind, expected, "rank {rank}");
        assert!(took < bound(Duration::from_secs(5)), "rank {rank}: {took:?}");
    }
}

/// Without spins, each wait sleeps. One that nobody wakes sleeps for 50 ms.
#[test]
fn members_that_sleep_are_woken() {
    const BATCH: usize = 40;
    let members = GroupFixture::with(Via::Shm, 2, |b| b.spin(Duration::ZERO));
    let slow = members.each(|group| {
        let took = |round| {
            let begun = Instant::now();
            exchange(group, 0, round % 3);
            begun.elapsed()
        };
        let slow =
            |_| (0..BATCH).map(took).filter(|took| *took >= Duration::from_millis(45)).count();
        (0..10).map(slow).min()
    });
    // The system may stop any thread for that long, but not each time.
    assert!(slow.iter().all(|slow| *slow < Some(BATCH / 2)), "{slow:?} of {BATCH} were slow");
}

/// Rank 0 passes a barrier, while rank 1 sends those messages by hand and receives one after each.
fn barrier_beside(messages: &[&[u8]]) -> Result<(), Error> {
    let members = GroupFixture::new(Via::Shm, 2);
    let hostile = members.sessions[1].peer(0).unwrap();
    std::thread::scope(|s| {
        let honest = &members.sessions[0];
        let honest = s.spawn(|| honest.group(&[0, 1]).wait()?.barrier().within(LONG).wait());
        for message in messages {
            let sent = hostile.send_data(*message).within(LONG).wait();
            let received = sent.and_then(|_| hostile.recv_data(&mut [0; 16]).within(LONG).wait());
            if received.is_err() {
                break;
            }
        }
        honest.join().unwrap()
    })
}

#[test]
fn notices_that_no_member_sends_end_the_collective() {
    let none = [0; 16];
    let yes: [u8; 16] = std::array::from_fn(|i| u8::from(i == 0));
    let with = |at: usize, byte: u8| {
        let mut notice = none;
        notice[at] = byte;
        notice
    };
    let cases: [(&str, &[&[u8]], ErrorKind); 7] = [
        ("a name without its mark", &[&with(3, 9)], ErrorKind::Protocol),
        ("another mark", &[&with(12, 2)], ErrorKind::Protocol),
        ("a byte behind the mark", &[&with(15, 1)], ErrorKind::Protocol),
        ("half a notice", &[&none[..8]], ErrorKind::Protocol),
        ("a byte more", &[&[0; 17]], ErrorKind::Length),
        ("another answer", &[&none, &with(0, 2)], ErrorKind::Protocol),
        ("an answer with a rest", &[&none, &with(9, 1)], ErrorKind::Protocol),
    ];
    for (what, messages, kind) in cases {
        let e = barrier_beside(messages).expect_err(what);
        assert_eq!((e.kind(), e.peer().map(|r| r.0)), (kind, Some(1)), "{what}: {e}");
    }
    // A window that is not there, and a claim to have mapped one: the members use messages.
    let unknown: [u8; 16] = std::array::from_fn(|i| if i < 12 { 7 } else { u8::from(i == 12) });
    for (first, second) in [(none, none), (none, yes), (unknown, yes), (unknown, none)] {
        barrier_beside(&[&first, &second, &[]]).expect("it needs no window");
    }
}
