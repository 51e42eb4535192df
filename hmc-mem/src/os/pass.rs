//! Passing a descriptor over a Unix socket (SCM_RIGHTS, unix(7)).
//!
//! What a peer passes is never closed by the kernel alone, which would wait where the peer has set it so: [`close`] does it.
//! A received descriptor is close-on-exec from the start. Of several that a peer sends at once only the first
//! is kept; the others are closed, so that no peer can fill our table.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use super::io::{IoError, Moved};

/// unix(7): the most descriptors that one message may carry (SCM_MAX_FD). Room for all of them, so that
/// none is left in a truncated message.
const MAX_FDS: usize = 253;

/// Sends `bytes`, at least one, with a descriptor beside the first of them. When fewer bytes were sent than
/// given, the descriptor has gone: send the rest without it.
///
/// # Errors
/// [`IoError`]; EINVAL for no bytes at all, since a stream carries descriptors only beside bytes.
pub fn send_fd(socket: impl AsFd, fd: impl AsFd, bytes: &[u8]) -> Result<Moved, IoError> {
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
            Ok(n) => return Ok(Moved::Bytes(n)),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(Moved::WouldBlock),
            Err(e) => return Err(IoError::from_errno(e.raw_os_error())),
        }
    }
}

/// Receives into `bytes`, at least one, and the descriptor that came beside them, if any. Sockets are not among those that
/// are kept.
///
/// # Errors
/// [`IoError`].
pub fn recv_with_fd(
    socket: impl AsFd,
    bytes: &mut [u8],
) -> Result<(Moved, Option<OwnedFd>), IoError> {
    let mut first = None;
    let moved = recv(socket, bytes, |fd| {
        if first.is_none() && !is_socket(&fd) {
            first = Some(fd);
        } else {
            close(fd);
        }
    })?;
    Ok((moved, first))
}

/// Ends both directions of a connection and receives what is left in it: descriptors among that would else be closed by
/// the kernel, as the last close of this socket ends it.
pub fn end(socket: impl AsFd) {
    let _ = rustix::net::shutdown(&socket, rustix::net::Shutdown::Both);
    // Nothing is added any more, so that this comes to an end.
    while let Ok(Moved::Bytes(_)) = recv(&socket, &mut [0; 4096], close) {}
}

/// Closes a descriptor that a peer has passed. The last close of a socket may wait for as long as its owner has set
/// (SO_LINGER, socket(7)): it does not here.
pub fn close(fd: OwnedFd) {
    if is_socket(&fd) {
        let _ = rustix::net::sockopt::set_socket_linger(&fd, None);
    }
    drop(fd);
}

fn is_socket(fd: &OwnedFd) -> bool {
    let stat = rustix::fs::fstat(fd);
    stat.is_ok_and(|s| rustix::fs::FileType::from_raw_mode(s.st_mode).is_socket())
}

/// Receives once; each descriptor goes to `take`.
fn recv(
    socket: impl AsFd,
    bytes: &mut [u8],
    mut take: impl FnMut(OwnedFd),
) -> Result<Moved, IoError> {
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
                return Ok(match got.bytes {
                    0 if !bytes.is_empty() => Moved::Closed,
                    n => Moved::Bytes(n),
                });
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(Moved::WouldBlock),
            Err(e) => return Err(IoError::from_errno(e.raw_os_error())),
        }
    }
}
