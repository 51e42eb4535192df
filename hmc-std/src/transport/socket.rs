//! Socket calls as the ports want them: bytes moved, 0 at the end of the stream, or an errno.

use std::os::fd::{AsFd, OwnedFd};

use hmc_core::span::Span;
use hmc_mem::os::io::{IoError, Moved, Part, recv_into, recv_into_then, send_parts, send_with};
use hmc_mem::os::pass;
use hmc_mem::shared::SharedBytes;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

type Result<T> = std::result::Result<T, Errno>;

fn moved(r: std::result::Result<Moved, IoError>) -> Result<usize> {
    match r {
        Ok(Moved::Bytes(n)) => Ok(n),
        Ok(Moved::Closed) => Ok(0),
        Ok(Moved::WouldBlock) => Err(Errno::AGAIN),
        Err(IoError::Broken) => Err(Errno::PIPE),
        Err(IoError::Os { errno }) => Err(Errno::from_raw_os_error(errno)),
        Err(_) => Err(Errno::INVAL),
    }
}

/// Sends private bytes.
pub(crate) fn send(fd: impl AsFd, bytes: &[u8]) -> Result<usize> {
    loop {
        match rustix::net::send(&fd, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Err(Errno::INTR) => {}
            r => return r,
        }
    }
}

/// Receives into private bytes.
pub(crate) fn recv(fd: impl AsFd, into: &mut [u8]) -> Result<usize> {
    loop {
        match rustix::net::recv(&fd, &mut *into, RecvFlags::DONTWAIT) {
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
            Ok((n, _)) => return Ok(n),
        }
    }
}

/// Sends private bytes, then a span of shared ones.
pub(crate) fn send_vectored(
    fd: impl AsFd,
    head: &[u8],
    bytes: &SharedBytes<'_>,
    span: Span,
) -> Result<usize> {
    if head.is_empty() {
        return moved(send_parts(fd, &[Part::Shared(*bytes, span)]));
    }
    moved(send_with(fd, head, bytes, span))
}

/// Receives into a span of shared bytes, then into private ones.
pub(crate) fn recv_vectored(
    fd: impl AsFd,
    bytes: &SharedBytes<'_>,
    span: Span,
    tail: &mut [u8],
) -> Result<usize> {
    if tail.is_empty() {
        return moved(recv_into(fd, bytes, span));
    }
    moved(recv_into_then(fd, bytes, span, tail))
}

/// Sends bytes together with a descriptor.
pub(crate) fn send_fd(fd: impl AsFd, bytes: &[u8], passed: &OwnedFd) -> Result<usize> {
    moved(pass::send_fd(fd, passed, bytes))
}

/// Receives bytes and the descriptor that came with them, if any.
pub(crate) fn recv_with_fd(fd: impl AsFd, into: &mut [u8]) -> Result<(usize, Option<OwnedFd>)> {
    match pass::recv_with_fd(fd, into) {
        Ok((m, passed)) => Ok((moved(Ok(m))?, passed)),
        Err(e) => Err(moved(Err(e)).err().unwrap_or(Errno::INVAL)),
    }
}
