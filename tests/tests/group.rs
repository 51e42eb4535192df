//! Collectives over every transport, against plain models: what each member has at the end, whoever comes first.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::as_conversions,
    reason = "tests may panic"
)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hmc_sim::rng::Rng;
use hmc_std::memory::SharedBytes;
use hmc_std::{Element, ErrorKind, Exchange, Group, Message, Progress, Reduce, want};
use hmc_testkit::buffers::BufferTransfers as _;
use hmc_tests::env::{Via, seed};
use hmc_tests::group_fixture::GroupFixture;
use hmc_tests::pair::pattern;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Lengths at which something changes, and odd ones.
const LENGTHS: [usize; 14] = [
    0,
    1,
    7,
    8,
    100,
    4 * KIB,
    10_001,
    21 * KIB + 848,
    64 * KIB,
    64 * KIB + 24,
    MIB - 8,
    MIB,
    MIB + 40,
    3 * MIB + 333,
];

/// One collective, as all members know it.
#[derive(Clone, Copy, Debug)]
enum Step {
    Barrier,
    Broadcast { root: usize, len: usize },
    Gather { root: usize, len: usize },
    Scatter { root: usize, len: usize },
    Allgather { len: usize },
    Alltoall { len: usize, how: Exchange },
    Alltoallv { most: usize },
    ReduceScatter { element: Element, op: Reduce, count: usize },
    Allreduce { element: Element, op: Reduce, count: usize },
}

fn draw(rng: &mut Rng, members: usize) -> Step {
    let root = rng.below(members as u64) as usize;
    // Long ones are rare: they take long.
    let few = if rng.below(4) == 0 { LENGTHS.len() } else { 10 };
    let len = LENGTHS[rng.below(few as u64) as usize];
    let element = Element::ALL[rng.below(Element::ALL.len() as u64) as usize];
    let op = Reduce::ALL[rng.below(Reduce::ALL.len() as u64) as usize];
    let count = len / element.len_bytes();
    match rng.below(9) {
        0 => Step::Barrier,
        1 => Step::Broadcast { root, len },
        2 => Step::Gather { root, len },
        3 => Step::Scatter { root, len },
        4 => Step::Allgather { len },
        5 => {
            let how = [Exchange::Auto, Exchange::Direct, Exchange::Ring];
            Step::Alltoall { len, how: how[rng.below(3) as usize] }
        }
        6 => Step::Alltoallv { most: len },
        7 => Step::ReduceScatter { element, op, count },
        _ => Step::Allreduce { element, op, count },
    }
}

/// Numbers of which any reduction is exact in any order: few small whole ones; of products powers of two.
fn numbers(element: Element, op: Reduce, count: usize, salt: u64) -> Vec<u8> {
    let raw = pattern(count as u64, salt);
    let mut out = Vec::with_capacity(count * element.len_bytes());
    for byte in raw {
        let n = match op {
            Reduce::Prod => [1, 2, 1, 1][usize::from(byte >> 6)],
            _ => i16::from(byte >> 4),
        };
        out.extend_from_slice(&bytes_of(element, n));
    }
    out
}

/// A small whole number from 0 to 512, as an element.
fn bytes_of(element: Element, n: i16) -> Vec<u8> {
    let float = f32::from(n);
    match element {
        Element::I8 | Element::U8 => vec![n.to_le_bytes()[0]],
        Element::I16 | Element::U16 => n.to_ne_bytes().to_vec(),
        Element::I32 | Element::U32 => i32::from(n).to_ne_bytes().to_vec(),
        Element::I64 | Element::U64 => i64::from(n).to_ne_bytes().to_vec(),
        Element::F32 => float.to_ne_bytes().to_vec(),
        Element::F64 => f64::from(float).to_ne_bytes().to_vec(),
        Element::BF16 => ((float.to_bits() >> 16) as u16).to_ne_bytes().to_vec(),
        Element::F16 => {
            let bits = float.to_bits();
            let half =
                if n == 0 { 0 } else { (((bits >> 23) - 112) << 10 | bits >> 13 & 0x3FF) as u16 };
            half.to_ne_bytes().to_vec()
        }
        other => panic!("{other:?} is new here"),
    }
}

/// What the members' numbers come to, reckoned with whole numbers alone.
fn reduced(element: Element, op: Reduce, count: usize, salts: &[u64]) -> Vec<u8> {
    let value = |salt: &u64| -> Vec<i64> {
        let raw = pattern(count as u64, *salt);
        let number = |byte: u8| match op {
            Reduce::Prod => [1, 2, 1, 1][usize::from(byte >> 6)],
            _ => i64::from(byte >> 4),
        };
        raw.into_iter().map(number).collect()
    };
    let mut all = salts.iter().map(value);
    let mut sums = all.next().unwrap();
    for more in all {
        for (a, b) in sums.iter_mut().zip(more) {
            *a = match op {
                Reduce::Sum => *a + b,
                Reduce::Prod => *a * b,
                Reduce::Min => b.min(*a),
                _ => b.max(*a),
            };
        }
    }
    sums.into_iter().flat_map(|n| bytes_of(element, n as i16)).collect()
}

fn salt(step: usize, from: usize, to: usize) -> u64 {
    (step * 10_000 + from * 100 + to) as u64
}

/// Bytes of the part that member `from` has for `to`.
fn part_len(most: usize, step: usize, from: usize, to: usize) -> usize {
    if most == 0 { 0 } else { (from * 7919 + to * 104_729 + step * 31) % (most + 1) }
}

/// Does one step as one member and compares what it got with the model.
fn play(group: &Group, at: usize, step: Step) {
    let (n, me) = (group.len(), group.position());
    let told = format!("step {at}, {step:?}, number {me} of {n}");
    let bytes = |len: usize, from: usize, to: usize| pattern(len as u64, salt(at, from, to));
    let same = |got: &[u8], want: &[u8]| {
        if got != want {
            let first = got.iter().zip(want).position(|(a, b)| a != b);
            panic!("{told}: {} bytes differ from {} at {first:?}", got.len(), want.len());
        }
    };
    match step {
        Step::Barrier => group.barrier().wait().expect(&told),
        Step::Broadcast { root, len } => {
            let mut b = if me == root { bytes(len, root, 0) } else { vec![0xEE; len] };
            group.broadcast(root, &mut b).wait().expect(&told);
            same(&b, &bytes(len, root, 0));
        }
        Step::Gather { root, len } => {
            let mut recv = vec![0xEE; if me == root { len * n } else { 0 }];
            group.gather(root, &bytes(len, me, 0), &mut recv).wait().expect(&told);
            if me == root {
                same(&recv, &(0..n).flat_map(|from| bytes(len, from, 0)).collect::<Vec<_>>());
            }
        }
        Step::Scatter { root, len } => {
            let all: Vec<u8> = (0..n).flat_map(|to| bytes(len, root, to)).collect();
            let mut recv = vec![0xEE; len];
            let send = if me == root { &*all } else { &[] };
            group.scatter(root, send, &mut recv).wait().expect(&told);
            same(&recv, &bytes(len, root, me));
        }
        Step::Allgather { len } => {
            let mut recv = vec![0xEE; len * n];
            group.allgather(&bytes(len, me, 0), &mut recv).wait().expect(&told);
            same(&recv, &(0..n).flat_map(|from| bytes(len, from, 0)).collect::<Vec<_>>());
        }
        Step::Alltoall { len, how } => {
            let send: Vec<u8> = (0..n).flat_map(|to| bytes(len, me, to)).collect();
            let mut recv = vec![0xEE; len * n];
            group.alltoall(&send, &mut recv, how).wait().expect(&told);
            same(&recv, &(0..n).flat_map(|from| bytes(len, from, me)).collect::<Vec<_>>());
        }
        Step::Alltoallv { most } => {
            let part = |from, to| bytes(part_len(most, at, from, to), from, to);
            let send: Vec<Vec<u8>> = (0..n).map(|to| part(me, to)).collect();
            let mut recv: Vec<Vec<u8>> =
                (0..n).map(|from| vec![0xEE; part_len(most, at, from, me)]).collect();
            let send: Vec<&[u8]> = send.iter().map(|p| &**p).collect();
            let mut into: Vec<&mut [u8]> = recv.iter_mut().map(|p| &mut **p).collect();
            group.alltoallv(&send, &mut into).wait().expect(&told);
            for (from, got) in recv.iter().enumerate() {
                same(got, &part(from, me));
            }
        }
        Step::ReduceScatter { element, op, count } => {
            let send: Vec<u8> =
                (0..n).flat_map(|to| numbers(element, op, count, salt(at, me, to))).collect();
            let mut recv = vec![0xEE; count * element.len_bytes()];
            group.reduce_scatter(element, op, &send, &mut recv).wait().expect(&told);
            let salts: Vec<u64> = (0..n).map(|from| salt(at, from, me)).collect();
            same(&recv, &reduced(element, op, count, &salts));
        }
        Step::Allreduce { element, op, count } => {
            let mut b = numbers(element, op, count, salt(at, me, 0));
            group.allreduce(element, op, &mut b).wait().expect(&told);
            let salts: Vec<u64> = (0..n).map(|from| salt(at, from, 0)).collect();
            same(&b, &reduced(element, op, count, &salts));
        }
    }
}

/// Plays the same random steps as all members, each of which sometimes pauses.
fn play_random(members: &GroupFixture, seed: u64, steps: usize) {
    let ranks: Vec<u32> = {
        // Positions are not ranks.
        let mut ranks: Vec<u32> = (0..members.sessions.len() as u32).collect();
        let mut rng = Rng::new(seed ^ 0x5EED);
        for i in (1..ranks.len()).rev() {
            ranks.swap(i, rng.below(i as u64 + 1) as usize);
        }
        ranks
    };
    members.each_of(&ranks, |group| {
        let mut common = Rng::new(seed);
        let mut own = Rng::new(seed + 1 + group.position() as u64);
        for at in 0..steps {
            let step = draw(&mut common, group.len());
            // No order is promised by this; every order has to work.
            for _ in 0..[0, 0, 1, 50][own.below(4) as usize] {
                std::thread::yield_now();
            }
            play(group, at, step);
        }
    });
}

#[test]
fn random_collectives_agree_with_plain_models() {
    let seed = seed(1);
    for via in Via::all() {
        for count in 1..=8 {
            let members = GroupFixture::new(via, count);
            // Connecting has waits of its own.
            let before = members.overslept();
            play_random(&members, seed + u64::from(count), 30);
            let slept = members.overslept() - before;
            assert_eq!(slept, 0, "{via:?}, {count} members: a wake was missing");
        }
    }
}

#[test]
fn every_element_and_operation_in_every_length() {
    for via in Via::all() {
        let members = GroupFixture::new(via, 3);
        members.each(|group| {
            let mut at = 0;
            for element in Element::ALL {
                for op in Reduce::ALL {
                    for count in [0, 1, 5, 1000, 20_000] {
                        play(group, at, Step::Allreduce { element, op, count });
                        play(group, at + 1, Step::ReduceScatter { element, op, count });
                        at += 2;
                    }
                }
            }
        });
    }
}

#[test]
fn every_exchange_in_every_length() {
    for via in Via::all() {
        for (count, lengths) in [(2, &LENGTHS[..]), (3, &LENGTHS[..10]), (5, &LENGTHS[8..12])] {
            let members = GroupFixture::new(via, count);
            members.each(|group| {
                let mut at = 0;
                for len in lengths.iter().copied() {
                    for how in [Exchange::Direct, Exchange::Ring] {
                        play(group, at, Step::Alltoall { len, how });
                        at += 1;
                    }
                    for root in 0..group.len() {
                        play(group, at, Step::Broadcast { root, len });
                        at += 1;
                    }
                }
            });
        }
    }
}

#[test]
fn barriers_hold_until_all_have_come() {
    for count in [2, 3, 4, 7] {
        let members = GroupFixture::new(Via::Shm, count);
        let come = AtomicUsize::new(0);
        members.each(|group| {
            let mut own = Rng::new(group.position() as u64);
            for round in 1..=30 {
                for _ in 0..[0, 1, 30][own.below(3) as usize] {
                    std::thread::yield_now();
                }
                come.fetch_add(1, Ordering::SeqCst);
                group.barrier().wait().unwrap();
                let all = round * group.len();
                assert!(come.load(Ordering::SeqCst) >= all, "{count} members, round {round}");
            }
        });
    }
}

/// Vectors that do not fit into the memory that a reduction takes.
#[test]
fn long_vectors_are_reduced_piece_by_piece() {
    let members = GroupFixture::new(Via::Shm, 3);
    members.each(|group| {
        let (element, op) = (Element::I32, Reduce::Sum);
        play(group, 0, Step::ReduceScatter { element, op, count: 3 * MIB + 1 });
        play(group, 1, Step::Allreduce { element, op, count: 8 * MIB + 1 });
    });
}

/// More members than exchange all at once.
#[test]
fn ten_members() {
    let members = GroupFixture::new(Via::Shm, 10);
    play_random(&members, seed(100), 30);
    members.each(|group| {
        let (element, op) = (Element::F64, Reduce::Max);
        play(group, 0, Step::Alltoall { len: 100 * KIB, how: Exchange::Auto });
        play(group, 1, Step::Allgather { len: 100 * KIB });
        play(group, 2, Step::ReduceScatter { element, op, count: 20_000 });
        play(group, 3, Step::Allreduce { element, op, count: 200_001 });
        play(group, 4, Step::Alltoallv { most: 200 * KIB });
    });
}

/// Numbers with a fraction: the order is the one that the documents tell, and all have the same bits.
#[test]
fn sums_have_one_order_and_all_have_the_same_bits() {
    let members = GroupFixture::new(Via::Shm, 5);
    let number = |rank: usize, i: usize| {
        let bytes = pattern(4 * (i as u64 % 97 + 1), (rank * 1000 + i) as u64);
        let bits = u32::from_ne_bytes(bytes[bytes.len() - 4..].try_into().unwrap());
        // Between 1e-5 and 1e5 or so: sums depend on their order.
        f32::from_bits(bits & 0x07FF_FFFF | 0x3C00_0000)
    };
    for count in [1, 1000, 5003, 100_007] {
        let sums = members.each(|group| {
            let of_all: Vec<f32> = (0..count).map(|i| number(group.position(), i)).collect();
            let mut bytes: Vec<u8> = of_all.iter().flat_map(|f| f.to_ne_bytes()).collect();
            group.allreduce(Element::F32, Reduce::Sum, &mut bytes).wait().unwrap();
            bytes
        });
        let short = count * 4 * 4 <= 64 * KIB;
        let (each, more) = (count / 5, count % 5);
        let mut ends = vec![0];
        for i in 0..5 {
            ends.push(ends[i] + each + usize::from(i < more));
        }
        for i in 0..count {
            let owner = ends.iter().filter(|end| **end <= i).count() - 1;
            let order: Vec<usize> = if short {
                (0..5).collect()
            } else {
                (0..5).map(|back| (owner + 5 - back) % 5).collect()
            };
            let want = order[1..].iter().fold(number(order[0], i), |sum, r| sum + number(*r, i));
            for (rank, sum) in sums.iter().enumerate() {
                let got = f32::from_ne_bytes(sum[4 * i..4 * i + 4].try_into().unwrap());
                assert_eq!(got.to_bits(), want.to_bits(), "{count}: number {i} of rank {rank}");
            }
        }
    }
}

/// Sessions whose data planes only the application drives.
#[test]
fn members_without_a_background_thread() {
    for via in Via::all() {
        let members = GroupFixture::with(via, 3, |b| b.progress(Progress::Manual));
        play_random(&members, seed(200), 40);
    }
}

/// Who waits in a collective also serves peers that it exchanges nothing with, where nobody else does.
#[test]
fn a_waiting_member_serves_others_without_a_background_thread() {
    let brief = Duration::from_secs(10);
    let members = GroupFixture::with(Via::Tcp, 3, |b| b.progress(Progress::Manual).deadline(brief));
    let groups: Vec<Group> =
        members.sessions[..2].iter().map(|s| s.group(&[0, 1]).wait().unwrap()).collect();
    std::thread::scope(|s| {
        s.spawn(|| groups[0].barrier().wait().unwrap());
        let peer = members.sessions[2].peer(0).unwrap();
        peer.put_at(0, 0, 8).expect("the target waits in a barrier");
        groups[1].barrier().wait().unwrap();
    });
}

/// Groups of some of the ranks, one after the other, and beside the messages of others.
#[test]
fn groups_of_some_and_messages_of_others() {
    let members = GroupFixture::new(Via::Shm, 4);
    std::thread::scope(|s| {
        s.spawn(|| {
            members.each_of(&[3, 0], |group| {
                for at in 0..50 {
                    play(group, at, Step::Alltoall { len: 10_001, how: Exchange::Auto });
                }
            })
        });
        s.spawn(|| {
            members.each_of(&[1, 2], |group| {
                for at in 0..50 {
                    play(
                        group,
                        at,
                        Step::Allreduce { element: Element::U8, op: Reduce::Sum, count: 100_000 },
                    );
                }
            })
        });
        for tag in 0..50 {
            // A waiter of its own on a link of a group.
            members.sessions[0].peer(3).and_then(|p| p.send(Message::Tag(tag)).wait()).unwrap();
            assert_eq!(members.sessions[3].recv(0, want::Tag).wait().map(|m| m.1).unwrap(), tag);
            let bytes = pattern(50_000, tag);
            let mut out = vec![0; 50_000];
            s.spawn(|| {
                let mut out = vec![0; 50_000];
                let first = members.sessions[2].peer(0).unwrap();
                first.recv_data(&mut out).wait().map(|d| d.bytes).unwrap();
                first.send_data(&out).wait().unwrap();
            });
            let third = members.sessions[0].peer(2).unwrap();
            third.send_data(&bytes).wait().unwrap();
            third.recv_data(&mut out).wait().map(|d| d.bytes).unwrap();
            assert!(out == bytes);
        }
    });
    assert_eq!(members.overslept(), 0, "a wake was missing");
    // The same ranks in other orders.
    for ranks in [[0, 1, 2, 3], [2, 0, 3, 1]] {
        members.each_of(&ranks, |group| {
            assert_eq!(group.ranks(), ranks);
            play(group, 7, Step::Allgather { len: 77 });
        });
    }
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_moves() {
    let members = GroupFixture::with(Via::Shm, 2, |b| b.deadline(Duration::from_millis(300)));
    let kind = |e: hmc_std::Error| e.kind();
    let first = &members.sessions[0];
    assert_eq!(first.group(&[0, 1, 0]).wait().map_err(kind).unwrap_err(), ErrorKind::InvalidConfig);
    assert_eq!(first.group(&[1]).wait().map_err(kind).unwrap_err(), ErrorKind::InvalidConfig);
    assert_eq!(first.group(&[]).wait().map_err(kind).unwrap_err(), ErrorKind::InvalidConfig);
    let e = first.group(&[0, 1, 7]).wait().unwrap_err();
    assert_eq!((e.kind(), e.peer().map(|r| r.0)), (ErrorKind::DeadlineExceeded, Some(7)), "{e}");

    members.each(|group| {
        let (mut four, mut five) = ([0; 4], [0; 5]);
        let refused = Err(ErrorKind::InvalidConfig);
        assert_eq!(group.broadcast(2, &mut four).wait().map_err(kind), refused);
        let length = Err(ErrorKind::Length);
        assert_eq!(group.allgather(&[0; 2], &mut five).wait().map_err(kind), length);
        assert_eq!(group.alltoall(&[0; 5], &mut five, Exchange::Auto).wait().map_err(kind), length);
        assert_eq!(group.alltoall(&[0; 4], &mut five, Exchange::Auto).wait().map_err(kind), length);
        assert_eq!(group.alltoallv(&[&[0; 4]], &mut [&mut four]).wait().map_err(kind), length);
        let (u32s, sum) = (Element::U32, Reduce::Sum);
        assert_eq!(group.allreduce(u32s, sum, &mut five).wait().map_err(kind), length);
        let scattered = group.reduce_scatter(u32s, sum, &[0; 9], &mut four);
        assert_eq!(scattered.wait().map_err(kind), length);
        let e = group.gather(group.position(), &[0; 4], &mut five).wait().unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Length);
        assert!(e.to_string().contains("5 bytes") && e.to_string().contains("8, "), "{e}");
        let (send, recv) = (SharedBytes::of(&[1; 8]), SharedBytes::of_mut(&mut five).read_only());
        assert_eq!(group.broadcast_view(0, recv).wait().map_err(kind), refused);
        assert_eq!(group.gather_view(group.position(), send, recv).wait().map_err(kind), refused);
        assert_eq!(group.allreduce_view(Element::U8, sum, recv).wait().map_err(kind), refused);
        assert!(group.broken().is_none());
        // Nothing was begun: the next one works.
        play(group, 1, Step::Allgather { len: 3 });
    });
}
