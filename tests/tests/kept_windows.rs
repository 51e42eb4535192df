//! Messages into memory that the peer maps: its pages stay mapped for later messages, and no longer than somebody uses them.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::time::Duration;

use hmc_std::memory::HeapBytes;
use hmc_std::{ConnType, Region};
use hmc_tests::env::until;
use hmc_tests::pair::{Pair, both, pattern};

const LONG: Duration = Duration::from_secs(30);
const LEN: u64 = 1 << 20;

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

#[test]
fn the_peer_maps_memory_once_and_until_nobody_uses_it() {
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
