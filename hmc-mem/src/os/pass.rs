//! Passing a descriptor over a Unix socket (SCM_RIGHTS, unix(7)).
//!
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

/// Receives into `bytes`, at least one, and the descriptor that came beside them, if any.
///
/// # Errors
/// [`IoError`].
pub fn recv_with_fd(
    socket: impl AsFd,
    bytes: &mut [u8],
) -> Result<(Moved, Option<OwnedFd>), IoError> {
    loop {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        match recvmsg(&socket, &mut [IoSliceMut::new(bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)
        {
            Ok(got) => {
                let mut first = None;
                for message in control.drain() {
                    if let RecvAncillaryMessage::ScmRights(fds) = message {
                        // Those that are not kept are closed as they are dropped.
                        for fd in fds {
                            first.get_or_insert(fd);
                        }
                    }
                }
                let moved = match got.bytes {
                    0 if !bytes.is_empty() => Moved::Closed,
                    n => Moved::Bytes(n),
                };
                return Ok((moved, first));
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok((Moved::WouldBlock, None)),
            Err(e) => return Err(IoError::from_errno(e.raw_os_error())),
        }
    }
}
