//! Many who connect at once, and connections that say nothing beside them: everybody who speaks gets in, in time.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may panic"
)]

use hmc_testkit::buffers::BufferTransfers as _;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hmc_core::types::Incarnation;
use hmc_core::wire::advert::EndpointDesc;
use hmc_core::wire::hello::{EndpointList, Hello, LinkToken, Welcome};
use hmc_core::wire::message::ControlMessage;
use hmc_core::wire::reject::RejectReason;
use hmc_std::{Address, ConnType, Error, ErrorKind, Session};
use hmc_tests::actor::Actor;
use hmc_tests::attack::Context;
use hmc_tests::attack::many::{self, connect};
use hmc_tests::env::{TempDir, bound, count_of, cpu_of, files, status_of, until};
use hmc_tests::raw_frames::{
    dial, frame, hello, hello_of, hello_with, is_closed_after, read_frame, send_raw,
};

const ACTOR: &str = env!("CARGO_BIN_EXE_actor");
const LONG: Duration = Duration::from_secs(30);

#[test]
fn threads_that_connect_at_once_all_get_in() {
    many::at_once(&mut Context::rounds(ACTOR, 2)).expect_held();
}

#[test]
fn silent_connections_keep_nobody_out() {
    many::beside_the_silent(&mut Context::rounds(ACTOR, 3)).expect_held();
}

/// A server in a process of its own, so that its descriptors and its memory are not the test's.
fn server(more: &str) -> (Actor, SocketAddr) {
    many::server(ACTOR, more)
}

/// A connection that has said nothing, or half of its first words, takes a descriptor and nothing else.
#[test]
fn a_silent_connection_costs_its_descriptor() {
    let (server, at) = server("");
    let before = status_of(server.pid(), "VmRSS");
    let words = hello(9, 0, 0);
    let crowd: Vec<_> = (0..1000)
        .map(|n| {
            let mut s = dial(at);
            assert!(n % 2 == 0 || send_raw(&mut s, &words[..words.len() - 1]));
            s
        })
        .collect();
    until("they are there", LONG, || (count_of(server.pid(), "fd") >= 200).then_some(()));
    let grown = status_of(server.pid(), "VmRSS").saturating_sub(before);
    println!("{} connections that said nothing: {grown} KiB", crowd.len());
    assert!(grown < 600, "{grown} KiB for {} connections", crowd.len());
}

/// When places run out, the one goes that has been silent for longest.
#[test]
fn who_was_silent_for_longest_goes_first() {
    // Of few places, so that all of this takes far less than the two seconds that a first message may take.
    let mut server = Actor::spawn(ACTOR);
    server.request("files 256");
    let at: SocketAddr =
        server.request("start rank=0 tcp=127.0.0.1:0").parse().expect("it listens");
    let places = 256 / 4;
    let mut first = dial(at);
    // Half of its first words: it has not been silent since the others came.
    let words = hello(9, 0, 0);
    let mut begun = dial(at);
    let mut crowd: Vec<_> = (2..places).map(|_| dial(at)).collect();
    assert!(send_raw(&mut begun, &words[..8]));
    // A later connection is answered after these.
    let (mut later, mut answer) = (dial(at), [0; 8]);
    assert!(send_raw(&mut later, &hello(10, 0, 0)));
    later.read_exact(&mut answer).expect("an answer to its first words");
    let mut more: Vec<_> = (0..places / 2).map(|_| dial(at)).collect();
    assert!(is_closed_after(&mut first), "it was the oldest");
    assert!(is_closed_after(&mut crowd[places / 4]), "half as many have gone as have come");
    assert!(send_raw(&mut begun, &words[8..]), "it is still there");
    begun.read_exact(&mut answer).expect("an answer to its first words");
    more.last_mut().unwrap().set_nonblocking(true).unwrap();
    let e = more.last_mut().unwrap().read(&mut answer).expect_err("the latest was kept");
    assert_eq!(e.kind(), std::io::ErrorKind::WouldBlock);
    drop(crowd);
}

/// Thousands of connections from the address of honest peers, which are held open, while these connect.
#[test]
fn a_flood_delays_honest_peers_by_half_a_second_at_most() {
    let (_server, at) = server("");
    const FLOOD: usize = 10_000;
    let (opened, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (mut times, mut failed) = (Vec::new(), Vec::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut held = std::collections::VecDeque::new();
            // As many as a process may have beside the honest ones.
            let most = files() / 2;
            while opened.load(Ordering::Relaxed) < FLOOD || !over.load(Ordering::Relaxed) {
                held.push_back(dial(at));
                if held.len() > most {
                    held.pop_front();
                }
                opened.fetch_add(1, Ordering::Relaxed);
            }
        });
        let mut rank = 0;
        while opened.load(Ordering::Relaxed) < FLOOD || rank < 100 {
            rank += 1;
            match connect(&Address::Tcp(at), rank) {
                Ok(took) => times.push(took),
                Err(e) => failed.push(e),
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(failed.len(), 0, "honest peers were kept out: {:?}", failed.first());
    times.sort_unstable();
    let p99 = times[times.len() * 99 / 100];
    let (median, worst) = (times[times.len() / 2], times.last().unwrap());
    println!(
        "{} honest peers beside {} other connections: median {median:?}, p99 {p99:?}, worst {worst:?}",
        times.len(),
        opened.into_inner()
    );
    assert!(p99 <= bound(Duration::from_millis(500)), "p99 is {p99:?}");
}

/// A relay that hangs up on the first `refusals` connections and hands on the others.
fn moody_relay(to: SocketAddr, refusals: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for (n, near) in listener.incoming().enumerate() {
            let Ok(near) = near else { return };
            if n < refusals {
                // Unread bytes make this a reset, none an end of the stream.
                if n % 2 == 0 {
                    let _ = near.peek(&mut [0]);
                }
                continue;
            }
            let far = TcpStream::connect(to).unwrap();
            for (mut from, mut into) in [
                (near.try_clone().unwrap(), far.try_clone().unwrap()),
                (far.try_clone().unwrap(), near.try_clone().unwrap()),
            ] {
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut into);
                    let _ = into.shutdown(Shutdown::Both);
                });
            }
        }
    });
    at
}

#[test]
fn a_dialer_tries_again_until_its_deadline() {
    // A relay is not the endpoint that was asked for: both ends do without the proof that would tell.
    let (_server, at) = server("insecure_loopback=1");
    let session =
        |rank| Session::builder(rank).buffer(1 << 12).insecure_loopback().start().unwrap();
    let s = session(1);
    let relay = moody_relay(at, 5);
    let peer = s
        .connect(&Address::Tcp(relay))
        .rank(0)
        .over(ConnType::Tcp)
        .within(LONG)
        .wait()
        .expect("the 6th gets in");
    peer.put_at(0, 0, 64).expect("a put");
    // Whoever is asked for its rank too.
    let s = session(2);
    let relay = moody_relay(at, 3);
    let peer = s
        .connect(&Address::Tcp(relay))
        .over(ConnType::Tcp)
        .within(LONG)
        .wait()
        .expect("the 4th gets in");
    assert_eq!(peer.rank().0, 0);
    // One that always hangs up: until the deadline, and it says what happened.
    let relay = moody_relay(at, usize::MAX);
    let s = session(3);
    for any in [false, true] {
        let (relay, time) = (Address::Tcp(relay), Duration::from_millis(500));
        let start = Instant::now();
        let connected = if any {
            s.connect(&relay).over(ConnType::Tcp).within(time).wait()
        } else {
            s.connect(&relay).rank(0).over(ConnType::Tcp).within(time).wait()
        };
        let e = connected.expect_err("it hangs up");
        assert_eq!(e.kind(), ErrorKind::DeadlineExceeded, "{e}");
        assert!(e.to_string().contains("closed before an answer"), "{e}");
        let took = start.elapsed();
        assert!(took >= time && took < bound(Duration::from_secs(2)), "{took:?}");
    }
}

/// The next connection, and the control message that comes on it.
fn accept_first(listener: &TcpListener, then: impl FnOnce(ControlMessage<'_>)) -> TcpStream {
    listener.set_nonblocking(true).unwrap();
    let mut stream = until("a connection", LONG, || listener.accept().ok()).0;
    stream.set_nonblocking(false).unwrap();
    let (header, payload) = read_frame(&mut stream).unwrap();
    then(ControlMessage::parse(header, &payload).unwrap());
    stream
}

/// A dialer of the address, the first connection that it makes, welcomed, and its second one, which has said what it is.
fn dialer_at_its_second(
    listener: &TcpListener,
) -> (std::thread::JoinHandle<Error>, TcpStream, TcpStream) {
    let at = listener.local_addr().unwrap();
    let dialer = std::thread::spawn(move || {
        let s = Session::builder(1).buffer(1 << 12).insecure_loopback().start().unwrap();
        let connected =
            s.connect(&Address::Tcp(at)).rank(0).over(ConnType::Tcp).within(LONG).wait().map(drop);
        connected.expect_err("it is refused in the end")
    });
    let mut first = accept_first(listener, is_hello);
    let mut endpoints = EndpointList::new();
    endpoints.push(EndpointDesc::tcp(at.port()).blob()).unwrap();
    let hello = Hello { endpoints: endpoints.endpoints(), ..hello_of(0, 0, 1) };
    let welcome = Welcome { hello: Hello { expected: None, ..hello }, token: LinkToken([1; 16]) };
    first.write_all(&frame(&ControlMessage::Welcome(welcome))).unwrap();
    let second =
        accept_first(listener, |m| assert!(matches!(m, ControlMessage::Attach { .. }), "{m:?}"));
    (dialer, first, second)
}

fn is_hello(m: ControlMessage<'_>) {
    assert!(matches!(m, ControlMessage::Hello(_)), "{m:?}");
}

fn refuse(stream: &mut TcpStream, why: RejectReason) {
    stream.write_all(&frame(&ControlMessage::Reject(why))).unwrap();
}

/// A dialer that is stopped between its two connections for longer than its peer waits: the peer has ended the first connection,
/// and knows the token no more.
#[test]
fn a_dial_whose_first_connection_is_over_at_its_second_begins_again() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (dialer, first, mut second) = dialer_at_its_second(&listener);
    // Even if a child that another test makes has a copy of the descriptor.
    first.shutdown(Shutdown::Both).unwrap();
    refuse(&mut second, RejectReason::BadToken);
    let mut again = accept_first(&listener, is_hello);
    refuse(&mut again, RejectReason::WrongJob);
    assert_eq!(dialer.join().unwrap().kind(), ErrorKind::InvalidConfig, "the refusal of its HELLO");
}

/// The peer itself goes on: it is no matter of time.
#[test]
fn a_dial_whose_token_is_refused_ends() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (dialer, _first, mut second) = dialer_at_its_second(&listener);
    refuse(&mut second, RejectReason::BadToken);
    let e = dialer.join().unwrap();
    assert_eq!(e.kind(), ErrorKind::Refused, "{e}");
}

/// A process that was killed and started again says HELLO before its peer has seen that it ended: both wait in sockets, and the HELLO
/// came first.
#[test]
fn a_new_life_may_be_faster_than_the_end_of_the_old_one() {
    use std::os::unix::net::UnixStream;
    let dir = TempDir::new();
    let settings = format!("rank=1 uds={} buffer=4096", dir.path().display());
    let server = Actor::session(ACTOR, &settings);
    let dial = || UnixStream::connect(dir.path().join("hmc_ctrl_rank_1.sock")).unwrap();
    let answer = |s: &mut UnixStream| {
        let (header, payload) = read_frame(s).expect("an answer");
        let answer = ControlMessage::parse(header, &payload).unwrap();
        assert!(matches!(answer, ControlMessage::Welcome(_)), "{answer:?}");
    };
    // Accepted before the old one is answered.
    let (mut new, mut old) = (dial(), dial());
    assert!(send_raw(&mut old, &hello(2, 0, 1)));
    answer(&mut old);
    server.stop();
    let incarnation = Incarnation(2);
    assert!(send_raw(&mut new, &hello_with(2, 0, 1, |h| Hello { incarnation, ..h })));
    old.shutdown(Shutdown::Both).unwrap();
    server.resume();
    answer(&mut new);
}

/// A listener that closes every connection, for longer than any listener of ours that is merely busy: the dial goes on until
/// its deadline, by each way to connect, and its error says what such a listener may be.
#[test]
fn a_listener_that_always_hangs_up_is_dialed_until_the_deadline() {
    use std::os::unix::net::UnixListener;
    const TIME: Duration = Duration::from_secs(7);
    let dir = TempDir::new();
    let local = UnixListener::bind(dir.path().join("hmc_ctrl_rank_0.sock")).unwrap();
    std::thread::spawn(move || local.incoming().for_each(drop));
    let remote = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = Address::Tcp(remote.local_addr().unwrap());
    std::thread::spawn(move || remote.incoming().for_each(drop));
    let session = Session::builder(1).buffer(1 << 12).start().unwrap();
    let over = |e: Error, began: Instant| {
        let (took, said) = (began.elapsed(), e.to_string());
        assert_eq!(e.kind(), ErrorKind::DeadlineExceeded, "{said}");
        assert!(said.contains("attempts, each closed before an answer"), "{said}");
        assert!(said.contains("speaks another protocol (`connect_upstream`"), "{said}");
        assert!(took >= TIME && took < bound(TIME + Duration::from_secs(2)), "{took:?}");
    };
    std::thread::scope(|s| {
        for (rank, address) in [(0, dir.address()), (2, at.clone())] {
            let (session, over) = (&session, &over);
            s.spawn(move || {
                let began = Instant::now();
                let connected = session.connect(&address).rank(rank).within(TIME).wait();
                over(connected.expect_err("it hangs up"), began);
            });
        }
        let began = Instant::now();
        let connected = session.connect(&at).within(TIME).wait();
        over(connected.expect_err("it hangs up"), began);
    });
}

/// A listener whose queue is full: a dialer blocks until it has space.
#[test]
fn who_waits_before_a_full_queue_uses_no_processor() {
    use std::os::unix::net::UnixListener;
    let dir = TempDir::new();
    let listener = UnixListener::bind(dir.path().join("hmc_ctrl_rank_0.sock")).unwrap();
    rustix::net::listen(&listener, 1).unwrap();
    let path = dir.path().join("hmc_ctrl_rank_0.sock");
    let queue: Vec<_> = std::iter::from_fn(|| {
        let fd = rustix::net::socket_with(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::STREAM,
            rustix::net::SocketFlags::NONBLOCK,
            None,
        );
        let fd = fd.unwrap();
        let to = rustix::net::SocketAddrUnix::new(&path).unwrap();
        rustix::net::connect(&fd, &to).ok().map(|()| fd)
    })
    .collect();
    println!("{} wait in the queue of the listener", queue.len());
    let mut actor = Actor::session(ACTOR, "rank=1");
    let before = cpu_of(actor.pid());
    let said = actor.try_request(&format!("connect 0 {} auto 1500", dir.address()));
    let used = cpu_of(actor.pid()) - before;
    assert!(said.as_ref().is_err_and(|e| e.contains("DeadlineExceeded")), "{said:?}");
    assert!(used < Duration::from_millis(300), "{used:?} of processor time in 1.5 s of waiting");
    // The queue has space again.
    actor.send(&format!("connect 0 {} auto 500", dir.address()));
    std::thread::scope(|scope| {
        scope.spawn(|| (0..=queue.len()).for_each(|_| drop(listener.accept().unwrap())));
        let said = actor.answer();
        assert!(said.as_ref().is_err_and(|e| e.contains("DeadlineExceeded")), "{said:?}");
    });
}

/// The rank is being dialed by another thread, whose listener says nothing.
#[test]
fn who_waits_for_the_dial_of_another_thread_uses_no_processor() {
    use rustix::time::{ClockId, clock_gettime};
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = Address::Tcp(listener.local_addr().unwrap());
    let session = Session::builder(1).buffer(1 << 12).start().unwrap();
    let dial = |ms| {
        session.connect(&at).rank(0).over(ConnType::Tcp).within(Duration::from_millis(ms)).wait()
    };
    std::thread::scope(|s| {
        let first = s.spawn(|| dial(2500));
        let _silent = listener.accept().unwrap();
        let used = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap();
        let before = used();
        let e = dial(1500).expect_err("the first goes on");
        let used = used() - before;
        assert_eq!(e.kind(), ErrorKind::DeadlineExceeded, "{e}");
        assert!(e.to_string().contains("another dial to that rank"), "{e}");
        assert!(used < Duration::from_millis(300), "{used:?} of processor time in 1.5 s");
        let e = first.join().unwrap().expect_err("nothing is said");
        assert_eq!(e.kind(), ErrorKind::DeadlineExceeded, "{e}");
    });
}
