//! Collectives that fail: a member dies, falls silent, leaves, never comes, or brings another length. Everybody learns of it
//! in time, and the group stays broken.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may panic"
)]

use std::future::IntoFuture as _;
use std::iter::repeat;
use std::sync::Barrier;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use hmc_core::rndv::AbortReason;
use hmc_std::{Element, Error, ErrorKind, Exchange, Group, Reduce};
use hmc_tests::actor::Actor;
use hmc_tests::env::{Via, bound, until};
use hmc_tests::executor::{block_on, poll_once};
use hmc_tests::group_fixture::GroupFixture;
use hmc_tests::receiver::Sender;

const ACTOR: &str = env!("CARGO_BIN_EXE_actor");
const MIB: usize = 1 << 20;
const LONG: Duration = Duration::from_secs(20);
/// After so long all survivors know of a death.
const DEAD_BY: Duration = Duration::from_secs(3);
/// The rank of the process that is killed.
const DOOMED: u32 = 3;

/// Ranks 0 to 2 in this process, and 3 in one of its own, all connected.
fn with_a_doomed_member(via: Via) -> (GroupFixture, Actor) {
    let members = GroupFixture::new(via, DOOMED);
    let path = members.dir.path().display();
    let mut actor = Actor::session(ACTOR, &format!("rank={DOOMED} uds={path} tcp=127.0.0.1:0"));
    for session in &members.sessions {
        let (rank, at) = (session.rank().0, members.address(session));
        actor.request(&format!("connect {rank} {at} {} 20000", via.conn().name()));
    }
    (members, actor)
}

/// What each of ranks 0 to 2 meets in a group of four, and when it returns.
fn survivors(
    members: &GroupFixture,
    end: impl FnOnce() -> Instant,
    work: impl Fn(&Group) -> Result<(), Error> + Sync,
) -> (Instant, Vec<(Error, Instant)>) {
    let work = &work;
    std::thread::scope(|s| {
        let run = |session| {
            let session: &hmc_std::Session = session;
            s.spawn(move || {
                let group = session.group(&[0, 1, 2, DOOMED]).wait().expect("all are connected");
                let e = work(&group).expect_err("a member is dead");
                let at = Instant::now();
                let again = group.barrier().wait().expect_err("it stays broken");
                assert_eq!(again.kind(), e.kind(), "{again}");
                assert!(again.to_string().contains("broken"), "{again}");
                (e, at)
            })
        };
        let threads: Vec<_> = members.sessions.iter().map(run).collect();
        let ended = end();
        (ended, threads.into_iter().map(|t| t.join().expect("a survivor")).collect())
    })
}

fn assert_all_blame_the_dead(via: Via, killed: Instant, met: &[(Error, Instant)]) {
    for (rank, (e, at)) in met.iter().enumerate() {
        assert_eq!(e.kind(), ErrorKind::PeerDead, "{via:?}, rank {rank}: {e}");
        assert_eq!(e.peer().map(|r| r.0), Some(DOOMED), "{via:?}, rank {rank}: {e}");
        let took = at.saturating_duration_since(killed);
        assert!(took < bound(DEAD_BY), "{via:?}: rank {rank} learned of it after {took:?}");
    }
}

/// In the middle of exchanges: bytes are under way between all.
#[test]
fn a_member_that_is_killed_fails_all_others() {
    for via in Via::all() {
        for round in 0..3 {
            let (members, mut actor) = with_a_doomed_member(via);
            let (tell, moving) = channel();
            let (killed, met) = survivors(
                &members,
                || {
                    actor.send(&format!("collect alltoall {MIB} 0 1 2 3"));
                    // All three have been through some.
                    for _ in 0..9 {
                        moving.recv_timeout(LONG).expect("exchanges");
                    }
                    actor.kill()
                },
                |group| {
                    let (send, mut recv) = (vec![2; 4 * MIB], vec![0; 4 * MIB]);
                    loop {
                        group.alltoall(&send, &mut recv, Exchange::Direct).wait()?;
                        let _ = tell.send(round);
                    }
                },
            );
            assert_all_blame_the_dead(via, killed, &met);
        }
    }
}

/// They wait for somebody else, who waits for the dead, and for nobody at all.
#[test]
fn who_waits_for_another_member_gets_a_death_too() {
    for via in Via::all() {
        let (members, actor) = with_a_doomed_member(via);
        let (tell, here) = channel();
        let (killed, met) = survivors(
            &members,
            || {
                for _ in 0..3 {
                    here.recv_timeout(LONG).expect("they begin");
                }
                actor.kill()
            },
            |group| {
                let _ = tell.send(());
                match group.position() {
                    // Has nothing of the dead in this collective: it waits for rank 1, which sends nothing.
                    0 => group.scatter(1, &[], &mut [0; 8]).wait(),
                    1 => group.barrier().wait(),
                    _ => group.gather(0, &[0; 8], &mut []).wait(),
                }
            },
        );
        assert_all_blame_the_dead(via, killed, &met);
    }
}

#[test]
fn a_member_that_is_stopped_is_dead_by_its_silence() {
    for via in Via::all() {
        let (members, actor) = with_a_doomed_member(via);
        let (stopped, met) = survivors(
            &members,
            || {
                actor.stop();
                Instant::now()
            },
            |group| {
                let mut bytes = vec![1; 4 * MIB];
                group.allreduce(Element::U8, Reduce::Sum, &mut bytes).wait()
            },
        );
        assert_all_blame_the_dead(via, stopped, &met);
    }
}

/// In the middle of exchanges: the time of a collective ends it, long before the silence of the member does.
#[test]
fn a_member_that_is_stopped_is_waited_for_until_the_deadline() {
    for via in Via::all() {
        let (members, mut actor) = with_a_doomed_member(via);
        let (tell, moving) = channel();
        let (stopped, met) = survivors(
            &members,
            || {
                actor.send(&format!("collect alltoall {MIB} 0 1 2 3"));
                for _ in 0..9 {
                    moving.recv_timeout(LONG).expect("exchanges");
                }
                actor.stop();
                Instant::now()
            },
            |group| {
                let (send, mut recv) = (vec![2; 4 * MIB], vec![0; 4 * MIB]);
                for time in [LONG; 3].into_iter().chain(repeat(Duration::from_millis(500))) {
                    let exchange = group.alltoall(&send, &mut recv, Exchange::Direct);
                    exchange.within(time).wait()?;
                    let _ = tell.send(());
                }
                unreachable!("it has no end")
            },
        );
        for (rank, (e, at)) in met.iter().enumerate() {
            assert_eq!(e.kind(), ErrorKind::DeadlineExceeded, "{via:?}, rank {rank}: {e}");
            let took = at.saturating_duration_since(stopped);
            assert!(took < bound(Duration::from_secs(2)), "{via:?}: rank {rank} after {took:?}");
        }
        let _ = actor.kill();
    }
}

/// It has done its part when it leaves: nobody may fail for that.
#[test]
fn a_member_that_leaves_after_its_part_harms_nobody() {
    for via in Via::all() {
        let mut members = GroupFixture::new(via, 4);
        // The tree of four: number 0 sends to 1 and 2, number 2 sends to 3.
        let ranks = [3, 0, 1, 2];
        let groups: Vec<Group> =
            members.sessions.iter().map(|s| s.group(&ranks).wait().unwrap()).collect();
        let leaver = members.sessions.pop().unwrap();
        let left = Barrier::new(2);
        std::thread::scope(|s| {
            for group in groups {
                let mut bytes = [0; 100];
                match group.position() {
                    0 => {
                        let (leaver, left) = (&leaver, &left);
                        s.spawn(move || {
                            group.broadcast(0, &mut [7; 100]).wait().expect("its part");
                            leaver
                                .peers()
                                .iter()
                                .for_each(|p| p.disconnect().within(LONG).wait().expect("orderly"));
                            left.wait();
                        });
                    }
                    3 => {
                        let left = &left;
                        let last = &members.sessions[2];
                        s.spawn(move || {
                            left.wait();
                            until("its BYE is here", LONG, || {
                                (!last.peer(3).is_ok_and(|p| p.is_connected())).then_some(())
                            });
                            group
                                .broadcast(0, &mut bytes)
                                .wait()
                                .expect("the bytes come from number 2");
                            assert_eq!(bytes, [7; 100]);
                        });
                    }
                    _ => drop(s.spawn(move || {
                        group.broadcast(0, &mut bytes).wait().expect("the leaver did its part");
                        assert_eq!(bytes, [7; 100]);
                    })),
                }
            }
        });
    }
}

#[test]
fn lengths_that_differ_are_reported_on_both_ends() {
    for via in Via::all() {
        for (first, second) in [(100, 101), (101, 100), (0, 8), (3 * MIB, 3 * MIB + 8)] {
            for both_send in [true, false] {
                let members = GroupFixture::new(via, 2);
                let met = members.each(|group| {
                    let len = if group.position() == 0 { first } else { second };
                    let (send, mut recv) = (vec![1; len], vec![0; 2 * len]);
                    let got = if both_send {
                        group.allgather(&send, &mut recv).wait()
                    } else {
                        group.broadcast(0, &mut recv[..len]).wait()
                    };
                    let e = got.expect_err("lengths differ");
                    (e, group.barrier().wait().expect_err("it stays broken"))
                });
                check_lengths(via, first, second, met);
            }
        }
    }
}

fn check_lengths(via: Via, first: usize, second: usize, met: Vec<(Error, Error)>) {
    for (e, again) in met {
        assert_eq!(e.kind(), ErrorKind::Length, "{via:?} {first} {second}: {e}");
        let text = e.to_string();
        let (a, b) = (first.to_string(), second.to_string());
        assert!(text.contains(&a) && text.contains(&b), "{text}");
        assert_eq!(again.kind(), ErrorKind::Length, "{again}");
        assert!(again.to_string().contains("broken"), "{again}");
    }
}

/// One of them brings another length: those who exchange with it or with who met it learn of it long before their deadlines.
#[test]
fn a_failure_of_one_is_passed_on() {
    for via in Via::all() {
        let members = GroupFixture::new(via, 5);
        let begun = Instant::now();
        let met = members.each(|group| {
            let len = if group.position() == 2 { 50_000 } else { 40_000 };
            let mut bytes = vec![1; len];
            group
                .allreduce(Element::U8, Reduce::Sum, &mut bytes)
                .wait()
                .expect_err("lengths differ")
        });
        assert!(begun.elapsed() < bound(Duration::from_secs(5)), "{:?}", begun.elapsed());
        assert_eq!(met[2].kind(), ErrorKind::Length, "{}", met[2]);
        for e in met {
            let kinds = [ErrorKind::Length, ErrorKind::Cancelled];
            assert!(kinds.contains(&e.kind()), "{via:?}: {e}");
        }
    }
}

/// The root fails because of one member. Another one received its part, which is short, and learns of it in the next collective.
#[test]
fn a_short_part_that_was_received_stays_when_its_root_fails() {
    for via in Via::all() {
        let members = GroupFixture::new(via, 3);
        let met = members.each(|group| {
            let me = group.position();
            let (send, mut recv) = (vec![7; 3 * 10], vec![0; if me == 1 { 11 } else { 10 }]);
            let scattered = group.scatter(0, &send, &mut recv).wait();
            if me == 2 {
                scattered.expect("it is not concerned");
                assert_eq!(recv, [7; 10], "{via:?}");
                let next = group.barrier().within(Duration::from_millis(50)).wait();
                return next.expect_err("the others are broken");
            }
            scattered.expect_err("lengths differ")
        });
        assert_eq!(met[0].kind(), ErrorKind::Length, "{via:?}: {}", met[0]);
        assert_eq!(met[1].kind(), ErrorKind::Length, "{via:?}: {}", met[1]);
        // Members with mapped windows are told at once.
        let kind = if via == Via::Shm { ErrorKind::Cancelled } else { ErrorKind::DeadlineExceeded };
        assert_eq!(met[2].kind(), kind, "{via:?}: {}", met[2]);
    }
}

/// Two of three disagree before the third comes: they stay to tell it.
#[test]
fn a_member_that_comes_late_gets_the_failure_too() {
    for via in Via::all() {
        let members = GroupFixture::new(via, 3);
        let gate = Barrier::new(3);
        let met = members.each(|group| {
            gate.wait();
            let me = group.position();
            let begun = Instant::now();
            // It is late; how late does not matter, but for the second that they stay.
            while me == 2 && begun.elapsed() < Duration::from_millis(50) {
                std::thread::yield_now();
            }
            // The others are longer than what a member could have of one that failed.
            let part = |with: usize| vec![1; if me + with == 1 { 100 + me } else { 300 << 10 }];
            let (send, mut recv): (Vec<_>, Vec<_>) =
                (0..3).map(|with| (part(with), part(with))).unzip();
            let send: Vec<&[u8]> = send.iter().map(|p| &**p).collect();
            let mut into: Vec<&mut [u8]> = recv.iter_mut().map(|p| &mut **p).collect();
            let e = group.alltoallv(&send, &mut into).wait().expect_err("two disagree");
            (e, begun.elapsed())
        });
        for (rank, (e, took)) in met.iter().enumerate() {
            let kind = if rank == 2 { ErrorKind::Cancelled } else { ErrorKind::Length };
            assert_eq!(e.kind(), kind, "{via:?}, rank {rank}: {e}");
            assert!(*took < bound(Duration::from_secs(5)), "{via:?}, rank {rank}: {took:?}");
        }
    }
}

#[test]
fn a_member_that_never_comes_is_waited_for_until_the_deadline() {
    for via in Via::all() {
        let members = GroupFixture::new(via, 3);
        let wait = Duration::from_millis(300);
        let met = members.each(|group| {
            if group.position() == 2 {
                return None;
            }
            let begun = Instant::now();
            let mut bytes = vec![0; 2 * MIB];
            let e = group
                .allreduce(Element::F32, Reduce::Max, &mut bytes)
                .within(wait)
                .wait()
                .expect_err("alone");
            Some((e, begun.elapsed()))
        });
        let met: Vec<_> = met.into_iter().flatten().collect();
        for (e, took) in &met {
            assert_eq!(e.kind(), ErrorKind::DeadlineExceeded, "{via:?}: {e}");
            assert!(*took < wait + bound(Duration::from_secs(1)), "{took:?}");
        }
        assert!(met.iter().any(|(_, took)| *took >= wait), "nobody waited: {met:?}");
        // All was withdrawn: the next group works.
        let same = members.each(|group| {
            let mut recv = [0; 3];
            group.allgather(&[7], &mut recv).wait().map(|()| recv)
        });
        for got in same {
            assert_eq!(got.expect("a new group"), [7, 7, 7]);
        }
    }
}

/// Nothing of a message that nobody offered is left, so there is nothing to wait for once the time is over. One of the rounds
/// is quick on any machine.
#[test]
fn nobody_stays_for_a_message_that_was_not_offered() {
    for via in Via::all() {
        let members = GroupFixture::new(via, 2);
        let receive = || {
            let group = members.sessions[1].group(&[0, 1]).wait().unwrap();
            let begun = Instant::now();
            let brief = Duration::from_millis(20);
            let e = group
                .broadcast(0, &mut [0; 8])
                .within(brief)
                .wait()
                .expect_err("the root never comes");
            assert_eq!(e.kind(), ErrorKind::DeadlineExceeded, "{via:?}: {e}");
            begun.elapsed()
        };
        let fastest = (0..5).map(|_| receive()).min().unwrap();
        // A second is how long partners that owe an answer are waited for.
        assert!(fastest < Duration::from_millis(900), "{via:?}: {fastest:?}");
    }
}

#[test]
fn one_collective_at_a_time() {
    let members = GroupFixture::new(Via::Shm, 2);
    let (tell, begun) = channel();
    std::thread::scope(|s| {
        let group = members.sessions[0].group(&[0, 1]).wait().unwrap();
        let other = group.clone();
        s.spawn(move || {
            tell.send(()).unwrap();
            other.barrier().wait().unwrap();
        });
        begun.recv().unwrap();
        let end = Instant::now() + LONG;
        // It has begun, or is about to: then this one waits for the other member, and not for long.
        let e = loop {
            match group.broken() {
                Some(e) => break e,
                None => assert!(Instant::now() < end, "it never began"),
            }
            std::thread::yield_now();
        };
        assert_eq!(e.kind(), ErrorKind::Busy, "{e}");
        assert_eq!(group.barrier().within(LONG).wait().unwrap_err().kind(), ErrorKind::Busy);
        members.sessions[1].group(&[0, 1]).wait().unwrap().barrier().wait().unwrap();
    });
}

/// A session that ends takes its groups along, and others learn of it.
#[test]
fn a_session_that_ends_ends_its_collectives() {
    for via in Via::all() {
        let mut members = GroupFixture::new(via, 2);
        let gone = members.sessions.pop().unwrap();
        let stays = &members.sessions[0];
        let group = stays.group(&[0, 1]).wait().unwrap();
        let e = std::thread::scope(|s| {
            let waits = s.spawn(|| group.barrier().wait().expect_err("it leaves"));
            gone.shutdown().within(LONG).wait().unwrap();
            waits.join().unwrap()
        });
        assert_eq!(e.kind(), ErrorKind::Closed, "{via:?}: {e}");
    }
}

/// Its partner has given up. It waits for the report of a death that may explain that, for a tenth of a second and not for as
/// long as it stays for those who come late.
#[test]
fn an_awaited_collective_reports_that_its_partner_gave_up() {
    let mut sender = Sender::new();
    let mut partner = sender.receiver();
    let group = sender.session.group(&[0, 1]).wait().unwrap();
    let (send, mut recv) = (vec![1; 2 * MIB], vec![0; MIB]);
    let mut scatter = Box::pin(group.scatter(0, &send, &mut recv).within(LONG).into_future());
    assert!(poll_once(&mut scatter).is_pending());
    let (id, _) = partner.offer();
    partner.end(id, Err(AbortReason::Cancelled));
    let begun = Instant::now();
    let e = block_on(scatter).expect_err("its partner gave up");
    assert_eq!(e.kind(), ErrorKind::Cancelled, "{e}");
    assert!(begun.elapsed() < bound(Duration::from_millis(300)), "{:?}", begun.elapsed());
}
