//! The rarer errors of settings and dials: each has the kind, the rank and the words that tell its reader what to do.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may panic"
)]

use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use hmc_core::wire::message::ControlMessage;
use hmc_core::wire::reject::RejectReason;
use hmc_std::ErrorKind::{
    Closed, DeadlineExceeded, DuplicateRank, InvalidConfig, NoCredentials, NotFound, Protocol,
    Refused, SystemLimit, Unavailable, Version,
};
use hmc_std::{Address, ConnType, ErrorKind, Rank, Session, SessionBuilder, want::Wanted};
use hmc_tests::actor::Actor;
use hmc_tests::env::{TempDir, until};
use hmc_tests::errors::Errors;
use hmc_tests::listening::Listening as _;
use hmc_tests::raw_frames::{frame, read_frame};

const ACTOR: &str = env!("CARGO_BIN_EXE_actor");
const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(50);
const LEN: u64 = 4096;

fn start(rank: u32, more: impl FnOnce(SessionBuilder) -> SessionBuilder) -> Session {
    more(Session::builder(rank).buffer(LEN)).start().unwrap()
}

#[test]
fn settings_that_make_no_sense() {
    let mut e = Errors::new();
    let dir = TempDir::new();
    let start = |more: &dyn Fn(SessionBuilder) -> SessionBuilder| {
        more(Session::builder(5).buffer(LEN)).start()
    };
    let open = dir.path().join("open");
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o755)).unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, b"").unwrap();
    let long = dir.path().join("l".repeat(120));
    e.add("rank", Session::builder(4096).start(), InvalidConfig, None, &["4096", "last one, 4095"]);
    e.add("no slots", start(&|b| b.slots(0)), InvalidConfig, None, &["choose 1 to 1024"]);
    e.add("slots", start(&|b| b.slots(1025)), InvalidConfig, None, &["1025", "choose 1 to 1024"]);
    e.add("windows", start(&|b| b.windows(257)), InvalidConfig, None, &["257", "choose 1 to 256"]);
    for (name, n) in [("no channels", 0), ("channels", 17), ("more channels", u32::MAX)] {
        let words = [&n.to_string(), "choose 1 to 16"];
        e.add(name, start(&|b| b.num_channels(n)), InvalidConfig, None, &words);
    }
    for n in [1, 16] {
        start(&|b| b.num_channels(n)).unwrap();
    }
    let mut later = Session::builder(5).buffer(LEN).prepare().unwrap();
    later.set_num_channels(17);
    e.add("channels later", later.start(), InvalidConfig, None, &["17", "choose 1 to 16"]);
    e.add("address", start(&|b| b.tcp("nowhere")), InvalidConfig, None, &["write IP:PORT"]);
    e.add(
        "exposed",
        start(&|b| b.tcp("0.0.0.0:0")),
        NoCredentials,
        None,
        &["127.0.0.1", "insecure"],
    );
    e.add(
        "open folder",
        start(&|b| b.uds(&open)),
        InvalidConfig,
        None,
        &["mode 0700", "chmod 700"],
    );
    e.add("a file", start(&|b| b.uds(&file)), InvalidConfig, None, &["is not a folder", "0700"]);
    e.add("long", start(&|b| b.uds(&long)), InvalidConfig, None, &["107", "a shorter folder"]);
    e.add(
        "no parent",
        start(&|b| b.uds(dir.path().join("missing/x"))),
        Unavailable,
        None,
        &["does the path exist"],
    );
    let first = start(&|b| b.uds(dir.path()).tcp("127.0.0.1:0")).unwrap();
    let taken = first.tcp_addr().unwrap().to_string();
    e.add("port", start(&|b| b.tcp(&taken)), InvalidConfig, None, &["another process listens"]);
    e.add(
        "elsewhere",
        start(&|b| b.insecure().tcp("192.0.2.1:0")),
        InvalidConfig,
        None,
        &["this machine does not have that address"],
    );
    let again = start(&|b| b.uds(dir.path()));
    e.add("folder", again, DuplicateRank, None, &["rank 5", "choose another rank or folder"]);
    e.add("uds", "uds://".parse::<Address>(), InvalidConfig, None, &["uds:///run/user/1000/hmc"]);
    e.add(
        "url",
        "http://a".parse::<Address>(),
        InvalidConfig,
        None,
        &["tcp://HOST:PORT", "uds://"],
    );
    e.check();
}

#[test]
fn dials_that_lead_nowhere() {
    let mut e = Errors::new();
    let dir = TempDir::new();
    let empty = TempDir::new();
    let tcp_only = start(1, |b| b.tcp("127.0.0.1:0"));
    let uds_only = start(2, |b| b.uds(dir.path()));
    let near = start(0, |b| b.tcp("127.0.0.1:0"));
    let tcp = Address::Tcp(tcp_only.tcp_addr().unwrap());
    let by = |rank, address: &Address, conn| {
        near.connect(address).rank(rank).over(conn).within(LONG).wait()
    };
    let shm = by(1, &tcp, ConnType::Shm);
    e.add("no shm", shm, Unavailable, Some(1), &["no shm", "start it with a UDS folder"]);
    let no_tcp = by(2, &dir.address(), ConnType::Tcp);
    e.add("no tcp", no_tcp, Unavailable, Some(2), &["no tcp", "start it with that address"]);
    e.add("own", by(0, &tcp, ConnType::Auto), InvalidConfig, None, &["`loopback()`"]);
    e.add("beyond", by(4096, &tcp, ConnType::Auto), InvalidConfig, None, &["last one, 4095"]);
    e.add("another", by(7, &tcp, ConnType::Auto), InvalidConfig, Some(7), &["rank 1"]);
    let far: Address = "tcp://192.0.2.1:9".parse().unwrap();
    e.add("far", by(8, &far, ConnType::Auto), NoCredentials, None, &["insecure"]);
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let nobody = by(3, &Address::Tcp(free), ConnType::Auto);
    e.add("nobody", nobody, Unavailable, Some(3), &["is the peer listening there?"]);
    let nobody = by(3, &dir.address(), ConnType::Auto);
    e.add("no socket", nobody, Unavailable, Some(3), &["start the process of that rank"]);
    let any = |address: &Address| near.connect(address).within(LONG).wait();
    e.add("empty", any(&empty.address()), Unavailable, None, &["start the peer first"]);
    let me = Address::Tcp(near.tcp_addr().unwrap());
    e.add("itself", any(&me), InvalidConfig, None, &["this session itself", "`loopback()`"]);
    let _third = start(4, |b| b.uds(dir.path()));
    e.add("several", any(&dir.address()), InvalidConfig, None, &["(2, 4)", "by its rank"]);
    let loopback = near.connect(&tcp).over(ConnType::Loopback).within(LONG).wait();
    e.add("no address", loopback, InvalidConfig, None, &["use `loopback()`"]);
    // Connected, but by another transport than the one that is asked for now.
    let peer = by(1, &tcp, ConnType::Tcp).unwrap();
    let other = by(1, &tcp, ConnType::Ucx);
    assert!(other.is_err());
    let other = by(1, &tcp, ConnType::Shm);
    e.add("other kind", other, Unavailable, Some(1), &["already connected over tcp", "`auto`"]);
    assert!(peer.is_connected());
    e.add("none", near.peer(9), NotFound, None, &["rank 9", "connect to it or wait for it first"]);
    e.add(
        "wait_peer",
        near.accept(9).within(SHORT).wait(),
        DeadlineExceeded,
        Some(9),
        &["rank 9", "wait longer"],
    );
    let recv = near.recv(9, Wanted::Any).within(SHORT).wait().map(|m| m.1);
    e.add("recv", recv, DeadlineExceeded, Some(9), &["waiting for rank 9", "look at the peer"]);
    drop(uds_only);
    e.check();
}

/// A program at a TCP port that answers whoever says hello with those bytes.
fn answers(bytes: Vec<u8>) -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut s, _) = listener.accept().unwrap();
        let _ = read_frame(&mut s);
        let _ = s.write_all(&bytes);
        // It waits until the dialer has hung up.
        let _ = std::io::Read::read(&mut s, &mut [0]);
    });
    Address::Tcp(at)
}

#[test]
fn answers_that_refuse() {
    let mut e = Errors::new();
    let near = Session::builder(0).job(3).insecure_loopback().start().unwrap();
    let dial = |bytes: Vec<u8>| near.connect(&answers(bytes)).rank(1).within(LONG).wait();
    let refused = |why| dial(frame(&ControlMessage::Reject(why)));
    let cases: [(RejectReason, ErrorKind, &[&str]); 7] = [
        (RejectReason::Duplicate, DuplicateRank, &["rank 0"]),
        (RejectReason::WrongJob, InvalidConfig, &["job 3", "HMC_JOB or `job` names another"]),
        (RejectReason::WrongRank { ours: Rank(6) }, InvalidConfig, &["rank 6"]),
        (RejectReason::BadRank { limit: 9 }, InvalidConfig, &["9"]),
        (RejectReason::WrongEndpoint, InvalidConfig, &["the address at which the peer listens"]),
        (RejectReason::ShuttingDown, Closed, &["it is leaving"]),
        (RejectReason::Version { ours: 9 }, Version, &["version 9", "version 2"]),
    ];
    for (why, kind, says) in cases {
        let what = format!("{why:?}");
        e.add(&what, refused(why), kind, Some(1), &[says, &["refused this process"]].concat());
    }
    let unproven = refused(RejectReason::NotAuthorised);
    e.add("unproven", unproven, NoCredentials, Some(1), &["secret"]);
    e.add("no HMC", dial(vec![0xFF; 64]), Protocol, Some(1), &["does not speak HMC"]);
    let other = dial(frame(&ControlMessage::AttachAck));
    e.add("another answer", other, Protocol, Some(1), &["the peer"]);
    e.check();
}

/// The kind of a refusal that is tried again for a while, by the deadline of the dial.
#[test]
fn a_busy_peer_is_refused_at_the_deadline() {
    let mut e = Errors::new();
    let near = Session::builder(0).insecure_loopback().start().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = Address::Tcp(listener.local_addr().unwrap());
    std::thread::scope(|s| {
        let dial = s.spawn(|| near.connect(&at).rank(1).within(Duration::from_millis(300)).wait());
        listener.set_nonblocking(true).unwrap();
        until("the dial is over", LONG, || {
            if let Ok((mut other, _)) = listener.accept() {
                other.set_nonblocking(false).unwrap();
                let _ = read_frame(&mut other);
                let _ = other.write_all(&frame(&ControlMessage::Reject(RejectReason::Busy)));
            }
            dial.is_finished().then_some(())
        });
        let busy = dial.join().unwrap();
        e.add("busy", busy, Refused, Some(1), &["cannot take another peer now"]);
    });
    e.check();
}

/// Descriptors that are used up are a limit of the system, whichever part of a connection needs one more.
#[test]
fn descriptors_that_are_used_up() {
    let dir = TempDir::new();
    let target = start(1, |b| b.uds(dir.path()).tcp("127.0.0.1:0"));
    for conn in ["shm", "tcp"] {
        let mut actor = Actor::session(ACTOR, "rank=0 buffer=4096 redial=0");
        let mut told = Vec::new();
        // From none to enough: standard input, output and error have the first three.
        let enough = (3..64).find(|files| {
            actor.request(&format!("files {files}"));
            match actor.try_request(&format!("connect 1 {} {conn} 2000", dir.address())) {
                Ok(_) => true,
                Err(error) => {
                    assert!(error.starts_with(&format!("{SystemLimit:?}")), "{conn}: {error}");
                    assert!(error.contains("ulimit -n"), "{conn}: {error}");
                    told.push(error);
                    false
                }
            }
        });
        assert!(enough.is_some(), "{conn}: it is never enough");
        told.dedup();
        println!("{conn}: {told:#?}");
        assert!(target.accept(0).within(LONG).wait().unwrap().is_connected());
        // Pages of shared memory need some beside the connections.
        assert!(told.len() > usize::from(conn == "shm"), "{conn}: {told:?}");
        drop(actor);
        until("it is gone", LONG, || target.peers().is_empty().then_some(()));
    }
}
