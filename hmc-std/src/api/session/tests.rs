//! What a session finds among its links, of which a test makes some by hand.

use std::time::Duration;

use hmc_core::types::{ConnType, Rank};

use crate::api::session::Session;
use crate::base::error::ErrorKind;
use crate::link::LinkState;
use crate::link::ends::{End, alone};
use crate::node::inbox::Message;
use crate::ops::who::Who;

const NOT_LONG: Duration = Duration::from_millis(5);

fn session() -> Session {
    Session::builder(0).buffer(4096).start().expect("a session")
}

/// A link of that rank and number that is known to the session.
fn known(session: &Session, rank: u32, serial: u32) -> End {
    let end = alone(rank, serial);
    session.shared.publish(&end.link);
    end
}

#[test]
fn a_peer_is_found_while_it_is_ready_or_has_left_messages() {
    let session = session();
    let meet = |rank| {
        session
            .accept(rank)
            .or_unread()
            .within(NOT_LONG)
            .wait()
            .map(|p| p.rank())
            .map_err(|e| e.kind())
    };
    let none = Err(ErrorKind::DeadlineExceeded);
    assert_eq!(meet(5), none, "it was never here");
    let end = known(&session, 5, 100);
    end.link.deliver(Message::Tag(1));
    assert_eq!(meet(5), none, "it has not opened its memory");
    end.link.check_ready();
    assert_eq!(meet(5), Ok(Rank(5)));
    end.link.inbox().drop_all();
    assert_eq!(meet(5), Ok(Rank(5)));
    assert!(end.link.advance(LinkState::Leaving));
    assert_eq!(meet(5), none, "it leaves, and left nothing");
    end.link.deliver(Message::Tag(1));
    end.link.deliver(Message::Tag(2));
    assert_eq!(meet(5), Ok(Rank(5)));
    // What is over and has nothing is let go of at any time.
    assert!(end.link.advance(LinkState::Dead));
    assert_eq!(meet(5), Ok(Rank(5)));
    end.link.inbox().drop_all();
    assert_eq!(meet(5), none, "nothing is left of it");
    let e = session
        .accept(u32::MAX)
        .or_unread()
        .within(NOT_LONG)
        .wait()
        .expect_err("nobody has that rank");
    assert_eq!(e.kind(), ErrorKind::InvalidConfig);
}

#[test]
fn peers_are_those_that_are_ready_and_those_arrive_that_open() {
    let session = session();
    let ends = [3, 1, 2].map(|rank| known(&session, rank, 100 + rank));
    let connecting = || session.info().connecting.iter().map(|rank| rank.0).collect::<Vec<_>>();
    let peers = || session.peers().iter().map(|p| p.rank().0).collect::<Vec<_>>();
    assert_eq!((peers(), connecting()), (vec![], vec![1, 2, 3]));
    ends[0].link.check_ready();
    ends[1].link.check_ready();
    assert_eq!((peers(), connecting()), (vec![1, 3], vec![2]));
    assert_eq!(
        [1, 2, 3, 4].map(|rank| session.peer(rank).is_ok_and(|p| p.is_connected())),
        [true, false, true, false]
    );
    let any = || {
        let accepted = session.accept(Who::Any).within(NOT_LONG).wait();
        accepted.map(|p| p.rank().0).map_err(|e| e.kind())
    };
    // Each once.
    assert_eq!((any(), any(), any()), (Ok(1), Ok(3), Err(ErrorKind::DeadlineExceeded)));
    assert!(ends[1].link.advance(LinkState::Leaving));
    assert_eq!((peers(), connecting()), (vec![3], vec![2]));
    let waited =
        |rank| session.accept(rank).within(NOT_LONG).wait().map(|_| ()).map_err(|e| e.kind());
    assert_eq!(waited(3), Ok(()));
    assert_eq!(
        (waited(1), waited(2)),
        (Err(ErrorKind::DeadlineExceeded), Err(ErrorKind::DeadlineExceeded))
    );
    let kind = |rank| session.peer(rank).map(|p| p.rank().0).map_err(|e| e.kind());
    assert_eq!((kind(1), kind(9)), (Ok(1), Err(ErrorKind::NotFound)));
}

#[test]
fn only_loopback_by_name_leads_to_oneself() {
    let session = session();
    let nowhere = crate::base::address::Address::Tcp("127.0.0.1:1".parse().expect("an address"));
    let peer = session
        .connect(&nowhere)
        .rank(0)
        .over(ConnType::Loopback)
        .within(NOT_LONG)
        .wait()
        .expect("it needs no address");
    assert_eq!((peer.rank(), peer.conn()), (Rank(0), Some(ConnType::Loopback)));
    let e = session
        .connect(&nowhere)
        .over(ConnType::Loopback)
        .within(NOT_LONG)
        .wait()
        .expect_err("by address");
    assert_eq!(e.kind(), ErrorKind::InvalidConfig);
    assert_eq!((session.rank(), session.info().deadline > NOT_LONG), (Rank(0), true));
    assert!(!session.progress(), "nothing happens");
}
