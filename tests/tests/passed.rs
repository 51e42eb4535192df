//! Descriptors that a local peer passes although nobody wants them: closing them holds nobody up.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::fs::File;
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use hmc_core::region::{Epoch, WindowId};
use hmc_core::wire::data::{DataFlags, DataFrame, DataKind};
use hmc_core::wire::message::ControlMessage;
use hmc_mem::os::fd_passing::{allow, is_allowed, send_fd};
use hmc_mem::os::io::IoError;
use hmc_std::{ConnType, Session};
use hmc_testkit::buffers::BufferTransfers as _;
use hmc_tests::actor::Actor;
use hmc_tests::env::{TempDir, bound};
use hmc_tests::raw_frames::{frame, hello};
use hmc_tests::rogue::{Rogue, connect};
use rustix::net::sockopt;

const ACTOR: &str = env!("CARGO_BIN_EXE_actor");
const LONG: Duration = Duration::from_secs(30);

/// A socket whose last close(2) waits for 12 s: it has bytes to send that nobody takes (SO_LINGER, socket(7)). With it,
/// its other end.
fn slow_to_close() -> (OwnedFd, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    near.set_nonblocking(true).unwrap();
    while near.write(&[0; 65_536]).is_ok() {}
    near.set_nonblocking(false).unwrap();
    sockopt::set_socket_linger(&near, Some(Duration::from_secs(12))).unwrap();
    (near.into(), far)
}

/// Passes such a socket beside `bytes` and gives it up here, so that the receiver has the last of it.
fn pass(to: impl AsFd, bytes: &[u8], kept: &mut Vec<TcpStream>) {
    let (slow, far) = slow_to_close();
    let sent = send_fd(to, &slow, bytes);
    assert!(sent.is_ok(), "{sent:?}");
    kept.push(far);
}

/// As [`pass`], where none is wanted: the kernel refuses it, if it can. Else the receiver has it.
fn pass_descriptors(mut to: &File, bytes: &[u8], kept: &mut Vec<TcpStream>) {
    let (slow, far) = slow_to_close();
    match send_fd(to, &slow, bytes) {
        Ok(_) => assert!(!kernel_refuses(), "a descriptor came through"),
        Err(e) => {
            assert!(kernel_refuses() && e == IoError::Os { errno: 1 }, "{e}");
            to.write_all(bytes).unwrap();
            // This process has the last of it.
            sockopt::set_socket_linger(&slow, None).unwrap();
        }
    }
    kept.push(far);
}

/// Whether the kernel can (SO_PASSRIGHTS, Linux 6.16).
fn kernel_refuses() -> bool {
    let (socket, _other) = UnixStream::pair().unwrap();
    allow(&socket, false);
    !is_allowed(&socket)
}

#[test]
fn sockets_that_are_slow_to_close_delay_nobody() {
    let dir = TempDir::new();
    let mut server =
        Actor::session(ACTOR, &format!("rank=0 uds={} buffer=65536", dir.path().display()));
    let mut kept = Vec::new();
    let mut rank = 10;
    let mut next = |what: &str, act: &mut dyn FnMut(u32, &mut Vec<TcpStream>)| {
        rank += 2;
        let start = Instant::now();
        act(rank, &mut kept);
        let honest = Session::builder(rank + 1).buffer(4096).start().unwrap();
        let peer =
            honest.connect(&dir.address()).rank(0).over(ConnType::Shm).within(LONG).wait().unwrap();
        peer.put_at(0, 0, 64).unwrap();
        let took = start.elapsed();
        println!("beside {what}: {took:?}");
        assert!(took < bound(Duration::from_secs(3)), "beside {what} it took {took:?}");
    };
    let uds = dir.address();
    let mut region = DataFrame::new(DataKind::Region, 0);
    (region.window, region.epoch) = (WindowId(1), Epoch(1));
    (region.total, region.addr) = (4096, 4096);
    next("a window", &mut |rank, kept| {
        let rogue = Rogue::join(rank, &uds, &uds);
        pass(&rogue.data, &region.emit(), kept);
    });
    next("payload", &mut |rank, kept| {
        let mut rogue = Rogue::join(rank, &uds, &uds);
        let mut write = DataFrame::new(DataKind::Write, 0);
        (write.window, write.epoch) = (rogue.window.window, rogue.window.epoch);
        (write.flags, write.len, write.total) = (DataFlags::LAST, 60_000, 60_000);
        rogue.data.write_all(&write.emit()).unwrap();
        rogue.data.write_all(&[1; 8000]).unwrap();
        pass(&rogue.data, &[1; 52_000], kept);
    });
    next("a heartbeat", &mut |rank, kept| {
        let rogue = Rogue::join(rank, &uds, &uds);
        pass_descriptors(&rogue.control, &frame(&ControlMessage::Ping(1)), kept);
    });
    next("first words", &mut |rank, kept| {
        pass_descriptors(&connect(&uds), &hello(rank, 0, 0), kept)
    });
    next("half of the first words", &mut |rank, kept| {
        let half = connect(&uds);
        pass_descriptors(&half, hello(rank, 0, 0).get(..20).unwrap(), kept);
    });
    next("what is never read", &mut |rank, kept| {
        let mut rogue = Rogue::join(rank, &uds, &uds);
        // The first words break the protocol here, so that what follows stays in the socket.
        server.stop();
        rogue.control.write_all(&hello(rank, 0, 0)).unwrap();
        rogue.control.write_all(&[0; 4096]).unwrap();
        pass_descriptors(&rogue.control, &frame(&ControlMessage::Ping(1)), kept);
        server.resume();
    });
    server.request("echo it lives");
}
