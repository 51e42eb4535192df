//! Control frames, adverts and data frames.

use super::{Seed, patched, resized};
use crate::common::{self, advert, encode, endpoints, samples};
use hmc_core::wire::data::{DataFlags, DataFrame, DataKind};
use hmc_core::wire::message::ControlMessage;

/// Values of a field, and what is wrong with them.
type Field = (&'static str, usize, usize, &'static [u64], &'static str);

const HELLO_FIELDS: [Field; 10] = [
    ("magic", 9, 4, &[0, 0x3243_4D49, 0x3343_4D48, 0x2048_5454, 0xFFFF_FFFF], "Magic"),
    ("version", 13, 2, &[0, 1, 3, 0x0100, 0xFFFF], "Version"),
    ("mandatory", 15, 2, &[1, 2, 0x8000, 0xFFFF], "Mandatory"),
    ("rank", 21, 4, &[4096, 4097, 0x8000_0000, 0xFFFF_FFFF], "\"rank\""),
    ("expected", 57, 4, &[4096, 4097, 0x7FFF_FFFF, 0xFFFF_FFFE], "\"expected rank\""),
    ("slots", 61, 2, &[1025, 0x8000, 0xFFFF], "\"slots\""),
    ("endpoints", 63, 1, &[9, 10, 0x80, 0xFF], "\"endpoints\""),
    ("reserved", 64, 1, &[1, 2, 0x80, 0xFF], "\"reserved\""),
    ("proof", 115, 1, &[2, 3, 0x80, 0xFF], "\"proof\""),
    ("spare", 116, 4, &[1, 0x0100_0000, 0xFFFF_FFFF], "\"reserved\""),
];

/// Fields of an advert, counted from its own first byte. The good one has base 0x6000, length 0x5000 and
/// size 0xB000: it fits to the byte.
const ADVERT_FIELDS: [Field; 8] = [
    ("access", 12, 1, &[4, 5, 8, 0x80, 0xFF], "\"access\""),
    ("kind", 13, 1, &[0, 9, 0x80, 0xFF], "\"memory kind\""),
    ("backing", 14, 1, &[2, 3, 0xFF], "\"backing\""),
    ("process", 14, 1, &[0], "\"base\""),
    ("role", 15, 1, &[2, 3, 0xFF], "\"role\""),
    ("len", 16, 8, &[0x5001, 0xB001, 1 << 63, u64::MAX - 0x6000, u64::MAX], "Range"),
    ("base", 24, 8, &[0x6001, 0xB000, 0xB001, 1 << 63, u64::MAX], "Range"),
    ("size", 32, 8, &[0xAFFF, 0x6000, 0x5FFF, 1, 0], "Range"),
];

/// The lines of a table of malformed frames: bytes, expected error.
fn stored(file: &str) -> Vec<(Vec<u8>, String)> {
    let path = format!("{}/tests/{file}.txt", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text.lines().filter(|l| !l.is_empty() && !l.starts_with('#'));
    lines
        .map(|line| {
            let (rest, want) = line.split_once(" => ").unwrap();
            let (_, hex) = rest.rsplit_once(": ").unwrap();
            (common::unhex(hex), want.to_owned())
        })
        .collect()
}

/// Control frames.
pub(crate) fn messages() -> Vec<Seed> {
    const T: &str = "message";
    let list = endpoints();
    let all = samples(&list);
    let frame = |wanted: &str| {
        let found = all.iter().find(|(name, _)| *name == wanted);
        encode(&found.unwrap().1)
    };
    let mut seeds: Vec<Seed> =
        all.iter().map(|(name, m)| Seed::plain(T, *name, encode(m))).collect();
    for (i, (bytes, want)) in stored("malformed_messages").into_iter().enumerate() {
        seeds.push(Seed::bad(T, format!("malformed_{i:03}"), bytes, &want));
    }
    for name in ["hello", "welcome_plain", "attach", "advert", "reject_stale", "notify", "endpoint"]
    {
        let whole = frame(name);
        for n in 8..whole.len() {
            let want = if n == 8 { "\"length\"" } else { "Truncated" };
            let bytes = resized(whole[..n].to_vec());
            seeds.push(Seed::bad(T, format!("cut_{name}_{n:03}"), bytes, want));
        }
    }
    for name in ["revoke", "revoked", "ping", "pong", "bye", "attach_ack", "challenge", "proof"] {
        let whole = frame(name);
        let half = resized(whole[..whole.len().div_ceil(2).max(9).min(whole.len() - 1)].to_vec());
        let want = if half.len() == 8 { "\"length\"" } else { "Truncated" };
        seeds.push(Seed::bad(T, format!("cut_{name}"), half, want));
    }
    // Bytes of the application may be of any number.
    let is_open = |name: &str| name.starts_with("struct") || name.starts_with("eager");
    for (name, m) in all.iter().filter(|(n, _)| !is_open(n)) {
        for extra in [1, 9] {
            let bytes = resized([&encode(m)[..], &vec![0; extra]].concat());
            let odd = matches!(
                m,
                ControlMessage::HelloV1 { .. } | ControlMessage::Int32(_) | ControlMessage::Tag(_)
            );
            let want = if odd { "\"length\"" } else { "Trailing" };
            seeds.push(Seed::bad(T, format!("long_{name}_{extra}"), bytes, want));
        }
        // The header promises a byte that never comes.
        let mut bytes = encode(m);
        let len = bytes.len() as u64 - 7;
        bytes = patched(&bytes, 4, 4, len);
        let odd = matches!(
            m,
            ControlMessage::HelloV1 { .. } | ControlMessage::Int32(_) | ControlMessage::Tag(_)
        );
        let want = if odd { "\"length\"" } else { "8 Truncated" };
        seeds.push(Seed::bad(T, format!("short_{name}"), bytes, want));
    }
    for name in ["hello", "welcome"] {
        let whole = frame(name);
        for (field, at, width, values, want) in HELLO_FIELDS {
            for v in values {
                let bytes = patched(&whole, at, width, *v);
                seeds.push(Seed::bad(T, format!("{name}_{field}_{v:x}"), bytes, want));
            }
        }
        for (count, want) in [(0, "Trailing"), (1, "Trailing"), (3, "Truncated"), (8, "Truncated")]
        {
            let bytes = patched(&whole, 63, 1, count);
            seeds.push(Seed::bad(T, format!("{name}_count_{count}"), bytes, want));
        }
        for (field, at, width, v) in [
            ("rank", 21, 4, 4095),
            ("expected", 57, 4, u64::from(u32::MAX)),
            ("slots", 61, 2, 1024),
        ] {
            let bytes = patched(&whole, at, width, v);
            seeds.push(Seed::plain(T, format!("{name}_{field}_last"), bytes));
        }
    }
    for (field, at, width, values, want) in ADVERT_FIELDS {
        for v in values {
            let bytes = patched(&frame("advert"), at + 9, width, *v);
            seeds.push(Seed::bad(T, format!("advert_{field}_{v:x}"), bytes, want));
        }
    }
    for v in [4096, 4097, 0xFFFF_FFFF] {
        let bytes = patched(&frame("attach"), 9, 4, v);
        seeds.push(Seed::bad(T, format!("attach_rank_{v:x}"), bytes, "\"rank\""));
    }
    for (v, want) in [(7, "Truncated"), (5, "Trailing"), (0, "Trailing"), (8192, "Truncated")] {
        let bytes = patched(&frame("endpoint"), 10, 2, v);
        seeds.push(Seed::bad(T, format!("endpoint_len_{v}"), bytes, want));
    }
    for v in [8193, 0xFFFF] {
        let bytes = patched(&frame("endpoint"), 10, 2, v);
        seeds.push(Seed::bad(T, format!("endpoint_len_{v}"), bytes, "10 TooLong"));
    }
    for code in [0, 8, 9, 15, 21, 31, 35, 64, 127, 128, 254, 255] {
        let bytes = patched(&frame("ping"), 8, 1, code);
        seeds.push(Seed::bad(T, format!("code_{code:03}"), bytes, "8 UnknownKind"));
    }
    for (name, ty) in [("int32", 0), ("int32", 3), ("tag", 0x101), ("struct", 0xFFFF)] {
        let bytes = patched(&frame(name), 0, 2, ty);
        seeds.push(Seed::bad(T, format!("type_{name}_{ty:x}"), bytes, "0 UnknownType"));
    }
    for (name, flags) in [("int32", 0x8000), ("tag", 0xC000), ("struct", 0x4000), ("ping", 0xE000)]
    {
        let bytes = patched(&frame(name), 2, 2, flags);
        seeds.push(Seed::bad(T, format!("flags_{name}_{flags:x}"), bytes, "2 UnknownFlags"));
    }
    for len in [(1 << 20) + 1, 1 << 31, 0xFFFF_FFFF] {
        for name in ["struct", "ping"] {
            let bytes = patched(&frame(name), 4, 4, len);
            seeds.push(Seed::bad(T, format!("length_{name}_{len:x}"), bytes, "4 TooLong"));
        }
    }
    seeds
}

/// Adverts of 48 bytes and lists of endpoint blobs.
pub(crate) fn adverts() -> Vec<Seed> {
    const T: &str = "advert";
    let good = advert().to_bytes();
    let list = endpoints();
    let blobs = list.endpoints().as_bytes().to_vec();
    let mut seeds = vec![
        Seed::plain(T, "good", good.to_vec()),
        Seed::plain(T, "blobs", blobs.clone()),
        Seed::bad(T, "blobs_twelve", blobs.repeat(6), "\"endpoints\""),
        Seed::bad(T, "blob_huge", [&[1, 0xFF, 0xFF][..], &[7; 64]].concat(), "1 TooLong"),
        Seed::bad(T, "blob_over", [&[9, 1, 0x20][..], &[7; 64]].concat(), "1 TooLong"),
        Seed::bad(T, "blob_port_zero", vec![2, 2, 0, 0, 0], "\"port\""),
        Seed::bad(T, "blob_port_short", vec![2, 1, 0, 9], "\"length of a port\""),
        Seed::bad(T, "blob_port_long", vec![2, 3, 0, 9, 9, 9], "\"length of a port\""),
        Seed::bad(T, "blob_path_empty", vec![1, 0, 0], "\"socket path\""),
        Seed::bad(T, "blob_path_zero", vec![1, 3, 0, b'a', 0, b'b'], "\"socket path\""),
        Seed::bad(T, "blob_path_long", [&[1, 108, 0][..], &[b'a'; 108]].concat(), "TooLong"),
        Seed::plain(T, "blob_path_last", [&[1, 107, 0][..], &[b'a'; 107]].concat()),
        Seed::bad(T, "list_over", [&[9, 200, 0][..], &[1; 200]].concat().repeat(3), "NoSpace"),
    ];
    for n in 0..blobs.len() {
        // A list may end between two blobs.
        if n == 0 || n == 18 {
            continue;
        }
        let bytes = blobs[..n].to_vec();
        seeds.push(Seed::bad(T, format!("blobs_cut_{n:02}"), bytes, "Truncated"));
    }
    for (field, at, width, values, want) in ADVERT_FIELDS {
        for v in values {
            let bytes = patched(&good, at, width, *v);
            seeds.push(Seed::bad(T, format!("{field}_{v:x}"), bytes, want));
        }
    }
    let unnamed = patched(&good, 15, 1, 0);
    seeds.push(Seed::bad(T, "label_without_role", unnamed, "\"label\""));
    let process = patched(&patched(&good, 14, 1, 0), 24, 8, 0);
    seeds.push(Seed::bad(T, "memfd_size_without_memfd", process, "\"memfd size\""));
    seeds
}

/// Data frames.
pub(crate) fn data_frames() -> Vec<Seed> {
    const T: &str = "data_frame";
    let kinds = [
        ("write", DataKind::Write),
        ("read", DataKind::Read),
        ("read_data", DataKind::ReadData),
        ("ack", DataKind::Ack),
        ("nack", DataKind::Nack),
        ("write_ref", DataKind::WriteRef),
        ("read_ref", DataKind::ReadRef),
        ("region", DataKind::Region),
        ("gather", DataKind::Gather),
    ];
    let carries = |k| matches!(k, DataKind::Write | DataKind::ReadData);
    let good = |kind| {
        let mut f = DataFrame { total: 100, offset: 20, ..DataFrame::new(kind, 7) };
        f.len = if carries(kind) { 80 } else { 0 };
        f.total = if kind == DataKind::Gather { 2 } else { f.total };
        f.status = u16::from(kind == DataKind::Nack);
        f.emit().to_vec()
    };
    let mut seeds = Vec::new();
    let mut everything = Vec::new();
    for (i, (bytes, want)) in stored("malformed_data").into_iter().enumerate() {
        seeds.push(Seed::bad(T, format!("malformed_{i:03}"), bytes, &want));
    }
    for (name, kind) in kinds {
        let frame = good(kind);
        everything.extend(&frame);
        let mut bad = |what: String, at: usize, width: usize, v: u64, want: &str| {
            seeds.push(Seed::bad(T, format!("{name}_{what}"), patched(&frame, at, width, v), want));
        };
        for flags in [1, 2, 3, 4, 0x80, 0xFF] {
            let known = match kind {
                DataKind::Write => DataFlags::all().bits(),
                DataKind::WriteRef => 3,
                DataKind::ReadData => 1,
                DataKind::Read | DataKind::Region => 4,
                _ => 0,
            };
            if flags == 2 && known & 3 == 3 {
                bad("notify_alone".into(), 1, 1, 2, "\"notify without last\"");
            } else if flags & !u64::from(known) != 0 {
                bad(format!("flags_{flags:x}"), 1, 1, flags, "1 UnknownFlags");
            }
        }
        if kind == DataKind::Nack {
            bad("status_0".into(), 2, 2, 0, "\"status\"");
        } else {
            bad("status_1".into(), 2, 2, 1, "\"status\"");
            bad("status_ffff".into(), 2, 2, 0xFFFF, "\"status\"");
        }
        if carries(kind) {
            bad("len_over".into(), 20, 4, 101, "\"length beyond the operation's\"");
            bad("total_0".into(), 32, 8, 0, "\"length beyond the operation's\"");
            bad("len_limit".into(), 20, 4, (1 << 20) + 1, "20 TooLong");
            bad("len_max".into(), 20, 4, u64::from(u32::MAX), "20 TooLong");
        } else {
            bad("len_1".into(), 20, 4, 1, "\"length\"");
            bad("len_max".into(), 20, 4, u64::from(u32::MAX), "\"length\"");
        }
        match kind {
            DataKind::ReadData => {
                bad("offset_21".into(), 24, 8, 21, "24 Range");
                bad("offset_max".into(), 24, 8, u64::MAX, "24 Range");
            }
            DataKind::Ack => {
                for n in [0, 1025, 1 << 32, u64::MAX] {
                    bad(format!("count_{n:x}"), 32, 8, n, "\"acknowledged operations\"");
                }
            }
            DataKind::Gather => {
                for n in [0, 64, 1 << 32, u64::MAX] {
                    bad(format!("count_{n:x}"), 32, 8, n, "\"gathered frames\"");
                }
            }
            DataKind::WriteRef | DataKind::ReadRef => {
                bad("addr_max".into(), 48, 8, u64::MAX - 99, "48 Range");
                bad("addr_end".into(), 48, 8, u64::MAX, "48 Range");
            }
            _ => {}
        }
        seeds.push(Seed::plain(T, name, frame.clone()));
        if matches!(kind, DataKind::Write | DataKind::Read | DataKind::Region) {
            let names = patched(&patched(&frame, 1, 1, 4), 48, 4, u64::from(u32::MAX));
            let beyond = patched(&names, 48, 8, 1 << 32);
            seeds.push(Seed::plain(T, format!("{name}_expect"), names));
            if kind != DataKind::Region {
                seeds.push(Seed::bad(T, format!("{name}_expect_max"), beyond, "\"generation\""));
            }
        }
    }
    for kind in [0, 10, 11, 0x7F, 0x80, 0xFF] {
        let bytes = patched(&good(DataKind::Read), 0, 1, kind);
        seeds.push(Seed::bad(T, format!("kind_{kind:x}"), bytes, "0 UnknownKind"));
    }
    for (n, why) in (0..13u64).chain([0xFFFF]).map(|n| (n, if n == 0 { "\"status\"" } else { "" }))
    {
        let bytes = patched(&good(DataKind::Nack), 2, 2, n);
        if why.is_empty() {
            seeds.push(Seed::plain(T, format!("nack_why_{n:x}"), bytes));
        }
    }
    seeds.push(Seed::plain(T, "all", everything));
    seeds
}
