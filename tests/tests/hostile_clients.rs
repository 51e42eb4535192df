//! Clients of a listener: silent, slow, malformed, oversized, mistaken, and very many. None of them harms the others.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may panic"
)]

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use hmc_core::limits::MAX_PENDING_CONNS;
use hmc_core::wire::reject::RejectReason;
use hmc_sim::rng::Rng;
use hmc_std::{Address, ConnType, ErrorKind, Session};
use hmc_testkit::buffers::BufferTransfers as _;
use hmc_tests::actor::Actor;
use hmc_tests::env::{TempDir, bound, files, seed, status_of, until};
use hmc_tests::listening::Listening as _;
use hmc_tests::raw_frames::{dial, hello, is_closed_after, read_reject, send_raw};

const ACTOR: &str = env!("CARGO_BIN_EXE_actor");
const LONG: Duration = Duration::from_secs(20);
/// A pending connection has 2 s for its HELLO.
const HELLO_BY: Duration = Duration::from_millis(2500);

fn serve(rank: u32) -> (Session, SocketAddr) {
    let s = Session::builder(rank).tcp("127.0.0.1:0").buffer(1 << 16).start().expect("a session");
    let at = s.tcp_addr().expect("it listens");
    (s, at)
}

/// A well-behaved session can still connect and move bytes.
fn assert_serves(at: SocketAddr, rank: u32, as_rank: u32) {
    let s = Session::builder(as_rank).buffer(1 << 16).start().expect("a session");
    let start = Instant::now();
    let peer = s.connect(&Address::Tcp(at)).rank(rank).wait().expect("connected");
    peer.put_at(0, 0, 4096).expect("a put");
    let took = start.elapsed();
    assert!(took < bound(Duration::from_secs(1)), "connecting took {took:?}");
}

#[test]
fn silent_and_slow_clients_delay_nobody_and_are_closed() {
    let (server, at) = serve(1);
    let start = Instant::now();
    let mut silent: Vec<_> = (0..8).map(|_| dial(at)).collect();
    let mut slow = dial(at);
    let words = hello(9, 0, 1);
    let sent = Instant::now();
    assert!(send_raw(&mut slow, &words[..1]));
    for n in 2..5 {
        assert_serves(at, 1, n);
    }
    // One byte at a time does not buy time.
    let mut next = 1;
    until("the slow one is sent away", bound(HELLO_BY), || {
        if sent.elapsed() > Duration::from_millis(300 * u64::try_from(next).unwrap()) {
            if !send_raw(&mut slow, &words[next..=next]) {
                return Some(());
            }
            next += 1;
        }
        (server.stats().strangers_refused >= 9).then_some(())
    });
    for s in &mut silent {
        assert!(is_closed_after(s), "a silent client was kept");
    }
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(1500), "sent away after only {took:?}");
    assert!(took < bound(HELLO_BY), "sent away after {took:?}");
    assert_serves(at, 1, 7);
}

#[test]
fn many_pending_connections_evict_one_another() {
    let mut actor = Actor::session(ACTOR, "rank=1 tcp=127.0.0.1:0 buffer=65536");
    let at = actor.tcp.unwrap();
    let places = MAX_PENDING_CONNS.min(files() / 4);
    let refused = |actor: &mut Actor| -> usize {
        let counts = actor.request("stats");
        counts.split(' ').next_back().unwrap().parse().unwrap()
    };
    let mut crowd: Vec<_> = (0..places + 100).map(|_| dial(at)).collect();
    until("the first hundred are sent away", LONG, || (refused(&mut actor) >= 100).then_some(()));
    for s in &mut crowd[..100] {
        assert!(is_closed_after(s));
    }
    assert_serves(at, 1, 2);
    drop(crowd);
    until("all of them are gone", LONG, || (refused(&mut actor) >= places + 100).then_some(()));
    assert_serves(at, 1, 3);
}

#[test]
fn garbage_is_refused_and_harms_nobody() {
    let (server, at) = serve(1);
    let friend = Session::builder(2).buffer(1 << 16).start().unwrap();
    let peer = friend.connect(&Address::Tcp(at)).rank(1).wait().unwrap();
    let mut rng = Rng::new(seed(11));
    for round in 0..150u64 {
        let mut s = dial(at);
        let len = usize::try_from(1 + rng.below(600)).unwrap();
        let mut bytes = rng.bytes(len);
        if round % 3 == 0 {
            // The beginning of a HELLO, then noise.
            let good = hello(9, 0, 1);
            let keep = usize::try_from(rng.below(24)).unwrap().min(len);
            bytes[..keep].copy_from_slice(&good[..keep]);
        }
        let _ = s.write_all(&bytes);
        let _ = s.shutdown(std::net::Shutdown::Write);
        assert!(is_closed_after(&mut s), "kept after {bytes:02x?}");
        peer.put_at(0, 0, 512).expect("the friend is not disturbed");
    }
    assert!(server.stats().strangers_refused >= 150);
    assert_eq!(server.peers().len(), 1, "nobody of them became a peer");
    assert_serves(at, 1, 3);
}

/// Eight bytes that claim 4 GiB, from a pending connection and from a peer: refused on the header alone.
#[test]
fn a_length_of_4_gib_costs_no_memory() {
    let mut actor = Actor::session(ACTOR, "rank=1 tcp=127.0.0.1:0 buffer=65536 upstream");
    let at = actor.tcp.unwrap();
    let mut claim = |kind: u8, flags: u8, peer: Option<u32>, sent: usize| {
        let mut s = dial(at);
        if let Some(rank) = peer {
            assert!(send_raw(&mut s, &hmc_core::wire::cxx::hello_v1(hmc_core::types::Rank(rank))));
            actor.request(&format!("meet {rank} 20000"));
        }
        let before = status_of(actor.pid(), "VmRSS");
        assert!(send_raw(&mut s, &[kind, 0, 0, flags, 0xFF, 0xFF, 0xFF, 0xFF]));
        for _ in 0..sent {
            if !send_raw(&mut s, &[0; 4096]) {
                break;
            }
        }
        assert!(is_closed_after(&mut s), "kept after a claim of 4 GiB");
        let after = status_of(actor.pid(), "VmRSS");
        (before, after)
    };
    // The first of each kind pays for code that was never touched before.
    for round in 0..4u32 {
        let cases = [
            ("a native client", claim(2, 0xC0, None, 0)),
            ("a client of the C++ HMC", claim(2, 0x80, None, 0)),
            ("an integer of a peer", claim(1, 0, Some(100 + 4 * round), 0)),
            ("a struct of a peer", claim(2, 0, Some(101 + 4 * round), 16)),
        ];
        for (who, (before, after)) in cases {
            let grown = after.saturating_sub(before);
            println!("rss_growth_of_4_gib_claim {grown} KiB ({who}, round {round})");
            assert!(round == 0 || grown <= 64, "{who} made the process grow by {grown} KiB");
        }
    }
    assert_serves(at, 1, 3);
}

/// A frame within the limit takes memory only as its bytes come.
#[test]
fn memory_grows_with_the_bytes_that_came() {
    let mut actor = Actor::session(ACTOR, "rank=1 tcp=127.0.0.1:0 upstream");
    let at = actor.tcp.unwrap();
    for round in 0..3u32 {
        let mut s = dial(at);
        assert!(send_raw(
            &mut s,
            &hmc_core::wire::cxx::hello_v1(hmc_core::types::Rank(10 + round))
        ));
        actor.request(&format!("meet {} 20000", 10 + round));
        let before = status_of(actor.pid(), "VmRSS");
        // A struct of 1 MiB of which only 4 KiB come.
        assert!(send_raw(&mut s, &[2, 0, 0, 0, 0, 0, 0x10, 0]));
        assert!(send_raw(&mut s, &[0; 4096]));
        actor.request("echo a turn");
        let after = status_of(actor.pid(), "VmRSS");
        let grown = after.saturating_sub(before);
        assert!(round == 0 || grown <= 64 + 4, "4 KiB made the process grow by {grown} KiB");
    }
}

#[test]
fn the_first_of_two_clients_with_one_rank_wins() {
    let dir = TempDir::new();
    let server =
        Session::builder(1).uds(dir.path()).tcp("127.0.0.1:0").buffer(4096).start().unwrap();
    let at = Address::Tcp(server.tcp_addr().unwrap());
    for (via, to) in [(ConnType::Shm, &dir.address()), (ConnType::Tcp, &at)] {
        let rank = if via == ConnType::Shm { 5 } else { 6 };
        let mut first = Actor::session(ACTOR, &format!("rank={rank} buffer=4096"));
        first.request(&format!("connect 1 {to} {} 20000", via.name()));
        let second = Session::builder(rank).buffer(4096).start().unwrap();
        let e = second.connect(to).rank(1).over(via).within(LONG).wait().expect_err("taken");
        assert_eq!(e.kind(), ErrorKind::DuplicateRank, "{e}");
        assert!(e.to_string().contains(&rank.to_string()), "{e}");
        first.request("put 1 0 0 100");
        assert!(server.peer(rank).is_ok_and(|p| p.is_connected()));
    }
    // And at the same time, many at once: exactly one.
    for round in 0..5 {
        let rank = 50 + round;
        let ends: Vec<_> = std::thread::scope(|scope| {
            let all: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        let s = Session::builder(rank).buffer(4096).start().unwrap();
                        let r = s.connect(&at).rank(1).wait().map(|p| p.is_connected());
                        (s, r)
                    })
                })
                .collect();
            all.into_iter().map(|t| t.join().unwrap()).collect()
        });
        let won = ends.iter().filter(|(_, r)| r.is_ok()).count();
        assert_eq!(won, 1, "round {round}: {:?}", ends.iter().map(|(_, r)| r).collect::<Vec<_>>());
        for e in ends.iter().filter_map(|(_, r)| r.as_ref().err()) {
            assert_eq!(e.kind(), ErrorKind::DuplicateRank, "{e}");
        }
    }
}

#[test]
fn clients_get_the_reason_of_their_refusal() {
    let server =
        Session::builder(1).tcp("127.0.0.1:0").job(77).buffer(4096).start().expect("a session");
    let at = server.tcp_addr().unwrap();
    let answer = |bytes: &[u8]| {
        let mut s = dial(at);
        assert!(send_raw(&mut s, bytes));
        let why = read_reject(&mut s);
        assert!(is_closed_after(&mut s));
        why
    };
    assert_eq!(answer(&hello(2, 78, 1)), Some(RejectReason::WrongJob));
    let wrong = answer(&hello(2, 77, 3));
    assert!(matches!(wrong, Some(RejectReason::WrongRank { ours }) if ours.0 == 1), "{wrong:?}");
    let same = answer(&hello(1, 77, 1));
    assert!(same.is_some(), "its own rank");
    let large = answer(&hello(5000, 77, 1));
    assert!(matches!(large, Some(RejectReason::BadRank { .. })), "{large:?}");
    // The version follows the header, the code and the magic.
    let mut other = hello(2, 77, 1);
    let magic = other.windows(4).position(|w| w == *b"HMC2").expect("a magic");
    other[magic + 4] = 0xEE;
    let version = answer(&other);
    assert!(matches!(version, Some(RejectReason::Version { ours: 2 })), "{version:?}");
    assert_eq!(server.stats().strangers_refused, 5);
}

#[test]
fn a_dialer_gets_the_reason_of_its_refusal() {
    let server = Session::builder(1).tcp("127.0.0.1:0").job(77).buffer(4096).start().unwrap();
    let at = Address::Tcp(server.tcp_addr().unwrap());
    let other_job = Session::builder(2).job(78).start().unwrap();
    let e = other_job.connect(&at).rank(1).wait().expect_err("another job");
    assert_eq!(e.kind(), ErrorKind::InvalidConfig, "{e}");
    assert!(e.to_string().contains("job"), "{e}");
    let ours = Session::builder(2).job(77).start().unwrap();
    let e = ours.connect(&at).rank(3).wait().expect_err("another rank");
    assert_eq!(e.kind(), ErrorKind::InvalidConfig, "{e}");
    assert!(e.to_string().contains('1') && e.to_string().contains("rank"), "{e}");
    let e = ours.connect(&at).rank(2).wait().expect_err("its own rank");
    assert_eq!(e.kind(), ErrorKind::InvalidConfig, "{e}");
    ours.connect(&at).rank(1).wait().expect("a mistake costs nothing");
    assert_eq!(Session::builder(4096).start().unwrap_err().kind(), ErrorKind::InvalidConfig);
    let far: Address = "tcp://192.0.2.1:9".parse().unwrap();
    let e = ours.connect(&far).rank(8).wait().expect_err("not loopback");
    assert_eq!(e.kind(), ErrorKind::NoCredentials, "{e}");
    assert!(e.to_string().contains("insecure"), "{e}");
    let e = Session::builder(9).tcp("0.0.0.0:0").start().expect_err("not loopback");
    assert_eq!(e.kind(), ErrorKind::NoCredentials, "{e}");
}

/// What a process of version 1 said first, as it was recorded; as bytes.
fn hello_of_version_1() -> Vec<u8> {
    let digits: Vec<char> = include_str!("../../hmc-core/tests/hello_of_version_1.txt")
        .chars()
        .filter(|c| !c.is_whitespace())
        .collect();
    let byte = |two: &[char]| u8::from_str_radix(&two.iter().collect::<String>(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

#[test]
fn a_process_of_version_1_is_refused_by_both_ends() {
    let server = Session::builder(0).tcp("127.0.0.1:0").buffer(4096).start().unwrap();
    let mut old = dial(server.tcp_addr().unwrap());
    assert!(send_raw(&mut old, &hello_of_version_1()));
    assert_eq!(read_reject(&mut old), Some(RejectReason::Version { ours: 2 }));
    assert!(is_closed_after(&mut old));
    // Its listener answered a later version so.
    let reject = hmc_core::wire::message::ControlMessage::Reject(RejectReason::Version { ours: 1 });
    let at = other_program(hmc_tests::raw_frames::frame(&reject).leak());
    let e = server.connect(&Address::Tcp(at)).rank(7).wait().expect_err("another version");
    assert_eq!(e.kind(), ErrorKind::Version, "{e}");
    assert!(e.to_string().contains("speaks version 1, this process version 2"), "{e}");
}

/// A program that says `words` to whoever comes, or nothing.
fn other_program(words: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for s in listener.incoming().take(4) {
            let mut s = s.unwrap();
            let _ = s.write_all(words);
            kept.push(s);
        }
    });
    at
}

#[test]
fn what_answers_a_dial_may_be_anything() {
    let s = Session::builder(2).start().unwrap();
    // Nobody: a port that was free a moment ago.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let e = s.connect(&Address::Tcp(free)).rank(1).wait().expect_err("nobody");
    assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
    assert!(e.to_string().contains(&free.to_string()), "{e}");
    let e = s.connect(&Address::Uds("/nowhere/at/all".into())).rank(1).wait().expect_err("nobody");
    assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
    // Another program.
    let web = other_program(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    let e = s.connect(&Address::Tcp(web)).rank(1).wait().expect_err("another program");
    assert_eq!(e.kind(), ErrorKind::Protocol, "{e}");
    // Somebody who says nothing: the caller's own deadline.
    let mute = other_program(b"");
    let start = Instant::now();
    let e = s
        .connect(&Address::Tcp(mute))
        .rank(1)
        .within(Duration::from_millis(300))
        .wait()
        .expect_err("silence");
    assert_eq!(e.kind(), ErrorKind::DeadlineExceeded, "{e}");
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(290) && took < bound(Duration::from_secs(1)), "{took:?}");
    // A later version.
    let reject = hmc_core::wire::message::ControlMessage::Reject(RejectReason::Version { ours: 9 });
    let later = other_program(hmc_tests::raw_frames::frame(&reject).leak());
    let e = s.connect(&Address::Tcp(later)).rank(1).wait().expect_err("another version");
    assert_eq!(e.kind(), ErrorKind::Version, "{e}");
    assert!(e.to_string().contains('9'), "{e}");
}

/// All descriptors are used: the listener pauses, links are not disturbed, and it accepts again later.
#[test]
fn used_up_descriptors_pause_the_listener_only() {
    let mut actor = Actor::session(ACTOR, "rank=1 tcp=127.0.0.1:0 buffer=65536");
    let at = actor.tcp.unwrap();
    let friend = Session::builder(2).buffer(1 << 16).start().unwrap();
    let peer = friend.connect(&Address::Tcp(at)).rank(1).wait().expect("before");
    let open = std::fs::read_dir(format!("/proc/{}/fd", actor.pid())).unwrap().count();
    // Where some are left, who says nothing makes way.
    actor.request(&format!("files {}", open + 4));
    let crowd: Vec<_> = (0..8).map(|_| dial(at)).collect();
    let early = Session::builder(4).buffer(1 << 16).start().unwrap();
    early
        .connect(&Address::Tcp(at))
        .rank(1)
        .wait()
        .expect("it speaks")
        .put_at(0, 0, 64)
        .expect("a put");
    drop((early, crowd));
    until("they are gone", LONG, || {
        let now = std::fs::read_dir(format!("/proc/{}/fd", actor.pid())).unwrap().count();
        (now <= open).then_some(())
    });
    actor.request(&format!("files {open}"));
    let crowd: Vec<_> = (0..8).map(|_| dial(at)).collect();
    let late = Session::builder(3).buffer(1 << 16).start().unwrap();
    let e = late
        .connect(&Address::Tcp(at))
        .rank(1)
        .within(Duration::from_millis(700))
        .wait()
        .expect_err("no descriptors");
    println!("while descriptors are used up: {e}");
    let start = Instant::now();
    for _ in 0..100 {
        peer.put_at(0, 0, 4096).expect("those inside are not disturbed");
    }
    assert!(start.elapsed() < bound(Duration::from_millis(500)), "{:?}", start.elapsed());
    // Not even a busy one: a pause is a pause.
    let before = cpu_ticks(actor.pid());
    let watched = Instant::now();
    until("a second passes", LONG, || (watched.elapsed().as_millis() > 1000).then_some(()));
    let used = cpu_ticks(actor.pid()) - before;
    assert!(used <= 20, "{used} ticks of CPU in a second with a full listener");
    actor.request("files 100000");
    drop(crowd);
    until("the listener is open again", LONG, || {
        late.connect(&Address::Tcp(at)).rank(1).wait().ok()
    })
    .put_at(0, 0, 64)
    .expect("a put");
}

/// Where no way to move bytes is left, the error of the last one says why shared memory was none.
#[test]
fn a_failed_dial_reports_why_it_is_not_shm() {
    let dir = TempDir::new();
    let mut actor =
        Actor::session(ACTOR, &format!("rank=1 uds={} buffer=4096", dir.path().display()));
    let count =
        |actor: &Actor| std::fs::read_dir(format!("/proc/{}/fd", actor.pid())).unwrap().count();
    let open = count(&actor);
    // Between descriptors for a link and none for its connections, its pages cannot be created.
    let told = (0..16).rev().find_map(|more| {
        actor.request(&format!("files {}", open + more));
        let s = Session::builder(2).buffer(4096).redial(false).start().unwrap();
        let dialed = s.connect(&dir.address()).rank(1).within(Duration::from_millis(500)).wait();
        drop(s);
        until("its link is over", LONG, || (count(&actor) <= open).then_some(()));
        dialed.err().map(|e| e.to_string()).filter(|e| e.contains("no tcp"))
    });
    let told = told.expect("the peer cannot make pages");
    assert!(told.contains("; no shm: ") && told.contains("cannot take another peer now"), "{told}");
}

/// Clock ticks (1/100 s) of CPU that a process used, of /proc/PID/stat.
fn cpu_ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, rest) = stat.rsplit_once(") ").unwrap();
    let fields: Vec<u64> = rest.split(' ').map(|f| f.parse().unwrap_or(0)).collect();
    // proc(5): utime and stime are fields 14 and 15, and `rest` begins with field 3.
    fields[11] + fields[12]
}

#[test]
fn not_enough_memory_for_a_region_is_an_error_before_it_is_taken() {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap();
    let available = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"));
    let kib: u64 = available.unwrap().split_whitespace().next().unwrap().parse().unwrap();
    let s = Session::builder(0).start().unwrap();
    for len in [(kib << 10) * 2, 1 << 46, u64::MAX, u64::MAX - 4095] {
        let before = status_of(std::process::id(), "VmRSS");
        let e = s.memory().allocate(len).expect_err("more than there is");
        assert_eq!(e.kind(), ErrorKind::NoSpace, "{len}: {e}");
        assert!(e.to_string().chars().any(|c| c.is_ascii_digit()), "it says how much: {e}");
        let grown = status_of(std::process::id(), "VmRSS").saturating_sub(before);
        assert!(grown < 16 << 10, "{grown} KiB were taken on the way");
        let e = Session::builder(1).buffer(len).start().expect_err("more than there is");
        assert_eq!(e.kind(), ErrorKind::NoSpace, "{len}: {e}");
    }
    s.memory().allocate(1 << 20).expect("a refusal costs nothing");
}
