//! Closes descriptors that a peer has passed.

use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};

/// Closes a descriptor that a peer has passed. The last close of a socket may wait for as long as its owner has set
/// (SO_LINGER, socket(7)): it does not here.
pub(super) fn close(fd: OwnedFd) {
    if is_socket(&fd) {
        let _ = rustix::net::sockopt::set_socket_linger(&fd, None);
    }
    drop(fd);
}

/// Returns whether a descriptor is a socket.
pub(super) fn is_socket(fd: &OwnedFd) -> bool {
    let stat = rustix::fs::fstat(fd);
    stat.is_ok_and(|s| rustix::fs::FileType::from_raw_mode(s.st_mode).is_socket())
}

/// Closes the descriptors that came with a message where none may come.
#[cold]
pub(super) fn close_all(message: &libc::msghdr) {
    // SAFETY: recvmsg(2) has filled `message`, whose control part lives in the caller's frame.
    let mut at = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !at.is_null() {
        // SAFETY: cmsg(3): not null, so a whole header lies there.
        let head = unsafe { at.read() };
        if (head.cmsg_level, head.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
            // SAFETY: as above: the data follows the header.
            let first = unsafe { libc::CMSG_DATA(at) }.cast::<RawFd>();
            let before = first.addr().wrapping_sub(at.addr());
            let bytes = head.cmsg_len.saturating_sub(before);
            for n in 0..bytes.checked_div(size_of::<RawFd>()).unwrap_or(0) {
                // SAFETY: unix(7): the data is an array of descriptors, as long as the header says.
                let fd = unsafe { first.wrapping_add(n).read_unaligned() };
                // SAFETY: the kernel has just made it for this message; nobody else knows it.
                close(unsafe { OwnedFd::from_raw_fd(fd) });
            }
        }
        // SAFETY: as for the first.
        at = unsafe { libc::CMSG_NXTHDR(message, at) };
    }
}
