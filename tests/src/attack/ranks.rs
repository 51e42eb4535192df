//! Processes that claim ranks: without a proof, of another job, for a moment only, of a process that lives; and connections
//! that show the token of a link.

use hmc_testkit::buffers::BufferTransfers as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use hmc_core::types::{Incarnation, Rank};
use hmc_core::wire::advert::ENDPOINT_TCP;
use hmc_core::wire::hello::{Hello, HostId, LinkToken, Welcome};
use hmc_core::wire::message::ControlMessage;
use hmc_core::wire::proof::{Challenge, Proof};
use hmc_core::wire::reject::RejectReason;
use hmc_std::{Address, ConnType, ErrorKind, Session};

use super::{Context, Outcome};
use crate::env::{TempDir, bound, until};
use crate::listening::Listening as _;
use crate::raw_frames::{dial, frame, hello, hello_with, is_closed_after, read_frame, send_raw};

const LONG: Duration = Duration::from_secs(60);
/// A dead rank is kept for so long for the process that held it.
pub const KEPT: Duration = Duration::from_secs(10);
/// A host that is not this one.
pub const OTHER_HOST: HostId = HostId([9; 16]);

/// The HELLO of `rank` to rank 1.
#[must_use]
pub fn claim(rank: u32, incarnation: u64, host: HostId, proves: bool) -> Vec<u8> {
    let words =
        |h: Hello<'static>| Hello { incarnation: Incarnation(incarnation), host, proves, ..h };
    hello_with(rank, 0, 1, words)
}

/// Claims a rank, and gives the host of whoever accepted it.
///
/// # Panics
/// When it is refused.
pub fn claims(mut to: impl Read + Write, rank: u32, incarnation: u64, host: HostId) -> HostId {
    assert!(send_raw(&mut to, &claim(rank, incarnation, host, false)));
    let (header, payload) = read_frame(&mut to).expect("an answer");
    match ControlMessage::parse(header, &payload).expect("a message") {
        ControlMessage::Welcome(w) => w.hello.host,
        other => panic!("not welcome: {other:?}"),
    }
}

/// What a connection is answered.
fn answer(from: &mut impl Read) -> String {
    let Some((header, payload)) = read_frame(from) else { return "closed".to_owned() };
    match ControlMessage::parse(header, &payload) {
        Ok(ControlMessage::Reject(why)) => format!("{why:?}"),
        Ok(ControlMessage::Welcome(_)) => "Welcome".to_owned(),
        Ok(ControlMessage::AttachAck) => "AttachAck".to_owned(),
        other => format!("{other:?}"),
    }
}

fn server(secret: &Path) -> (Session, SocketAddr) {
    let server = Session::builder(1).tcp("127.0.0.1:0").secret_file(secret).buffer(4096).start();
    let server = server.expect("a session");
    let at = server.tcp_addr().expect("it listens");
    (server, at)
}

/// Claims a rank on loopback: without a proof, with one that is guessed, and with the one that the acceptor showed.
///
/// # Panics
/// When nobody listens.
pub fn without_a_proof(context: &mut Context) -> Outcome {
    let dir = TempDir::new();
    let (server, at) = server(&dir.path().join("secret"));
    let refused = format!("{:?}", RejectReason::NotAuthorised);
    while context.again(30) {
        let way = context.attempts() % 3;
        let mut s = dial(at);
        assert!(send_raw(&mut s, &hello_with(2, 0, 1, |h| Hello { proves: way != 0, ..h })));
        if way != 0 {
            let (header, payload) = read_frame(&mut s).expect("a challenge");
            let Ok(ControlMessage::Challenge(c)) = ControlMessage::parse(header, &payload) else {
                return context.broken("no challenge came for a promise");
            };
            let guess = Proof(context.rng.bytes(32).try_into().expect("32 bytes"));
            let proof = if way == 1 { c.proof } else { guess };
            assert!(send_raw(&mut s, &frame(&ControlMessage::Proof(proof))));
        }
        let answer = answer(&mut s);
        if answer != refused || !is_closed_after(&mut s) {
            return context.broken(format!("a claim without a proof was answered {answer}"));
        }
    }
    if !server.peers().is_empty() {
        return context.broken("a process without a proof is a peer");
    }
    let ours = Session::builder(2).secret_file(dir.path().join("secret")).buffer(4096).start();
    match ours.and_then(|ours| ours.connect(&Address::Tcp(at)).rank(1).wait()?.put_at(0, 0, 8)) {
        Ok(()) => context.held("each was refused, and the rank stayed free"),
        Err(e) => context.broken(format!("the rank is not free: {e}")),
    }
}

/// What a listener answers a dialer that promises a proof: a welcome at once, or a challenge with a wrong proof. Then whether it
/// is told anything more.
fn answer_falsely(listener: &TcpListener, with_challenge: bool) -> bool {
    let (mut s, _) = listener.accept().expect("a dialer");
    let (header, payload) = read_frame(&mut s).expect("first words");
    let Ok(ControlMessage::Hello(h)) = ControlMessage::parse(header, &payload) else {
        panic!("no HELLO")
    };
    assert!(h.proves, "a dialer of a loopback address promises a proof");
    let hello = Hello { rank: Rank(1), expected: None, ..h.detached() };
    let welcome = ControlMessage::Welcome(Welcome { hello, token: LinkToken([1; 16]) });
    let challenge = Challenge { rank: Rank(1), nonce: [1; 16], proof: Proof([1; 32]) };
    let said = if with_challenge { ControlMessage::Challenge(challenge) } else { welcome };
    assert!(send_raw(&mut s, &frame(&said)));
    read_frame(&mut s).is_some()
}

/// Listens where a peer is expected, and says that it is that peer.
///
/// # Panics
/// When nothing can be listened at.
pub fn by_a_listener(context: &mut Context) -> Outcome {
    let dir = TempDir::new();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = Address::Tcp(listener.local_addr().expect("bound"));
    let session = Session::builder(2).secret_file(dir.path().join("secret")).start();
    let session = session.expect("a session");
    while context.again(6) {
        let with_challenge = context.attempts().is_multiple_of(2);
        let (dialed, told) = std::thread::scope(|s| {
            let liar = s.spawn(|| answer_falsely(&listener, with_challenge));
            let dialed = session.connect(&at).rank(1).within(Duration::from_secs(3)).wait();
            (dialed.map(drop), liar.join().expect("no panic"))
        });
        let wanted = if with_challenge { ErrorKind::NoCredentials } else { ErrorKind::Protocol };
        let kind = dialed.err().map(|e| e.kind());
        if kind != Some(wanted) || told {
            let what = if told { "was told more" } else { "was told nothing more" };
            return context.broken(format!("a false listener {what}, the dial ended as {kind:?}"));
        }
    }
    context.held("no dialer believed it, or told it anything")
}

/// Two jobs of one user, both with rank 1 and one folder of sockets, which the first one has: who means the second one reaches
/// that one or nobody.
///
/// # Panics
/// When a session cannot be started.
pub fn two_jobs(context: &mut Context) -> Outcome {
    while context.again(3) {
        let dir = TempDir::new();
        let (uds, secret) = (dir.path().join("uds"), dir.path().join("secret"));
        let builder = |rank| Session::builder(rank).secret_file(&secret).buffer(4096);
        let of = |builder: hmc_std::SessionBuilder| builder.start().expect("a session");
        let first = of(builder(1).tcp("127.0.0.1:0").uds(&uds));
        let second = of(builder(1).tcp("127.0.0.1:0"));
        let meant = second.tcp_addr().expect("it listens");
        let client = of(builder(2));
        let local = |endpoint| Address::Local { dir: uds.clone(), endpoint };
        match client.connect(&local(meant)).rank(1).wait() {
            Err(e) if e.to_string().contains("does not listen at the address") => {}
            Err(e) => return context.broken(format!("the error does not say why: {e}")),
            Ok(peer) => {
                let put = peer.put_at(0, 0, 8);
                return context.broken(format!("connected to the other job; a put there: {put:?}"));
            }
        }
        client.connect(&Address::Tcp(meant)).rank(1).wait().expect("the one that is meant");
        // The dialer may know of the link before the session that it dialed lists it.
        let met = || (second.peers().len() == 1).then_some(());
        until("the one that is meant lists the peer", LONG, met);
        if !first.peers().is_empty() {
            return context.broken("the other job's process has a peer");
        }
        // The right one answers by the local socket, too, by each of its addresses.
        let other = of(builder(3));
        let peer = other.connect(&local(first.tcp_addr().expect("it listens"))).rank(1).wait();
        let conn = peer.as_ref().map(|p| p.explain().conn);
        if !matches!(conn, Ok(Some(ConnType::Shm))) {
            return context.broken(format!("the right process answers with {conn:?}"));
        }
    }
    context.held("the process of the other job is not taken for the one asked for")
}

/// One process of the same user claims ranks by a local socket, in the highest life, under another host's name and under
/// this one's, and is gone.
///
/// # Panics
/// When a session cannot be started.
pub fn short_claims(context: &mut Context) -> Outcome {
    while context.again(1) {
        let dir = TempDir::new();
        let server = Session::builder(1).uds(dir.path()).buffer(4096).start().expect("a session");
        let path = dir.path().join("hmc_ctrl_rank_1.sock");
        let raw = || UnixStream::connect(&path).expect("it listens");
        let host = claims(raw(), 2, u64::MAX, OTHER_HOST);
        claims(raw(), 3, u64::MAX, host);
        until("its ends are known", LONG, || server.info().connecting.is_empty().then_some(()));
        let began = Instant::now();
        let latest = bound(KEPT + Duration::from_secs(3));
        let honest = |rank| -> Result<Duration, String> {
            let honest = Session::builder(rank).buffer(4096).start().expect("a session");
            let connect = |time| honest.connect(&dir.address()).rank(1).within(time).wait();
            match connect(KEPT / 10) {
                Ok(_) => return Err(format!("rank {rank} was not kept for who held it")),
                Err(e) if e.to_string().contains("live process") => {
                    return Err(format!("rank {rank}: {e}"));
                }
                Err(_) => {}
            }
            let peer = connect(latest).map_err(|e| format!("rank {rank} is locked: {e}"))?;
            peer.put_at(0, 0, 8).map_err(|e| e.to_string())?;
            Ok(began.elapsed())
        };
        let ends = std::thread::scope(|s| {
            let honest = &honest;
            [2, 3].map(|rank| s.spawn(move || honest(rank))).map(|t| t.join().expect("no panic"))
        });
        for end in ends {
            match end {
                Ok(took) if took >= KEPT - KEPT / 10 && took < latest => {}
                Ok(took) => return context.broken(format!("a rank was free after {took:?}")),
                Err(why) => return context.broken(why),
            }
        }
    }
    context.held("two claimed ranks were free again 10 s after the claim")
}

/// Claims the rank of a process that lives, by both kinds of listeners, as a later life and under its host's name.
///
/// # Panics
/// When two cannot be connected.
pub fn of_the_living(context: &mut Context) -> Outcome {
    let dir = TempDir::new();
    let builder = |rank| Session::builder(rank).insecure_loopback().buffer(4096);
    let server = builder(1).tcp("127.0.0.1:0").uds(dir.path()).start().expect("a session");
    let at = server.tcp_addr().expect("it listens");
    let holder = builder(2).start().expect("a session");
    let peer = holder.connect(&dir.address()).rank(1).wait().expect("a free rank");
    let host = claims(dial(at), 7, 1, OTHER_HOST);
    let path = dir.path().join("hmc_ctrl_rank_1.sock");
    while context.again(40) {
        let named = if context.rng.below(2) == 0 { host } else { OTHER_HOST };
        let words = claim(2, context.rng.next_u64().max(1), named, false);
        let answer = if context.rng.below(2) == 0 {
            let mut s = dial(at);
            assert!(send_raw(&mut s, &words));
            answer(&mut s)
        } else {
            let mut s = UnixStream::connect(&path).expect("it listens");
            assert!(send_raw(&mut s, &words));
            answer(&mut s)
        };
        // An earlier life of the holder is told that it is one.
        if !["Duplicate", "Stale"].iter().any(|why| answer.starts_with(why)) {
            return context.broken(format!("a claim of a live rank was answered {answer}"));
        }
        if let Err(e) = peer.put_at(0, 0, 8) {
            return context.broken(format!("the holder lost its link: {e}"));
        }
    }
    context.held("each was refused, and the holder's link went on")
}

/// Shows the token of a link again, and tokens that nobody was told.
///
/// # Panics
/// When nobody listens.
pub fn tokens(context: &mut Context) -> Outcome {
    let server = || {
        let server = Session::builder(0).tcp("127.0.0.1:0").insecure_loopback().buffer(4096);
        let server = server.start().expect("a session");
        let at = server.tcp_addr().expect("it listens");
        (server, at)
    };
    let attach = |at, rank, token| {
        let mut s = dial(at);
        let words = ControlMessage::Attach { rank: Rank(rank), token, channel: ENDPOINT_TCP };
        assert!(send_raw(&mut s, &frame(&words)));
        let said = answer(&mut s);
        (s, said)
    };
    let (mut of_now, mut at) = server();
    while context.again(20) {
        let rank = 1 + u32::try_from(context.attempts() % 4000).expect("small");
        if rank == 1 {
            // Its ranks are used up.
            drop(of_now);
            (of_now, at) = server();
        }
        let mut control = dial(at);
        assert!(send_raw(&mut control, &hello(rank, 0, 0)));
        let (header, payload) = read_frame(&mut control).expect("an answer");
        let Ok(ControlMessage::Welcome(welcome)) = ControlMessage::parse(header, &payload) else {
            panic!("no welcome");
        };
        let guess = LinkToken(context.rng.bytes(16).try_into().expect("16 bytes"));
        let refused = format!("{:?}", RejectReason::BadToken);
        let guessed = attach(at, rank, guess).1;
        let (_data, first) = attach(at, rank, welcome.token);
        assert_eq!(first, "AttachAck", "its own token");
        let (_again, second) = attach(at, rank, welcome.token);
        for (token, said) in [("a guessed token", guessed), ("a used token", second)] {
            if said != refused {
                return context.broken(format!("{token} was answered {said}"));
            }
        }
    }
    context.held("guessed and used tokens were refused")
}

/// Sends the first words of the C++ HMC's dialect to a listener that was not asked to accept them.
///
/// # Panics
/// When nobody listens.
pub fn in_the_other_dialect(context: &mut Context) -> Outcome {
    let server = Session::builder(0).tcp("127.0.0.1:0").insecure_loopback().buffer(4096).start();
    let server = server.expect("a session");
    let at = server.tcp_addr().expect("it listens");
    while context.again(20) {
        let rank = 1 + u32::try_from(context.rng.below(4000)).expect("small");
        let mut s = dial(at);
        assert!(send_raw(&mut s, &hmc_core::wire::cxx::hello_v1(Rank(rank))));
        s.set_read_timeout(Some(Duration::from_secs(1))).expect("a socket");
        if !is_closed_after(&mut s) || server.accept(rank).within(Duration::ZERO).wait().is_ok() {
            return context.broken(format!("rank {rank} was accepted in the other dialect"));
        }
    }
    context.held("each was closed without a rank")
}
