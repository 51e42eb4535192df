//! Replays the committed inputs of the fuzz targets through the same bodies.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    reason = "tests may panic"
)]

mod common;

use common::{TOKEN, advert, bodies, encode, endpoints, hello, samples};
use hmc_core::kinds::Rank;
use hmc_core::wire::hello::{Hello, Welcome};
use hmc_core::wire::message::Message;
use std::path::{Path, PathBuf};

type Body = fn(&[u8]);

const TARGETS: [(&str, Body); 4] = [
    ("message", bodies::message),
    ("advert", bodies::advert),
    ("control_stream", bodies::control_stream),
    ("data_frame", bodies::data_frame),
];

fn corpus(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target)
}

#[test]
fn every_committed_input_breaks_nothing() {
    for (target, body) in TARGETS {
        let mut n = 0;
        for entry in std::fs::read_dir(corpus(target)).unwrap() {
            let bytes = std::fs::read(entry.unwrap().path()).unwrap();
            assert!(bytes.len() <= 4096, "a committed input is small");
            body(&bytes);
            n += 1;
        }
        assert!(n >= 20, "{target}: {n} inputs");
    }
}

/// A script of a control stream: a role, then pieces of what the peer says and steps of the owner.
fn script(role: u8, parts: &[Part<'_>]) -> Vec<u8> {
    let mut out = vec![role];
    for part in parts {
        match part {
            Part::Hear(bytes) => {
                for piece in bytes.chunks(128) {
                    out.push((piece.len() - 1) as u8);
                    out.extend(piece);
                }
            }
            // The first multiple of six from 128 on is 132.
            Part::Do(op, amount) => out.extend([132 + op, *amount]),
        }
    }
    out
}

enum Part<'a> {
    Hear(&'a [u8]),
    Do(u8, u8),
}

/// The inputs that are written by `write_corpus`: real encodings, whole dialogues, mutations.
fn seeds() -> Vec<(&'static str, String, Vec<u8>)> {
    let list = endpoints();
    let mut all = Vec::new();
    for (name, m) in samples(&list) {
        all.push(("message", name.to_string(), encode(&m)));
    }
    for (file, target) in [("malformed_messages", "message"), ("malformed_data", "data_frame")] {
        let path = format!("{}/tests/{file}.txt", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).unwrap();
        let lines = text.lines().filter(|l| !l.starts_with('#'));
        for (i, line) in lines.enumerate().filter(|(i, _)| i % 4 == 0) {
            let (rest, _) = line.split_once(" => ").unwrap();
            let (_, hex) = rest.rsplit_once(": ").unwrap();
            all.push((target, format!("malformed_{i:03}"), common::unhex(hex)));
        }
    }
    let golden =
        std::fs::read_to_string(format!("{}/tests/golden_data.txt", env!("CARGO_MANIFEST_DIR")));
    let mut everything = Vec::new();
    for (i, frame) in golden.unwrap().split(':').skip(1).enumerate() {
        let digits: String = frame
            .lines()
            .take_while(|l| l.starts_with(' '))
            .flat_map(str::split_whitespace)
            .collect();
        let bytes = common::unhex(&digits);
        all.push(("data_frame", format!("golden_{i:02}"), bytes.clone()));
        everything.extend(bytes);
    }
    all.push(("data_frame", "all".into(), everything));

    let good = advert().to_bytes();
    all.push(("advert", "good".into(), good.to_vec()));
    for at in (0..48).step_by(3) {
        let mut bad = good;
        bad[at] ^= 0x81;
        all.push(("advert", format!("flipped_{at:02}"), bad.to_vec()));
    }
    let blobs = list.endpoints().as_bytes().to_vec();
    all.push(("advert", "blobs".into(), blobs.clone()));
    all.push(("advert", "blobs_twelve".into(), blobs.repeat(6)));
    all.push(("advert", "blobs_cut".into(), blobs[..blobs.len() - 1].to_vec()));
    all.push(("advert", "blob_huge".into(), [&[1, 0xFF, 0xFF][..], &[7; 64]].concat()));
    all.push(("advert", "blob_port_zero".into(), vec![2, 2, 0, 0, 0]));

    let theirs = Hello { job: 5, expected: Some(Rank(1)), ..hello(&list) };
    let first = encode(&Message::Hello(theirs));
    let welcome = encode(&Message::Welcome(Welcome { hello: theirs, token: TOKEN }));
    let v1 = encode(&Message::HelloV1 { rank: Rank(3) });
    let attach = encode(&Message::Attach { rank: Rank(2), token: TOKEN, channel: 1 });
    let talk: Vec<u8> = samples(&list)
        .iter()
        .filter(|(_, m)| !matches!(m, Message::Hello(_) | Message::Welcome(_)))
        .flat_map(|(_, m)| encode(m))
        .collect();
    let tags = [encode(&Message::Tag(1)), encode(&Message::Int32(2))].concat();
    let bye = encode(&Message::Bye);
    let ping = encode(&Message::Ping(3));
    let big = encode(&Message::Struct(&[9; 700]));
    let attach_ack = encode(&Message::AttachAck);
    let mut newer = first.clone();
    newer[13] = 9;
    use Part::{Do, Hear};
    let streams: [(&str, u8, Vec<Part<'_>>); 22] = [
        ("accept", 0, vec![Hear(&first), Hear(&tags), Hear(&ping), Hear(&bye), Do(1, 9)]),
        ("accept_we_leave", 0, vec![Hear(&first), Do(1, 200), Hear(&tags), Hear(&bye)]),
        ("accept_drain_deadline", 0, vec![Hear(&first), Do(1, 1), Do(0, 5)]),
        ("accept_beats", 0, vec![Hear(&first), Do(0, 26), Hear(&ping), Do(0, 26), Do(0, 250)]),
        ("accept_silence", 0, vec![Hear(&first), Do(0, 255)]),
        ("accept_twice", 0, vec![Hear(&first), Hear(&first)]),
        ("accept_talk", 0, vec![Hear(&first), Hear(&talk)]),
        ("accept_big", 0, vec![Hear(&first), Hear(&big), Hear(&tags)]),
        ("accept_cut", 0, vec![Hear(&first[..50]), Do(0, 30), Hear(&first[50..])]),
        ("accept_late", 0, vec![Hear(&first[..50]), Do(0, 101), Hear(&first[50..])]),
        ("accept_newer", 0, vec![Hear(&newer)]),
        ("accept_garbage", 0, vec![Hear(b"GET / HTTP/1.1\r\n\r\n")]),
        ("accept_huge", 0, vec![Hear(&[2, 0, 0, 0, 255, 255, 255, 255])]),
        ("upstream_refused", 0, vec![Hear(&v1), Hear(&tags)]),
        ("upstream", 1, vec![Hear(&v1), Hear(&tags), Do(0, 255), Do(1, 1)]),
        ("upstream_ping", 1, vec![Hear(&v1), Hear(&ping)]),
        ("attach", 0, vec![Hear(&attach), Hear(&tags)]),
        ("dial", 2, vec![Do(0, 10), Hear(&welcome), Hear(&tags), Do(1, 50), Hear(&bye)]),
        ("dial_eof", 2, vec![Hear(&welcome), Do(5, 255), Do(0, 9)]),
        ("dial_abort", 2, vec![Do(4, 255), Hear(&welcome)]),
        ("dial_upstream", 3, vec![Hear(&tags), Hear(&big), Do(1, 0)]),
        ("dial_attach", 4, vec![Hear(&attach_ack), Hear(&tags)]),
    ];
    for (name, role, parts) in streams {
        all.push(("control_stream", name.into(), script(role, &parts)));
    }
    all
}

#[test]
fn every_seed_is_committed() {
    for (target, name, bytes) in seeds() {
        let stored = std::fs::read(corpus(target).join(&name));
        assert_eq!(stored.ok(), Some(bytes), "{target}/{name}: run `write_corpus`");
    }
}

/// Writes the seeds, after a deliberate change of the format.
#[test]
#[ignore = "writes files"]
fn write_corpus() {
    for (target, name, bytes) in seeds() {
        std::fs::create_dir_all(corpus(target)).unwrap();
        std::fs::write(corpus(target).join(name), bytes).unwrap();
    }
}
