//! Single frames and blobs: what parses emits the same bytes again, and what is refused says why.

use super::subject::Subject;
use hmc_core::limits::{MAX_FRAME_BYTES, MAX_HELLO_BYTES, MAX_PEERS};
use hmc_core::range::Extent;
use hmc_core::wire::advert::{ADVERT_BYTES, EndpointBlob, RegionAdvert, WindowBacking};
use hmc_core::wire::cursor::{Reader, WireError, WireErrorKind, Writer};
use hmc_core::wire::data::{DATA_FRAME_BYTES, DataFrame};
use hmc_core::wire::header::Header;
use hmc_core::wire::hello::EndpointList;
use hmc_core::wire::message::ControlMessage;
use hmc_core::wire::reject::RejectReason;

/// An error as the tables write it: the byte, then the kind.
pub fn text(e: WireError) -> String {
    format!("{} {:?}", e.at, e.kind)
}

/// The broken parser passes over what follows the last field.
fn parse_message<'a>(
    header: Header,
    payload: &'a [u8],
    subject: Subject,
) -> Result<ControlMessage<'a>, WireError> {
    let parsed = ControlMessage::parse(header, payload);
    match (subject, parsed) {
        (Subject::Broken, Err(WireError { kind: WireErrorKind::Trailing { extra }, .. })) => {
            let len = header.len().saturating_sub(extra);
            let fits = payload.get(..len as usize).unwrap_or(payload);
            ControlMessage::parse(Header::new(header.kind(), len), fits)
        }
        _ => parsed,
    }
}

/// One control frame: what parses, emits the same bytes again.
pub fn message(bytes: &[u8], subject: Subject) {
    let Some((head, payload)) = bytes.split_first_chunk::<8>() else {
        return;
    };
    let strict = Header::parse(head, MAX_HELLO_BYTES);
    let Ok(header) = Header::parse(head, MAX_FRAME_BYTES) else {
        assert!(strict.is_err(), "a pending connection may send less, not more");
        return;
    };
    assert_eq!(strict.is_ok(), header.len() <= MAX_HELLO_BYTES);
    assert_eq!(header.to_bytes(), *head);
    let parsed = parse_message(header, payload, subject);
    if payload.len() != header.len() as usize {
        assert!(parsed.is_err());
        return;
    }
    match parsed {
        Ok(m) => {
            let mut again = vec![0u8; m.emitted_len()];
            let mut w = Writer::new(&mut again);
            m.emit(&mut w).unwrap();
            assert_eq!(w.written() as usize, bytes.len());
            if let Some(at) = (0..bytes.len()).find(|&i| bytes[i] != again[i]) {
                // Unknown feature bits are passed over; all else is kept.
                assert!(matches!(m, ControlMessage::Hello(_) | ControlMessage::Welcome(_)));
                assert!((17..21).contains(&at));
                assert_eq!(bytes[21..], again[21..]);
            }
            assert_eq!(ControlMessage::parse(header, &again[8..]), Ok(m));
            if let ControlMessage::Hello(h) = m {
                assert!(h.rank.0 < MAX_PEERS);
                assert_eq!(h.endpoints.iter().count(), h.endpoints.len());
                for blob in h.endpoints.iter() {
                    let _ = blob.decode();
                }
            }
        }
        Err(e) => {
            let known = !matches!(e.kind, WireErrorKind::NoSpace { .. });
            assert!(known, "{e}");
            assert!(e.at as usize <= bytes.len(), "{e}");
        }
    }
}

/// What is wrong with a control frame from a peer that is known.
pub fn message_class(bytes: &[u8]) -> String {
    let Some((head, payload)) = bytes.split_first_chunk::<8>() else {
        return "no header".into();
    };
    let parsed =
        Header::parse(head, MAX_FRAME_BYTES).and_then(|h| ControlMessage::parse(h, payload));
    parsed.map_or_else(text, |m| format!("good {:?}", m.kind()))
}

/// The last REJECT in a stream of whole frames.
pub fn last_reject(mut stream: &[u8]) -> Option<RejectReason> {
    let mut last = None;
    while let Some((head, rest)) = stream.split_first_chunk::<8>() {
        let header = Header::parse(head, MAX_HELLO_BYTES).unwrap();
        let (payload, rest) = rest.split_at(header.len() as usize);
        if let Ok(ControlMessage::Reject(why)) = ControlMessage::parse(header, payload) {
            last = Some(why);
        }
        stream = rest;
    }
    last
}

/// The broken parser does not compare a window with its memfd.
fn parse_advert(bytes: &[u8; ADVERT_BYTES], subject: Subject) -> Result<RegionAdvert, WireError> {
    let parsed = RegionAdvert::parse(bytes, 0);
    match (subject, parsed) {
        (Subject::Broken, Err(WireError { kind: WireErrorKind::Range(e), .. })) => {
            let mut roomy = *bytes;
            roomy[32..40].fill(0xFF);
            let mut a = RegionAdvert::parse(&roomy, 0)?;
            if let WindowBacking::Memfd { base, .. } = a.backing {
                a.backing = WindowBacking::Memfd { base, size: Extent::new(e.limit) };
            }
            Ok(a)
        }
        _ => parsed,
    }
}

/// Region adverts and endpoint blobs.
pub fn advert(bytes: &[u8], subject: Subject) {
    if let Some((first, _)) = bytes.split_first_chunk::<ADVERT_BYTES>()
        && let Ok(a) = parse_advert(first, subject)
    {
        assert_eq!(a.to_bytes(), *first);
        if let WindowBacking::Memfd { base, size } = a.backing {
            let end = u128::from(base) + u128::from(a.region.extent.len());
            assert!(end <= u128::from(size.len()), "the window leaves its memfd");
        }
    }
    let mut r = Reader::new(bytes, 0);
    let mut list = EndpointList::new();
    while let Ok(blob) = EndpointBlob::parse(&mut r) {
        if let Ok(typed) = blob.decode() {
            assert_eq!(typed.blob(), blob);
        }
        let before = list.endpoints().len();
        let taken = list.push(blob).is_ok();
        assert_eq!(list.endpoints().len(), before + usize::from(taken));
        if taken {
            assert_eq!(list.endpoints().iter().last(), Some(blob));
        }
    }
}

/// What is wrong with an advert of 48 bytes; anything else is a list of endpoint blobs.
pub fn advert_class(bytes: &[u8]) -> String {
    if let Ok(body) = <&[u8; ADVERT_BYTES]>::try_from(bytes) {
        return RegionAdvert::parse(body, 0).map_or_else(text, |_| "good advert".into());
    }
    let mut r = Reader::new(bytes, 0);
    let mut list = EndpointList::new();
    while !r.rest().is_empty() {
        let at = r.at();
        let blob = match EndpointBlob::parse(&mut r) {
            Ok(blob) => blob,
            Err(e) => return format!("blob {}", text(e)),
        };
        if let Err(e) = blob.decode() {
            return format!("blob at {at}: typed {}", text(e));
        }
        if let Err(e) = list.push(blob) {
            return format!("blob at {at}: list {}", text(e));
        }
    }
    format!("good list of {}", list.endpoints().len())
}

/// The broken parser lets a frame carry more than its operation has.
fn parse_data(bytes: &[u8; DATA_FRAME_BYTES], subject: Subject) -> Result<DataFrame, WireError> {
    let parsed = DataFrame::parse(bytes);
    match (subject, parsed) {
        (Subject::Broken, Err(WireError { at: 20, kind: WireErrorKind::Value { value, .. } })) => {
            let total = u64::from_le_bytes(bytes[32..40].try_into().unwrap());
            let mut roomy = *bytes;
            roomy[32..40].copy_from_slice(&value.to_le_bytes());
            DataFrame::parse(&roomy).map(|f| DataFrame { total, ..f })
        }
        _ => parsed,
    }
}

/// The rules of docs/WIRE.md for a data frame, once more, in plain numbers.
fn is_legal(b: &[u8; DATA_FRAME_BYTES]) -> bool {
    let number = |at: usize, n: usize| {
        b[at..at + n].iter().rev().fold(0u128, |all, byte| (all << 8) | u128::from(*byte))
    };
    let (kind, flags, status) = (b[0], b[1], number(2, 2));
    let (len, offset, total, addr) = (number(20, 4), number(24, 8), number(32, 8), number(48, 8));
    let flags_fit = match kind {
        1 => matches!(flags, 0 | 1 | 3 | 4 | 5 | 7),
        6 => matches!(flags, 0 | 1 | 3),
        3 => matches!(flags, 0 | 1),
        2 | 8 => matches!(flags, 0 | 4),
        4 | 5 | 7 | 9 => flags == 0,
        _ => return false,
    };
    let numbers_fit = match kind {
        1 => len <= 1 << 20 && len <= total,
        3 => len <= 1 << 20 && len <= total && offset + len <= total,
        4 => len == 0 && (1..=1024).contains(&total),
        9 => len == 0 && (1..=63).contains(&total),
        6 | 7 => len == 0 && addr + total <= u128::from(u64::MAX),
        _ => len == 0,
    };
    let names_generation = flags & 4 != 0 && kind != 8;
    let numbers_fit = numbers_fit && (!names_generation || addr <= u128::from(u32::MAX));
    flags_fit && numbers_fit && (status != 0) == (kind == 5)
}

/// Data frames, one after the other.
pub fn data_frame(bytes: &[u8], subject: Subject) {
    for chunk in bytes.chunks_exact(DATA_FRAME_BYTES) {
        let chunk: [u8; DATA_FRAME_BYTES] = chunk.try_into().unwrap();
        let parsed = parse_data(&chunk, subject);
        assert_eq!(parsed.is_ok(), is_legal(&chunk), "{parsed:?} of {chunk:02x?}");
        if let Ok(f) = parsed {
            assert_eq!(f.emit(), chunk);
            if let Some(why) = f.why() {
                let again = DataFrame::nack(f.seq, why);
                assert!(DataFrame::parse(&again.emit()).is_ok());
            }
        }
    }
}

/// What is wrong with the first data frame.
pub fn data_class(bytes: &[u8]) -> String {
    let Some((first, _)) = bytes.split_first_chunk::<DATA_FRAME_BYTES>() else {
        return "short".into();
    };
    DataFrame::parse(first).map_or_else(text, |f| format!("good {:?}", f.kind))
}
