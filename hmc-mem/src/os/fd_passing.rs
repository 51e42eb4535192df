//! Passing a descriptor over a Unix socket (SCM_RIGHTS, unix(7)).
//!
//! HMC closes every passed descriptor itself (`descriptor`), because a peer can prepare one whose close blocks. A
//! received descriptor is close-on-exec from the start. Of several that a peer sends at once only the first is kept
//! and the others are closed, so no peer can fill the descriptor table. If the table is full, the kernel delivers
//! the bytes and drops the descriptor (MSG_CTRUNC, recvmsg(2)); the result distinguishes this from bytes without a
//! descriptor.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use super::descriptor::{close, is_socket};
use super::io::{IoError, IoOutcome};
use super::limits;
use crate::error::MemError;

/// unix(7): the most descriptors that one message may carry (SCM_MAX_FD). Space for all of them, so that no peer can have
/// the kernel truncate them for lack of space here; nothing else is asked for that would take some of it.
const MAX_FDS: usize = 253;

/// SO_PASSRIGHTS (include/uapi/asm-generic/socket.h, Linux 6.16): whether the other end of a local socket may pass
/// descriptors.
const SO_PASSRIGHTS: libc::c_int = 83;

/// Sets whether the other end of a local socket may pass descriptors. If not, the kernel refuses its sendmsg(2) with
/// EPERM (`SO_PASSRIGHTS`, Linux 6.16); earlier kernels ignore the call. A socket allows it by default; an accepted
/// connection inherits the setting of its listener.
pub fn allow(socket: impl AsFd, yes: bool) {
    let word = libc::c_int::from(yes);
    let len = size_of_val(&word).try_into().unwrap_or(0);
    let (fd, at) = (socket.as_fd().as_raw_fd(), (&raw const word).cast());
    // SAFETY: `at` points to `len` bytes of a number that outlives the call; setsockopt(2) only reads them.
    let _ = unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, SO_PASSRIGHTS, at, len) };
}

/// Returns `true` if the other end of a local socket may pass descriptors. Before Linux 6.16 it always may.
pub fn is_allowed(socket: impl AsFd) -> bool {
    let mut word: libc::c_int = 1;
    let mut len = size_of_val(&word).try_into().unwrap_or(0);
    let (fd, at) = (socket.as_fd().as_raw_fd(), (&raw mut word).cast());
    // SAFETY: `at` points to `len` bytes of a number that getsockopt(2) may write, and `len` to their count.
    let asked = unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, SO_PASSRIGHTS, at, &raw mut len) };
    asked != 0 || word != 0
}

/// Sends `bytes`, at least one, and a descriptor with the first of them (`SCM_RIGHTS`). If fewer bytes were sent than
/// given, the descriptor has been sent: send the rest without it.
///
/// # Errors
/// [`IoError`]; EINVAL if `bytes` is empty, because a stream carries descriptors only with bytes.
pub fn send_fd(socket: impl AsFd, fd: impl AsFd, bytes: &[u8]) -> Result<IoOutcome, IoError> {
    if bytes.is_empty() {
        return Err(IoError::Os { errno: Errno::INVAL.raw_os_error() });
    }
    let fds = [fd.as_fd()];
    loop {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !control.push(SendAncillaryMessage::ScmRights(&fds)) {
            return Err(IoError::Os { errno: Errno::NOMEM.raw_os_error() });
        }
        match sendmsg(&socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL) {
            Ok(n) => return Ok(IoOutcome::Bytes(n)),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(IoOutcome::WouldBlock),
            Err(e) => return Err(IoError::from_errno(e.raw_os_error())),
        }
    }
}

/// Receives into `bytes`, at least one, and the descriptor that was sent with them, if any. A received socket is
/// closed. One call receives the descriptors of at most one message, which ends the received bytes (unix(7)).
///
/// The descriptor is [`MemError::NoFds`] if the kernel dropped all descriptors of the message: this process has none
/// left, or a security module refused them. If the kernel kept the first of several, the others are not reported.
///
/// # Errors
/// [`IoError`].
pub fn recv_with_fd(
    socket: impl AsFd,
    bytes: &mut [u8],
) -> Result<(IoOutcome, Option<Result<OwnedFd, MemError>>), IoError> {
    let (mut first, mut came) = (None, false);
    let (moved, dropped) = recv(socket, bytes, |fd| {
        came = true;
        if first.is_none() && !is_socket(&fd) {
            first = Some(Ok(fd));
        } else {
            close(fd);
        }
    })?;
    if dropped && !came {
        first = Some(Err(MemError::NoFds { limit: limits::nofile() }));
    }
    Ok((moved, first))
}

/// Ends both directions of a connection and receives the rest of its data. Otherwise the kernel would close the
/// descriptors in that data within the last close of this socket.
pub fn end(socket: impl AsFd) {
    let _ = rustix::net::shutdown(&socket, rustix::net::Shutdown::Both);
    // Nothing is added any more, so that this comes to an end.
    while let Ok((IoOutcome::Bytes(_), _)) = recv(&socket, &mut [0; 4096], close) {}
}

/// Receives once; each descriptor goes to `take`. Says whether the kernel dropped some.
fn recv(
    socket: impl AsFd,
    bytes: &mut [u8],
    mut take: impl FnMut(OwnedFd),
) -> Result<(IoOutcome, bool), IoError> {
    loop {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        match recvmsg(&socket, &mut [IoSliceMut::new(bytes)], &mut control, flags) {
            Ok(got) => {
                for message in control.drain() {
                    if let RecvAncillaryMessage::ScmRights(fds) = message {
                        fds.for_each(&mut take);
                    }
                }
                let moved = match got.bytes {
                    0 if !bytes.is_empty() => IoOutcome::Closed,
                    n => IoOutcome::Bytes(n),
                };
                return Ok((moved, got.flags.contains(ReturnFlags::CTRUNC)));
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok((IoOutcome::WouldBlock, false)),
            Err(e) => return Err(IoError::from_errno(e.raw_os_error())),
        }
    }
}
