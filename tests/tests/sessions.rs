//! Sessions as a whole: their end, their progress, and that two of them in one process share nothing.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may panic"
)]

use std::time::{Duration, Instant};

use hmc_std::address::Address;
use hmc_std::{
    ConnType, ErrorKind, Message, Op, Peer, Progress, Session,
    want::{self, Wanted},
};
use hmc_testkit::buffers::{BufferTransfers as _, wait};
use hmc_tests::actor::Actor;
use hmc_tests::env::{TempDir, Via, bound, status_of, until};

const ACTOR: &str = env!("CARGO_BIN_EXE_actor");
const LONG: Duration = Duration::from_secs(20);
const MIB: u64 = 1 << 20;

fn server(dir: &TempDir, buffer: u64) -> Session {
    Session::builder(1).uds(dir.path()).tcp("127.0.0.1:0").buffer(buffer).start().unwrap()
}

fn client(dir: &TempDir, rank: u32, buffer: u64, via: Via) -> (Session, Peer) {
    let s = Session::builder(rank).buffer(buffer).start().unwrap();
    let peer = s.connect(&dir.address()).rank(1).over(via.conn()).within(LONG).wait().unwrap();
    (s, peer)
}

/// Shutdown waits for what was posted: every byte arrives, and the other end sees no death.
#[test]
fn an_orderly_shutdown_finishes_what_was_posted() {
    for via in Via::all() {
        let dir = TempDir::new();
        let target = server(&dir, 64 * MIB);
        let (source, peer) = client(&dir, 0, 64 * MIB, via);
        source.buffer().fill(0, 64 * MIB, 0x3D).unwrap();
        let op = peer.start_put_at(0, 0, 64 * MIB).unwrap();
        peer.send(Message::Tag(8)).wait().unwrap();
        let crc = source.buffer().crc32c(0, 64 * MIB).unwrap();
        let start = Instant::now();
        source.shutdown().within(LONG).wait().expect("in order");
        assert!(start.elapsed() < bound(Duration::from_secs(3)), "{via:?}: {:?}", start.elapsed());
        assert_eq!(target.buffer().crc32c(0, 64 * MIB).unwrap(), crc, "{via:?}");
        let from = target.peer(0).unwrap();
        assert_eq!(
            from.recv(Wanted::Any).within(LONG).wait().unwrap(),
            hmc_std::Message::Tag(8),
            "{via:?}"
        );
        until("the peer has gone", LONG, || {
            (!target.peer(0).is_ok_and(|p| p.is_connected())).then_some(())
        });
        assert_eq!(target.stats().peers_lost, 0, "{via:?}: a goodbye is no loss");
        let e = from.put_at(0, 0, 8).expect_err("gone");
        assert!(matches!(e.kind(), ErrorKind::Closed | ErrorKind::PeerDead), "{e}");
        // The result is there for whoever asks late.
        assert!(matches!(wait(op), Ok(n) if n == 64 * MIB), "{via:?}");
        // And the rank may come again.
        let (_s, again) = client(&dir, 0, 4096, via);
        again.put_at(0, 0, 4096).unwrap();
    }
}

/// Drop does not block for long, ends every operation and wakes every waiter, here and there.
#[test]
fn drop_with_operations_in_flight_ends_them() {
    for via in Via::all() {
        let dir = TempDir::new();
        let path = dir.path().display();
        let mut actor =
            Actor::session(ACTOR, &format!("rank=1 uds={path} tcp=127.0.0.1:0 buffer=67108864"));
        let (source, peer) = client(&dir, 0, 64 * MIB, via);
        actor.request("meet 0 20000");
        actor.stop();
        let ops: Vec<Op> = (0..4).map(|_| peer.start_put_at(0, 0, 64 * MIB).unwrap()).collect();
        let waiter = {
            let peer = peer.clone();
            std::thread::spawn(move || peer.recv(Wanted::Any).within(LONG).wait())
        };
        let start = Instant::now();
        drop(source);
        let took = start.elapsed();
        assert!(took < bound(Duration::from_secs(1)), "{via:?}: drop took {took:?}");
        for op in ops {
            match op.wait_for(LONG).ended().expect("it ends") {
                Ok(_) => assert_ne!(via, Via::Tcp, "a stopped peer cannot have taken them"),
                Err(e) => assert!(
                    matches!(e.kind(), ErrorKind::PeerDead | ErrorKind::Closed),
                    "{via:?}: {e}"
                ),
            }
        }
        assert!(waiter.join().unwrap().is_err());
        assert!(start.elapsed() < bound(Duration::from_secs(1)), "{via:?}: {:?}", start.elapsed());
        let e = peer.put_at(0, 0, 8).expect_err("dropped");
        assert!(matches!(e.kind(), ErrorKind::PeerDead | ErrorKind::Closed), "{e}");
        actor.resume();
        // The other end notices, and serves the next.
        let (_next, peer) = client(&dir, 5, 4096, via);
        peer.put_at(0, 0, 4096).unwrap();
    }
}

/// A program whose standard input ends drops its session in order.
#[test]
fn a_process_that_ends_in_order_is_no_loss() {
    for via in Via::all() {
        let dir = TempDir::new();
        let target = server(&dir, 4096);
        let mut actor = Actor::session(ACTOR, "rank=2 buffer=4096");
        let (path, name) = (dir.path().display(), via.conn().name());
        actor.request(&format!("connect 1 uds://{path} {name} 20000"));
        actor.request("put 1 0 0 4096");
        actor.request("end 5000");
        assert!(actor.dismiss().success());
        until("it has gone", LONG, || {
            (!target.peer(2).is_ok_and(|p| p.is_connected())).then_some(())
        });
        assert_eq!(target.stats().peers_lost, 0, "{via:?}");
    }
}

/// A peer with whom the link was ended can be connected again; the old handle stays over.
#[test]
fn disconnect_and_connect_again() {
    for via in Via::all() {
        let dir = TempDir::new();
        let target = server(&dir, 4096);
        let (source, first) = client(&dir, 0, 4096, via);
        for _ in 0..20 {
            let peer = source.peer(1).unwrap();
            peer.put_at(0, 0, 4096).unwrap();
            peer.disconnect().within(LONG).wait().unwrap();
            let e = peer.put_at(0, 0, 8).expect_err("over");
            assert!(matches!(e.kind(), ErrorKind::PeerDead | ErrorKind::Closed), "{e}");
            source.connect(&dir.address()).rank(1).over(via.conn()).within(LONG).wait().unwrap();
        }
        assert!(!first.is_connected());
        assert_eq!((source.stats().peers_lost, target.stats().peers_lost), (0, 0), "{via:?}");
    }
}

/// With `Progress::Manual` the bytes of a peer land in `progress()` and nowhere else, while
/// heartbeats go on.
/// A transport that was named is not replaced by the one of a connection that exists.
#[test]
fn a_named_transport_is_not_replaced_by_another() {
    let dir = TempDir::new();
    let _server = server(&dir, MIB);
    let (session, peer) = client(&dir, 0, MIB, Via::Shm);
    let again = |conn| session.connect(&dir.address()).rank(1).over(conn).within(LONG).wait();
    let e = again(ConnType::Tcp).expect_err("connected over shm");
    assert_eq!(e.kind(), ErrorKind::Unavailable);
    assert!(e.to_string().contains("already connected over shm"), "{e}");
    for conn in [ConnType::Auto, ConnType::Shm] {
        assert_eq!(again(conn).expect("it is there").explain().conn, Some(ConnType::Shm));
    }
    peer.disconnect().within(LONG).wait().expect("disconnected");
    assert_eq!(again(ConnType::Tcp).expect("a new connection").explain().conn, Some(ConnType::Tcp));
}

#[test]
fn manual_progress_moves_bytes_only_when_called() {
    let dir = TempDir::new();
    let path = dir.path().display();
    let mut actor = Actor::session(ACTOR, "rank=0 buffer=65536 deadline=20000");
    let target = Session::builder(1)
        .uds(dir.path())
        .tcp("127.0.0.1:0")
        .buffer(1 << 16)
        .progress(Progress::Manual)
        .start()
        .unwrap();
    actor.send(&format!("connect 1 uds://{path} tcp 20000"));
    let peer = target.accept(0).within(LONG).wait().unwrap();
    actor.answer().unwrap();
    actor.request("fill 0 65536 99");
    actor.send("put 1 0 0 65536");
    // Longer than a silent peer may live.
    let since = Instant::now();
    let mut seen = [0];
    until("4 s", LONG, || (since.elapsed().as_millis() > 4000).then_some(()));
    target.buffer().read_at(0, &mut seen).unwrap();
    assert_eq!(seen, [0], "a byte landed although nobody asked for progress");
    assert!(peer.is_connected(), "heartbeats do not need progress()");
    until("the put lands", LONG, || {
        target.progress();
        target.buffer().read_at(65535, &mut seen).unwrap();
        (seen[0] == 99).then_some(())
    });
    // Its acknowledgement goes out with the same calls.
    until("the put is acknowledged", LONG, || (!target.progress()).then_some(()));
    actor.answer().expect("the put is done");
    // Whoever waits drives, also here.
    peer.put_at(0, 0, 4096).unwrap();
    let op = peer.start_get_at(0, 0, 65536).unwrap();
    assert_eq!(wait(op).unwrap(), 65536);
    // Nothing ends without progress(). The waker runs on a thread of its own, so it may do so after the call.
    let woken = std::sync::Arc::new(Flag::default());
    let mut op = peer.start_put_at(0, 0, 65536).unwrap();
    if poll(&mut op, &woken).is_pending() {
        assert!(!woken.is_set(), "woken by nobody");
        until("the future wakes", LONG, || {
            target.progress();
            woken.is_set().then_some(())
        });
        assert!(poll(&mut op, &woken).is_ready());
    }
}

/// Another thread that waits for a message does not keep a put waiting until it looks up, after 50 ms.
#[test]
fn a_put_beside_a_receive_ends_with_its_completion() {
    let both = |via| [Progress::Thread, Progress::Manual].map(|progress| (via, progress));
    for (via, progress) in Via::all().into_iter().flat_map(both) {
        let dir = TempDir::new();
        let target = server(&dir, MIB);
        let source = Session::builder(0).buffer(MIB).progress(progress).start().unwrap();
        let peer =
            source.connect(&dir.address()).rank(1).over(via.conn()).within(LONG).wait().unwrap();
        let back = target.accept(0).within(LONG).wait().unwrap();
        let alone = time_of_put(&peer);
        let (begins, begun) = std::sync::mpsc::channel();
        let beside = std::thread::scope(|s| {
            let receives = s.spawn(|| {
                begins.send(()).unwrap();
                peer.recv(Wanted::Any).within(LONG).wait().unwrap()
            });
            begun.recv().unwrap();
            let beside = time_of_put(&peer);
            back.send(Message::Tag(5)).wait().unwrap();
            assert_eq!(receives.join().unwrap(), hmc_std::Message::Tag(5), "{via:?}");
            beside
        });
        println!("{via:?}, {progress:?}: {alone:?} alone, {beside:?} beside a receive");
        let longest = 2 * alone + bound(Duration::from_millis(15));
        assert!(beside < longest, "{via:?}, {progress:?}: {beside:?}, alone {alone:?}");
    }
}

/// The time of a put, in the median.
fn time_of_put(peer: &Peer) -> Duration {
    let mut times = [(); 31].map(|()| {
        let start = Instant::now();
        peer.put_at(0, 0, MIB / 16).unwrap();
        start.elapsed()
    });
    times.sort_unstable();
    times[15]
}

/// More operations than one poll can process complete with one acknowledgement: each of their futures wakes, although no
/// caller drives the session.
#[test]
fn every_future_of_a_crowd_wakes() {
    for via in Via::all() {
        let dir = TempDir::new();
        let target = server(&dir, 2 * MIB);
        let (source, peer) = client(&dir, 0, 2 * MIB, via);
        source.buffer().fill(0, 2 * MIB, 0x51).unwrap();
        // What is longer than one copy into mapped memory does not end in its first poll.
        let len = if via == Via::Shm { MIB + 8192 } else { 8192 };
        let remote = peer.buffer().unwrap();
        let put = |at| remote.put(at, source.buffer().range(at, len).unwrap());
        let mut futures: Vec<_> = (0..100)
            .map(|i| Box::pin(put(i * 8192).into_future()))
            .map(|future| (future, std::sync::Arc::new(Flag::default())))
            .collect();
        // Each is looked at once, and again only when it was woken itself.
        futures.retain_mut(|(f, flag)| poll(f, flag).map(Result::unwrap).is_pending());
        for (f, flag) in &mut futures {
            until("each future wakes", LONG, || flag.is_set().then_some(()));
            assert!(poll(f, flag).map(Result::unwrap).is_ready());
        }
        let crc = |s: &Session| s.buffer().crc32c(0, 100 * 8192).unwrap();
        assert_eq!(crc(&target), crc(&source), "{via:?}");
    }
}

fn poll<F: Future + Unpin>(f: &mut F, woken: &std::sync::Arc<Flag>) -> std::task::Poll<F::Output> {
    let waker = std::task::Waker::from(std::sync::Arc::clone(woken));
    std::pin::Pin::new(f).poll(&mut std::task::Context::from_waker(&waker))
}

#[derive(Default)]
struct Flag(std::sync::atomic::AtomicBool);

impl Flag {
    fn is_set(&self) -> bool {
        self.0.load(std::sync::atomic::Ordering::SeqCst)
    }
}

impl std::task::Wake for Flag {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.store(true, std::sync::atomic::Ordering::SeqCst);
    }
}

/// Two pairs of sessions with the same ranks in one process: neither sees anything of the other.
#[test]
fn two_sessions_in_one_process_share_nothing() {
    let (a, b) = (TempDir::new(), TempDir::new());
    let (server_a, server_b) = (server(&a, 4096), server(&b, 4096));
    let (client_a, to_a) = client(&a, 0, 4096, Via::Shm);
    let (client_b, to_b) = client(&b, 0, 4096, Via::Tcp);
    client_a.buffer().fill(0, 4096, 0xA).unwrap();
    client_b.buffer().fill(0, 4096, 0xB).unwrap();
    let ops = [&to_a, &to_b].map(|peer| peer.start_put_at(0, 0, 4096).unwrap());
    to_a.send(Message::Tag(1)).wait().unwrap();
    to_b.send(Message::Tag(2)).wait().unwrap();
    assert_eq!(server_b.recv(0, want::Tag).wait().map(|m| m.1).unwrap(), 2);
    assert_eq!(server_a.recv(0, want::Tag).wait().map(|m| m.1).unwrap(), 1);
    assert_eq!(ops.map(|op| wait(op).unwrap()), [4096; 2]);
    let mut byte = [0];
    for (s, want) in [(&server_a, 0xA), (&server_b, 0xB)] {
        s.buffer().read_at(4095, &mut byte).unwrap();
        assert_eq!(byte[0], want);
    }
    // Memory of one is nothing to a window of the other's peer.
    let region = server_b.memory().allocate(4096).unwrap();
    let peer = server_b.peer(0).unwrap();
    let _window =
        peer.expose(region.take_all().unwrap(), hmc_std::Access::all(), 4).map_err(|(e, _)| e);
    let of_b = to_b.window(4).within(LONG).wait().unwrap();
    let span = client_a.memory().allocate(4096).unwrap().take_all().unwrap();
    let failed = of_b.put(0, span).start().expect_err("memory of another session");
    assert_eq!(failed.kind(), ErrorKind::InvalidConfig, "{failed}");
    assert_eq!(failed.reclaim().wait().expect("it was never under way").len(), 4096);
    drop((client_a, server_a));
    to_b.put_at(0, 0, 4096).expect("the other pair lives");
}

/// 1,000 peers in one session: no thread for each, little memory, and the one that works is served.
#[test]
fn a_thousand_peers_need_no_threads() {
    const PROCESSES: u32 = 8;
    const EACH: u32 = 125;
    let dir = TempDir::new();
    let path = dir.path().display().to_string();
    let start = Instant::now();
    let mut hub = Actor::session(ACTOR, &format!("rank=0 uds={path} buffer=65536"));
    hub.request("files 100000");
    let one = client_of(&dir);
    let (threads, rss) = (status_of(hub.pid(), "Threads"), status_of(hub.pid(), "VmRSS"));
    let mut crowd: Vec<Actor> = (0..PROCESSES).map(|_| Actor::spawn(ACTOR)).collect();
    for n in 0..EACH {
        for (p, actor) in (0..PROCESSES).zip(&mut crowd) {
            let rank = 10 + p * EACH + n;
            if n == 0 {
                actor.request("files 100000");
            }
            actor.send(&format!("start rank={rank}"));
            actor.send(&format!("connect 0 uds://{path} shm 30000"));
        }
        for actor in &mut crowd {
            actor.answer().expect("started");
            actor.answer().expect("connected");
        }
    }
    // The last of them may still be opening at the hub's end.
    let all = (PROCESSES * EACH + 1).to_string();
    until("all are there", LONG, || (hub.request("peers") == all).then_some(()));
    let (threads_now, rss_now) = (status_of(hub.pid(), "Threads"), status_of(hub.pid(), "VmRSS"));
    for kind in ["RssAnon", "RssShmem"] {
        println!("peers_1000_{kind} {} KiB", status_of(hub.pid(), kind));
    }
    println!("peers_1000_connect {} ms", start.elapsed().as_millis());
    println!("peers_1000_threads {threads_now} (with one peer {threads})");
    println!("peers_1000_rss_per_peer {} KiB", (rss_now - rss) / 1000);
    assert!(threads_now <= threads + 2, "{threads_now} threads for a thousand peers");
    assert!((rss_now - rss) / 1000 <= 72, "{} KiB a peer", (rss_now - rss) / 1000);
    let (_s, peer) = &one;
    for _ in 0..1000 {
        peer.put_at(0, 0, 4096).unwrap();
    }
    // They stay connected: heartbeats of a thousand are kept.
    let since = Instant::now();
    until("4 s", LONG, || (since.elapsed().as_millis() > 4000).then_some(()));
    assert_eq!(hub.request("peers"), all, "some were lost");
    assert_eq!(hub.request("stats"), "0 0");
    assert!(start.elapsed() < bound(Duration::from_secs(60)), "{:?}", start.elapsed());
}

fn client_of(dir: &TempDir) -> (Session, Peer) {
    let s = Session::builder(5).buffer(65536).start().unwrap();
    let peer = s.connect(&dir.address()).rank(0).over(ConnType::Shm).within(LONG).wait().unwrap();
    (s, peer)
}

#[test]
fn explain_reports_a_slower_path() {
    for cma in [true, false] {
        let dir = TempDir::new();
        let target = Session::builder(1).uds(dir.path()).buffer(4096).start().unwrap();
        let source = Session::builder(0).buffer(4096).cma(cma).start().unwrap();
        let peer = source.connect(&dir.address()).rank(1).wait().unwrap();
        let told = peer.explain();
        assert_eq!(told.conn, Some(ConnType::Shm));
        assert_eq!(told.slower.is_empty(), cma, "{told}");
        let says = told.to_string().contains("slower: process_vm_readv(2) is switched off");
        assert_eq!(says, !cma, "{told}");
        drop(target);
    }
}

/// Who ends with a peer that does not answer says so each time, whichever of its threads finds that the time is over.
#[test]
fn a_bye_without_a_reply_is_reported() {
    const SESSIONS: u32 = 48;
    let actor = Actor::session(ACTOR, "rank=0 tcp=127.0.0.1:0 buffer=4096");
    let at = Address::Tcp(actor.tcp.unwrap());
    let sessions: Vec<_> = (1..=SESSIONS)
        .map(|rank| {
            let session = Session::builder(rank).buffer(4096).start().unwrap();
            session.connect(&at).rank(0).wait().unwrap();
            session
        })
        .collect();
    actor.stop();
    let results: Vec<_> = std::thread::scope(|scope| {
        let short = Duration::from_millis(400);
        let leave = |s: Session| scope.spawn(move || s.shutdown().within(short).wait());
        let leaving: Vec<_> = sessions.into_iter().map(leave).collect();
        leaving.into_iter().map(|t| t.join().unwrap()).collect()
    });
    actor.resume();
    let silent = results.iter().filter(|r| r.is_ok()).count();
    assert_eq!(silent, 0, "of {SESSIONS} sessions said nothing");
    for e in results.into_iter().filter_map(Result::err) {
        assert_eq!(e.kind(), ErrorKind::DeadlineExceeded, "{e}");
    }
}
