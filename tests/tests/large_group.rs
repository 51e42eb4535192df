//! A large group on one host: processes that are all connected with each other.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may panic"
)]

use std::sync::Mutex;
use std::time::{Duration, Instant};

use hmc_tests::actor::Actor;
use hmc_tests::env::{TempDir, Via, count_of, cpu_of, number, status_of};

const ACTOR: &str = env!("CARGO_BIN_EXE_actor");
/// How long each step may take.
const LIMIT: Duration = Duration::from_secs(300);
/// One crowd at a time.
static ALONE: Mutex<()> = Mutex::new(());
/// More than the silence after which a peer is dead.
const IDLE_MS: u32 = 4000;

/// How many members meet: `HMC_TEST_MEMBERS`, or 200. A member is a process.
fn members() -> usize {
    number("HMC_TEST_MEMBERS", 200)
}

/// All of them do something at once, and succeed. Says how long it took.
fn all(actors: &mut [Actor], commands: &[String]) -> Duration {
    let start = Instant::now();
    for (actor, command) in actors.iter_mut().zip(commands) {
        actor.send(command);
    }
    let failed: Vec<_> = actors.iter_mut().filter_map(|a| a.answer_in(LIMIT).err()).collect();
    assert_eq!(failed.len(), 0, "{} of {}: {}", failed.len(), actors.len(), failed[0]);
    start.elapsed()
}

/// They connect with each other at once and pass a barrier, do nothing for longer than a peer may be silent, and pass
/// another one on the same links.
fn connect_all(via: Via, address: &str, at: impl Fn(&Actor) -> String) {
    let _alone = ALONE.lock();
    let count = members();
    let settings = |n| format!("rank={n} {address} buffer=4096 slots=1");
    let mut actors: Vec<_> = (0..count).map(|n| Actor::session(ACTOR, &settings(n))).collect();
    let before = status_of(actors[0].pid(), "VmRSS");
    let addresses: Vec<_> = actors.iter().map(at).collect();
    let limit = LIMIT.as_millis();
    let join: Vec<_> =
        (0..count).map(|n| format!("join {count} {limit} {}", addresses[..n].join(" "))).collect();
    let took = all(&mut actors, &join);
    let files =
        |actors: &[Actor]| -> Vec<_> { actors.iter().map(|a| count_of(a.pid(), "fd")).collect() };
    let (links, at_first) = (count - 1, files(&actors));
    let memory = status_of(actors[0].pid(), "VmRSS").saturating_sub(before) / links as u64;
    // Two connections each, and over shared memory the peer's page and its buffer too, which may go when they are mapped.
    let most = 32 + links * if via == Via::Shm { 4 } else { 2 };
    assert!(at_first.iter().all(|n| *n <= most), "more than {most} descriptors: {at_first:?}");

    let used = |actors: &[Actor]| actors.iter().map(|a| cpu_of(a.pid())).sum::<Duration>();
    let before = used(&actors);
    for (n, actor) in actors.iter_mut().enumerate() {
        actor.send(&format!("recv {} {IDLE_MS}", if n == 0 { 1 } else { 0 }));
    }
    for actor in &mut actors {
        let e = actor.answer_in(LIMIT).expect_err("nobody sends");
        assert!(e.starts_with("DeadlineExceeded"), "{via:?}: {e}");
    }
    let idle = used(&actors) - before;
    println!(
        "{via:?}: {count} members met after {took:?}; {memory} KiB and {} descriptors a link; idle for {IDLE_MS} ms they used \
         {idle:?} of processor time",
        at_first[0] / links
    );
    all(&mut actors, &join);
    assert_eq!(files(&actors), at_first, "descriptors before and after an idle time");
    for actor in &mut actors {
        assert_eq!(actor.request("stats"), "0 0", "peers lost, connections refused");
    }
}

#[test]
fn members_of_a_large_group_connect_over_tcp() {
    connect_all(Via::Tcp, "tcp=127.0.0.1:0", |actor| actor.address().to_string());
}

#[test]
fn members_of_a_large_group_connect_over_shm() {
    let dir = TempDir::new();
    let address = format!("uds={}", dir.path().display());
    connect_all(Via::Shm, &address, |_| dir.address().to_string());
}

/// A process without free descriptors reports that when it dials, and accepts no others: neither end mistakes the other for a
/// process of another user, although no descriptor is left to read the secret.
#[test]
fn used_up_descriptors_are_named() {
    // A link takes two: one is left, or none.
    for files in [24, 25] {
        let mut crowded = Actor::spawn(ACTOR);
        crowded.request(&format!("files {files}"));
        let at = crowded.request("start rank=0 tcp=127.0.0.1:0 buffer=4096");
        let start = |n| Actor::session(ACTOR, &format!("rank={n} tcp=127.0.0.1:0 buffer=4096"));
        let mut others: Vec<_> = (1..12).map(start).collect();
        for actor in &mut others {
            actor.send(&format!("connect 0 {at} auto 2000"));
        }
        let failed: Vec<_> = others.iter_mut().filter_map(|a| a.answer().err()).collect();
        assert!(!failed.is_empty(), "{files} descriptors are enough for all");
        for e in &failed {
            // Where the secret is known already, it is refused in words.
            let refused = e.starts_with("Refused") && e.contains("cannot take another peer now");
            assert!(refused || e.starts_with("DeadlineExceeded") || e.starts_with("Busy"), "{e}");
        }
        // Who gave up may have left two.
        let last: Vec<_> = (50..54).map(start).collect();
        let dial = |(n, other): (u32, &Actor)| {
            crowded.try_request(&format!("connect {n} {} auto 1000", other.address())).err()
        };
        let e = (50..).zip(&last).find_map(dial).expect("none is left in the end");
        assert!(e.starts_with("SystemLimit") && e.contains("ulimit -n"), "{e}");
    }
}
