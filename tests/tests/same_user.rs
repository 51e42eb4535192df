//! Who may connect over loopback, and as whom: the same user proves itself, others are told why not.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "tests may panic"
)]

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hmc_core::types::{ConnType, Incarnation};
use hmc_core::wire::advert::ENDPOINT_TCP;
use hmc_core::wire::hello::{Asked, Features, Hello, HostId};
use hmc_core::wire::message::ControlMessage;
use hmc_core::wire::proof::{Challenge, Proof};
use hmc_core::wire::reject::RejectReason;
use hmc_std::address::Address;
use hmc_std::{ErrorKind, PeerRank, Session, SessionBuilder};
use hmc_testkit::buffers::BufferTransfers as _;
use hmc_tests::actor::Actor;
use hmc_tests::attack::{Context, ranks};
use hmc_tests::env::{TempDir, bound, skipped, until};
use hmc_tests::listening::Listening as _;
use hmc_tests::raw_frames::{
    dial, frame, hello, hello_of, hello_with, is_closed_after, read_frame, read_reject, send_raw,
};
use rustix::net::{AddressFamily, SocketType};

const ACTOR: &str = env!("CARGO_BIN_EXE_actor");
/// The local socket of rank 1.
const SOCKET: &str = "hmc_ctrl_rank_1.sock";

fn scratch(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("hmc-user-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir(&dir).unwrap();
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o700)).unwrap();
    dir
}

fn server(secret: &Path) -> (Session, SocketAddr) {
    let s =
        Session::builder(1).tcp("127.0.0.1:0").secret_file(secret).buffer(4096).start().unwrap();
    let at = s.tcp_addr().unwrap();
    (s, at)
}

/// A session that listens on a port of `ours`, and a listener with the same port of `other`: a port that is free on one
/// address may be in use on the other.
fn on_one_port(ours: [u8; 4], other: [u8; 4], session: &SessionBuilder) -> (Session, TcpListener) {
    for _ in 0..100 {
        let listener = TcpListener::bind((IpAddr::from(other), 0)).unwrap();
        let at = SocketAddr::new(ours.into(), listener.local_addr().unwrap().port());
        match session.clone().tcp(&at.to_string()).start() {
            Ok(s) => return (s, listener),
            Err(e) if e.to_string().contains("in use") => {}
            Err(e) => panic!("{e}"),
        }
    }
    panic!("no port is free on both addresses");
}

/// A client without a proof, and without memory or rank of its own.
#[test]
fn a_client_without_proof_gets_no_rank_on_loopback() {
    let (dir, words) = (scratch("client"), hello(2, 0, 1));
    let (server, at) = server(&dir.join("secret"));
    let mut s = dial(at);
    assert!(send_raw(&mut s, &words));
    assert_eq!(read_reject(&mut s), Some(RejectReason::NotAuthorised));
    assert!(is_closed_after(&mut s));
    assert!(server.peers().is_empty());
    let ours = Session::builder(2).secret_file(dir.join("secret")).buffer(4096).start().unwrap();
    let peer = ours.connect(&Address::Tcp(at)).rank(1).wait().expect("the rank is free");
    peer.put_at(0, 0, 8).expect("a put");
    std::fs::remove_dir_all(dir).unwrap();
}

/// A process may give its end another address of this system before it connects to a loopback one.
#[test]
fn the_address_of_the_dialer_gets_nobody_around_the_proof() {
    let Some(ip) = other_address() else {
        return skipped("this system has loopback addresses only");
    };
    let dir = scratch("source");
    let (server, at) = server(&dir.join("secret"));
    let fd = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&fd, &SocketAddr::new(ip, 0)).unwrap();
    rustix::net::connect(&fd, &at).unwrap();
    let mut s = std::net::TcpStream::from(fd);
    s.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    assert_eq!(s.local_addr().unwrap().ip(), ip);
    assert!(send_raw(&mut s, &hello(2, 0, 1)));
    assert_eq!(read_reject(&mut s), Some(RejectReason::NotAuthorised));
    assert!(server.peers().is_empty());
    std::fs::remove_dir_all(dir).unwrap();
}

/// Replayed, reflected and guessed proofs, and all else that may be said instead of one.
#[test]
fn nothing_but_the_proof_is_believed() {
    let dir = scratch("guess");
    let (server, at) = server(&dir.join("secret"));
    let promise = || hello_with(2, 0, 1, |h| Hello { proves: true, ..h });
    let challenge = |s: &mut std::net::TcpStream| -> Challenge {
        let (header, payload) = read_frame(s).expect("a challenge");
        match ControlMessage::parse(header, &payload).unwrap() {
            ControlMessage::Challenge(c) => c,
            other => panic!("{other:?}"),
        }
    };
    // The proof that the acceptor showed, which is bound to its role.
    let mut s = dial(at);
    assert!(send_raw(&mut s, &promise()));
    let first = challenge(&mut s);
    assert!(send_raw(&mut s, &frame(&ControlMessage::Proof(first.proof))));
    assert_eq!(read_reject(&mut s), Some(RejectReason::NotAuthorised));
    // A nonce is fresh each time, so nothing that was seen before is of use.
    let mut s = dial(at);
    assert!(send_raw(&mut s, &promise()));
    let second = challenge(&mut s);
    assert!(second.nonce != first.nonce && second.proof != first.proof);
    assert!(send_raw(&mut s, &frame(&ControlMessage::Proof(Proof([0; 32])))));
    assert_eq!(read_reject(&mut s), Some(RejectReason::NotAuthorised));
    // No proof at all.
    let mut s = dial(at);
    assert!(send_raw(&mut s, &promise()));
    challenge(&mut s);
    assert!(send_raw(&mut s, &frame(&ControlMessage::Tag(1))));
    assert!(is_closed_after(&mut s));
    assert!(server.peers().is_empty());
    assert_eq!(server.stats().strangers_refused, 3);
    std::fs::remove_dir_all(dir).unwrap();
}

/// A client that announces a proof and sends nothing more is closed as any pending connection is: after two seconds.
#[test]
fn who_promises_a_proof_has_two_seconds_for_it() {
    let dir = scratch("late");
    let (server, at) = server(&dir.join("secret"));
    let began = Instant::now();
    let mut s = dial(at);
    assert!(send_raw(&mut s, &hello_with(2, 0, 1, |h| Hello { proves: true, ..h })));
    assert!(is_closed_after(&mut s));
    let took = began.elapsed();
    assert!(
        took >= Duration::from_millis(1900) && took < bound(Duration::from_secs(4)),
        "{took:?}"
    );
    assert_eq!((server.peers().len(), server.stats().strangers_refused), (0, 1));
    std::fs::remove_dir_all(dir).unwrap();
}

/// Another user's process reads another secret: neither end believes the other, and each says which file it reads.
#[test]
fn who_knows_another_secret_is_refused_and_the_file_is_named() {
    let dir = scratch("other");
    let (server, at) = server(&dir.join("one"));
    let other = Session::builder(2).secret_file(dir.join("two")).start().unwrap();
    let e = other.connect(&Address::Tcp(at)).rank(1).wait().expect_err("another secret");
    assert_eq!(e.kind(), ErrorKind::NoCredentials, "{e}");
    assert!(e.to_string().contains(&dir.join("two").display().to_string()), "{e}");
    assert!(e.to_string().contains("HMC_SECRET_FILE"), "{e}");
    // Who proves nothing by choice is refused by name as well.
    let open = Session::builder(3).insecure_loopback().start().unwrap();
    let e = open.connect(&Address::Tcp(at)).rank(1).wait().expect_err("no proof");
    assert_eq!(e.kind(), ErrorKind::NoCredentials, "{e}");
    assert!(e.to_string().contains("insecure_loopback"), "{e}");
    assert!(server.peers().is_empty());
    // Both have to allow it.
    let lax = Session::builder(4).tcp("127.0.0.1:0").insecure_loopback().buffer(8).start().unwrap();
    open.connect(&Address::Tcp(lax.tcp_addr().unwrap())).rank(4).wait().expect("both allow it");
    std::fs::remove_dir_all(dir).unwrap();
}

/// Somebody listens where a peer is expected, and says that it is that peer.
#[test]
fn a_listener_that_proves_nothing_is_not_believed() {
    ranks::by_a_listener(&mut Context::rounds(ACTOR, 2)).expect_held();
}

/// Forwards connections to `listener` to `at`, in both directions, until one fails.
fn proxy(listener: TcpListener, at: SocketAddr) {
    std::thread::spawn(move || {
        for a in listener.incoming().map_while(Result::ok) {
            let Ok(b) = TcpStream::connect(at) else { return };
            for (mut from, to) in [(a.try_clone().unwrap(), b.try_clone().unwrap()), (b, a)] {
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut &to);
                    let _ = to.shutdown(std::net::Shutdown::Both);
                });
            }
        }
    });
}

/// A relay has another endpoint than the one that was asked for, and cannot change what was asked for. Where both ends do
/// without proofs, one that passes on the same port works.
#[test]
fn a_proxy_between_two_who_know_the_secret_is_refused() {
    let dir = scratch("relay");
    let session = Session::builder(1).secret_file(dir.join("secret")).buffer(4096);
    let (server, other) = on_one_port([127, 0, 0, 1], [127, 0, 0, 2], &session);
    let at = server.tcp_addr().unwrap();
    let s = Session::builder(2).secret_file(dir.join("secret")).start().unwrap();
    for listener in [TcpListener::bind("127.0.0.1:0").unwrap(), other] {
        let there = listener.local_addr().unwrap();
        proxy(listener, at);
        let e = s.connect(&Address::Tcp(there)).rank(1).wait().expect_err("a relay");
        assert_eq!(e.kind(), ErrorKind::InvalidConfig, "{e}");
        for said in ["does not listen at the address", "ssh -L", "insecure_loopback"] {
            assert!(e.to_string().contains(said), "{e}");
        }
    }
    assert!(server.peers().is_empty());
    let open = |rank| Session::builder(rank).insecure_loopback().buffer(4096);
    let (lax, listener) = on_one_port([127, 0, 0, 1], [127, 0, 0, 2], &open(1));
    let at = lax.tcp_addr().unwrap();
    let there = listener.local_addr().unwrap();
    proxy(listener, at);
    let s = open(2).start().unwrap();
    let peer = s.connect(&Address::Tcp(there)).rank(1).wait().expect("both allow it");
    peer.put_at(0, 0, 8).expect("a put");
    std::fs::remove_dir_all(dir).unwrap();
}

/// A proof as docs/WIRE.md has it, made without the library's own code.
fn proof(secret: &Path, role: u8, h: &Hello<'_>, c: &Challenge) -> Proof {
    let file = std::fs::read(secret).unwrap();
    let key = blake3::derive_key("HMC native dialect 2: proof of the same user", &file);
    let fixed = frame(&ControlMessage::Hello(Hello { features: Features::empty(), ..*h }));
    let mut hash = blake3::Hasher::new_keyed(&key);
    // A header of 8 bytes and the kind come first.
    for part in [&[role], &fixed[9..121], &c.rank.0.to_le_bytes(), &c.nonce, h.endpoints.as_bytes()]
    {
        hash.update(part);
    }
    Proof(*hash.finalize().as_bytes())
}

/// The proof that let its maker in is of no use to who has recorded all that was said.
#[test]
fn a_proof_is_good_for_one_connection() {
    let dir = scratch("replay");
    let secret = dir.join("secret");
    let (server, at) = server(&secret);
    let promise = Hello { proves: true, ..hello_of(2, 0, 1) };
    let words = frame(&ControlMessage::Hello(promise));
    let challenge = || {
        let mut s = dial(at);
        assert!(send_raw(&mut s, &words));
        let (header, payload) = read_frame(&mut s).expect("a challenge");
        let Ok(ControlMessage::Challenge(c)) = ControlMessage::parse(header, &payload) else {
            panic!("{header:?}")
        };
        assert!(c.proof == proof(&secret, 2, &promise, &c), "the acceptor proves itself");
        (s, c)
    };
    let (mut s, c) = challenge();
    let good = frame(&ControlMessage::Proof(proof(&secret, 1, &promise, &c)));
    assert!(send_raw(&mut s, &good));
    let (header, payload) = read_frame(&mut s).expect("an answer");
    assert!(matches!(ControlMessage::parse(header, &payload), Ok(ControlMessage::Welcome(_))));
    drop(s);
    until("it has left", Duration::from_secs(30), || server.peers().is_empty().then_some(()));
    let (mut s, _) = challenge();
    assert!(send_raw(&mut s, &good));
    assert_eq!(read_reject(&mut s), Some(RejectReason::NotAuthorised));
    assert!(is_closed_after(&mut s));
    std::fs::remove_dir_all(dir).unwrap();
}

/// Somebody who is dialed says the dialer's own words to it, to have it make the proof that is asked for.
#[test]
fn a_dialer_is_not_made_to_answer_its_own_challenge() {
    let dir = scratch("mirror");
    // It may have peers of its own rank: a mirror says the dialer's.
    let session = Session::builder(1).secret_file(dir.join("secret")).private_ranks().buffer(4096);
    let (server, other) = on_one_port([127, 0, 0, 1], [127, 0, 0, 2], &session);
    let at = server.tcp_addr().unwrap();
    for listener in [TcpListener::bind("127.0.0.1:0").unwrap(), other] {
        let there = listener.local_addr().unwrap();
        let mirror = std::thread::spawn(move || {
            let (mut victim, _) = listener.accept().unwrap();
            let (header, payload) = read_frame(&mut victim).unwrap();
            let mut back = dial(at);
            assert!(send_raw(&mut back, &[&header.to_bytes()[..], &payload].concat()));
            read_reject(&mut back)
        });
        let short = Duration::from_secs(10);
        let e = server.connect(&Address::Tcp(there)).rank(PeerRank::Alias(1)).within(short).wait();
        let e = e.expect_err("nobody");
        assert!(mirror.is_finished() || e.kind() != ErrorKind::InvalidConfig, "not dialed: {e}");
        assert_eq!(mirror.join().unwrap(), Some(RejectReason::WrongEndpoint));
    }
    std::fs::remove_dir_all(dir).unwrap();
}

/// Two jobs of one user, both with rank 1 and one folder of sockets, which the first one has.
#[test]
fn a_process_of_another_job_at_the_same_socket_is_not_taken_for_the_expected_one() {
    ranks::two_jobs(&mut Context::rounds(ACTOR, 1)).expect_held();
}

/// Who dials a local socket and moves bytes over TCP knows the peer's port, and not its address: at the same port of another
/// loopback address anybody may listen, who could then stand between the two.
#[test]
fn the_port_of_a_local_peer_leads_to_that_peer_and_nobody_else() {
    let dir = scratch("port");
    let uds = dir.join("uds");
    let session = Session::builder(1).uds(&uds).secret_file(dir.join("secret")).buffer(4096);
    let (server, other) = on_one_port([127, 0, 0, 2], [127, 0, 0, 1], &session);
    let at = server.tcp_addr().unwrap();
    other.set_nonblocking(true).unwrap();
    let dial = |rank, address| {
        let s =
            Session::builder(rank).secret_file(dir.join("secret")).buffer(4096).start().unwrap();
        let peer = s
            .connect(&address)
            .rank(1)
            .over(ConnType::Tcp)
            .within(Duration::from_secs(20))
            .wait()?;
        peer.put_at(0, 0, 8).map(|_| peer.explain().conn)
    };
    let e = dial(2, Address::Uds(uds.clone())).expect_err("it does not know the address");
    assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
    assert!(other.accept().is_err(), "a connection to somebody else");
    let told = Address::Local { dir: uds, endpoint: at };
    assert_eq!(dial(3, told).expect("the address was given"), Some(ConnType::Tcp));
    assert!(other.accept().is_err(), "a connection to somebody else");
    std::fs::remove_dir_all(dir).unwrap();
}

/// Its 127.0.0.1 is that of its own network namespace, where anybody may have the same port.
#[test]
fn a_local_peer_of_another_network_gets_no_port() {
    let dir = TempDir::new();
    let _server = Session::builder(1).tcp("127.0.0.1:0").uds(dir.path()).buffer(0).start().unwrap();
    let own = std::fs::metadata("/proc/self/ns/net").unwrap().ino();
    let ports = |rank, netns| {
        let mut stream = std::os::unix::net::UnixStream::connect(dir.path().join(SOCKET)).unwrap();
        let asked = Asked::new([0; 16], 0, netns);
        send_raw(&mut stream, &hello_with(rank, 0, 1, |h| Hello { asked: &asked, ..h }));
        let (header, payload) = read_frame(&mut stream).unwrap();
        let Ok(ControlMessage::Welcome(welcome)) = ControlMessage::parse(header, &payload) else {
            panic!("no welcome: {payload:02x?}");
        };
        welcome.hello.endpoints.iter().filter(|blob| blob.kind == ENDPOINT_TCP).count()
    };
    for (rank, (netns, told)) in (2..).zip([(0, 1), (own, 1), (own ^ 1, 0)]) {
        assert_eq!(ports(rank, netns), told, "a dialer in namespace {netns} of {own}");
    }
}

/// A whole session of another user, if this test may make one.
#[test]
fn a_process_of_another_user_is_refused() {
    if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
        return skipped("only root can start a process of another user");
    }
    let Some(place) = TempDir::for_all_users() else {
        return skipped("other users can enter no folder for temporary files");
    };
    let dir = scratch("nobody");
    let (server, at) = server(&dir.join("secret"));
    let home = place.path().join("home");
    std::fs::create_dir(&home).unwrap();
    std::fs::set_permissions(&home, std::fs::Permissions::from_mode(0o700)).unwrap();
    std::os::unix::fs::chown(&home, Some(65534), Some(65534)).unwrap();
    let uds = home.display().to_string();
    let program = place.runnable(ACTOR);
    let mut actor = Actor::spawn_as(program.to_str().unwrap(), 65534, &[("HMC_UDS_DIR", &uds)]);
    actor.request("start rank=2 buffer=4096");
    let said = actor
        .try_request(&format!("connect 1 tcp://{at} auto 5000"))
        .expect_err("refused")
        .to_string();
    assert!(said.contains("did not prove") && said.contains(&uds), "{said}");
    assert!(server.peers().is_empty());
    drop(actor);
    std::fs::remove_dir_all(dir).unwrap();
}

/// One short connection with the highest life claimed a rank: nobody proved anything, so it is kept for a while only.
#[test]
fn a_short_claim_does_not_keep_a_rank() {
    let server =
        Session::builder(1).tcp("127.0.0.1:0").insecure_loopback().buffer(4096).start().unwrap();
    let at = server.tcp_addr().unwrap();
    let mut s = dial(at);
    let last = |h: Hello<'static>| Hello {
        incarnation: Incarnation(u64::MAX),
        features: Features::empty(),
        host: HostId([9; 16]),
        ..h
    };
    assert!(send_raw(&mut s, &hello_with(2, 0, 1, last)));
    let (header, payload) = read_frame(&mut s).expect("an answer");
    assert!(matches!(ControlMessage::parse(header, &payload), Ok(ControlMessage::Welcome(_))));
    drop(s);
    let honest = Session::builder(2).insecure_loopback().buffer(4096).start().unwrap();
    let began = Instant::now();
    // At first it is told the truth.
    let short = Duration::from_millis(1500);
    let e = honest.connect(&Address::Tcp(at)).rank(1).within(short).wait().expect_err("kept");
    assert!(e.to_string().contains("kept for the process that held it"), "{e}");
    let long = Duration::from_secs(60);
    let peer = honest.connect(&Address::Tcp(at)).rank(1).within(long).wait().expect("free again");
    peer.put_at(0, 0, 8).expect("a put");
    assert!(began.elapsed() >= Duration::from_secs(8), "{:?}", began.elapsed());
}

/// A dead rank whose holder had proved itself is not for those who prove nothing, whatever host they name.
#[test]
fn a_dead_rank_that_was_proven_is_not_taken_by_a_claim() {
    let dir = scratch("dead");
    let addr = "0.0.0.0:0";
    let server = Session::builder(1)
        .tcp(addr)
        .insecure()
        .uds(dir.join("uds"))
        .secret_file(dir.join("secret"))
        .buffer(4096)
        .start()
        .unwrap();
    let holder = Session::builder(2).secret_file(dir.join("secret")).buffer(4096).start().unwrap();
    let peer =
        holder.connect(&Address::Uds(dir.join("uds"))).rank(1).wait().expect("the same user");
    drop(peer);
    drop(holder);
    let gone = Instant::now();
    while !server.peers().is_empty() {
        assert!(gone.elapsed() < Duration::from_secs(20));
        std::thread::yield_now();
    }
    // By an address of this system that is not loopback, where an insecure session asks for no proof.
    let port = server.tcp_addr().unwrap().port();
    let Some(ip) = other_address() else {
        return skipped("this system has loopback addresses only");
    };
    // Whoever connects reads the host id.
    let mut s = dial((ip, port).into());
    assert!(send_raw(&mut s, &hello(7, 0, 1)));
    let (header, payload) = read_frame(&mut s).expect("an answer");
    let Ok(ControlMessage::Welcome(w)) = ControlMessage::parse(header, &payload) else {
        panic!("no welcome")
    };
    let host = w.hello.host;
    let mut s = dial((ip, port).into());
    let claim = |h: Hello<'static>| Hello { incarnation: Incarnation(u64::MAX), host, ..h };
    assert!(send_raw(&mut s, &hello_with(2, 0, 1, claim)));
    assert_eq!(read_reject(&mut s), Some(RejectReason::Kept));
    let again = Session::builder(2).secret_file(dir.join("secret")).buffer(4096).start().unwrap();
    again.connect(&Address::Uds(dir.join("uds"))).rank(1).wait().expect("the same user comes back");
    std::fs::remove_dir_all(dir).unwrap();
}

/// An address of this system that is not loopback.
fn other_address() -> Option<std::net::IpAddr> {
    let s = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    s.connect("192.0.2.1:9").ok()?;
    s.local_addr().ok().map(|a| a.ip()).filter(|ip| !ip.is_loopback() && !ip.is_unspecified())
}
