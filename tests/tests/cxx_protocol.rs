//! The dialect of the C++ HMC, byte for byte, against a plain socket.

#![allow(clippy::arithmetic_side_effects, clippy::unwrap_used, reason = "tests may panic")]

use hmc_testkit::buffers::BufferTransfers as _;
use std::fmt::Debug;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hmc_std::{
    Address, ErrorKind, Message, PeerRank, Session, SessionBuilder,
    want::{self, Wanted},
};
use hmc_tests::env::{TempDir, bound, until};
use hmc_tests::events::Events;
use hmc_tests::listening::Listening as _;
use hmc_tests::raw_frames::{PATIENCE, dial, is_closed_after, send_raw};
use tracing::Level;
use tracing::field::Field;

const LONG: Duration = Duration::from_secs(20);
/// `ctrlSend(peer, 0x1122334455667788)`, captured from the C++ HMC.
const TAG: &[u8] = b"\x01\0\0\0\x08\0\0\0\x88\x77\x66\x55\x44\x33\x22\x11";
/// An `int` of -2.
const INT: &[u8] = b"\x01\0\0\0\x04\0\0\0\xFE\xFF\xFF\xFF";
/// A struct of three bytes.
const STRUCT: &[u8] = b"\x02\0\0\0\x03\0\0\0abc";
/// An empty struct.
const EMPTY: &[u8] = b"\x02\0\0\0\0\0\0\0";

fn hello(rank: u8) -> Vec<u8> {
    vec![0x02, 0, 0, 0x80, 4, 0, 0, 0, rank, 0, 0, 0]
}

/// What a C++ node sends arrives, and what it is sent are its bytes.
fn talks(server: &Session, rank: u8, s: &mut (impl std::io::Read + std::io::Write)) {
    // In pieces, as TCP may deliver them.
    let mut words = hello(rank);
    for part in [TAG, INT, STRUCT, EMPTY] {
        words.extend_from_slice(part);
    }
    for piece in words.chunks(5) {
        s.write_all(piece).unwrap();
    }
    let peer = server.accept(u32::from(rank)).within(LONG).wait().expect("it said hello");
    assert_eq!(peer.explain().conn, None, "no data plane");
    assert_eq!(
        peer.recv(Wanted::Any).within(LONG).wait().unwrap(),
        Message::Tag(0x1122_3344_5566_7788)
    );
    assert_eq!(peer.recv(Wanted::Any).within(LONG).wait().unwrap(), Message::Int(-2));
    assert_eq!(
        peer.recv(Wanted::Any).within(LONG).wait().unwrap(),
        Message::bytes(b"abc".to_vec())
    );
    assert_eq!(peer.recv(Wanted::Any).within(LONG).wait().unwrap(), Message::bytes(Vec::new()));
    peer.send(Message::Tag(0x1122_3344_5566_7788)).wait().unwrap();
    peer.send(Message::Int(-2)).wait().unwrap();
    peer.send(Message::bytes(b"abc")).wait().unwrap();
    peer.send(Message::bytes(b"")).wait().unwrap();
    let mut heard = vec![0; TAG.len() + INT.len() + STRUCT.len() + EMPTY.len()];
    s.read_exact(&mut heard).unwrap();
    assert_eq!(heard, [TAG, INT, STRUCT, EMPTY].concat());
    let e = peer.put_at(0, 0, 8).expect_err("no data plane");
    assert!(matches!(e.kind(), ErrorKind::NotFound | ErrorKind::Unsupported), "{e}");
}

/// What starting a session says, on the thread that starts it.
fn log_of(builder: SessionBuilder) -> String {
    let text = Arc::new(Mutex::new(String::new()));
    let log = Arc::clone(&text);
    let events = Events::new(Level::TRACE, move |event| {
        let mut text = log.lock().unwrap();
        *text += event.metadata().level().as_str();
        event.record(&mut |field: &Field, value: &dyn Debug| {
            *text += &format!(" {field} {value:?}")
        });
        text.push('\n');
    });
    tracing::subscriber::with_default(events, || builder.start().map(drop)).unwrap();
    text.lock().unwrap().clone()
}

#[test]
fn a_session_that_accepts_cxx_warns_at_its_start() {
    let builder = || Session::builder(1).tcp("127.0.0.1:0");
    let warned = log_of(builder().accept_upstream());
    let line = warned.lines().find(|line| line.contains("dialect of the C++ HMC"));
    assert!(
        line.is_some_and(|l| l.starts_with("WARN") && l.contains("claim a free rank")),
        "{warned}"
    );
    let silent = log_of(builder());
    assert!(!silent.contains("C++ HMC"), "{silent}");
}

#[test]
fn a_node_of_the_cpp_hmc_is_served_over_tcp_and_uds() {
    let dir = TempDir::new();
    let server = Session::builder(1)
        .tcp("127.0.0.1:0")
        .uds(dir.path())
        .buffer(4096)
        .accept_upstream()
        .start()
        .unwrap();
    let mut tcp = dial(server.tcp_addr().unwrap());
    talks(&server, 3, &mut tcp);
    // The name of the socket is upstream's too.
    let path = dir.path().join("hmc_ctrl_rank_1.sock");
    let mut uds = UnixStream::connect(&path).unwrap();
    uds.set_read_timeout(Some(PATIENCE)).unwrap();
    talks(&server, 4, &mut uds);
    // The first of a rank wins; upstream's newest did.
    let mut again = dial(server.tcp_addr().unwrap());
    assert!(send_raw(&mut again, &hello(3)));
    assert!(is_closed_after(&mut again));
    server.peer(3).unwrap().send(Message::Int(-2)).wait().unwrap();
    let mut heard = [0; 12];
    tcp.read_exact(&mut heard).unwrap();
    assert_eq!(heard, INT);
    // No heartbeat is sent, and silence is no death.
    let peer = server.peer(3).unwrap();
    let since = std::time::Instant::now();
    until("3 s of silence", LONG, || (since.elapsed().as_millis() > 3000).then_some(()));
    assert!(peer.is_connected());
    tcp.set_nonblocking(true).unwrap();
    assert!(tcp.read(&mut heard).is_err(), "nothing is said that upstream does not know");
    tcp.set_nonblocking(false).unwrap();
    // The end of the stream is a death.
    drop(tcp);
    until("the end is known", bound(Duration::from_secs(1)), || {
        (!peer.is_connected()).then_some(())
    });
    assert_eq!(peer.recv(Wanted::Any).within(LONG).wait().unwrap_err().kind(), ErrorKind::PeerDead);
    let mut back = dial(server.tcp_addr().unwrap());
    talks(&server, 3, &mut back);
}

#[test]
fn cxx_is_refused_where_it_was_not_accepted() {
    let server = Session::builder(1).tcp("127.0.0.1:0").start().unwrap();
    let mut s = dial(server.tcp_addr().unwrap());
    assert!(send_raw(&mut s, &hello(3)));
    assert!(is_closed_after(&mut s));
    assert!(server.peers().is_empty());
    assert_eq!(server.stats().strangers_refused, 1);
    // Where it was asked for, what is no hello is refused all the same.
    let server = Session::builder(1).tcp("127.0.0.1:0").accept_upstream().start().unwrap();
    for words in [TAG, STRUCT, b"\x02\0\0\x80\x05\0\0\0\x03\0\0\0\0", b"\x03\0\0\0\x04\0\0\0abcd"] {
        let mut s = dial(server.tcp_addr().unwrap());
        assert!(send_raw(&mut s, words));
        let _ = s.shutdown(std::net::Shutdown::Write);
        assert!(is_closed_after(&mut s), "{words:02x?}");
    }
    // A second hello in the middle ends the connection.
    let mut s = dial(server.tcp_addr().unwrap());
    assert!(send_raw(&mut s, &[hello(3), hello(3)].concat()));
    assert!(is_closed_after(&mut s));
}

#[test]
fn a_node_of_the_cpp_hmc_can_be_dialed() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let s = Session::builder(258).start().unwrap();
    let node = std::thread::spawn(move || -> TcpStream { listener.accept().unwrap().0 });
    let peer = s.connect(&Address::Tcp(at)).rank(PeerRank::Cxx(7)).within(PATIENCE).wait().unwrap();
    let mut node = node.join().unwrap();
    node.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut heard = [0; 12];
    node.read_exact(&mut heard).unwrap();
    assert_eq!(heard, *b"\x02\0\0\x80\x04\0\0\0\x02\x01\0\0");
    peer.send(Message::Tag(0x1122_3344_5566_7788)).wait().unwrap();
    let mut tag = [0; 16];
    node.read_exact(&mut tag).unwrap();
    assert_eq!(tag, TAG);
    node.write_all(INT).unwrap();
    assert_eq!(peer.recv(want::Int).wait().unwrap(), -2);
}

/// A node of the C++ HMC proves nothing: it does not get a rank that is kept for a process that has proved itself, and who is
/// refused leaves the rank as it was.
#[test]
fn a_node_that_is_dialed_does_not_take_a_kept_rank() {
    let dir = TempDir::new();
    let s = Session::builder(0).uds(dir.path()).start().unwrap();
    let native = || Session::builder(1).uds(dir.path()).start().unwrap();
    let first = native();
    first.connect(&Address::Uds(dir.path().into())).rank(0).wait().unwrap();
    drop(first);
    until("it is gone", LONG, || (s.peer(1).is_err()).then_some(()));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = Address::Tcp(listener.local_addr().unwrap());
    let e =
        s.connect(&at).rank(PeerRank::Cxx(1)).within(LONG).wait().expect_err("the rank is kept");
    assert_eq!(e.kind(), ErrorKind::DuplicateRank, "{e}");
    // It can come and be dialed again.
    let second = native();
    s.connect(&Address::Uds(dir.path().into())).rank(1).wait().unwrap();
    second.peer(0).unwrap().send(Message::Tag(5)).wait().unwrap();
    assert_eq!(s.recv(1, want::Tag).wait().map(|m| m.1).unwrap(), 5);
}
