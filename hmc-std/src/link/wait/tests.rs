//! A caller that waits, between two ends that no other thread touches.

#![allow(clippy::arithmetic_side_effects, reason = "tests may panic")]

mod worker;

use std::sync::atomic::Ordering;
use std::time::Duration as StdDuration;

use hmc_core::time::{Duration, Instant};
use hmc_core::types::ConnType;
use hmc_core::wire::message::ControlMessage;

use super::WaitScope;
use crate::base::clock;
use crate::base::wait_limit::{WaitLimit, WaitStopped};
use crate::link::ends::{End, INBOX, alone, first_byte, pair, pair_that_spins, stopped};

/// Waits long enough that the data plane counts as idle.
fn make_idle(end: &End) {
    while !end.link.idle_waits.add() {}
}

fn within(ms: u64) -> WaitLimit {
    WaitLimit::time(clock::now().after(Duration::from_millis(ms)))
}

/// Puts at the look of that number, of `looks`; gives at which one the bytes were found. A leader looks first when it
/// begins, and that is no look of its lead.
fn found_at(watch: WaitScope, is_idle: bool, put_at: u32, looks: u32) -> Option<u32> {
    let (near, far) = pair_that_spins(ConnType::Tcp, StdDuration::from_secs(3600));
    let (region, window) = near.expose(1);
    if is_idle {
        make_idle(&near);
    }
    let (mut n, mut found) = (0, None);
    let waited = near.link.drive(watch, WaitLimit::time(Instant::NEVER), |_| {
        if n == put_at {
            far.put(&window, 9);
        }
        if first_byte(&region) == 9 {
            found = Some(n);
        }
        n += 1;
        (found.is_some() || n > looks).then_some(())
    });
    assert_eq!(waited, Ok(()));
    found
}

#[test]
fn a_waiter_that_spins_leaves_an_idle_data_plane_to_the_background_thread() {
    for (watch, is_idle, found) in [
        (WaitScope::Both, true, None),
        (WaitScope::Both, false, Some(2)),
        (WaitScope::Ctrl, true, None),
        // Nobody else serves it.
        (WaitScope::Ctrl, false, Some(2)),
        (WaitScope::Data, true, Some(2)),
    ] {
        assert_eq!(found_at(watch, is_idle, 1, 40), found, "{watch:?}, {is_idle}");
    }
}

#[test]
fn a_waiter_takes_the_sockets_that_its_wait_is_about() {
    let claimed = |end: &End, watch, is_idle| {
        if is_idle {
            make_idle(end);
        }
        let mut during = Vec::new();
        let waited = end.link.drive(watch, WaitLimit::time(Instant::NEVER), |l| {
            during.push((l.data().is_claimed(), l.ctrl().is_claimed()));
            (during.len() == 2).then_some(())
        });
        assert_eq!(waited, Ok(()));
        let after = (end.link.data().is_claimed(), end.link.ctrl().is_claimed());
        assert_eq!((during.first(), after), (Some(&(false, false)), (false, false)));
        assert!(!end.link.has_leader());
        during.pop()
    };
    let (near, _far) = pair_that_spins(ConnType::Tcp, StdDuration::from_secs(3600));
    assert_eq!(claimed(&near, WaitScope::Data, true), Some((true, false)));
    assert_eq!(claimed(&near, WaitScope::Both, true), Some((false, true)));
    assert_eq!(claimed(&near, WaitScope::Ctrl, true), Some((false, true)));
    for watch in [WaitScope::Both, WaitScope::Ctrl] {
        near.link.idle_waits.reset();
        assert_eq!(claimed(&near, watch, false), Some((true, true)));
    }
    // Without a data connection nothing else tells of the end of a link.
    assert_eq!(claimed(&alone(1, 1), WaitScope::Data, false), Some((true, true)));
}

#[test]
fn who_waits_for_an_operation_leaves_messages_to_the_background_thread() {
    for (watch, messages) in [(WaitScope::Data, 0), (WaitScope::Both, 1), (WaitScope::Ctrl, 1)] {
        let (near, far) = pair(ConnType::Tcp);
        far.link.send(&ControlMessage::Tag(1)).expect("sent");
        let mut looks = 0;
        let waited = near.link.drive(watch, WaitLimit::time(Instant::NEVER), |_| {
            looks += 1;
            (looks == 2).then_some(())
        });
        assert_eq!(waited, Ok(()));
        assert_eq!(near.link.inbox().len(), messages, "{watch:?}");
    }
}

#[test]
fn what_stopped_for_a_full_inbox_goes_on_when_the_lead_is_given_up() {
    for watch in [WaitScope::Both, WaitScope::Data] {
        let (near, far) = pair(ConnType::Tcp);
        let (_region, window) = near.expose(1);
        for tag in 0..INBOX.0 + 2 {
            let tag = u64::try_from(tag).expect("small");
            match watch {
                WaitScope::Data => _ = far.put_notify(&window, tag),
                _ => far.link.send(&ControlMessage::Tag(tag)).expect("sent"),
            }
        }
        let mut looks = 0;
        let waited = near.link.drive(watch, WaitLimit::time(Instant::NEVER), |l| {
            looks += 1;
            // Beside the calls that would let it go on.
            (looks == 2).then(|| l.inbox().drop_all().len())
        });
        assert_eq!(waited, Ok(INBOX.0));
        assert_eq!(near.link.inbox().len(), 2, "{watch:?}: nobody else tells it of the space");
    }
}

#[test]
fn the_data_plane_goes_on_with_the_wait_and_after_it() {
    for (watch, left) in [(WaitScope::Data, 2), (WaitScope::Both, 2)] {
        let (near, _far) = stopped();
        let waited = near.link.drive(watch, WaitLimit::time(Instant::NEVER), |l| {
            (l.inbox().len() == left).then_some(())
        });
        assert_eq!(waited, Ok(()), "{watch:?}");
    }
    // Who waits for messages alone leaves that to the background thread, and sleeps.
    let (near, _far) = stopped();
    make_idle(&near);
    let mut queue = std::collections::VecDeque::new();
    near.link.reactor.take_queued(&mut queue);
    let mut looks = 0;
    let waited = near.link.drive(WaitScope::Ctrl, within(20), |_| {
        looks += 1;
        None::<()>
    });
    assert_eq!(waited, Err(WaitStopped::Deadline));
    assert!((3..20).contains(&looks), "{looks} looks");
    assert_eq!(near.link.inbox().len(), 0);
    near.link.reactor.take_queued(&mut queue);
    assert_eq!(queue, [1], "the background thread was asked to run the link");
}

#[test]
fn a_message_has_a_still_data_plane_looked_at_next() {
    let (near, far) = pair_that_spins(ConnType::Tcp, StdDuration::from_secs(3600));
    let (region, window) = near.expose(1);
    make_idle(&near);
    let mut looks = 0;
    let waited = near.link.drive(WaitScope::Both, WaitLimit::time(Instant::NEVER), |_| {
        looks += 1;
        if looks == 3 {
            far.put(&window, 9);
            far.link.send(&ControlMessage::Tag(1)).expect("sent");
        }
        (first_byte(&region) == 9).then_some(())
    });
    assert_eq!((waited, looks), (Ok(()), 5), "the message came at the fourth look");
    assert!(!near.link.data().is_claimed(), "what was taken in the middle is given back");
}

#[test]
fn only_a_park_that_ended_by_its_time_and_found_something_was_overslept() {
    let (near, far) = pair(ConnType::Tcp);
    let overslept = || near.link.counters.overslept.load(Ordering::Relaxed);
    let third = |until, at_second: &dyn Fn()| {
        let mut looks = 0;
        let waited = near.link.drive(WaitScope::Both, until, |_| {
            looks += 1;
            if looks == 2 {
                at_second();
            }
            (looks == 3).then_some(())
        });
        assert_eq!(waited, Ok(()));
    };
    third(within(10), &|| ());
    assert_eq!(overslept(), 0, "the deadline ended the park");
    third(WaitLimit::time(Instant::NEVER), &|| {
        far.link.send(&ControlMessage::Tag(1)).expect("sent")
    });
    assert_eq!(overslept(), 0, "a message ended it");
    third(WaitLimit::time(Instant::NEVER), &|| ());
    assert_eq!(overslept(), 1);
    // A park that found nothing at its end is none.
    let mut looks = 0;
    let waited = near.link.drive(WaitScope::Both, WaitLimit::time(Instant::NEVER), |_| {
        looks += 1;
        if looks == 3 {
            far.link.send(&ControlMessage::Tag(1)).expect("sent");
        }
        (looks == 4).then_some(())
    });
    assert_eq!((waited, overslept()), (Ok(()), 1));
}

/// How often a wait in vain looks within 30 ms: a waiter that sleeps does so a few times.
fn looks_within(end: &End, watch: WaitScope) -> u32 {
    let mut looks = 0;
    let waited = end.link.drive(watch, within(30), |_| {
        looks += 1;
        None::<()>
    });
    assert_eq!(waited, Err(WaitStopped::Deadline));
    looks
}

#[test]
fn a_wait_in_vain_sleeps_until_its_deadline() {
    let (near, far) = pair(ConnType::Tcp);
    for watch in [WaitScope::Data, WaitScope::Both, WaitScope::Ctrl] {
        let looks = looks_within(&near, watch);
        assert!((3..20).contains(&looks), "{watch:?}: {looks} looks");
    }
    // Behind another leader.
    let lead = near.link.leader_lock.try_lead().expect("nobody leads");
    let looks = looks_within(&near, WaitScope::Both);
    assert!((4..20).contains(&looks), "{looks} looks of a follower");
    drop(lead);
    // The end of the control connection is reported once: the rest of a wait for data sleeps.
    far.link.ctrl_socket().shutdown();
    let looks = looks_within(&near, WaitScope::Data);
    assert!((3..20).contains(&looks), "{looks} looks behind a connection that has ended");
}

/// Who waits for a fence on a link that is over finds its sockets shut down, which poll(2) tells at once each time.
#[test]
fn a_wait_on_a_link_that_is_over_sleeps_until_its_deadline() {
    for watch in [WaitScope::Data, WaitScope::Both] {
        let (near, _far) = pair(ConnType::Tcp);
        near.link.close(false, "for a test");
        let looks = looks_within(&near, watch);
        assert!((2..20).contains(&looks), "{watch:?}: {looks} looks");
    }
}

#[test]
fn who_sleeps_is_woken_by_its_own_sockets_and_by_the_end_of_the_link() {
    // Bytes that another thread is to receive wake nobody.
    let (near, far) = pair(ConnType::Tcp);
    let (_region, window) = near.expose(1);
    make_idle(&near);
    far.put(&window, 9);
    let looks = looks_within(&near, WaitScope::Ctrl);
    assert!((3..20).contains(&looks), "{looks} looks");
    for watch in [WaitScope::Data, WaitScope::Both] {
        let (near, _far) = pair(ConnType::Tcp);
        let mut looks = 0;
        let waited = near.link.drive(watch, WaitLimit::time(Instant::NEVER), |l| {
            looks += 1;
            if looks == 2 {
                l.close(false, "for a test");
            }
            (looks == 3).then_some(())
        });
        assert_eq!(waited, Ok(()));
        assert_eq!(near.link.counters.overslept.load(Ordering::Relaxed), 0, "{watch:?}");
    }
}

#[test]
fn a_followers_look_ends_its_wait() {
    let (near, _far) = pair(ConnType::Tcp);
    let lead = near.link.leader_lock.try_lead().expect("nobody leads");
    let mut looks = 0;
    let waited = near.link.drive(WaitScope::Both, within(10_000), |_| {
        looks += 1;
        (looks == 2).then_some(7)
    });
    drop(lead);
    assert_eq!((waited, looks), (Ok(7), 2));
}

/// What another thread has taken from a socket wakes nobody; what follows from it is not there yet.
#[test]
fn a_waiter_sleeps_for_a_short_time_while_another_thread_acts_on_what_it_took() {
    for watch in [WaitScope::Data, WaitScope::Both, WaitScope::Ctrl] {
        let (near, _far) = pair(ConnType::Tcp);
        let follow_up = near.link.follow_ups.begin();
        // By whole parks that would take 5 s. What it finds then was not to be reported before.
        let (begun, mut looks) = (std::time::Instant::now(), 0);
        let waited = near.link.drive(watch, WaitLimit::time(Instant::NEVER), |_| {
            looks += 1;
            (looks == 100).then_some(())
        });
        assert!(begun.elapsed() < StdDuration::from_secs(4), "{watch:?}: {:?}", begun.elapsed());
        let overslept = near.link.counters.overslept.load(Ordering::Relaxed);
        assert_eq!((waited, overslept), (Ok(()), 0));
        drop(follow_up);
        let looks = looks_within(&near, watch);
        assert!((3..20).contains(&looks), "{watch:?}: {looks} looks when it has acted");
    }
}
