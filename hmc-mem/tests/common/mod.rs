//! Shared by the tests of the modules under `os`: spans, whole reads, forked children.
#![allow(dead_code, reason = "each test crate uses a part")]

use std::os::fd::OwnedFd;

use hmc_core::range::{ByteRange, Extent, Side};
use hmc_core::types::Access;
use hmc_mem::os::memfd::Mapping;

pub(crate) const RW: Access = Access::READ.union(Access::WRITE);

pub(crate) fn span(offset: u64, len: u64) -> ByteRange {
    Extent::new(u64::MAX).span(Side::Local, offset, len).unwrap()
}

pub(crate) fn read(m: &Mapping, at: u64, len: u64) -> Vec<u8> {
    let mut into = vec![0; len.try_into().unwrap()];
    m.bytes().read_at(span(at, len), &mut into).unwrap();
    into
}

pub(crate) fn dup(m: &Mapping) -> OwnedFd {
    m.fd().unwrap().try_clone_to_owned().unwrap()
}

/// Says, where `cargo xtask` counts it, that a test was not run and why. Not by `println!`, which the harness keeps to itself.
pub(crate) fn skipped(why: &str) {
    use std::io::Write as _;
    // In one piece: other tests print too.
    std::io::stdout().write_all(format!("\nSKIPPED: {why}\n").as_bytes()).unwrap();
}

/// Runs `child` in a forked process and gives its exit status, or 128 + signal.
pub(crate) fn forked(child: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child of a threaded process makes only system calls and plain memory accesses (see each
    // use) and ends with _exit.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let code = child();
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(code) };
    }
    wait(pid)
}

pub(crate) fn wait(pid: i32) -> i32 {
    let mut status = 0;
    // SAFETY: `pid` is our child; `status` is a live int.
    let got = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!(got, pid);
    if libc::WIFSIGNALED(status) { 128 + libc::WTERMSIG(status) } else { libc::WEXITSTATUS(status) }
}
