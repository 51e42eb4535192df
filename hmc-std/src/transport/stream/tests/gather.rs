//! Frames whose headers come before their payloads, out and in.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "tests may panic, and their numbers are small"
)]

use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

use hmc_core::region::{WindowDesc, WindowId, WindowSlice};
use hmc_core::slots::SlotId;
use hmc_core::transport::{
    DataCloseReason, DataPlane as _, Progress as _, Registration as _, Target as _, Transport as _,
};
use hmc_core::types::{Access, MemoryKind, Rank};
use hmc_core::window::WindowFault;
use hmc_core::wire::data::{DATA_FRAME_BYTES, DataFlags, DataFrame, DataKind};
use hmc_core::work::{CompleteWhen, Completion, Failure, Opcode, WorkRequest};

use super::super::{StreamDataPlane, StreamSetup};
use super::{Bench, asked, bytes, fill};
use crate::memory::{Region, RegionTable};
use crate::node::inbox::Inbox;

const PAGE: u64 = 4096;

/// What one send call may bring: the headers of `frames`, then their payloads.
fn gathered(frames: &[(DataFrame, u8)]) -> Vec<u8> {
    let mut all = DataFrame::gather(u64::try_from(frames.len()).expect("few")).emit().to_vec();
    frames.iter().for_each(|(frame, _)| all.extend(frame.emit()));
    for (frame, byte) in frames {
        all.resize(all.len() + usize::try_from(frame.len).expect("small"), *byte);
    }
    all
}

#[test]
fn puts_and_replies_from_where_they_lie_share_a_call_where_the_peer_understands_it() {
    let (gather, write, data) = (DataKind::Gather, DataKind::Write, DataKind::ReadData);
    for gathers in [true, false] {
        let mut bench = Bench::new(false, true, 16);
        bench.plane.gathers = gathers;
        let (page, small) = (bench.region(PAGE), bench.region(2048));
        let long = bench.region((256 << 10) + 1);
        for (index, region) in [&small, &page, &page, &page, &long, &page].into_iter().enumerate() {
            let index = u16::try_from(index).expect("small");
            bench.submit(index, Opcode::Put, region, false);
        }
        let frames = bench.kinds();
        let gather_of = |kind, seqs: &[u32]| {
            let head = gathers.then_some((gather, 0));
            head.into_iter().chain(seqs.iter().map(|seq| (kind, *seq))).collect::<Vec<_>>()
        };
        let alone = |seq| vec![(write, seq)];
        let want = [alone(0), gather_of(write, &[1, 2, 3]), alone(4), alone(5)].concat();
        assert_eq!(frames, want, "{gathers}");
        let window = bench.window(&page);
        for seq in 0..3 {
            bench.send(&asked(DataKind::Read, seq, &window, PAGE), &[]);
        }
        bench.plane.poll_peer(true);
        let frames = bench.frames();
        let kinds: Vec<_> = frames.iter().map(|f| (f.kind, f.seq)).collect();
        let each = |seq| vec![(data, seq); 2];
        let want = match gathers {
            true => [gather_of(data, &[0, 1, 2]), vec![(data, 0), (data, 1), (data, 2)]].concat(),
            false => [each(0), each(1), each(2)].concat(),
        };
        assert_eq!(kinds, want);
        let whole: Vec<_> = frames.iter().filter(|f| f.flags == DataFlags::LAST).collect();
        assert!(whole.len() == 3 && whole.iter().all(|f| f.len == 0), "{whole:?}");
    }
}

/// An acknowledgement waits behind 1 MiB at most.
#[test]
fn a_gathered_call_has_one_mebibyte() {
    let mut bench = Bench::new(false, true, 16);
    bench.plane.gathers = true;
    let region = bench.region(200 << 10);
    for index in 0..6 {
        bench.submit(index, Opcode::Put, &region, false);
    }
    let frames = bench.frames();
    assert_eq!(frames.first().map(DataFrame::emit), Some(DataFrame::gather(5).emit()));
    let seqs: Vec<_> = frames.iter().skip(1).map(|f| (f.kind, f.seq)).collect();
    assert_eq!(seqs, (0..6).map(|seq| (DataKind::Write, seq)).collect::<Vec<_>>());
}

/// One end, and the window over all of its memory.
fn end(socket: UnixStream) -> (StreamDataPlane, Region, WindowDesc) {
    socket.set_nonblocking(true).expect("a socket");
    let mut plane = StreamDataPlane::new(StreamSetup {
        socket: Arc::new(OwnedFd::from(socket).into()),
        peer: Rank(1),
        local: false,
        near: false,
        pid: None,
        cma: false,
        batched_acks: true,
        generations: true,
        gathers: true,
        windows: 1,
        inbox: Arc::new(Mutex::new(Inbox::new(1, 1))),
    });
    let region = Arc::new(RegionTable::default()).allocate(8 << 20).expect("memory");
    plane.add_memory(&region);
    let whole = region.slice(0, region.len()).expect("all of it");
    let window = plane.windows().expose(whole, MemoryKind::Cpu, Access::all(), 7).expect("a place");
    (plane, region, window)
}

/// Puts and gets of random lengths, many in flight in both directions, over a socket that takes a part of a call.
#[test]
fn what_is_gathered_arrives_where_it_belongs() {
    let mut seed = 7_u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    for opcode in [Opcode::Put, Opcode::Get] {
        let (a, b) = UnixStream::pair().expect("a pair");
        let (mut near, source, _) = end(a);
        let (mut far, sink, window) = end(b);
        let pattern: Vec<u8> = (0..8 << 20).map(|i: u64| (i * 7 + i / 251) as u8).collect();
        let (from, to) = if opcode == Opcode::Put { (&source, &sink) } else { (&sink, &source) };
        from.bytes().write_at(from.local().extent.whole(), &pattern).expect("in range");
        let mut want = vec![0; 8 << 20];
        let (mut at, mut due, mut done) = (0, 0, 0);
        while at < 7 << 20 {
            let longest = [100, PAGE, 3 * PAGE, 300_000][random(4) as usize];
            let len = 1 + random(longest);
            // Not the same place at the two ends.
            let (here, there) = (at, at + random(100));
            let (from, to) = if opcode == Opcode::Put { (here, there) } else { (there, here) };
            let [from, to, n] = [from, to, len].map(|n| n as usize);
            want[to..to + n].copy_from_slice(&pattern[from..from + n]);
            let local = source.slice(here, len).expect("in range");
            let span = window.slice(there, len).expect("in range").span;
            let remote =
                WindowSlice { window: window.window, epoch: window.epoch, span, expected: None };
            let op = SlotId { index: 1, generation: 1 };
            let when = CompleteWhen::Visible;
            let work = WorkRequest { op, opcode, when, local, remote };
            while near.post(&work).is_err() {
                done += drive(&mut near, &mut far);
            }
            (due, at) = (due + 1, at + len + 100);
        }
        for _ in 0..10_000 {
            done += drive(&mut near, &mut far);
        }
        assert_eq!((done, near.close_reason(), far.close_reason()), (due, None, None));
        assert!(bytes(to) == want, "{opcode:?}");
    }
}

/// Lets both ends go on. Returns how many operations of `near` have ended well.
fn drive(near: &mut StreamDataPlane, far: &mut StreamDataPlane) -> usize {
    near.flush();
    far.poll_peer(true);
    near.poll_peer(true);
    let op = SlotId { index: u16::MAX, generation: 1 };
    let mut out = [Completion { op, result: Err(Failure::Cancelled) }; 64];
    let n = near.poll(&mut out);
    assert!(out[..n].iter().all(|c| c.result.is_ok()), "{out:?}");
    n
}

/// One that is arriving, one that has not begun, and one of another window.
#[test]
fn gathered_puts_into_a_window_that_is_taken_back_are_refused_each_by_itself() {
    let mut bench = Bench::new(false, true, 16);
    let (region, other) = (bench.region(4 * PAGE), bench.region(PAGE));
    let (window, stays) = (bench.window(&region), bench.window(&other));
    let put = |seq, page| {
        let offset = u64::from(seq) * PAGE;
        (DataFrame { offset, ..asked(DataKind::Write, seq, &window, PAGE) }, page)
    };
    let elsewhere = (asked(DataKind::Write, 3, &stays, PAGE), 4);
    let all = gathered(&[put(0, 1), put(1, 2), put(2, 3), elsewhere]);
    let half = 5 * DATA_FRAME_BYTES + 6000;
    (&bench.peer).write_all(&all[..half]).expect("space");
    bench.plane.poll_peer(true);
    bench.plane.revoke(window.window, window.epoch).expect("it is exposed");
    (&bench.peer).write_all(&all[half..]).expect("space");
    bench.plane.poll_peer(true);
    let revoked = Failure::Window(WindowFault::Revoked);
    let refused = |seq| DataFrame::nack(seq, revoked);
    let want = [DataFrame::ack(0, 1), refused(1), refused(2), DataFrame::ack(3, 1)];
    let mut sent = bench.frames();
    sent.sort_by_key(|f| f.seq);
    assert_eq!(sent, want);
    let mut there = vec![1; 4096];
    there.resize(6000, 2);
    there.resize(4 * 4096, 0);
    assert!(bytes(&region) == there);
    assert!(bytes(&other) == [4; 4096]);
}

/// The place of an answer that nobody waits for any more, before its payload has come.
#[test]
fn a_gathered_answer_that_was_let_go_goes_nowhere() {
    let mut bench = Bench::new(false, true, 16);
    let regions = [bench.region(PAGE), bench.region(PAGE)];
    for (index, region) in regions.iter().enumerate() {
        fill(region, 9);
        bench.submit(u16::try_from(index).expect("small"), Opcode::Get, region, false);
    }
    bench.plane.flush();
    let answer = |seq, byte| {
        let mut frame = DataFrame::new(DataKind::ReadData, seq);
        (frame.len, frame.total, frame.flags) = (4096, PAGE, DataFlags::LAST);
        (frame, byte)
    };
    let all = gathered(&[answer(0, 1), answer(1, 2)]);
    let half = 3 * DATA_FRAME_BYTES + 100;
    (&bench.peer).write_all(&all[..half]).expect("space");
    bench.plane.poll_peer(true);
    bench.plane.cancel(SlotId { index: 1, generation: 1 });
    (&bench.peer).write_all(&all[half..]).expect("space");
    bench.plane.poll_peer(true);
    assert_eq!(bench.poll(), [(0, Ok(PAGE))]);
    assert_eq!([bytes(&regions[0])[0], bytes(&regions[1])[4095]], [1, 9]);
}

#[test]
fn only_whole_puts_without_tags_and_answers_are_gathered() {
    let kind = "a gathered frame of another kind";
    let put = |bench: &mut Bench| {
        let region = bench.region(PAGE);
        asked(DataKind::Write, 1, &bench.window(&region), PAGE)
    };
    type Spoil = fn(DataFrame) -> DataFrame;
    let cases: [(Spoil, &str); 6] = [
        (|f| DataFrame { flags: DataFlags::all(), ..f }, kind),
        (|f| DataFrame { flags: DataFlags::empty(), ..f }, kind),
        (|f| DataFrame { total: f.total + 1, ..f }, kind),
        (|f| DataFrame { kind: DataKind::Read, flags: DataFlags::empty(), len: 0, ..f }, kind),
        (|_| DataFrame::gather(1), kind),
        (
            |f| DataFrame { kind: DataKind::ReadData, offset: 0, ..f },
            "an answer that nobody asked for",
        ),
    ];
    for (spoil, why) in cases {
        let mut bench = Bench::new(false, true, 16);
        let good = put(&mut bench);
        (&bench.peer).write_all(&gathered(&[(good, 1), (spoil(good), 1)])).expect("space");
        bench.plane.poll_peer(true);
        assert_eq!(bench.plane.close_reason(), Some(DataCloseReason::Protocol(why)));
    }
    // In the middle of a put of several frames.
    let mut bench = Bench::new(false, true, 16);
    let good = put(&mut bench);
    bench.send(&DataFrame { len: 1, flags: DataFlags::empty(), ..good }, &[1]);
    (&bench.peer).write_all(&gathered(&[(DataFrame { seq: 2, ..good }, 1)])).expect("space");
    bench.plane.poll_peer(true);
    let why = "a put in the middle of another";
    assert_eq!(bench.plane.close_reason(), Some(DataCloseReason::Protocol(why)));
}

/// As many are under way as both ends have agreed to.
#[test]
fn more_requests_are_under_way_where_both_ends_understand_it() {
    let (a, b) = UnixStream::pair().expect("a pair");
    let (mut near, source, _) = end(a);
    let (mut far, _, window) = end(b);
    for opcode in [Opcode::Get, Opcode::Put] {
        let local = source.slice(0, PAGE).expect("in range");
        let span = window.slice(0, PAGE).expect("in range").span;
        let remote =
            WindowSlice { window: window.window, epoch: window.epoch, span, expected: None };
        let (op, when) = (SlotId { index: 1, generation: 1 }, CompleteWhen::Visible);
        let work = WorkRequest { op, opcode, when, local, remote };
        for n in 0..1008 {
            assert_eq!(near.post(&work), Ok(()), "{opcode:?} {n}");
        }
        assert!(near.post(&work).is_err());
        let done: usize = (0..1000).map(|_| drive(&mut near, &mut far)).sum();
        assert_eq!((done, far.close_reason()), (1008, None), "{opcode:?}");
    }
}

/// Whatever lies in the pages from then on stays here, and each get has one answer.
#[test]
fn gathered_answers_from_a_window_that_is_taken_back_send_zeros() {
    let mut bench = Bench::new(false, true, 16);
    bench.plane.gathers = true;
    let region = bench.region(256 << 10);
    fill(&region, 3);
    let window = bench.window(&region);
    for seq in 0..4 {
        bench.send(&asked(DataKind::Read, seq, &window, 256 << 10), &[]);
    }
    bench.plane.poll_peer(true);
    bench.plane.flush();
    assert!(!bench.plane.tx.bodies.is_empty(), "the socket takes a part");
    bench.plane.revoke(window.window, window.epoch).expect("it is exposed");
    fill(&region, 5);
    let mut sent = Vec::new();
    let mut chunk = vec![0; 1 << 20];
    while let Ok(n @ 1..) = (&bench.peer).read(&mut chunk) {
        sent.extend_from_slice(&chunk[..n]);
        bench.plane.flush();
    }
    let (heads, payload) = sent.split_at(5 * DATA_FRAME_BYTES);
    assert_eq!(heads[..DATA_FRAME_BYTES], DataFrame::gather(4).emit());
    let (payload, last) = payload.split_at(1 << 20);
    let before = payload.iter().take_while(|byte| **byte == 3).count();
    assert!(before < 1 << 20 && payload[before..].iter().all(|byte| *byte == 0), "{before}");
    let last: Vec<_> = last.chunks_exact(DATA_FRAME_BYTES).map(<[u8]>::to_vec).collect();
    let revoked = Failure::Window(WindowFault::Revoked);
    assert_eq!(last, (0..4).map(|seq| DataFrame::nack(seq, revoked).emit()).collect::<Vec<_>>());
}

/// A put of no window between two others, over a socket that passes descriptors, too.
#[test]
fn a_gathered_put_that_is_refused_leaves_its_neighbours_alone() {
    for local in [false, true] {
        // The headers come together, or cut in two.
        for cut in [0, DATA_FRAME_BYTES + 7, 4 * DATA_FRAME_BYTES + 5000] {
            let mut bench = Bench::new(local, true, 16);
            let region = bench.region(2 * PAGE);
            let window = bench.window(&region);
            let put =
                |seq, offset| DataFrame { offset, ..asked(DataKind::Write, seq, &window, PAGE) };
            let none = DataFrame { window: WindowId::new(5, 0xBAD << 16), ..put(1, 0) };
            let all = gathered(&[(put(0, 0), 1), (none, 2), (put(2, PAGE), 3)]);
            for part in [&all[..cut], &all[cut..]] {
                (&bench.peer).write_all(part).expect("space");
                bench.plane.poll_peer(true);
            }
            let unknown = DataFrame::nack(1, Failure::Window(WindowFault::Unknown));
            let mut sent = bench.frames();
            sent.sort_by_key(|f| f.seq);
            assert_eq!(
                sent,
                [DataFrame::ack(0, 1), unknown, DataFrame::ack(2, 1)],
                "{local} {cut}"
            );
            let mut there = vec![1; 4096];
            there.resize(2 * 4096, 3);
            assert!(bytes(&region) == there, "{local} {cut}");
            assert_eq!(bench.plane.close_reason(), None);
        }
    }
}

/// As many headers as one call may have fit into the shorter buffer of a local socket.
#[test]
fn the_longest_gather_comes_over_a_local_socket() {
    let mut bench = Bench::local();
    let region = bench.region(PAGE);
    let window = bench.window(&region);
    let put = |seq| {
        let offset = u64::from(seq) * 32;
        (DataFrame { offset, ..asked(DataKind::Write, seq, &window, 32) }, 1 + seq as u8)
    };
    let all = gathered(&(0..63).map(put).collect::<Vec<_>>());
    for half in all.chunks(all.len() / 2 + 1) {
        (&bench.peer).write_all(half).expect("space");
        bench.plane.poll_peer(true);
    }
    let acked: u64 = bench.frames().iter().map(|f| f.total).sum();
    assert_eq!((acked, bench.plane.close_reason()), (63, None));
    let there = bytes(&region);
    assert!((0..63).all(|n| there[n * 32..][..32] == [n as u8 + 1; 32]));
}
