//! A process without descriptors. The limit is the process's, so that this is its only test.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::os::unix::net::UnixStream;

use hmc_mem::error::MemError;
use hmc_mem::os::fd_passing::{recv_with_fd, send_fd};
use hmc_mem::os::io::IoOutcome;
use hmc_mem::os::memfd::Mapping;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// A full table is told from bytes without a descriptor, and the next message has its own again.
#[test]
fn a_descriptor_that_finds_no_space_is_reported() {
    let (a, b) = UnixStream::pair().unwrap();
    let m = Mapping::create(4096).unwrap();
    let send = || send_fd(&a, m.fd().unwrap(), b"x").unwrap();
    assert_eq!([send(), send()], [IoOutcome::Bytes(1); 2]);
    let mut byte = [0; 1];
    let old = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(0), maximum: old.maximum }).unwrap();
    let dropped = recv_with_fd(&b, &mut byte).unwrap();
    setrlimit(Resource::Nofile, old).unwrap();
    assert_eq!(dropped.0, IoOutcome::Bytes(1));
    assert_eq!(dropped.1.unwrap().unwrap_err(), MemError::NoFds { limit: 0 });
    let (moved, fd) = recv_with_fd(&b, &mut byte).unwrap();
    assert_eq!(moved, IoOutcome::Bytes(1));
    fd.unwrap().unwrap();
}
