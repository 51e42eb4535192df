//! Control connections: whole dialogues, every message in every state, handshakes, C++ peers.

use super::{Seed, patched, resized};
use crate::bodies::handshake::HEAD;
use crate::bodies::proof::HEAD as PROOF_HEAD;
use crate::common::{CHALLENGE, TOKEN, encode, endpoints, hello, samples};
use hmc_core::types::Rank;
use hmc_core::wire::hello::{Hello, Welcome};
use hmc_core::wire::message::{ControlKind, ControlMessage};
use hmc_core::wire::proof::{Challenge, Proof};

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

use Part::{Do, Hear};

/// Whole dialogues.
pub(crate) fn streams() -> Vec<Seed> {
    let list = endpoints();
    let theirs = Hello { job: 5, expected: Some(Rank(1)), proves: false, ..hello(&list) };
    let first = encode(&ControlMessage::Hello(theirs));
    let welcome = encode(&ControlMessage::Welcome(Welcome { hello: theirs, token: TOKEN }));
    let v1 = encode(&ControlMessage::HelloV1 { rank: Rank(3) });
    let attach = encode(&ControlMessage::Attach { rank: Rank(2), token: TOKEN, channel: 1 });
    let talk: Vec<u8> = samples(&list)
        .iter()
        .filter(|(_, m)| !matches!(m, ControlMessage::Hello(_) | ControlMessage::Welcome(_)))
        .flat_map(|(_, m)| encode(m))
        .collect();
    let tags = [encode(&ControlMessage::Tag(1)), encode(&ControlMessage::Int32(2))].concat();
    let bye = encode(&ControlMessage::Bye);
    let ping = encode(&ControlMessage::Ping(3));
    let big = encode(&ControlMessage::Struct(&[9; 700]));
    let attach_ack = encode(&ControlMessage::AttachAck);
    let promising = encode(&ControlMessage::Hello(Hello { proves: true, ..theirs }));
    let (right, wrong) = (Proof([3; 32]), Proof([4; 32]));
    let challenge = |proof| encode(&ControlMessage::Challenge(Challenge { proof, ..CHALLENGE }));
    let answer = |proof| encode(&ControlMessage::Proof(proof));
    let (asked, shown) = (challenge(right), answer(right));
    let (lied, guessed) = (challenge(wrong), answer(wrong));
    let mut newer = first.clone();
    newer[13] = 9;
    let streams: [(&str, u8, Vec<Part<'_>>); 29] = [
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
        ("prove", 0, vec![Hear(&promising), Hear(&shown), Hear(&tags)]),
        ("prove_wrongly", 0, vec![Hear(&promising), Hear(&guessed), Hear(&tags)]),
        ("prove_never", 0, vec![Hear(&promising), Do(0, 101)]),
        ("dial_proven", 5, vec![Hear(&asked), Hear(&welcome), Hear(&tags)]),
        ("dial_liar", 5, vec![Hear(&lied), Hear(&welcome)]),
        ("dial_unproven", 5, vec![Hear(&welcome)]),
        ("dial_asked_twice", 5, vec![Hear(&asked), Hear(&asked)]),
        ("dial_attach", 4, vec![Hear(&attach_ack), Hear(&tags)]),
    ];
    streams
        .into_iter()
        .map(|(name, role, parts)| Seed::plain("control_stream", name, script(role, &parts)))
        .collect()
}

/// Every message in every state in which a peer can say it. The stored table of the protocol says which
/// may not come.
pub(crate) fn states() -> Vec<Seed> {
    let list = endpoints();
    let theirs = Hello { job: 5, expected: Some(Rank(1)), proves: false, ..hello(&list) };
    let first = encode(&ControlMessage::Hello(theirs));
    let promising = encode(&ControlMessage::Hello(Hello { proves: true, ..theirs }));
    let v1 = encode(&ControlMessage::HelloV1 { rank: Rank(3) });
    let bye = encode(&ControlMessage::Bye);
    let states: [(&str, u8, Vec<Part<'_>>); 9] = [
        ("AwaitHello", 0, vec![]),
        ("AwaitProof", 0, vec![Hear(&promising)]),
        ("AwaitChallenge", 5, vec![]),
        ("AwaitWelcome", 2, vec![]),
        ("AwaitAttachAck", 4, vec![]),
        ("Ready", 0, vec![Hear(&first)]),
        ("ReadyCxx", 1, vec![Hear(&v1)]),
        ("Draining", 0, vec![Hear(&first), Do(1, 200)]),
        ("Leaving", 0, vec![Hear(&first), Hear(&bye)]),
    ];
    let table = include_str!("../ctrl_table.txt");
    let mut seeds = Vec::new();
    for (state, role, prelude) in states {
        for kind in ControlKind::all() {
            let m = samples(&list).into_iter().find(|(_, m)| m.kind() == kind).unwrap().1;
            let m = match m {
                ControlMessage::Hello(_) => ControlMessage::Hello(theirs),
                ControlMessage::Welcome(w) => {
                    ControlMessage::Welcome(Welcome { hello: theirs, ..w })
                }
                other => other,
            };
            let mut bytes = script(role, &prelude);
            bytes.extend_from_slice(&script(0, &[Hear(&encode(&m))])[1..]);
            let name = format!("{state}_{kind:?}").to_lowercase();
            let refused = table.lines().any(|l| l == format!("{state} {kind:?} -"));
            seeds.push(if refused {
                let want = format!("UnexpectedMessage {{ state: {state}, got: {kind:?} }}");
                Seed::bad("control_stream", name, bytes, &want)
            } else {
                Seed::plain("control_stream", name, bytes)
            });
        }
    }
    seeds
}

/// A script of a handshake: what the two want, who changes what, and the bytes to write.
fn handshake(head: [u8; HEAD], bytes: &[u8]) -> Vec<u8> {
    [&head[..], bytes].concat()
}

/// Rank 258 dials rank 7 in job 5; both beat every 500 ms; two endpoints of 9 bytes.
const CALL: [u8; HEAD] = [2, 1, 5, 1, 9, 50, 128, 0, 3, 2, 9, 5, 50, 0, 0, 0, 0, 0];

/// Handshakes: what the ends want, and every field of HELLO and WELCOME changed on the way.
pub(crate) fn handshakes() -> Vec<Seed> {
    const T: &str = "handshake";
    let with = |at: usize, v: u8| {
        let mut head = CALL;
        head[at] = v;
        handshake(head, &[])
    };
    let mut seeds = vec![
        Seed::plain(T, "good", handshake(CALL, &[])),
        // Found by fuzzing: a dialer without a wish is answered as if it were somebody else.
        Seed::plain(
            T,
            "answer_to_another",
            b"\x02\x01\0\0\0\0\0\0\0\x07=\0\0\0\x32\x01\x02\x02\x01\x02\0\0f\x09\0\0\x8e\0=\0\0\0\x32\x01\0\0\x09".to_vec(),
        ),
        Seed::plain(T, "any_rank", with(3, 0)),
        Seed::plain(T, "silent_dialer", with(5, 0)),
        Seed::plain(T, "silent_acceptor", with(12, 0)),
        Seed::plain(T, "fast", with(5, 1)),
        Seed::plain(T, "no_endpoints", with(9, 0)),
        Seed::plain(T, "many_endpoints", with(9, 8)),
        Seed::plain(T, "wide_endpoints", with(10, 255)),
        Seed::bad(T, "duplicate", with(13, 3), "Refused(Duplicate)"),
        Seed::bad(T, "wrong_job", with(11, 6), "Refused(WrongJob)"),
        Seed::bad(T, "wrong_rank", with(3, 2), "Refused(WrongRank { ours: Rank(7) })"),
        Seed::bad(T, "bad_rank", with(1, 16), "Refused(BadRank { limit: 4096 })"),
        Seed::bad(T, "bad_slots", with(7, 5), "\"slots\""),
    ];
    // Offset behind byte 9, the new bytes, what the two answer.
    let fields: [(&str, u8, &[u8], &str, &str); 19] = [
        ("magic", 0, b"HMC3", "Magic", "Magic"),
        ("version_0", 4, &[0, 0], "Refused(Version { ours: 2 })", "Version { theirs: 0 }"),
        ("version_1", 4, &[1, 0], "Refused(Version { ours: 2 })", "Version { theirs: 1 }"),
        ("version_3", 4, &[3, 0], "Refused(Version { ours: 2 })", "Version { theirs: 3 }"),
        ("mandatory", 6, &[1, 0], "Refused(Mandatory { unknown: 1 })", "Mandatory { unknown: 1 }"),
        ("mandatory_all", 6, &[255, 255], "Refused(Mandatory", "Mandatory { unknown: 65535 }"),
        ("rank_4096", 12, &[0, 16, 0, 0], "Refused(BadRank", "\"rank\""),
        ("rank_max", 12, &[255; 4], "Refused(BadRank", "\"rank\""),
        ("job", 16, &[6], "Refused(WrongJob)", "WrongJob"),
        ("job_high", 23, &[1], "Refused(WrongJob)", "WrongJob"),
        ("expected_other", 48, &[9, 0, 0, 0], "Refused(WrongRank", ""),
        ("expected_4096", 48, &[0, 16, 0, 0], "\"expected rank\"", "\"expected rank\""),
        ("slots_1025", 52, &[1, 4], "\"slots\"", "\"slots\""),
        ("endpoints_9", 54, &[9], "\"endpoints\"", "\"endpoints\""),
        ("endpoints_1", 54, &[1], "Trailing", "Trailing"),
        ("endpoints_3", 54, &[3], "Truncated", "Truncated"),
        ("reserved", 55, &[1], "\"reserved\"", "\"reserved\""),
        ("proof_2", 106, &[2], "\"proof\"", "\"proof\""),
        ("spare", 111, &[1], "\"reserved\"", "\"reserved\""),
    ];
    for (which, word) in [(1u8, "hello"), (2, "welcome")] {
        let change = |how: u8, at: u8, bytes: &[u8]| {
            let mut head = CALL;
            (head[14], head[15], head[16]) = (which, how, at);
            handshake(head, bytes)
        };
        for (name, at, bytes, hello, welcome) in fields {
            let want = if which == 1 { hello } else { welcome };
            let (name, bytes) = (format!("{word}_{name}"), change(1, at, bytes));
            seeds.push(if want.is_empty() {
                Seed::plain(T, name, bytes)
            } else {
                Seed::bad(T, name, bytes, want)
            });
        }
        for at in [0, 3, 4, 5, 6, 40, 111, 112, 122, 123, 134] {
            seeds.push(Seed::bad(T, format!("{word}_cut_{at}"), change(2, at, &[]), "Truncated"));
        }
        seeds.push(Seed::bad(T, format!("{word}_long"), change(3, 0, &[0]), "Trailing"));
        seeds.push(Seed::bad(T, format!("{word}_far"), change(3, 0, &[0; 500]), "TooLong"));
    }
    seeds
}

/// Both ends prove themselves, and somebody tries to be believed without the secret.
pub(crate) fn proofs() -> Vec<Seed> {
    const T: &str = "proof";
    let of = |head: [u8; PROOF_HEAD], bytes: &[u8]| [&head[..], bytes].concat();
    let mut seeds = vec![
        Seed::plain(T, "good", of([7, 7, 0, 0, 0, 0], &[])),
        Seed::bad(T, "other_secret", of([7, 8, 0, 0, 0, 0], &[]), "dialer Violation(Unproven)"),
        Seed::bad(T, "hello_back", of([7, 7, 2, 2, 0, 0], &[]), "got: Hello }"),
        Seed::bad(T, "challenge_back", of([7, 7, 3, 2, 0, 0], &[]), "got: Challenge }"),
        Seed::plain(T, "features", of([7, 7, 1, 1, 9, 0], &[0])),
    ];
    let early = encode(&ControlMessage::Proof(Proof([0; 32])));
    for (name, which) in [("early_proof", 1), ("proof_for_challenge", 2)] {
        seeds.push(Seed::bad(T, name, of([7, 7, which, 3, 0, 0], &early), "got: Proof }"));
    }
    seeds.push(Seed::bad(
        T,
        "guess",
        of([7, 7, 3, 3, 0, 0], &early),
        "acceptor Violation(Unproven)",
    ));
    // The fields that a proof covers, from the kind of the message.
    for (name, at) in [("rank", 13), ("incarnation", 25), ("nonce", 40), ("port", 105), ("ip", 90)]
    {
        let bytes = of([7, 7, 1, 0, at, 0], &[1]);
        seeds.push(Seed::bad(T, format!("hello_{name}"), bytes, "dialer Violation(Unproven)"));
    }
    for at in [5, 20, 21, 40, 52] {
        let bytes = of([7, 7, 2, 0, at, 0], &[1]);
        seeds.push(Seed::bad(T, format!("challenge_{at}"), bytes, "dialer Violation(Unproven)"));
    }
    for at in [1, 16, 32] {
        let bytes = of([7, 7, 3, 0, at, 0], &[1]);
        seeds.push(Seed::bad(T, format!("proof_{at}"), bytes, "acceptor Violation(Unproven)"));
    }
    seeds
}

/// Streams of a peer of the C++ HMC, in chunks of 16 bytes.
pub(crate) fn cxx_protocol() -> Vec<Seed> {
    const T: &str = "cxx_protocol";
    let hello = encode(&ControlMessage::HelloV1 { rank: Rank(3) });
    let int = encode(&ControlMessage::Int32(-5));
    let tag = encode(&ControlMessage::Tag(77));
    let wide = encode(&ControlMessage::Tag(u64::MAX));
    let record = encode(&ControlMessage::Struct(b"a record of the user"));
    let say = |frames: &[&[u8]]| [&[15][..], &frames.concat()].concat();
    let mut seeds = vec![
        Seed::plain(T, "talk", say(&[&hello, &int, &tag, &wide, &record])),
        Seed::plain(T, "hello", say(&[&hello])),
        Seed::plain(T, "empty_record", say(&[&hello, &encode(&ControlMessage::Struct(b"")), &int])),
        Seed::plain(T, "half", say(&[&hello, &record[..9]])),
        Seed::bad(T, "twice", say(&[&hello, &int, &hello]), "got: HelloV1"),
        Seed::bad(T, "int_first", say(&[&int]), "state: AwaitHello, got: Int32"),
        Seed::bad(T, "tag_first", say(&[&tag]), "state: AwaitHello, got: Tag"),
        Seed::bad(T, "record_first", say(&[&record]), "state: AwaitHello, got: Struct"),
        Seed::bad(T, "text", say(&[b"GET / HTTP/1.1\r\n\r\n"]), "at: 0, kind: UnknownType"),
        Seed::bad(T, "rank_refused", say(&[&patched(&hello, 8, 4, 101)]), "Rejected"),
    ];
    // The classes of errors are written as events.
    let at = |s: &str| {
        s.split_once(' ').map_or(s.to_owned(), |(at, kind)| format!("at: {at}, kind: {kind}"))
    };
    let mut bad = |name: String, bytes: Vec<u8>, want: &str| {
        seeds.push(Seed::bad(T, name, bytes, &at(want)));
    };
    for len in [0, 1, 3, 5, 8, 512] {
        let frame = resized([&hello[..8], &vec![1; len]].concat());
        bad(format!("hello_of_{len}"), say(&[&frame]), "4 Value");
    }
    for len in [0, 1, 2, 3, 5, 6, 7, 9, 16] {
        let frame = resized([&int[..8], &vec![1; len]].concat());
        bad(format!("int_of_{len}"), say(&[&hello, &frame]), "4 Value");
    }
    for ty in [0, 3, 4, 0x0100, 0xFFFF] {
        bad(format!("type_{ty:x}"), say(&[&hello, &patched(&int, 0, 2, ty)]), "0 UnknownType");
        bad(format!("type_{ty:x}_first"), say(&[&patched(&hello, 0, 2, ty)]), "0 UnknownType");
    }
    for flags in [1, 2, 0x4000, 0x8000, 0xC000] {
        let frame = patched(&int, 2, 2, flags);
        bad(format!("int_flags_{flags:x}"), say(&[&hello, &frame]), "2 UnknownFlags");
    }
    for flags in [1, 0x4000, 0x8001, 0xFFFF] {
        let frame = patched(&record, 2, 2, flags);
        bad(format!("record_flags_{flags:x}"), say(&[&hello, &frame]), "2 UnknownFlags");
    }
    for len in [(1 << 20) + 1, 1 << 31, 0xFFFF_FFFF] {
        let frame = patched(&record, 4, 4, len);
        bad(format!("record_len_{len:x}"), say(&[&hello, &frame]), "4 TooLong");
    }
    for len in [513, 1 << 20, 0xFFFF_FFFF] {
        let frame = patched(&record, 4, 4, len);
        bad(format!("first_len_{len:x}"), say(&[&frame]), "4 TooLong");
    }
    let list = endpoints();
    for (name, m) in samples(&list).iter().filter(|(n, _)| ["ping", "bye", "revoke"].contains(n)) {
        let want = format!("state: ReadyCxx, got: {:?}", m.kind());
        seeds.push(Seed::bad(T, format!("native_{name}"), say(&[&hello, &encode(m)]), &want));
    }
    seeds
}
