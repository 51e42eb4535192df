//! The dialer's side of a handshake: a socket, a state machine, a deadline.

use std::net::SocketAddr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use hmc_core::ctrl::conn::ControlConn;
use hmc_core::ctrl::framer::{Framer, Next};
use hmc_core::ctrl::io::{CloseReason, ControlEvent, ControlOutput};
use hmc_core::time::{Duration, Instant};
use hmc_core::types::{Incarnation, Rank};
use hmc_core::wire::advert::EndpointDesc;
use hmc_core::wire::hello::{Features, HostId, LinkToken, Welcome};
use hmc_core::wire::reject::RejectReason;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, sockopt};

use crate::base::address::Address;
use crate::base::clock;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::paths::socket_path;
use crate::base::polling;
use crate::base::wait_limit::{WaitLimit, WaitStopped};
use crate::conn::proof::Prover;
use crate::io::listener::{local_peer, new_socket, tune_tcp};
use crate::io::socket::Socket;
use crate::link::ctrl::CtrlState;

/// The data of a WELCOME, owned.
pub(crate) struct WelcomeInfo {
    pub(crate) incarnation: Incarnation,
    pub(crate) host: HostId,
    pub(crate) token: LinkToken,
    pub(crate) features: Features,
    pub(crate) shm: Option<PathBuf>,
    pub(crate) tcp: Option<u16>,
    /// The kinds of endpoints that it announced.
    pub(crate) endpoints: Vec<u8>,
}

/// A connection whose first words are being exchanged.
pub(crate) struct Handshake {
    pub(crate) socket: Arc<Socket>,
    pub(crate) control: ControlConn,
    pub(crate) framer: Framer<Vec<u8>>,
    /// What answers a challenge.
    pub(crate) prover: Option<Box<Prover>>,
}

/// Where a handshake came to.
pub(crate) enum HandshakeOutcome {
    Connected(WelcomeInfo),
    Attached,
    Refused(RejectReason),
}

impl Handshake {
    pub(crate) fn new(socket: Socket, control: ControlConn) -> Self {
        Self { socket: Arc::new(socket), control, framer: CtrlState::new_framer(), prover: None }
    }

    pub(crate) fn flush(&mut self) -> Result<()> {
        while let Some(output) = self.control.poll_output() {
            match output {
                ControlOutput::Transmit(frame) => {
                    // Half a kilobyte into an empty socket buffer.
                    match self.socket.send(frame.as_bytes()) {
                        Ok(n) if n == frame.as_bytes().len() => {}
                        Ok(_) => {
                            return Err(Error::new(ErrorKind::Io, "the socket took half a hello"));
                        }
                        // What it sent before, if anything, can still be received.
                        Err(Errno::PIPE | Errno::CONNRESET) => {}
                        Err(e) => return Err(Error::io("cannot say hello", e)),
                    }
                }
                ControlOutput::Close(CloseReason::Refused(_)) | ControlOutput::WakeAt(_) => {}
                ControlOutput::Close(why) => return Err(closed(why)),
            }
        }
        Ok(())
    }

    /// Talks as far as what has come allows: the connection is up, or refused, or (`None`) more must come first.
    pub(crate) fn advance(&mut self, now: Instant) -> Result<Option<HandshakeOutcome>> {
        loop {
            self.flush()?;
            match self.framer.next(self.control.frame_limit()) {
                Ok(Next::Frame(header, payload)) => {
                    let event = self.control.receive(header, payload, now);
                    let event = event
                        .map_err(|v| Error::new(ErrorKind::Protocol, format!("the peer: {v}")))?;
                    match event {
                        Some(ControlEvent::Connected(w)) => {
                            return Ok(Some(HandshakeOutcome::Connected(WelcomeInfo::of(&w))));
                        }
                        Some(ControlEvent::Challenged(challenge)) => {
                            let prover = self.prover.as_ref().ok_or_else(other_question)?;
                            let (must, ours) = prover.answer(&challenge);
                            if !self.control.prove(&must, ours).map_err(invalid_hello)? {
                                return Err(prover.not_believed());
                            }
                        }
                        Some(ControlEvent::Attached) => {
                            return Ok(Some(HandshakeOutcome::Attached));
                        }
                        Some(ControlEvent::Refused(why)) => {
                            return Ok(Some(HandshakeOutcome::Refused(why)));
                        }
                        _ => {}
                    }
                }
                Ok(Next::Need(n)) => {
                    // No byte beyond the frame: what follows may carry descriptors.
                    let space = self.framer.space();
                    let n = n.min(space.len());
                    match self.socket.recv(space.get_mut(..n).unwrap_or_default()) {
                        Ok(0) => return Err(hung_up()),
                        Ok(n) => self.framer.filled(n, now),
                        Err(Errno::AGAIN) => return Ok(None),
                        Err(Errno::PIPE | Errno::CONNRESET) => return Err(hung_up()),
                        Err(e) => return Err(Error::io("cannot receive an answer", e)),
                    }
                }
                Ok(Next::Grow(n)) => {
                    let _ = self.framer.grow(vec![0; n]);
                }
                Err(e) => {
                    return Err(Error::new(
                        ErrorKind::Protocol,
                        format!("what answers there does not speak HMC: {e}"),
                    ));
                }
            }
        }
    }
}

impl WelcomeInfo {
    fn of(w: &Welcome<'_>) -> Self {
        let mut met = Self {
            incarnation: w.hello.incarnation,
            host: w.hello.host,
            token: w.token,
            features: w.hello.features,
            shm: None,
            tcp: None,
            endpoints: w.hello.endpoints.iter().map(|blob| blob.kind).collect(),
        };
        for blob in w.hello.endpoints.iter() {
            match blob.decode() {
                Ok(EndpointDesc::Shm { path }) => {
                    met.shm = std::str::from_utf8(path).ok().map(PathBuf::from);
                }
                Ok(e @ EndpointDesc::Tcp { .. }) => met.tcp = e.port(),
                _ => {}
            }
        }
        met
    }
}

/// Nothing was answered: whoever dials may try again.
fn hung_up() -> Error {
    Error::new(ErrorKind::PeerDead, "the connection was closed before an answer")
}

fn closed(why: CloseReason) -> Error {
    let kind = match why {
        CloseReason::HelloDeadline | CloseReason::Silent => ErrorKind::DeadlineExceeded,
        CloseReason::Eof | CloseReason::Orderly => ErrorKind::Refused,
        _ => ErrorKind::Protocol,
    };
    Error::new(kind, format!("no connection: {why}"))
}

/// Waits until an answer can be read; spins for as long as `spin` before it sleeps.
pub(crate) fn wait_for_answer(
    socket: &Socket,
    spin: std::time::Duration,
    until: WaitLimit,
) -> Result<()> {
    socket.fd().map_or(Ok(()), |fd| wait_for(fd, PollFlags::IN, spin, until, &"connecting"))
}

fn wait_for(
    fd: BorrowedFd<'_>,
    flags: PollFlags,
    spin: std::time::Duration,
    until: WaitLimit,
    what: &dyn std::fmt::Display,
) -> Result<()> {
    let mut timer = until.timer();
    let spin_until = clock::now().after(clock::from_std(spin)).min(until.at);
    loop {
        timer.check().map_err(|stop| stop.error(what))?;
        let spins = clock::now() < spin_until;
        let pause = if spins { Duration::ZERO } else { clock::left(timer.park_until()) };
        let timeout = clock::timespec(pause);
        polling::waits();
        match rustix::event::poll(&mut [PollFd::from_borrowed_fd(fd, flags)], timeout.as_ref()) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(e) => return Err(Error::io("poll", e)),
        }
    }
}

fn finish_connect(
    fd: OwnedFd,
    begun: std::result::Result<(), Errno>,
    what: &dyn std::fmt::Display,
    until: WaitLimit,
) -> Result<OwnedFd> {
    let fail = |e| Error::io(format_args!("cannot connect to {what}"), e);
    match begun {
        Ok(()) => return Ok(fd),
        Err(Errno::INPROGRESS) => {}
        Err(e) => return Err(fail(e)),
    }
    let spin = std::time::Duration::ZERO;
    wait_for(fd.as_fd(), PollFlags::OUT, spin, until, &format_args!("connecting to {what}"))?;
    match sockopt::socket_error(&fd) {
        Ok(Ok(())) => Ok(fd),
        Ok(Err(e)) | Err(e) => Err(fail(e)),
    }
}

/// A connected socket to an address.
pub(crate) fn open(address: &Address, rank: Rank, until: WaitLimit) -> Result<OwnedFd> {
    match address {
        Address::Tcp(addr) | Address::UnauthenticatedTcp(addr) => open_tcp(*addr, until),
        Address::Uds(dir) | Address::Local { dir, .. } => {
            open_path(&socket_path(dir, rank)?, until)
        }
    }
}

/// How long the first attempt at a TCP connection may take, in milliseconds; each later one has twice as long. A listener
/// whose queue is full ignores an attempt, and the kernel repeats it after a second only (tcp(7)).
const FIRST_ATTEMPT_MS: u64 = 100;

fn open_tcp(addr: SocketAddr, until: WaitLimit) -> Result<OwnedFd> {
    let family = if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let mut attempt = FIRST_ATTEMPT_MS;
    loop {
        let fd = new_socket(family)?;
        tune_tcp(fd.as_fd());
        let begun = rustix::net::connect(&fd, &addr);
        let by = clock::now().after(Duration::from_millis(attempt));
        let last = by >= until.at;
        let until = until.with_deadline(by.min(until.at));
        match finish_connect(fd, begun, &Address::Tcp(addr), until) {
            Err(e) if e.kind() == ErrorKind::DeadlineExceeded && !last => {
                attempt = attempt.saturating_mul(2);
            }
            opened => return opened,
        }
    }
}

/// Whether a process listens on a local socket.
pub(crate) fn is_served(path: &std::path::Path) -> bool {
    let reached = SocketAddrUnix::new(path).ok().zip(new_socket(AddressFamily::UNIX).ok());
    // connect(2): EAGAIN says that its queue is full.
    reached.is_some_and(|(to, fd)| {
        matches!(rustix::net::connect(&fd, &to), Ok(()) | Err(Errno::AGAIN))
    })
}

/// The longest sleep before a full queue, for callers without a deadline.
const LONGEST_SLEEP_NS: u64 = 1_000_000_000;

pub(crate) fn open_path(path: &std::path::Path, until: WaitLimit) -> Result<OwnedFd> {
    let fd = new_socket(AddressFamily::UNIX)?;
    hmc_mem::os::fd_passing::allow(&fd, false);
    let to = SocketAddrUnix::new(path).map_err(|e| Error::io(path.display(), e))?;
    let mut timer = until.timer();
    let mut sleeps = false;
    loop {
        match rustix::net::connect(&fd, &to) {
            // connect(2): the listener's queue is full, and was for as long as a call may sleep.
            Err(Errno::AGAIN) => {
                let stopped = |stop: WaitStopped| {
                    stop.error(format_args!("connecting to {}", path.display()))
                };
                timer.check().map_err(stopped)?;
                let pause = clock::left(timer.park_until()).as_nanos().clamp(1, LONGEST_SLEEP_NS);
                sleep_in_connect(&fd, Some(std::time::Duration::from_nanos(pause)))?;
                sleeps = true;
            }
            Err(Errno::INTR) => {}
            Err(e @ (Errno::NOENT | Errno::NOTDIR)) => {
                let e = Error::io(format_args!("cannot connect to {}", path.display()), e);
                return Err(e.with_remedy("start the process of that rank, or name its folder"));
            }
            begun => {
                let fd = finish_connect(fd, begun, &path.display(), until)?;
                if sleeps {
                    sleep_in_connect(&fd, None)?;
                }
                if local_peer(fd.as_fd()).is_none() {
                    return Err(Error::new(
                        ErrorKind::Refused,
                        format!("{} is served by another user's process", path.display()),
                    ));
                }
                return Ok(fd);
            }
        }
    }
}

/// Has connect(2) sleep for so long while the listener's queue is full (SO_SNDTIMEO, socket(7)), or return at once.
fn sleep_in_connect(fd: &OwnedFd, pause: Option<std::time::Duration>) -> Result<()> {
    sockopt::set_socket_timeout(fd, sockopt::Timeout::Send, pause)
        .and_then(|()| rustix::io::ioctl_fionbio(fd, pause.is_none()))
        .map_err(|e| Error::io("cannot set how long connecting may take", e))
}

pub(crate) fn other_question() -> Error {
    Error::new(ErrorKind::Protocol, "an answer to another question")
}

pub(crate) fn invalid_hello(e: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::InvalidConfig, e.to_string())
}

#[cfg(test)]
mod tests {
    use hmc_core::ctrl::io::CloseReason;

    use super::closed;
    use crate::base::error::ErrorKind;

    #[test]
    fn each_end_of_a_handshake_has_its_kind_and_says_why() {
        for (why, kind) in [
            (CloseReason::HelloDeadline, ErrorKind::DeadlineExceeded),
            (CloseReason::Silent, ErrorKind::DeadlineExceeded),
            (CloseReason::Eof, ErrorKind::Refused),
            (CloseReason::Orderly, ErrorKind::Refused),
            (CloseReason::FrameDeadline, ErrorKind::Protocol),
        ] {
            let e = closed(why);
            assert_eq!(e.kind(), kind, "{e}");
            assert!(e.to_string().contains(&why.to_string()), "{e}");
        }
    }
}
