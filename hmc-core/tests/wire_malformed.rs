//! Malformed frames, each with the error that it must get: `malformed_*.txt`.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    reason = "tests may panic"
)]

mod bodies;
mod common;

use bodies::Subject;
use bodies::wire::text;
use common::unhex;
use hmc_core::limits::{MAX_EAGER_BYTES, MAX_FRAME_BYTES, MAX_HELLO_BYTES};
use hmc_core::rndv::RndvId;
use hmc_core::wire::cursor::WireError;
use hmc_core::wire::data::DataFrame;
use hmc_core::wire::header::Header;
use hmc_core::wire::message::ControlMessage;

/// The lines of a table: name, bytes, expected error.
fn cases(text: &str) -> Vec<(&str, Vec<u8>, &str)> {
    text.lines()
        .filter(|l| !l.is_empty() && !l.starts_with('#'))
        .map(|line| {
            let (rest, want) = line.split_once(" => ").unwrap();
            let (name, bytes) = rest.rsplit_once(": ").unwrap();
            (name, unhex(bytes), want)
        })
        .collect()
}

fn parse(bytes: &[u8]) -> Result<(), WireError> {
    let (head, payload) = bytes.split_first_chunk::<8>().unwrap();
    let header = Header::parse(head, MAX_FRAME_BYTES)?;
    ControlMessage::parse(header, payload).map(|_| ())
}

#[test]
fn every_malformed_message_is_classified() {
    let cases = cases(include_str!("malformed_messages.txt"));
    assert!(cases.len() >= 80, "{} cases", cases.len());
    for (name, bytes, want) in cases {
        assert_eq!(text(parse(&bytes).unwrap_err()), want, "{name}");
        bodies::wire::message(&bytes, Subject::Real);
    }
}

#[test]
fn every_malformed_data_frame_is_classified() {
    let cases = cases(include_str!("malformed_data.txt"));
    assert!(cases.len() >= 30, "{} cases", cases.len());
    for (name, bytes, want) in cases {
        let bytes: [u8; 56] = bytes.try_into().unwrap();
        assert_eq!(text(DataFrame::parse(&bytes).unwrap_err()), want, "{name}");
    }
}

#[test]
fn an_eager_message_has_a_page_at_most() {
    for len in [MAX_EAGER_BYTES, MAX_EAGER_BYTES + 1] {
        let bytes = vec![7; len];
        let frame = common::encode(&ControlMessage::Eager { id: RndvId(3), bytes: &bytes });
        let parsed = parse(&frame).map_err(text);
        if len == MAX_EAGER_BYTES {
            assert_eq!(parsed, Ok(()));
        } else {
            assert_eq!(parsed, Err("13 TooLong { len: 4097, limit: 4096 }".to_owned()));
        }
        bodies::wire::message(&frame, Subject::Real);
    }
}

#[test]
fn a_pending_connection_may_send_512_bytes_and_no_more() {
    let mut head = [2, 0, 0, 0xC0, 0, 2, 0, 0];
    assert!(Header::parse(&head, MAX_HELLO_BYTES).is_ok());
    head[4] = 1;
    let e = Header::parse(&head, MAX_HELLO_BYTES).unwrap_err();
    assert_eq!(text(e), "4 TooLong { len: 513, limit: 512 }");
}

#[test]
fn errors_read_well() {
    let say = |bytes: &[u8]| parse(bytes).unwrap_err().to_string();
    assert_eq!(
        say(&[2, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF]),
        "byte 4: a length of 4294967295 bytes exceeds the limit of 1048576"
    );
    assert_eq!(say(&[9, 0, 0, 0, 0, 0, 0, 0]), "byte 0: unknown frame type 9");
    assert_eq!(say(&[2, 0, 0, 0xC0, 2, 0, 0, 0, 34, 0]), "byte 9: 1 bytes too many");
}
