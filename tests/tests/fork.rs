//! The child of a fork may not use its parent's session, and does it no harm. Alone in its file:
//! a fork copies whatever other threads hold.

#![allow(clippy::unwrap_used, clippy::arithmetic_side_effects, reason = "tests may panic")]

use std::time::Duration;

use hmc_std::{ErrorKind, Session};
use hmc_tests::scene::TempDir;

#[test]
fn a_forked_child_is_told_so_and_the_parent_goes_on() {
    let dir = TempDir::new();
    let target = Session::builder(1).uds(dir.path()).tcp("127.0.0.1:0").buffer(1 << 20).start();
    let target = target.unwrap();
    let source = Session::builder(0).buffer(1 << 20).start().unwrap();
    let peer = source.connect(1, &dir.address()).unwrap();
    peer.put(0, 0, 4096).unwrap();
    let before = target.buffer().crc32c(0, 1 << 20).unwrap();
    // SAFETY: fork(2). The child calls into the session (the subject of the test) and ends by
    // `_exit`; glibc makes malloc usable in the child of a process with threads.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "no fork");
    if pid == 0 {
        let forked = |e: Option<ErrorKind>| e == Some(ErrorKind::Forked);
        let kind = |e: hmc_std::Error| e.kind();
        let answers = [
            source.connect(1, &dir.address()).err().map(kind),
            peer.put(0, 8192, 4096).err().map(kind),
            peer.get(0, 8192, 4096).err().map(kind),
            peer.put_nb(0, 8192, 4096).err().map(kind),
            peer.put_notify(0, 8192, 4096, 1).err().map(kind),
            peer.send_tag(1).err().map(kind),
            peer.recv_tag().err().map(kind),
            source.loopback().err().map(kind),
            source.wait_peer(1, Duration::from_secs(1)).err().map(kind),
            source.allocate(4096).err().map(kind),
        ];
        let wrong = answers.iter().position(|a| !forked(*a));
        drop(peer);
        drop(source);
        drop(target);
        // SAFETY: _exit(2) ends the child at once, without the destructors of the parent's things.
        unsafe { libc::_exit(wrong.map_or(0, |at| 10 + i32::try_from(at).unwrap_or(0))) };
    }
    let mut status = 0;
    // SAFETY: waitpid(2) on the child made above; `status` is a valid place for the answer.
    let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!(waited, pid);
    assert!(libc::WIFEXITED(status), "the child was killed: status {status:#x}");
    let code = libc::WEXITSTATUS(status);
    assert_eq!(code, 0, "answer {} of the child was not Forked", code - 10);
    // The parent is as it was: its bytes, its link, its socket's file.
    assert_eq!(target.buffer().crc32c(0, 1 << 20).unwrap(), before);
    source.buffer().fill(0, 4096, 3).unwrap();
    peer.put(0, 8192, 4096).unwrap();
    peer.send_tag(7).unwrap();
    assert_eq!(target.ctrl_recv(0).unwrap(), 7);
    let third = Session::builder(2).buffer(4096).start().unwrap();
    third.connect(1, &dir.address()).expect("the socket's file is still there");
}
