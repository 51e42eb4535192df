//! Copies between processes, sockets, and descriptors that are passed.
#![cfg(all(target_os = "linux", feature = "std", not(loom)))]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "tests may panic"
)]

mod common;

use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;

use common::{RW, forked, read, skipped, span, wait};
use hmc_core::range::ByteRange;
use hmc_mem::os::cma;
use hmc_mem::os::fd_passing;
use hmc_mem::os::io::{self, IoError, IoOutcome, RecvPart, SendPart};
use hmc_mem::os::memfd::Mapping;
use hmc_mem::shared::{SharedBytes, SharedError};
use rustix::process::Pid;

fn send_from(
    to: &UnixStream,
    from: &SharedBytes<'_>,
    span: ByteRange,
) -> Result<IoOutcome, IoError> {
    io::send_parts(to, &[SendPart::Shared(*from, span)])
}

fn recv_into(
    from: &UnixStream,
    into: &SharedBytes<'_>,
    span: ByteRange,
) -> Result<IoOutcome, IoError> {
    io::recv_parts(from, &mut [RecvPart::Shared(*into, span)])
}

/// A process may reach itself wherever the calls are there at all.
#[test]
fn cma_is_found_to_work_where_a_copy_within_this_process_does() {
    let (from, into) = (Mapping::create(1).unwrap(), Mapping::create(1).unwrap());
    let address = u64::try_from(from.bytes().as_ptr().addr()).unwrap();
    let me = rustix::process::getpid();
    // SAFETY: the byte is in a mapping of this test, which is reached by copies only.
    let copied = unsafe { cma::read(me, address, &into.bytes(), span(0, 1)) };
    assert_eq!(cma::probe().works, copied.is_ok());
}

#[test]
fn cma_copies_between_processes() {
    let status = cma::probe();
    if !status.works {
        return skipped(status.verdict());
    }
    let len = (8 << 20) + 4097;
    let theirs = vec![7u8; len.try_into().unwrap()];
    let address = u64::try_from(theirs.as_ptr().addr()).unwrap();
    let (ours, theirs_end) = UnixStream::pair().unwrap();
    // SAFETY: the child blocks in read(2) until the parent hangs up, then leaves.
    let child = unsafe { libc::fork() };
    if child == 0 {
        drop(ours);
        let mut byte = [0u8; 1];
        let fd = theirs_end.as_raw_fd();
        // SAFETY: reads at most one byte into a live array.
        unsafe { libc::read(fd, byte.as_mut_ptr().cast(), 1) };
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(0) };
    }
    drop(theirs_end);
    let pid = Pid::from_raw(child).unwrap();
    let here = Mapping::create(len).unwrap();
    let view = here.bytes();
    let pull = |address, span| {
        // SAFETY: `pid` is the child, another process, whose copy of the vector nothing uses.
        unsafe { cma::read(pid, address, &view, span) }
    };
    pull(address, span(0, len)).unwrap();
    assert!(read(&here, 0, len).iter().all(|b| *b == 7));
    view.fill(span(0, 10), 9).unwrap();
    // SAFETY: as above.
    unsafe { cma::write(pid, address + 5, &view, span(0, 10)) }.unwrap();
    pull(address, span(100, 20)).unwrap();
    assert_eq!(read(&here, 100, 20), [[7; 5].as_slice(), &[9; 10], &[7; 5]].concat());
    assert_eq!(theirs[5], 7, "our own copy of the vector is ours");
    assert_eq!(pull(16, span(0, 8)), Err(IoError::Os { errno: libc::EFAULT }));
    assert_eq!(pull(u64::MAX, span(0, 8)), Err(IoError::Os { errno: libc::EFAULT }));
    assert!(matches!(pull(address, span(1, len)), Err(IoError::Shared(SharedError::Range(_)))));
    // SAFETY: as above.
    let fixed = unsafe { cma::read(pid, address, &view.read_only(), span(0, 1)) };
    assert_eq!(fixed, Err(IoError::Shared(SharedError::ReadOnly)));
    drop(ours);
    assert_eq!(wait(child), 0);
    assert_eq!(pull(address, span(0, 8)), Err(IoError::Os { errno: libc::ESRCH }));
}

#[test]
fn sockets_move_spans_in_pieces() {
    let (a, b) = UnixStream::pair().unwrap();
    a.set_nonblocking(true).unwrap();
    b.set_nonblocking(true).unwrap();
    let len = 3u64 << 20;
    let (from, to) = (Mapping::create(len).unwrap(), Mapping::create(len + 2).unwrap());
    let bytes: Vec<u8> = (0..len).map(|i| (i * 7 + (i >> 9)).to_le_bytes()[0]).collect();
    from.bytes().write_at(span(0, len), &bytes).unwrap();
    assert_eq!(recv_into(&b, &to.bytes(), span(1, len)).unwrap(), IoOutcome::WouldBlock);
    let (mut sent, mut got, mut calls) = (0u64, 0u64, 0);
    while got < len {
        calls += 1;
        match send_from(&a, &from.bytes(), span(sent, len - sent)).unwrap() {
            IoOutcome::Bytes(n) => sent += u64::try_from(n).unwrap(),
            IoOutcome::WouldBlock => {}
            IoOutcome::Closed => unreachable!("a sender is never told so"),
        }
        match recv_into(&b, &to.bytes(), span(1 + got, len - got)).unwrap() {
            IoOutcome::Bytes(n) => got += u64::try_from(n).unwrap(),
            other => assert_eq!(other, IoOutcome::WouldBlock),
        }
    }
    assert!(calls > 1, "three MiB do not fit a socket buffer: a part is normal");
    assert_eq!(read(&to, 1, len), bytes);
    assert_eq!((read(&to, 0, 1), read(&to, len + 1, 1)), (vec![0], vec![0]));
}

#[test]
fn a_header_and_a_span_go_in_one_call_and_a_tail_comes_in_one() {
    let (a, b) = UnixStream::pair().unwrap();
    let m = Mapping::create(100).unwrap();
    let view = m.bytes();
    view.write_at(span(10, 4), b"body").unwrap();
    assert_eq!(
        io::send_parts(&a, &[SendPart::Private(b"head"), SendPart::Shared(view, span(10, 4))])
            .unwrap(),
        IoOutcome::Bytes(8)
    );
    let parts = [
        SendPart::Private(b"x"),
        SendPart::Private(&[]),
        SendPart::Shared(view, span(12, 2)),
        SendPart::Private(b"yz"),
    ];
    assert_eq!(io::send_parts(&a, &parts).unwrap(), IoOutcome::Bytes(5));
    let mut tail = [0; 5];
    assert_eq!(
        io::recv_parts(
            &b,
            &mut [RecvPart::Shared(view, span(50, 8)), RecvPart::Private(&mut tail)]
        )
        .unwrap(),
        IoOutcome::Bytes(13)
    );
    assert_eq!(read(&m, 50, 8), b"headbody");
    assert_eq!(&tail, b"xdyyz");
}

#[test]
fn wrong_ranges_and_broken_sockets_are_errors_and_no_signals() {
    let (a, b) = UnixStream::pair().unwrap();
    let m = Mapping::create(16).unwrap();
    let view = m.bytes();
    let wrong = |r: Result<IoOutcome, IoError>| matches!(r, Err(IoError::Shared(_)));
    assert!(wrong(send_from(&a, &view, span(10, 7))));
    assert!(wrong(recv_into(&a, &view, span(17, 0))));
    assert!(wrong(recv_into(&a, &view.read_only(), span(0, 1))));
    assert_eq!(send_from(&a, &view, span(16, 0)).unwrap(), IoOutcome::Bytes(0));
    // A table that is full leaves the rest for the next call.
    let many = vec![SendPart::Private(b"ab"); io::MAX_PARTS + 5];
    assert_eq!(io::send_parts(&a, &many).unwrap(), IoOutcome::Bytes(2 * io::MAX_PARTS));
    let mut sink = [0; 2 * io::MAX_PARTS];
    assert_eq!(
        io::recv_parts(&b, &mut [RecvPart::Private(&mut sink)]).unwrap(),
        IoOutcome::Bytes(sink.len())
    );
    drop(b);
    // MSG_NOSIGNAL: this test would die of SIGPIPE if Rust's runtime did not ignore it, so ask in a child
    // that does not.
    let code = forked(|| {
        // SAFETY: restores the default action in the child.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        i32::from(io::send_parts(&a, &[SendPart::Private(b"x")]) != Err(IoError::Broken))
    });
    assert_eq!(code, 0);
    assert_eq!(recv_into(&a, &view, span(0, 1)).unwrap(), IoOutcome::Closed);
}

#[test]
fn a_descriptor_is_passed_and_closes_on_exec() {
    let (a, b) = UnixStream::pair().unwrap();
    let m = Mapping::create(4096).unwrap();
    m.bytes().fill(span(0, 4096), 4).unwrap();
    assert_eq!(fd_passing::send_fd(&a, m.fd().unwrap(), b"region").unwrap(), IoOutcome::Bytes(6));
    let mut text = [0; 16];
    let (moved, fd) = fd_passing::recv_with_fd(&b, &mut text).unwrap();
    assert_eq!((moved, &text[..6]), (IoOutcome::Bytes(6), b"region".as_slice()));
    let fd = fd.unwrap().unwrap();
    assert!(rustix::io::fcntl_getfd(&fd).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
    assert_eq!(read(&Mapping::map_peer(fd, 4096, 0, RW).unwrap(), 4095, 1), [4]);
    assert!(matches!(fd_passing::send_fd(&a, m.fd().unwrap(), b""), Err(IoError::Os { .. })));
    // Without a descriptor, and after the end.
    assert_eq!(io::send_parts(&a, &[SendPart::Private(b"q")]).unwrap(), IoOutcome::Bytes(1));
    let (moved, fd) = fd_passing::recv_with_fd(&b, &mut text).unwrap();
    assert!(moved == IoOutcome::Bytes(1) && fd.is_none());
    b.set_nonblocking(true).unwrap();
    assert_eq!(fd_passing::recv_with_fd(&b, &mut text).unwrap().0, IoOutcome::WouldBlock);
    drop(a);
    assert_eq!(fd_passing::recv_with_fd(&b, &mut text).unwrap().0, IoOutcome::Closed);
}

#[test]
fn of_many_descriptors_only_the_first_is_kept() {
    let (a, b) = UnixStream::pair().unwrap();
    let m = Mapping::create(1).unwrap();
    let fds = [m.fd().unwrap(); 200];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(200))];
    let mut control = rustix::net::SendAncillaryBuffer::new(&mut space);
    assert!(control.push(rustix::net::SendAncillaryMessage::ScmRights(&fds)));
    let flags = rustix::net::SendFlags::empty();
    rustix::net::sendmsg(&a, &[std::io::IoSlice::new(b"x")], &mut control, flags).unwrap();
    let (moved, fd) = fd_passing::recv_with_fd(&b, &mut [0; 1]).unwrap();
    assert_eq!(moved, IoOutcome::Bytes(1));
    let kept = fd.unwrap().unwrap();
    let same = rustix::fs::fstat(kept.as_fd()).unwrap().st_ino
        == rustix::fs::fstat(m.fd().unwrap()).unwrap().st_ino;
    assert!(same);
    // Descriptors with our memfd's inode: the mapping's and the kept one.
    let ino = rustix::fs::fstat(&kept).unwrap().st_ino;
    let open = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|e| std::fs::metadata(e.ok()?.path()).ok())
        .filter(|m| std::os::unix::fs::MetadataExt::ino(m) == ino)
        .count();
    assert_eq!(open, 2);
}
