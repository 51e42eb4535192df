//! Data connections that do not belong to the link whose token they show: each is refused for its reason, none serves, and
//! an honest peer goes on.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::fs::File;
use std::io::Write as _;

use hmc_core::wire::advert::{ENDPOINT_SHM, ENDPOINT_TCP, ENDPOINT_UCX};
use hmc_core::wire::hello::LinkToken;
use hmc_core::wire::message::ControlMessage;
use hmc_core::wire::reject::RejectReason;
use hmc_std::Address;
use hmc_tests::env::{Via, until};
use hmc_tests::raw_frames::{frame, hello, is_closed_after, read_frame};
use hmc_tests::rogue::{attach, handshake};
use hmc_tests::wrong::BOTH;
use hmc_tests::wrong::rig::Rig;
use hmc_tests::wrong::target::{LONG, Target, fresh_rank};

/// The number of a transport that nobody knows.
const UNKNOWN: u8 = 9;

/// A rank that has said HELLO and has no data connection yet.
struct Opening {
    rank: u32,
    control: File,
    token: LinkToken,
}

impl Opening {
    fn new(at: &Address) -> Self {
        let rank = fresh_rank();
        let (control, token) = handshake(at, &hello(rank, 0, 0));
        Self { rank, control, token }
    }
}

fn channel(via: Via) -> u8 {
    if via == Via::Tcp { ENDPOINT_TCP } else { ENDPOINT_SHM }
}

/// The session refuses a data connection, counts it, and opens no link by it.
fn assert_refused(
    target: &mut Target,
    (at, rank, token, channel): (&Address, u32, LinkToken, u8),
    reason: RejectReason,
    what: &str,
) {
    let before = target.session.stats().strangers_refused;
    let via = target.via;
    let why = attach(at, rank, token, channel).err();
    assert_eq!(why, Some(reason), "{via:?} {what}");
    let counted = || target.session.stats().strangers_refused > before;
    until("it is counted", LONG, || counted().then_some(()));
    assert!(
        !target.session.peer(rank).is_ok_and(|p| p.is_connected()),
        "{via:?} {what}: the link is open"
    );
    target.assert_unharmed(what);
}

#[test]
fn a_token_opens_its_own_link_alone() {
    for via in BOTH {
        let mut target = Target::new(*via);
        let (at, channel) = (target.address(), channel(*via));
        let (one, two) = (Opening::new(&at), Opening::new(&at));
        let mut guessed = one.token;
        guessed.0[15] ^= 1;
        let bad = RejectReason::BadToken;
        let cases = [
            ("a token that nobody has", one.rank, guessed),
            ("a token of zeros", one.rank, LinkToken([0; 16])),
            ("the token of another rank", two.rank, one.token),
            ("the token of a rank that is not there", fresh_rank(), two.token),
        ];
        for (what, rank, token) in cases {
            assert_refused(&mut target, (&at, rank, token, channel), bad, what);
        }
        drop((one.control, two.control));
    }
}

#[test]
fn a_token_opens_its_link_once() {
    for via in BOTH {
        let mut target = Target::new(*via);
        let (at, channel) = (target.address(), channel(*via));
        let one = Opening::new(&at);
        let data = attach(&at, one.rank, one.token, channel).unwrap();
        let again = (&at, one.rank, one.token, channel);
        assert_refused(&mut target, again, RejectReason::BadToken, "a token that was shown before");
        drop((one.control, data));
    }
}

#[test]
fn a_token_ends_with_its_link() {
    for via in BOTH {
        let mut target = Target::new(*via);
        let (at, channel) = (target.address(), channel(*via));
        let bad = RejectReason::BadToken;
        let Opening { rank, mut control, token } = Opening::new(&at);
        control.write_all(&frame(&ControlMessage::Bye)).unwrap();
        // It answers, and has closed the link by then.
        assert!(is_closed_after(&mut control));
        assert_refused(&mut target, (&at, rank, token, channel), bad, "a token after the goodbye");
        let Opening { rank, control, token } = Opening::new(&at);
        drop(control);
        until("its link is over", LONG, || {
            (!target.session.info().connecting.contains(&hmc_std::Rank(rank))).then_some(())
        });
        assert_refused(
            &mut target,
            (&at, rank, token, channel),
            bad,
            "a token of a link that is over",
        );
    }
}

/// The session waits for the peer's goodbye.
#[test]
fn a_token_opens_no_link_that_is_leaving() {
    for via in BOTH {
        let mut target = Target::new(*via);
        let (at, channel) = (target.address(), channel(*via));
        let Opening { rank, mut control, token } = Opening::new(&at);
        let peer = target.session.peer(rank).unwrap();
        std::thread::scope(|scope| {
            let left = scope.spawn(|| peer.disconnect().within(LONG).wait());
            loop {
                let (header, payload) = read_frame(&mut control).expect("a goodbye");
                if let Ok(ControlMessage::Bye) = ControlMessage::parse(header, &payload) {
                    break;
                }
            }
            let case = (&at, rank, token, channel);
            assert_refused(&mut target, case, RejectReason::BadToken, "a link that is leaving");
            control.write_all(&frame(&ControlMessage::Bye)).unwrap();
            left.join().unwrap().unwrap();
        });
    }
}

#[test]
fn a_data_connection_is_of_the_kind_that_it_names() {
    for via in BOTH {
        let mut target = Target::new(*via);
        let at = target.address();
        let wrong = if *via == Via::Tcp { ENDPOINT_SHM } else { ENDPOINT_TCP };
        for channel in [wrong, ENDPOINT_UCX, 0, UNKNOWN] {
            let one = Opening::new(&at);
            let case = (&at, one.rank, one.token, channel);
            let what = format!("a connection for transport {channel}");
            assert_refused(&mut target, case, RejectReason::WrongEndpoint, &what);
            drop(one.control);
        }
        // Its control connection came the right way.
        drop(Rig::new(&mut target));
    }
}

/// A control connection over TCP and a data connection by the local socket, and the other way round: what counts is the data
/// connection's own kind.
#[test]
fn a_data_connection_may_come_another_way_than_the_control_connection() {
    let tcp = Target::new(Via::Tcp);
    let (at, dir) = (tcp.address(), tcp.local_address());
    for (first, second, right, wrong) in
        [(&at, &dir, ENDPOINT_SHM, ENDPOINT_TCP), (&dir, &at, ENDPOINT_TCP, ENDPOINT_SHM)]
    {
        let one = Opening::new(first);
        let refused = attach(second, one.rank, one.token, wrong).err();
        assert_eq!(refused, Some(RejectReason::WrongEndpoint));
        let one = Opening::new(first);
        assert!(attach(second, one.rank, one.token, right).is_ok());
    }
}
