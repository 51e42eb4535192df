//! Golden bytes: every message and every data frame, as `docs/WIRE.md` says they look.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    reason = "tests may panic"
)]

mod common;

use common::{encode, endpoints, hex, samples, unhex};
use hmc_core::limits::MAX_FRAME_BYTES;
use hmc_core::range::{RangeError, Side};
use hmc_core::region::{Epoch, WindowId};
use hmc_core::window::{StaleGeneration, WindowFault};
use hmc_core::wire::data::{DATA_FRAME_BYTES, DataFlags, DataFrame, DataKind};
use hmc_core::wire::header::Header;
use hmc_core::wire::message::{ControlKind, ControlMessage, tag_frame};
use hmc_core::work::Failure;

const MESSAGES: &str = include_str!("golden_messages.txt");
const DATA: &str = include_str!("golden_data.txt");

/// Lines `name: hex hex ...`; lines that start with a space continue the one before.
fn table(text: &str) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = Vec::new();
    for line in text.lines().filter(|l| !l.is_empty() && !l.starts_with('#')) {
        let (name, bytes) = match line.split_once(':') {
            Some((name, bytes)) => (name.to_string(), bytes),
            None => (String::new(), line),
        };
        let bytes: String = bytes.split_whitespace().collect();
        if name.is_empty() {
            all.last_mut().unwrap().1.push_str(&bytes);
        } else {
            all.push((name, bytes));
        }
    }
    all
}

#[test]
fn every_message_has_its_stored_bytes() {
    let list = endpoints();
    let stored = table(MESSAGES);
    let samples = samples(&list);
    for kind in ControlKind::all() {
        assert!(samples.iter().any(|(_, m)| m.kind() == kind), "no sample of {kind:?}");
    }
    for (name, m) in &samples {
        let got = hex(&encode(m));
        let want = stored.iter().find(|(n, _)| n == name);
        assert_eq!(want.map(|w| w.1.as_str()), Some(got.as_str()), "{name}");
    }
    assert_eq!(stored.len(), samples.len(), "a stored line without a sample");
}

#[test]
fn stored_bytes_parse_to_the_message() {
    let list = endpoints();
    let samples = samples(&list);
    for (name, text) in table(MESSAGES) {
        let bytes = unhex(&text);
        let (head, payload) = bytes.split_first_chunk::<8>().unwrap();
        let header = Header::parse(head, MAX_FRAME_BYTES).unwrap();
        let (_, want) = samples.iter().find(|(n, _)| *n == name).unwrap();
        assert_eq!(ControlMessage::parse(header, payload), Ok(*want), "{name}");
    }
}

#[test]
fn a_tag_is_upstreams_captured_frame() {
    // Captured from the C++ HMC: `ctrlSend(peer, 0x1122334455667788)`.
    assert_eq!(hex(&tag_frame(0x1122_3344_5566_7788)), "01000000080000008877665544332211");
}

/// One of each data frame.
fn frames() -> Vec<(&'static str, DataFrame)> {
    let base = |kind| DataFrame {
        window: WindowId(0x1112_1314_1516_1718),
        epoch: Epoch(0x2122_2324),
        offset: 0x3132_3334_3536_3738,
        total: 0x0001_0000,
        ..DataFrame::new(kind, 0x0102_0304)
    };
    let range = RangeError { side: Side::Remote, offset: 7, len: 8, limit: 9 };
    let tag = 0x4142_4344_4546_4748;
    let addr = 0x0000_7FFF_1234_5000;
    let (notify, expect) = (DataFlags::LAST | DataFlags::NOTIFY, DataFlags::EXPECT);
    let generation = 0x5152_5354;
    let stale = StaleGeneration { block: 7, expected: 0x5152_5354, found: u32::MAX };
    let nack = |why| DataFrame::nack(5, why);
    vec![
        ("write", DataFrame { len: 0x1000, ..base(DataKind::Write) }),
        ("write_last", DataFrame { len: 16, flags: DataFlags::LAST, ..base(DataKind::Write) }),
        ("write_notify", DataFrame { len: 16, flags: notify, tag, ..base(DataKind::Write) }),
        (
            "write_expect",
            DataFrame {
                len: 16,
                flags: DataFlags::all(),
                tag,
                addr: generation,
                ..base(DataKind::Write)
            },
        ),
        ("read", base(DataKind::Read)),
        ("read_expect", DataFrame { flags: expect, addr: generation, ..base(DataKind::Read) }),
        (
            "read_data",
            DataFrame {
                len: 0x8000,
                offset: 0x8000,
                flags: DataFlags::LAST,
                ..base(DataKind::ReadData)
            },
        ),
        ("ack", DataFrame::ack(0x0102_0304, 3)),
        ("write_ref", DataFrame { addr, flags: notify, tag, ..base(DataKind::WriteRef) }),
        ("read_ref", DataFrame { addr, ..base(DataKind::ReadRef) }),
        ("region", DataFrame { offset: 0, ..base(DataKind::Region) }),
        (
            "region_of_a_life_page",
            DataFrame {
                window: WindowId(u64::MAX - 1),
                epoch: Epoch(0),
                offset: 0x40,
                total: 0x1000,
                ..base(DataKind::Region)
            },
        ),
        (
            "region_of_generations",
            DataFrame {
                flags: expect,
                offset: 0,
                tag: 0x0001_0000,
                addr: 0x80,
                ..base(DataKind::Region)
            },
        ),
        ("gather", DataFrame::gather(63)),
        ("nack_unknown_window", nack(Failure::Window(WindowFault::Unknown))),
        ("nack_stale_epoch", nack(Failure::Window(WindowFault::StaleEpoch))),
        ("nack_revoked", nack(Failure::Window(WindowFault::Revoked))),
        ("nack_range", nack(Failure::Window(WindowFault::OutOfWindow(range)))),
        ("nack_access", nack(Failure::Window(WindowFault::Access))),
        ("nack_generation", nack(Failure::Window(WindowFault::StaleGeneration(stale)))),
        ("nack_peer_dead", nack(Failure::PeerDead)),
        ("nack_deadline", nack(Failure::DeadlineExceeded)),
        ("nack_cancelled", nack(Failure::Cancelled)),
        ("nack_unknown_region", nack(Failure::UnknownRegion)),
        ("nack_unsupported", nack(Failure::Unsupported)),
        ("nack_transport", nack(Failure::Transport(-5))),
    ]
}

#[test]
fn every_data_frame_has_its_stored_bytes_and_comes_back() {
    let stored = table(DATA);
    let frames = frames();
    for (name, frame) in &frames {
        let bytes = frame.emit();
        let want = stored.iter().find(|(n, _)| n == name);
        assert_eq!(want.map(|w| w.1.as_str()), Some(hex(&bytes).as_str()), "{name}");
        assert_eq!(DataFrame::parse(&bytes), Ok(*frame), "{name}");
        assert_eq!(bytes.len(), DATA_FRAME_BYTES);
    }
    assert_eq!(stored.len(), frames.len());
}

#[test]
fn every_failure_survives_a_nack() {
    for (name, frame) in frames() {
        let why = DataFrame::parse(&frame.emit()).unwrap().why();
        assert_eq!(why.is_some(), name.starts_with("nack_"), "{name}");
        if let Some(why) = why {
            assert_eq!(DataFrame::nack(5, why), frame, "{name}");
        }
    }
    let later = DataFrame { status: 4000, ..DataFrame::new(DataKind::Nack, 1) };
    let why = DataFrame::parse(&later.emit()).unwrap().why().unwrap();
    assert_eq!(why, Failure::Transport(4000));
}

/// Prints both tables, for a deliberate change of the format.
#[test]
#[ignore = "prints the tables, compares nothing: `cargo test -p hmc-core --test wire_golden -- --ignored --nocapture`"]
fn print_tables() {
    let list = endpoints();
    let lines = |name: &str, bytes: &[u8]| {
        println!("{name}: {}", hex(&bytes[..bytes.len().min(8)]));
        for chunk in bytes.get(8..).unwrap_or(&[]).chunks(32) {
            println!("  {}", hex(chunk));
        }
    };
    for (name, m) in samples(&list) {
        lines(name, &encode(&m));
    }
    println!("--");
    for (name, f) in frames() {
        lines(name, &f.emit());
    }
}
