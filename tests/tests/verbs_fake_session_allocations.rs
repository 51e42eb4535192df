//! Operations of sessions over RDMA verbs allocate nothing. One test only: the allocator counts for the whole program, the session's
//! thread and the fake library included.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may panic"
)]

use std::time::Duration;

use hmc_std::{ConnType, Session, wait_any};
use hmc_testkit::buffers::{BufferTransfers as _, Copy, Direction, wait};
use hmc_tests::counting::Counting;
use hmc_tests::env::TempDir;
use hmc_tests::fake_ibv::{FakeIbv, run_ignored};

#[global_allocator]
static ALLOCATOR: Counting = Counting::new();

const LONG: Duration = Duration::from_secs(20);
const BUFFER: u64 = 5 << 20;

#[test]
fn sessions_over_the_fake_library_allocate_nothing() {
    run_ignored();
}

fn measured(what: &str, rounds: u32, mut op: impl FnMut()) {
    (0..100.min(rounds)).for_each(|_| op());
    // What was never in flight together before costs the fake library space, once.
    let counts = [0; 5].map(|_| {
        let before = ALLOCATOR.count_of_test();
        (0..rounds).for_each(|_| op());
        ALLOCATOR.count_of_test() - before
    });
    println!("{rounds} times `{what}`: {counts:?} allocations");
    assert!(counts.contains(&0), "{rounds} times `{what}`: {counts:?} allocations");
}

#[test]
#[ignore = "`sessions_over_the_fake_library_allocate_nothing` runs it as a process"]
fn the_data_path_allocates_nothing() {
    let Some(fake) = FakeIbv::take_for_sessions() else { return };
    let dir = TempDir::new();
    let target = Session::builder(1).uds(dir.path()).buffer(BUFFER).start().unwrap();
    let source = Session::builder(0).buffer(BUFFER).start().unwrap();
    let peer =
        source.connect(&dir.address()).rank(1).over(ConnType::Rdma).within(LONG).wait().unwrap();
    let copies: Vec<_> = (0..1024_u64)
        .map(|n| Copy { local_offset: n * 4096, remote_offset: n * 4096, len: 4096 })
        .collect();
    let list = peer.prepare_at(Direction::Put, &copies).unwrap();
    measured("put", 2000, || peer.put_at(0, 64, 64).unwrap());
    measured("get", 2000, || peer.get_at(0, 64, 4096).unwrap());
    measured("a put and a get that are started, and waits", 1000, || {
        let (a, b) =
            (peer.start_put_at(0, 0, 300).unwrap(), peer.start_get_at(4096, 4096, 70_000).unwrap());
        wait(b).unwrap();
        wait(a).unwrap();
    });
    measured("a put and a get that are started, and wait_any", 1000, || {
        let (a, b) =
            (peer.start_put_at(0, 0, 300).unwrap(), peer.start_get_at(4096, 4096, 70_000).unwrap());
        let first = wait_any(&[&a, &b], LONG).unwrap().ended().unwrap();
        let (first, second) = if first == 0 { (a, b) } else { (b, a) };
        wait(first).unwrap();
        wait(second).unwrap();
    });
    measured("a put and a get of 5 MiB", 20, || {
        peer.put_at(0, 0, BUFFER).unwrap();
        peer.get_at(0, 0, BUFFER).unwrap();
    });
    measured("a list of 1024 puts of 4 KiB", 20, || list.run().unwrap());
    let counted = ["doorbells", "signalled", "unsignalled"];
    let before = counted.map(|what| fake.count(what));
    list.run().unwrap();
    let after = counted.map(|what| fake.count(what));
    let [doorbells, signalled, unsignalled] = [0, 1, 2].map(|n| after[n] - before[n]);
    println!("a list: {doorbells} doorbells, {signalled} signalled, {unsignalled} unsignalled");
    assert!(doorbells <= 16 && signalled <= 16, "{doorbells} doorbells, {signalled} signalled");
    drop((list, peer, source, target, dir));
    fake.await_clean();
}
