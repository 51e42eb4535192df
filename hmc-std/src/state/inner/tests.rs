//! What a session knows of its links, of which a test makes some by hand.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hmc_core::time::Duration;
use hmc_core::types::Rank;

use super::{LONGEST_TICK_NS, LinkObserver as _};
use crate::api::session::Session;
use crate::base::clock;
use crate::base::error::ErrorKind;
use crate::base::lock::lock;
use crate::base::private_ranks::FIRST_PRIVATE;
use crate::link::LinkState;
use crate::link::ends::{alone, pair_that_beats};
use crate::node::inbox::Message;

fn session() -> Session {
    Session::builder(0).buffer(4096).start().expect("a session")
}

#[test]
fn numbers_and_incarnations_are_never_given_again() {
    let session = session();
    let shared = &session.shared;
    let serials = [(); 3].map(|()| shared.next_serial());
    assert!(serials.is_sorted_by(|a, b| a < b), "{serials:?}");
    let numbers = [(); 3].map(|()| shared.next_incarnation().0);
    assert!(numbers.is_sorted_by(|a, b| a < b) && numbers[0] > 1 << 60, "{numbers:?}");
}

/// Twice in each period of the fastest heartbeat, and four times in a second at least.
#[test]
fn time_is_kept_as_often_as_the_fastest_heartbeat_needs() {
    let session = session();
    let tick = || session.shared.tick_ns.load(Ordering::Relaxed);
    let silent = alone(5, 100);
    assert!(!session.shared.has_peers());
    session.shared.publish(&silent.link);
    assert!(session.shared.has_peers());
    assert_eq!(tick(), LONGEST_TICK_NS);
    let beats = [100, 300].map(|ms| pair_that_beats(Duration::from_millis(ms)).0);
    for end in &beats {
        session.shared.publish(&end.link);
        assert_eq!(tick(), 50_000_000);
    }
}

#[test]
fn a_link_that_is_over_is_lost_unless_it_left() {
    let session = session();
    let lost = || session.stats().peers_lost;
    let [left, killed] = [5, 6].map(|rank| alone(rank, 100 + rank));
    for (end, count) in [(&left, 0), (&killed, 1)] {
        session.shared.publish(&end.link);
        let serial = end.link.serial;
        assert!(session.shared.link_by_serial(serial).is_some());
        if count == 0 {
            end.link.bye(clock::now());
        }
        session.shared.on_closed(&end.link);
        assert_eq!(lost(), count, "rank {}", end.link.peer.0);
        assert!(session.shared.link_by_serial(serial).is_none());
    }
}

#[test]
fn no_link_is_made_once_all_are_being_left_or_the_session_stops() {
    for stops in [false, true] {
        let session = session();
        let shared = &session.shared;
        assert!(!shared.is_leaving() && !shared.is_stopping() && !shared.listens());
        let flag = if stops { &shared.stopping } else { &shared.stopping_links };
        flag.store(true, Ordering::Release);
        assert_eq!((shared.is_leaving(), shared.is_stopping()), (true, stops));
        flag.store(false, Ordering::Release);
    }
}

#[test]
fn memory_of_another_session_is_refused() {
    let (one, other) = (session(), session());
    let region = one.memory().allocate(64).expect("memory");
    assert!(one.shared.check_own(&region).is_ok());
    let refused = other.shared.check_own(&region).map_err(|e| e.kind());
    assert_eq!(refused, Err(ErrorKind::InvalidConfig));
}

#[test]
fn a_peer_that_has_gone_is_remembered_with_its_reason() {
    let session = session();
    let shared = &session.shared;
    let found = |rank| shared.live_link(Rank(rank)).map(|l| l.serial).map_err(|e| e.kind());
    assert_eq!(found(5), Err(ErrorKind::NotFound));
    let [gone, private] = [(5, 100), (FIRST_PRIVATE, 101)].map(|(rank, n)| alone(rank, n));
    for end in [&gone, &private] {
        shared.publish(&end.link);
        assert_eq!(found(end.link.peer.0), Ok(end.link.serial));
        shared.reap_closed_links();
        assert_eq!(found(end.link.peer.0), Ok(end.link.serial), "it goes on");
        assert!(end.link.advance(LinkState::Leaving));
        shared.reap_closed_links();
        assert_eq!(found(end.link.peer.0), Ok(end.link.serial), "it leaves");
        assert!(end.link.advance(LinkState::Dead));
        shared.reap_closed_links();
    }
    let e = shared.live_link(Rank(5)).map(|l| l.serial).expect_err("it has gone");
    assert_eq!(e.kind(), ErrorKind::PeerDead);
    assert!(e.to_string().contains("the connection ended"), "{e}");
    assert_eq!(found(FIRST_PRIVATE), Err(ErrorKind::NotFound), "nobody asks for a private rank");
    assert_eq!(lock(&shared.departed).len(), 1);
    // Whoever comes back is no more remembered as gone.
    let again = alone(5, 102);
    shared.publish(&again.link);
    assert_eq!((found(5), lock(&shared.departed).len()), (Ok(102), 0));
}

/// What it has left is kept without its descriptors: a rest in its place.
#[test]
fn messages_of_a_peer_that_has_gone_are_kept() {
    let session = session();
    let shared = &session.shared;
    let end = alone(5, 100);
    shared.publish(&end.link);
    end.link.deliver(Message::Tag(7));
    assert!(end.link.advance(LinkState::Dead));
    shared.reap_closed_links();
    let rest = shared.link(Rank(5)).expect("it has left a message");
    assert!(rest.serial != 100 && rest.state() == LinkState::Dead && rest.inbox().len() == 1);
    shared.reap_closed_links();
    let same = shared.link(Rank(5)).expect("it has left a message");
    assert!(Arc::ptr_eq(&rest, &same), "a rest stays");
    rest.inbox().drop_all();
    shared.reap_closed_links();
    assert!(shared.link(Rank(5)).is_none() && lock(&shared.departed).contains_key(&Rank(5)));
}
