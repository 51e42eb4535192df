//! Streams cut at every byte, and round trips of random messages.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    reason = "tests may panic"
)]

mod bodies;
mod common;

use bodies::control::Rig;
use common::{TOKEN, encode, endpoints, hello, samples};
use hmc_core::ctrl::framer::{Framer, Next};
use hmc_core::limits::MAX_FRAME_BYTES;
use hmc_core::range::Extent;
use hmc_core::region::{Epoch, WindowDesc, WindowId};
use hmc_core::time::{Duration, Instant};
use hmc_core::types::{Access, Incarnation, MemoryKind, Rank};
use hmc_core::wire::advert::{EndpointBlob, RegionAdvert, WindowBacking, WindowRole};
use hmc_core::wire::data::{DataFlags, DataFrame, DataKind};
use hmc_core::wire::header::Header;
use hmc_core::wire::hello::{Asked, EndpointList, Features, Hello, HostId, LinkToken, Welcome};
use hmc_core::wire::message::ControlMessage;
use hmc_core::wire::reject::RejectReason;
use proptest::prelude::*;

/// All messages of a stream that arrives in these pieces.
fn collect(pieces: &[&[u8]]) -> Vec<Vec<u8>> {
    let mut framer = Framer::new(vec![0u8; 8]);
    let mut frames = Vec::new();
    for piece in pieces {
        let mut left = *piece;
        loop {
            match framer.next(MAX_FRAME_BYTES).unwrap() {
                Next::Frame(header, payload) => {
                    ControlMessage::parse(header, payload).unwrap();
                    frames.push([&header.to_bytes()[..], payload].concat());
                }
                Next::Grow(to) => {
                    framer.grow(vec![0; to]).unwrap();
                }
                Next::Need(_) if left.is_empty() => break,
                Next::Need(_) => {
                    let n = framer.push(left, Instant::ZERO);
                    left = &left[n..];
                }
            }
        }
    }
    frames
}

#[test]
fn every_message_may_be_cut_at_every_two_bytes() {
    let list = endpoints();
    for (name, m) in samples(&list) {
        let frame = encode(&m);
        let stream = [&frame[..], &encode(&ControlMessage::Tag(1)), &frame].concat();
        let whole = collect(&[&stream]);
        assert_eq!(whole.len(), 3);
        assert_eq!(whole.concat(), stream, "{name}");
        for a in 0..=stream.len() {
            for b in a..=stream.len() {
                let cut = collect(&[&stream[..a], &stream[a..b], &stream[b..]]);
                assert_eq!(cut, whole, "{name} cut at {a} and {b}");
            }
        }
        let bytes: Vec<&[u8]> = stream.chunks(1).collect();
        assert_eq!(collect(&bytes), whole, "{name} byte by byte");
    }
}

#[test]
fn every_prefix_of_a_message_is_incomplete_and_nothing_else() {
    let list = endpoints();
    for (name, m) in samples(&list) {
        let frame = encode(&m);
        for n in 0..frame.len() {
            let mut framer = Framer::new([0u8; 600]);
            framer.push(&frame[..n], Instant::ZERO);
            match framer.next(MAX_FRAME_BYTES) {
                Ok(Next::Need(missing)) => {
                    let whole = if n < 8 { 8 } else { frame.len() };
                    assert_eq!(missing, whole - n, "{name} after {n} bytes");
                }
                other => panic!("{name} after {n} bytes: {other:?}"),
            }
        }
    }
}

/// What a peer could say to each of the five roles of a rig.
fn dialogues() -> Vec<(u8, Vec<u8>)> {
    let list = endpoints();
    let theirs = Hello { job: 5, expected: Some(Rank(1)), ..hello(&list) };
    let talk = [
        ControlMessage::Tag(1),
        ControlMessage::Ping(7),
        ControlMessage::Struct(b"some bytes of a user"),
        ControlMessage::Advert(common::advert()),
        ControlMessage::Notify { tag: 2, window: WindowId(3) },
        ControlMessage::Bye,
    ];
    let say = |first: ControlMessage<'_>, then: &[ControlMessage<'_>]| {
        let mut bytes = encode(&first);
        for m in then {
            bytes.extend(encode(m));
        }
        bytes
    };
    let upstream =
        [ControlMessage::Int32(5), ControlMessage::Tag(6), ControlMessage::Struct(b"xyz")];
    vec![
        (0, say(ControlMessage::Hello(theirs), &talk)),
        (0, say(ControlMessage::Hello(Hello { rank: Rank(101), ..theirs }), &[])),
        (0, say(ControlMessage::Hello(Hello { job: 6, ..theirs }), &[])),
        (0, say(ControlMessage::HelloV1 { rank: Rank(3) }, &upstream)),
        (0, say(ControlMessage::Attach { rank: Rank(2), token: TOKEN, channel: 1 }, &[])),
        (0, say(ControlMessage::Tag(1), &[])),
        (1, say(ControlMessage::HelloV1 { rank: Rank(3) }, &upstream)),
        (1, say(ControlMessage::Hello(theirs), &[ControlMessage::Hello(theirs)])),
        (2, say(ControlMessage::Welcome(Welcome { hello: theirs, token: TOKEN }), &talk)),
        (2, say(ControlMessage::Reject(RejectReason::Busy), &[])),
        (3, say(ControlMessage::Int32(5), &upstream)),
        (3, say(ControlMessage::Tag(5), &[ControlMessage::Bye])),
        (4, say(ControlMessage::AttachAck, &[])),
        (4, say(ControlMessage::Reject(RejectReason::BadToken), &[])),
    ]
}

#[test]
fn a_connection_does_the_same_however_its_stream_is_cut() {
    for (role, stream) in dialogues() {
        let mut whole = Rig::new(role);
        whole.feed(&stream);
        assert!(!whole.trace.events.is_empty());
        for at in 0..=stream.len() {
            let mut cut = Rig::new(role);
            cut.feed(&stream[..at]);
            cut.feed(&stream[at..]);
            assert_eq!(cut.trace, whole.trace, "role {role} cut at {at}");
        }
        let mut slow = Rig::new(role);
        stream.chunks(1).for_each(|b| slow.feed(b));
        assert_eq!(slow.trace, whole.trace, "role {role} byte by byte");
    }
}

fn any_blob() -> impl Strategy<Value = (u8, Vec<u8>)> {
    (any::<u8>(), proptest::collection::vec(any::<u8>(), 0..60))
}

fn any_list() -> impl Strategy<Value = EndpointList> {
    proptest::collection::vec(any_blob(), 0..9).prop_map(|blobs| {
        let mut list = EndpointList::new();
        for (kind, bytes) in &blobs {
            let _ = list.push(EndpointBlob { kind: *kind, bytes });
        }
        list
    })
}

type Words = (u32, u64, u32, u64, [u8; 16], Option<u32>, [u8; 16], u64, u16);

fn any_words() -> impl Strategy<Value = Words> {
    (
        any::<u32>(),
        any::<u64>(),
        0..4096u32,
        any::<u64>(),
        any::<[u8; 16]>(),
        proptest::option::of(0..4096u32),
        any::<[u8; 16]>(),
        any::<u64>(),
        0..=1024u16,
    )
}

fn words_to_hello<'a>(w: &Words, list: &'a EndpointList) -> Hello<'a> {
    Hello {
        features: Features::from_bits_truncate(w.0),
        job: w.1,
        rank: Rank(w.2),
        incarnation: Incarnation(w.3),
        nonce: w.4,
        expected: w.5.map(Rank),
        host: HostId(w.6),
        heartbeat: Duration::from_nanos(w.7),
        slots: w.8,
        asked: &Asked::ANY,
        proves: false,
        endpoints: list.endpoints(),
    }
}

fn any_advert() -> impl Strategy<Value = RegionAdvert> {
    (
        any::<(u64, u32, u64)>(),
        0..4u8,
        1..=8u8,
        proptest::option::of((any::<u64>(), any::<u64>())),
        proptest::option::of(any::<u64>()),
    )
        .prop_map(|((window, epoch, len), access, kind, memfd, label)| {
            // A memfd large enough for the window, wherever that is possible.
            let backing = match memfd {
                Some((base, more)) if base.checked_add(len).is_some() => WindowBacking::Memfd {
                    base,
                    size: Extent::new((base + len).saturating_add(more)),
                },
                _ => WindowBacking::Process,
            };
            let region = WindowDesc {
                window: WindowId(window),
                epoch: Epoch(epoch),
                extent: Extent::new(len),
                access: Access::from_bits_truncate(access),
                kind: MemoryKind::from_wire(kind).unwrap(),
            };
            RegionAdvert {
                region,
                backing,
                role: label.map_or(WindowRole::Default, WindowRole::Named),
            }
        })
}

fn comes_back(m: &ControlMessage<'_>) -> Result<(), TestCaseError> {
    let bytes = encode(m);
    let (head, payload) = bytes.split_first_chunk::<8>().unwrap();
    let header = Header::parse(head, MAX_FRAME_BYTES).unwrap();
    prop_assert_eq!(ControlMessage::parse(header, payload), Ok(*m));
    Ok(())
}

proptest! {
    #[test]
    fn random_hellos_come_back(words in any_words(), list in any_list(), token: [u8; 16]) {
        let hello = words_to_hello(&words, &list);
        comes_back(&ControlMessage::Hello(hello))?;
        let welcome = ControlMessage::Welcome(Welcome { hello, token: LinkToken(token) });
        comes_back(&welcome)?;
        prop_assert!(welcome.payload_len() <= 512, "a WELCOME always fits the limit of a pending connection");
    }

    #[test]
    fn random_messages_come_back(
        a: u64, b: u64, c: u32, d: i32, e: u16, rank in 0..4096u32, channel: u8, token: [u8; 16],
        bytes in proptest::collection::vec(any::<u8>(), 0..1000), blob in any_blob(),
    ) {
        let (window, epoch) = (WindowId(b), Epoch(c));
        comes_back(&ControlMessage::Tag(a))?;
        comes_back(&ControlMessage::Int32(d))?;
        comes_back(&ControlMessage::Struct(&bytes))?;
        comes_back(&ControlMessage::Notify { tag: a, window })?;
        comes_back(&ControlMessage::Revoke { window, epoch })?;
        comes_back(&ControlMessage::Revoked { window, epoch })?;
        comes_back(&ControlMessage::Ping(a))?;
        comes_back(&ControlMessage::Pong(a))?;
        comes_back(&ControlMessage::Reject(RejectReason::from_wire(e % 14, a)))?;
        comes_back(&ControlMessage::HelloV1 { rank: Rank(c) })?;
        comes_back(&ControlMessage::Endpoint(EndpointBlob { kind: blob.0, bytes: &blob.1 }))?;
        comes_back(&ControlMessage::Attach { rank: Rank(rank), token: LinkToken(token), channel })?;
    }

    #[test]
    fn random_adverts_come_back(advert in any_advert()) {
        comes_back(&ControlMessage::Advert(advert))?;
    }

    #[test]
    fn random_data_frames_come_back(
        kind in 0..4u8, flags in 0..8u8, seq: u32, window: u64, epoch: u32, len in 0..=(1u32 << 20),
        offset: u64, more: u64, tag: u64, addr: u64,
    ) {
        let kinds = [DataKind::Write, DataKind::Read, DataKind::WriteRef, DataKind::Gather];
        let kind = kinds[usize::from(kind)];
        let allowed = match kind {
            DataKind::Read => DataFlags::EXPECT,
            DataKind::Write => DataFlags::all(),
            DataKind::Gather => DataFlags::empty(),
            _ => DataFlags::LAST | DataFlags::NOTIFY,
        };
        let flags = DataFlags::from_bits_retain(flags) & allowed;
        let flags = if flags.contains(DataFlags::LAST) { flags } else { flags - DataFlags::NOTIFY };
        let addr = if flags.contains(DataFlags::EXPECT) { addr & u64::from(u32::MAX) } else { addr };
        let len = if kind == DataKind::Write { len } else { 0 };
        let total = match kind {
            DataKind::WriteRef => more.min(u64::MAX - addr),
            DataKind::Gather => 1 + more % 63,
            _ => more.max(len.into()),
        };
        let frame = DataFrame {
            kind, flags, status: 0, seq, window: WindowId(window), epoch: Epoch(epoch), len, offset,
            total, tag, addr,
        };
        prop_assert_eq!(DataFrame::parse(&frame.emit()), Ok(frame));
    }

    #[test]
    fn random_bytes_break_nothing(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        bodies::TARGETS.iter().for_each(|t| (t.body)(&bytes, bodies::Subject::Real));
    }

    #[test]
    fn mutated_streams_break_nothing(
        which in 0..14usize, at in any::<prop::sample::Index>(), value: u8, cut in any::<prop::sample::Index>(),
    ) {
        let (role, mut stream) = dialogues().swap_remove(which);
        let at = at.index(stream.len());
        stream[at] = value;
        let mut whole = Rig::new(role);
        whole.feed(&stream);
        let cut_at = cut.index(stream.len());
        let mut cut = Rig::new(role);
        cut.feed(&stream[..cut_at]);
        cut.feed(&stream[cut_at..]);
        prop_assert_eq!(cut.trace, whole.trace);
    }
}
