//! Control frames against the protocol, sent by a peer that is connected, and by processes that are not yet: each ends its
//! connection for its reason; an honest peer goes on.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may panic"
)]

use std::io::Write as _;
use std::time::Instant;

use hmc_core::limits::{MAX_FRAME_BYTES, MAX_WINDOWS_PER_PEER};
use hmc_core::range::Extent;
use hmc_core::region::{Epoch, WindowDesc, WindowId};
use hmc_core::types::{Access, MemoryKind, Rank};
use hmc_core::wire::advert::{EndpointBlob, RegionAdvert, WindowBacking, WindowRole};
use hmc_core::wire::cursor::WireError;
use hmc_core::wire::cxx::hello_v1;
use hmc_core::wire::header::Header;
use hmc_core::wire::hello::LinkToken;
use hmc_core::wire::message::ControlMessage;
use hmc_core::wire::proof::{Challenge, Proof};
use hmc_core::wire::reject::RejectReason;
use hmc_testkit::buffers::BufferTransfers as _;
use hmc_tests::env::until;
use hmc_tests::raw_frames::{frame, hello, is_closed_after, read_frame, read_reject};
use hmc_tests::rogue::{connect, handshake};
use hmc_tests::wrong::BOTH;
use hmc_tests::wrong::malformed::hex;
use hmc_tests::wrong::rig::Rig;
use hmc_tests::wrong::target::{LONG, Target, fresh_rank};

const TABLE: &str = include_str!("../../hmc-core/tests/malformed_messages.txt");

/// The rows of the table of malformed messages: what each is, its bytes, and what the parser says. A payload of another
/// length than its header says is none on a stream.
fn malformed() -> Vec<(&'static str, Vec<u8>, WireError)> {
    let rows = TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    rows.map(|row| {
        let (what, bytes) = row.split_once(" => ").unwrap().0.rsplit_once(": ").unwrap();
        let bytes = hex(bytes);
        let error = parse(&bytes).unwrap_err();
        (what, bytes, error)
    })
    .filter(|(_, bytes, _)| is_one(bytes))
    .collect()
}

/// Whether the bytes are one frame, or a header that begins none.
fn is_one(bytes: &[u8]) -> bool {
    let header = bytes.first_chunk().map(|head| Header::parse(head, MAX_FRAME_BYTES));
    let len = header.and_then(Result::ok).map(|h| usize::try_from(h.len()).unwrap());
    len.is_none_or(|len| bytes.len() == 8 + len)
}

/// Whether the header is that of a frame.
fn has_header(bytes: &[u8]) -> bool {
    bytes.first_chunk().is_some_and(|head| Header::parse(head, MAX_FRAME_BYTES).is_ok())
}

fn parse(bytes: &[u8]) -> Result<(), WireError> {
    let (head, payload) = bytes.split_first_chunk::<8>().unwrap();
    let header = Header::parse(head, MAX_FRAME_BYTES)?;
    ControlMessage::parse(header, payload).map(drop)
}

#[test]
fn malformed_messages_of_a_peer_end_its_link() {
    let rows = malformed();
    assert!(rows.len() >= 80, "{}", rows.len());
    for via in BOTH {
        let mut target = Target::new(*via);
        for (what, bytes, error) in &rows {
            let mut rig = Rig::new(&mut target);
            let _ = rig.rogue.control.write_all(bytes);
            // Whoever finds it: the framer, or the parser of whole messages.
            let who = if has_header(bytes) { "it" } else { "the peer" };
            rig.assert_lost(what, &format!("{who} broke the protocol: {error}"));
        }
    }
}

/// What is no HELLO and no ATTACH is turned away on what is wrong with it, and makes nobody a peer. One that was turned away
/// for its silence would take 2 s.
#[test]
fn malformed_first_frames_are_refused() {
    let rows = malformed();
    for via in BOTH {
        let mut target = Target::new(*via);
        let begun = Instant::now();
        for (what, bytes, _) in &rows {
            let mut client = connect(&target.address());
            let _ = client.write_all(bytes);
            assert!(is_closed_after(&mut client), "{via:?} {what}: it is kept");
        }
        assert!(begun.elapsed() < LONG, "{via:?}: {:?}", begun.elapsed());
        assert_eq!(target.session.peers().len(), 1, "one of them became a peer");
        target.assert_unharmed("malformed first words");
    }
}

fn messages_of_a_handshake() -> Vec<(&'static str, Vec<u8>)> {
    let proof = Proof([2; 32]);
    let challenge = Challenge { rank: Rank(7), nonce: [1; 16], proof };
    let attach = ControlMessage::Attach { rank: Rank(7), token: LinkToken([1; 16]), channel: 2 };
    vec![
        ("HelloV1", hello_v1(Rank(7)).to_vec()),
        ("Hello", hello(7, 0, 0)),
        ("Reject", frame(&ControlMessage::Reject(RejectReason::Busy))),
        ("Attach", frame(&attach)),
        ("AttachAck", frame(&ControlMessage::AttachAck)),
        ("Challenge", frame(&ControlMessage::Challenge(challenge))),
        ("Proof", frame(&ControlMessage::Proof(proof))),
    ]
}

#[test]
fn a_second_handshake_ends_the_link() {
    for via in BOTH {
        let mut target = Target::new(*via);
        for (kind, bytes) in messages_of_a_handshake() {
            let mut rig = Rig::new(&mut target);
            rig.rogue.control.write_all(&bytes).unwrap();
            rig.assert_ended(kind, &format!("the peer sent {kind} in state Ready"));
        }
    }
}

fn advert(window: WindowId) -> ControlMessage<'static> {
    let region = WindowDesc {
        window,
        epoch: Epoch(1),
        extent: Extent::new(4096),
        access: Access::all(),
        kind: MemoryKind::Cpu,
    };
    ControlMessage::Advert(RegionAdvert {
        region,
        backing: WindowBacking::Process,
        role: WindowRole::Named(3),
    })
}

/// After its BYE a peer may not begin anything. The goodbye is no loss, so that the log has nothing of it.
#[test]
fn what_comes_after_a_goodbye_ends_the_link() {
    let endpoint = EndpointBlob { kind: 9, bytes: b"x" };
    let late = [
        ("Tag", ControlMessage::Tag(5)),
        ("Int32", ControlMessage::Int32(5)),
        ("Struct", ControlMessage::Struct(b"late")),
        ("Advert", advert(WindowId(1))),
        ("Endpoint", ControlMessage::Endpoint(endpoint)),
        ("Bye", ControlMessage::Bye),
    ];
    for via in BOTH {
        let mut target = Target::new(*via);
        for (kind, message) in &late {
            let mut rig = Rig::new(&mut target);
            let bytes = [frame(&ControlMessage::Bye), frame(message)].concat();
            rig.rogue.control.write_all(&bytes).unwrap();
            let reason = format!("it broke the protocol: the peer sent {kind} in state Leaving");
            let mut text = String::new();
            until("the link is over", LONG, || {
                text = rig.peer.put_at(0, 0, 8).unwrap_err().to_string();
                text.contains("the peer is gone").then_some(())
            });
            assert!(text.contains(&reason), "{via:?}: {text}");
            until("its control connection ends", LONG, || rig.rogue.is_over().then_some(()));
            drop(rig);
            target.assert_unharmed("words after a goodbye");
        }
    }
}

/// A peer takes back windows that no peer has.
#[test]
fn a_window_without_a_place_cannot_be_taken_back() {
    let first = u64::try_from(MAX_WINDOWS_PER_PEER).unwrap();
    for via in BOTH {
        let mut target = Target::new(*via);
        for window in [WindowId(first), WindowId(u64::MAX)] {
            let mut rig = Rig::new(&mut target);
            let revoke = frame(&ControlMessage::Revoke { window, epoch: Epoch(1) });
            rig.rogue.control.write_all(&revoke).unwrap();
            rig.assert_lost("a window without a place", "it revoked a window that it cannot have");
        }
    }
}

/// Where the fields of a HELLO begin: behind the frame's header and the kind.
const FIXED_AT: usize = 9;

/// What is neither HELLO nor ATTACH makes nobody a peer, whatever follows it.
#[test]
fn nothing_but_hello_or_attach_comes_first() {
    for via in BOTH {
        let mut target = Target::new(*via);
        let mut first = messages_of_a_handshake();
        first.retain(|(kind, _)| !["Hello", "Attach"].contains(kind));
        first.push(("Tag", frame(&ControlMessage::Tag(5))));
        first.push(("Advert", frame(&advert(WindowId(1)))));
        first.push(("Ping", frame(&ControlMessage::Ping(1))));
        first.push(("Bye", frame(&ControlMessage::Bye)));
        for (kind, bytes) in first {
            let rank = fresh_rank();
            let mut client = connect(&target.address());
            let _ = client.write_all(&[bytes, hello(rank, 0, 0)].concat());
            assert!(is_closed_after(&mut client), "{via:?} {kind}: it is kept");
            let known = target.session.info().connecting.contains(&hmc_std::Rank(rank))
                || target.session.peer(rank).is_ok_and(|p| p.is_connected());
            assert!(!known, "{via:?} {kind}: it was let in");
        }
        target.assert_unharmed("wrong first words");
    }
}

/// All features that there could be: both ends use what both have.
#[test]
fn unknown_features_are_ignored() {
    for via in BOTH {
        let mut target = Target::new(*via);
        let rank = fresh_rank();
        let mut words = hello(rank, 0, 0);
        words[FIXED_AT + 8..FIXED_AT + 12].fill(0xFF);
        drop(handshake(&target.address(), &words));
        target.assert_unharmed("unknown features");
    }
}

#[test]
fn unknown_abilities_that_are_mandatory_are_refused() {
    for via in BOTH {
        let mut target = Target::new(*via);
        for unknown in [1, 0x8000] {
            let mut words = hello(fresh_rank(), 0, 0);
            words[FIXED_AT + 6..FIXED_AT + 8].copy_from_slice(&u16::to_le_bytes(unknown));
            let mut client = connect(&target.address());
            client.write_all(&words).unwrap();
            let why = read_reject(&mut client);
            assert_eq!(why, Some(RejectReason::Mandatory { unknown }), "{via:?}");
            assert!(is_closed_after(&mut client));
        }
        target.assert_unharmed("unknown abilities");
    }
}

/// Neither an endpoint of a kind that nobody knows nor several PINGs harm a link, and the last PING is answered.
#[test]
fn a_link_goes_on_after_unknown_endpoints_and_pings() {
    for via in BOTH {
        let mut target = Target::new(*via);
        let mut rig = Rig::new(&mut target);
        let unknown = ControlMessage::Endpoint(EndpointBlob { kind: 9, bytes: b"anything" });
        let bytes =
            [unknown, ControlMessage::Ping(1), ControlMessage::Ping(2), ControlMessage::Ping(7)];
        let bytes: Vec<u8> = bytes.iter().flat_map(frame).collect();
        rig.rogue.control.write_all(&bytes).unwrap();
        loop {
            let (header, payload) = read_frame(&mut rig.rogue.control).expect("it is answered");
            if let Ok(ControlMessage::Pong(7)) = ControlMessage::parse(header, &payload) {
                break;
            }
        }
        assert!(rig.peer.is_connected(), "{via:?}");
        rig.target.assert_unharmed("unknown endpoints");
    }
}
