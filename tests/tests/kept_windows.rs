//! Messages into memory that the peer maps: its pages stay mapped for later messages, and no longer than somebody uses them. Over TCP,
//! where nothing is mapped, their window stays as long.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::sync::Mutex;
use std::time::Duration;

use hmc_std::memory::HeapBytes;
use hmc_std::{ConnType, Region};
use hmc_tests::env::until;
use hmc_tests::lent::Owner;
use hmc_tests::pair::{Pair, both, pattern};

const LONG: Duration = Duration::from_secs(30);
const LEN: u64 = 1 << 20;
/// Tests count the mappings of the whole process.
static ALONE: Mutex<()> = Mutex::new(());

/// Mappings of sessions in this process, which has both ends.
fn mappings() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains("memfd:hmc")).count()
}

fn exchange(p: &Pair, region: &Region, seed: u64) {
    let bytes = pattern(LEN, seed);
    // Not mapped by anybody.
    let source = p.sender().memory().register(HeapBytes::from(bytes.clone())).unwrap();
    let source = source.take_all().unwrap();
    let span = region.take_all().unwrap();
    let (sent, received) = both(
        seed.is_multiple_of(2),
        || p.a.send_data(source).within(LONG).wait(),
        || p.b.recv_data(span).within(LONG).wait(),
    );
    sent.unwrap();
    assert!(*received.unwrap().memory.as_slice() == bytes[..], "message {seed}");
}

/// Also memory that no peer could map.
#[test]
fn a_window_over_tcp_serves_messages_until_nobody_uses_its_memory() {
    let _alone = ALONE.lock();
    let p = Pair::new(ConnType::Tcp, 4096);
    let (owner, memory) = Owner::of(usize::try_from(LEN).unwrap(), 0);
    let region = p.receiver().memory().register(memory).unwrap();
    for seed in 0..20 {
        exchange(&p, &region, seed);
    }
    assert!(!owner.is_back());
    drop(region);
    until("it is back", LONG, || owner.is_back().then_some(()));
    assert_eq!(owner.changed(), 0);
}

#[test]
fn the_peer_maps_memory_once_and_until_nobody_uses_it() {
    let _alone = ALONE.lock();
    let p = Pair::new(ConnType::Shm, 4096);
    let before = mappings();
    let region = p.receiver().memory().allocate(LEN).unwrap();
    exchange(&p, &region, 0);
    until("the peer has the pages", LONG, || (mappings() == before + 2).then_some(()));
    for seed in 1..20 {
        exchange(&p, &region, seed);
        assert_eq!(mappings(), before + 2, "message {seed}");
    }
    drop(region);
    until("the peer has them no more", LONG, || (mappings() == before).then_some(()));
}

/// Mappings that are as long as half-buffers at least.
fn long_mappings() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let len = |line: &str| {
        let (from, to) = line.split(' ').next()?.split_once('-')?;
        let [from, to] = [from, to].map(|at| u64::from_str_radix(at, 16).unwrap());
        to.checked_sub(from)
    };
    let lines = maps.lines().filter(|line| line.contains("memfd:hmc"));
    lines.filter_map(len).filter(|len| *len >= LEN).count()
}

#[test]
fn a_peer_that_is_gone_holds_no_memory() {
    let _alone = ALONE.lock();
    let mut p = Pair::new(ConnType::Shm, 4096);
    let region = p.receiver().memory().allocate(LEN).unwrap();
    exchange(&p, &region, 0);
    // Half-buffers and bounce buffers.
    let (bytes, mut got) = (pattern(LEN, 1), pattern(LEN, 2));
    let (sent, received) = both(
        true,
        || p.a.send_data(&bytes).within(LONG).wait(),
        || p.b.recv_data(&mut got).within(LONG).wait(),
    );
    sent.unwrap();
    received.unwrap();
    assert!(got == bytes && long_mappings() > 2);
    // Links have ticks, in which they let go of what is only cached.
    drop(p.sessions.pop());
    until("it has left", LONG, || (!p.b.is_connected()).then_some(()));
    assert_eq!(region.take_all().unwrap().len(), LEN);
    drop(region);
    until("its memory is gone", LONG, || (long_mappings() == 0).then_some(()));
}
