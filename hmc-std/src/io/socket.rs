//! A connected stream socket for links and data planes: returns the number of bytes moved, 0 at the end of the
//! stream, or an errno.
//!
//! All bytes of a session pass through this module. The caller may provide a socket ([`ByteStream`]); then the same
//! links, data planes and handshakes run without a kernel.

use std::net::SocketAddr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use hmc_mem::error::MemError;
use hmc_mem::os::fd_passing;
use hmc_mem::os::io::{IoError, IoOutcome, MAX_PARTS, RecvPart, SendPart, recv_parts, send_parts};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, Shutdown};

use crate::io::byte_stream::ByteStream;

type Result<T> = std::result::Result<T, Errno>;

/// One end of a connection. Never blocks.
#[derive(Debug)]
pub(crate) enum Socket {
    /// The system's. A local one may bring descriptors; not while it is plain.
    System { fd: OwnedFd, local: bool, plain: AtomicBool },
    /// One that was handed in.
    Given(Box<dyn ByteStream>),
}

impl From<Box<dyn ByteStream>> for Socket {
    fn from(stream: Box<dyn ByteStream>) -> Self {
        Self::Given(stream)
    }
}

impl From<OwnedFd> for Socket {
    fn from(fd: OwnedFd) -> Self {
        let local = rustix::net::sockopt::socket_domain(&fd) == Ok(AddressFamily::UNIX);
        let plain = AtomicBool::new(!local || !fd_passing::is_allowed(&fd));
        Self::System { fd, local, plain }
    }
}

fn moved(r: std::result::Result<IoOutcome, IoError>) -> Result<usize> {
    match r {
        Ok(IoOutcome::Bytes(n)) => Ok(n),
        Ok(IoOutcome::Closed) => Ok(0),
        Ok(IoOutcome::WouldBlock) => Err(Errno::AGAIN),
        Err(IoError::Broken) => Err(Errno::PIPE),
        Err(IoError::Os { errno }) => Err(Errno::from_raw_os_error(errno)),
        Err(_) => Err(Errno::INVAL),
    }
}

impl Socket {
    /// What the kernel can be asked to watch, if the kernel knows this socket.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::System { fd, .. } => Some(fd.as_fd()),
            Self::Given(_) => None,
        }
    }

    /// Where the other end is, over TCP.
    pub(crate) fn peer_address(&self) -> Option<SocketAddr> {
        let peer = rustix::net::getpeername(self.fd()?).ok()?;
        peer.and_then(|a| SocketAddr::try_from(a).ok())
    }

    /// Where this end is, over TCP.
    pub(crate) fn own_address(&self) -> Option<SocketAddr> {
        let own = rustix::net::getsockname(self.fd()?).ok()?;
        SocketAddr::try_from(own).ok()
    }

    /// Sends private bytes.
    pub(crate) fn send(&self, bytes: &[u8]) -> Result<usize> {
        match self {
            Self::System { fd, .. } => loop {
                match rustix::net::send(fd, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                    Err(Errno::INTR) => {}
                    r => return r,
                }
            },
            Self::Given(stream) => stream.send(bytes),
        }
    }

    /// Has the kernel of a TCP connection take bytes, and say that it would, only when all earlier ones are on their way
    /// (`TCP_NOTSENT_LOWAT`, tcp(7)). Bytes that are not can be lost: the kernel of a process that ends while it has not
    /// read everything resets the connection, and sends nothing more. Whether it does so.
    pub(crate) fn take_when_sent(&self) -> bool {
        match self {
            Self::System { fd, .. } => hmc_mem::os::io::take_when_sent(fd).is_ok(),
            Self::Given(_) => false,
        }
    }

    /// Whether the kernel takes bytes now.
    pub(crate) fn has_space(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, poll};
        let Some(fd) = self.fd() else { return true };
        let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::OUT)], Some(&now)) != Ok(0)
    }

    /// Receives into private bytes.
    pub(crate) fn recv(&self, into: &mut [u8]) -> Result<usize> {
        match self {
            // The kernel would close descriptors at once, which may take as long as the peer wants.
            Self::System { fd, plain, .. } if !plain.load(Ordering::Relaxed) => {
                moved(recv_parts(fd, &mut [RecvPart::Private(into)]))
            }
            Self::System { fd, .. } => loop {
                match rustix::net::recv(fd, &mut *into, RecvFlags::DONTWAIT) {
                    Err(Errno::INTR) => {}
                    Err(e) => return Err(e),
                    Ok((n, _)) => return Ok(n),
                }
            },
            Self::Given(stream) => stream.recv(into),
        }
    }

    /// As [`Self::recv`], but the bytes stay there to be received.
    pub(crate) fn peek(&self, into: &mut [u8]) -> Result<usize> {
        match self {
            Self::System { fd, .. } => loop {
                match rustix::net::recv(fd, &mut *into, RecvFlags::DONTWAIT | RecvFlags::PEEK) {
                    Err(Errno::INTR) => {}
                    Err(e) => return Err(e),
                    Ok((n, _)) => return Ok(n),
                }
            },
            Self::Given(stream) => stream.peek(into),
        }
    }

    /// Whether no bytes come after those that have come.
    pub(crate) fn has_ended(&self) -> bool {
        match self {
            Self::System { fd, .. } => {
                let ends = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
                let mut fds = [PollFd::new(fd, PollFlags::RDHUP)];
                let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
                rustix::event::poll(&mut fds, Some(&now)).is_ok()
                    && fds.iter().any(|fd| fd.revents().intersects(ends))
            }
            Self::Given(stream) => stream.has_ended(),
        }
    }

    /// Sends parts in order: as many bytes as there is space for, and at least some of the first part that has any.
    pub(crate) fn send_parts(&self, parts: &[SendPart<'_>]) -> Result<usize> {
        match (self, parts) {
            (Self::System { fd, .. }, _) => moved(send_parts(fd, parts)),
            (Self::Given(stream), [SendPart::Private(head), SendPart::Shared(bytes, span), ..]) => {
                stream.send_vectored(head, bytes, *span)
            }
            (Self::Given(stream), _) => {
                let bytes = parts.iter().find_map(|part| match part {
                    SendPart::Private(bytes) => Some(*bytes).filter(|b| !b.is_empty()),
                    SendPart::Shared(..) => None,
                });
                stream.send(bytes.unwrap_or_default())
            }
        }
    }

    /// How many spans of shared bytes one call of [`Self::recv_parts`] can receive into.
    pub(crate) fn max_places(&self) -> usize {
        match self {
            Self::System { .. } => MAX_PARTS,
            Self::Given(_) => 1,
        }
    }

    /// Receives into places in order: at most [`Self::max_places`] spans of shared bytes, and private bytes behind them.
    pub(crate) fn recv_parts(&self, places: &mut [RecvPart<'_>]) -> Result<usize> {
        match (self, places) {
            (Self::System { fd, .. }, places) => moved(recv_parts(fd, places)),
            (Self::Given(stream), [RecvPart::Shared(bytes, span), rest @ ..]) => {
                let tail = match rest {
                    [RecvPart::Private(tail)] => tail,
                    _ => &mut [][..],
                };
                stream.recv_vectored(bytes, *span, tail)
            }
            (Self::Given(_), _) => Err(Errno::INVAL),
        }
    }

    /// Lets the peer pass descriptors, on the connection on which it is to. From the start none may come over those that this
    /// process dials or accepts, where the kernel can see to that.
    pub(crate) fn let_descriptors_in(&self) {
        if let Self::System { fd, local: true, plain } = self {
            // In this order: none comes before it is looked for.
            plain.store(false, Ordering::SeqCst);
            fd_passing::allow(fd, true);
        }
    }

    /// Sends bytes together with a descriptor.
    pub(crate) fn send_fd(&self, bytes: &[u8], passed: &OwnedFd) -> Result<usize> {
        match self {
            Self::System { fd, .. } => moved(fd_passing::send_fd(fd, passed, bytes)),
            // Only local sockets of the kernel carry descriptors.
            Self::Given(_) => Err(Errno::OPNOTSUPP),
        }
    }

    /// Receives bytes and the descriptor that came with them, if any, or why it could not be taken.
    pub(crate) fn recv_with_fd(
        &self,
        into: &mut [u8],
    ) -> Result<(usize, Option<std::result::Result<OwnedFd, MemError>>)> {
        match self {
            Self::System { fd, .. } => match fd_passing::recv_with_fd(fd, into) {
                Ok((m, passed)) => Ok((moved(Ok(m))?, passed)),
                Err(e) => Err(moved(Err(e)).err().unwrap_or(Errno::INVAL)),
            },
            Self::Given(_) => Err(Errno::OPNOTSUPP),
        }
    }

    /// Ends our direction: the peer reads the end of the stream. Whether it has ended its own can still be seen.
    pub(crate) fn end_sending(&self) {
        match self {
            Self::System { fd, .. } => {
                let _ = rustix::net::shutdown(fd, Shutdown::Write);
            }
            Self::Given(stream) => stream.shutdown(),
        }
    }

    /// As [`Self::shutdown`], where what was not received may hold descriptors. Bytes on their way stay so over TCP.
    pub(crate) fn end_if_local(&self) {
        if let Self::System { fd, local: true, .. } = self {
            fd_passing::end(fd);
        }
    }

    /// Ends both directions; whoever waits on the socket wakes.
    pub(crate) fn shutdown(&self) {
        match self {
            Self::System { fd, local: true, .. } => fd_passing::end(fd),
            Self::System { fd, .. } => {
                let _ = rustix::net::shutdown(fd, Shutdown::Both);
            }
            Self::Given(stream) => stream.shutdown(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Socket;
    use hmc_mem::os::fd_passing;
    use hmc_mem::os::io::RecvPart;
    use hmc_mem::shared::SharedBytes;
    use rustix::io::Errno;
    use std::io::Write as _;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    /// The end of a payload and the next header come by one call.
    #[test]
    fn what_follows_a_span_goes_into_the_tail() {
        let (near, mut far) = UnixStream::pair().expect("a pair");
        near.set_nonblocking(true).expect("a socket");
        let socket = Socket::from(OwnedFd::from(near));
        let mut memory = [0; 8];
        let shared = SharedBytes::of_mut(&mut memory);
        let span = shared.extent().whole();
        let mut tail = [0; 6];
        far.write_all(b"payload.head").expect("space");
        let recv = |tail: &mut [u8]| {
            socket.recv_parts(&mut [RecvPart::Shared(shared, span), RecvPart::Private(tail)])
        };
        assert_eq!(recv(&mut tail), Ok(12));
        assert_eq!(&tail, b"head\0\0");
        far.write_all(b"PAYLOAD.head").expect("space");
        assert_eq!(recv(&mut []), Ok(8));
        let mut got = [0; 8];
        shared.read_at(span, &mut got).expect("all of it");
        assert_eq!(&got, b"PAYLOAD.");
        assert_eq!(recv(&mut tail), Ok(4), "what was left");
        assert_eq!(recv(&mut tail), Err(Errno::AGAIN));
    }

    /// Where the kernel cannot keep descriptors out, or may not, they are received with the bytes and closed here.
    #[test]
    fn descriptors_are_kept_out_or_closed() {
        let (near, far) = UnixStream::pair().expect("a pair");
        let (held, gone) = UnixStream::pair().expect("a pair");
        let refuses = {
            let (probe, _) = UnixStream::pair().expect("a pair");
            fd_passing::allow(&probe, false);
            !fd_passing::is_allowed(&probe)
        };
        fd_passing::allow(&near, false);
        near.set_nonblocking(true).expect("a socket");
        let socket = Socket::from(OwnedFd::from(near));
        let sent = fd_passing::send_fd(&far, &gone, b"one");
        assert_eq!(sent.is_err(), refuses, "{sent:?}");
        socket.let_descriptors_in();
        let sent = fd_passing::send_fd(&far, &gone, b"two");
        assert!(sent.is_ok(), "{sent:?}");
        drop(gone);
        let mut bytes = [0; 16];
        while let Ok(n) = socket.recv(&mut bytes) {
            assert!(n > 0);
        }
        // Nobody has the other end any more.
        let ended = rustix::net::recv(&held, &mut bytes[..], rustix::net::RecvFlags::DONTWAIT);
        assert_eq!(ended.map(|(n, _)| n), Ok::<_, Errno>(0));
    }
}
