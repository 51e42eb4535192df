//! What the tests of the control plane share: one of each message, hex, cutting.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    reason = "tests may panic, and each test file uses a part of this"
)]

pub mod link;

use hmc_core::range::{Extent, Side};
use hmc_core::region::{Epoch, WindowDesc, WindowId, WindowSlice};
use hmc_core::rndv::{AbortReason, RecvTarget, RndvId, RndvMsg, RndvRole as End};
use hmc_core::time::Duration;
use hmc_core::types::{Access, Incarnation, MemoryKind, Rank};
use hmc_core::wire::advert::{EndpointBlob, EndpointDesc, RegionAdvert, WindowBacking, WindowRole};
use hmc_core::wire::cursor::Writer;
use hmc_core::wire::hello::{Asked, EndpointList, Features, Hello, HostId, LinkToken, Welcome};
use hmc_core::wire::message::ControlMessage;
use hmc_core::wire::proof::{Challenge, Proof};
use hmc_core::wire::reject::RejectReason;

/// The bytes of a message's frame.
pub fn encode(m: &ControlMessage<'_>) -> Vec<u8> {
    let mut bytes = vec![0xEE; m.emitted_len() + 3];
    let mut w = Writer::new(&mut bytes);
    m.emit(&mut w).unwrap();
    let n = w.written() as usize;
    assert_eq!(n, m.emitted_len());
    assert_eq!(&bytes[n..], [0xEE; 3], "nothing is written behind the frame");
    bytes.truncate(n);
    bytes
}

/// Hex without spaces.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Bytes of a hex text; spaces are passed over.
pub fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    assert!(digits.len().is_multiple_of(2), "odd number of digits in {text}");
    digits
        .chunks(2)
        .map(|p| u8::from_str_radix(std::str::from_utf8(p).unwrap(), 16).unwrap())
        .collect()
}

/// A list with a socket path and a port.
pub fn endpoints() -> EndpointList {
    let mut list = EndpointList::new();
    list.push(EndpointDesc::Shm { path: b"/run/hmc/7.sock" }.blob()).unwrap();
    list.push(EndpointDesc::tcp(0x1F90).blob()).unwrap();
    list
}

const ASKED: Asked = Asked::new(*b"address-address-", 0x4142, 0x3132_3334_3536_3738);

/// A HELLO in which every field has another value.
pub fn hello(list: &EndpointList) -> Hello<'_> {
    Hello {
        features: Features::CMA | Features::BATCHED_ACKS,
        job: 0x1112_1314_1516_1718,
        rank: Rank(0x0102),
        incarnation: Incarnation(0x2122_2324_2526_2728),
        nonce: *b"nonce-nonce-nonc",
        expected: Some(Rank(0x0304)),
        host: HostId(*b"host-host-host-h"),
        heartbeat: Duration::from_nanos(500_000_000),
        slots: 0x0080,
        asked: &ASKED,
        proves: true,
        endpoints: list.endpoints(),
    }
}

/// A window in a memfd.
pub fn advert() -> RegionAdvert {
    RegionAdvert {
        region: WindowDesc {
            window: WindowId(0x3132_3334_3536_3738),
            epoch: Epoch(0x4142_4344),
            extent: Extent::new(0x5000),
            access: Access::READ | Access::WRITE,
            kind: MemoryKind::NvidiaGpu,
        },
        backing: WindowBacking::Memfd { base: 0x6000, size: Extent::new(0xB000) },
        role: WindowRole::Named(0x7172_7374_7576_7778),
    }
}

/// What a process of version 1 said first, as it was recorded.
pub const HELLO_OF_VERSION_1: &str = include_str!("../hello_of_version_1.txt");

/// The token of all tests.
pub const TOKEN: LinkToken = LinkToken(*b"token-token-toke");

/// The proof of all tests.
pub const PROOF: Proof = Proof(*b"proof-proof-proof-proof-proof-pr");

/// A challenge.
pub const CHALLENGE: Challenge =
    Challenge { rank: Rank(1), nonce: *b"nonce-of-acceptr", proof: PROOF };

/// At least one of each note of a message.
pub fn notes() -> [(&'static str, RndvMsg); 12] {
    let id = RndvId(0xC1C2_C3C4);
    let window = WindowId(0x8182_8384_8586_8788);
    let claim = Extent::new(u64::MAX).span(Side::Remote, 0xD1D2_D3D4, 0x2000).unwrap();
    let area = WindowSlice { window, epoch: Epoch(0x9192_9394), span: claim, expected: None };
    let end = |from, how| RndvMsg::End { id, from, how };
    let unknown = AbortReason::Unknown { code: 999, detail: 5 };
    [
        ("rndv_offer", RndvMsg::Offer { id, len: 0xE1E2_E3E4_E5E6_E7E8 }),
        ("rndv_staged", RndvMsg::Ready { id, target: RecvTarget::staged(area).unwrap() }),
        ("rndv_direct", RndvMsg::Ready { id, target: RecvTarget::direct(area) }),
        ("rndv_filled", RndvMsg::Filled { id, seq: 0xF1F2_F3F4_F5F6_F7F8 }),
        ("rndv_credit", RndvMsg::Credit { id, seq: 0xF1F2_F3F4_F5F6_F7F8 }),
        ("rndv_end", end(End::Sender, Ok(()))),
        ("rndv_taken", end(End::Receiver, Ok(()))),
        ("rndv_cancelled", end(End::Sender, Err(AbortReason::Cancelled))),
        ("rndv_deadline", end(End::Receiver, Err(AbortReason::DeadlineExceeded))),
        ("rndv_too_long", end(End::Receiver, Err(AbortReason::TooLong { capacity: 0x0102_0304 }))),
        ("rndv_closing", end(End::Receiver, Err(AbortReason::Closing))),
        ("rndv_unknown", end(End::Receiver, Err(unknown))),
    ]
}

/// At least one of each message, with its name.
pub fn samples(list: &EndpointList) -> Vec<(&'static str, ControlMessage<'_>)> {
    let plain =
        Hello { expected: None, asked: &Asked::ANY, proves: false, ..hello(list).detached() };
    let window = WindowId(0x8182_8384_8586_8788);
    let epoch = Epoch(0x9192_9394);
    let mut all = vec![
        ("hello_v1", ControlMessage::HelloV1 { rank: Rank(7) }),
        ("hello", ControlMessage::Hello(hello(list))),
        ("hello_plain", ControlMessage::Hello(plain)),
        ("welcome", ControlMessage::Welcome(Welcome { hello: hello(list), token: TOKEN })),
        ("welcome_plain", ControlMessage::Welcome(Welcome { hello: plain, token: TOKEN })),
        ("reject_version", ControlMessage::Reject(RejectReason::Version { ours: 2 })),
        ("reject_stale", ControlMessage::Reject(RejectReason::Stale { seen: Incarnation(0xABCD) })),
        ("reject_busy", ControlMessage::Reject(RejectReason::Busy)),
        ("reject_unknown", ControlMessage::Reject(RejectReason::Unknown { code: 999, detail: 5 })),
        ("attach", ControlMessage::Attach { rank: Rank(3), token: TOKEN, channel: 2 }),
        ("attach_ack", ControlMessage::AttachAck),
        ("reject_endpoint", ControlMessage::Reject(RejectReason::WrongEndpoint)),
        ("reject_kept", ControlMessage::Reject(RejectReason::Kept)),
        ("challenge", ControlMessage::Challenge(CHALLENGE)),
        ("proof", ControlMessage::Proof(PROOF)),
        ("endpoint", ControlMessage::Endpoint(EndpointBlob { kind: 9, bytes: b"opaque" })),
        ("advert", ControlMessage::Advert(advert())),
        (
            "advert_process",
            ControlMessage::Advert(RegionAdvert {
                backing: WindowBacking::Process,
                role: WindowRole::Default,
                ..advert()
            }),
        ),
        ("int32", ControlMessage::Int32(-2)),
        ("tag", ControlMessage::Tag(0x1122_3344_5566_7788)),
        ("tag_max", ControlMessage::Tag(u64::MAX)),
        ("struct_empty", ControlMessage::Struct(b"")),
        ("struct", ControlMessage::Struct(b"\x01\x00\x00\x00\x08\x00\x00\x00 looks like a header")),
        ("notify", ControlMessage::Notify { tag: 0xA1A2_A3A4_A5A6_A7A8, window }),
        ("ping", ControlMessage::Ping(0xB1B2)),
        ("pong", ControlMessage::Pong(0xB1B2)),
        ("revoke", ControlMessage::Revoke { window, epoch }),
        ("revoked", ControlMessage::Revoked { window, epoch }),
        ("bye", ControlMessage::Bye),
    ];
    let id = RndvId(0xC1C2_C3C4);
    all.push(("eager", ControlMessage::Eager { id, bytes: b"short" }));
    all.push(("eager_empty", ControlMessage::Eager { id, bytes: b"" }));
    all.extend(notes().map(|(name, note)| (name, ControlMessage::Rndv(note))));
    all
}
