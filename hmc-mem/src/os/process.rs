//! The process at the other end of a Unix socket, as the kernel recorded it at the connection (unix(7)).

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd};

use super::io::{IoError, last_errno};

/// The user and process at the other end of a socket: the one that connected, or that listened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// The effective user id.
    pub uid: u32,
    /// The process id; `None` if the process is in a PID namespace that is not visible here.
    pub pid: Option<u32>,
}

/// Returns the user and process at the other end (`SO_PEERCRED`, unix(7)). If the socket is not local, the user is
/// `u32::MAX` and there is no process.
///
/// # Errors
/// [`IoError`] if the descriptor is not a socket.
pub fn credentials(socket: impl AsFd) -> Result<Credentials, IoError> {
    let who: libc::ucred = option(socket, libc::SO_PEERCRED)?;
    // Zero for a process that has no number here.
    let pid = u32::try_from(who.pid).ok().filter(|pid| *pid != 0);
    Ok(Credentials { uid: who.uid, pid })
}

/// Returns a pidfd of the process at the other end (`SO_PEERPIDFD`, Linux 6.5), which refers to that process even if
/// its id has been reused. It is close-on-exec.
///
/// # Errors
/// [`IoError::Os`] with ENOPROTOOPT before Linux 6.5; with EINVAL or ESRCH if the process has been waited for (later
/// kernels return a pidfd that is readable).
pub fn pidfd(socket: impl AsFd) -> Result<OwnedFd, IoError> {
    let fd: libc::c_int = option(socket, libc::SO_PEERPIDFD)?;
    // SAFETY: the kernel made this descriptor for the call; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A plain structure of numbers that the kernel fills.
trait Answer: Copy {}
impl Answer for libc::ucred {}
impl Answer for libc::c_int {}

fn option<T: Answer>(socket: impl AsFd, name: libc::c_int) -> Result<T, IoError> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut len = libc::socklen_t::try_from(size_of::<T>()).unwrap_or(0);
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: getsockopt(2) writes at most `len` bytes to `value`, which has as many.
    let failed = unsafe {
        libc::getsockopt(fd, libc::SOL_SOCKET, name, value.as_mut_ptr().cast(), &raw mut len)
    };
    if failed != 0 {
        return Err(IoError::from_errno(last_errno()));
    }
    // SAFETY: zeros, then what the kernel wrote: for structures of numbers all of that is a value.
    Ok(unsafe { value.assume_init() })
}

#[cfg(test)]
mod tests {
    use super::{Credentials, credentials};
    use crate::os::fork::tests::in_child;
    use std::os::unix::net::UnixStream;

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no SO_PEERCRED")]
    fn the_other_end_is_named() {
        let (a, _b) = UnixStream::pair().expect("a pair");
        // SAFETY: geteuid(2) takes nothing and cannot fail.
        let uid = unsafe { libc::geteuid() };
        let here = Credentials { uid, pid: Some(std::process::id()) };
        assert_eq!(credentials(&a), Ok(here));
    }

    /// As between containers that share a folder of sockets, each with its own processes.
    #[test]
    #[cfg_attr(miri, ignore = "Miri has no unshare(2)")]
    fn a_process_without_a_number_here_has_none() {
        let (a, _b) = UnixStream::pair().expect("a pair");
        let status = in_child(|| {
            // SAFETY: unshare(2) takes a number; the child has one thread.
            let unshare = |what| unsafe { libc::unshare(what) } == 0;
            let apart =
                unshare(libc::CLONE_NEWPID) || unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWPID);
            if !apart {
                // SAFETY: _exit(2) takes a number.
                unsafe { libc::_exit(77) };
            }
            // Its first child is the first process of the new namespace, which does not see this one.
            in_child(|| credentials(&a).is_ok_and(|who| who.pid.is_none())) == 0
        });
        // 77: this system lets nobody make one.
        let refused = status == 77 << 8;
        assert!(status == 0 || refused, "{status:#x}");
    }
}
