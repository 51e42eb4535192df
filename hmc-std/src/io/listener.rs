//! TCP and UDS listeners. A listener accepts connections once its constructor has returned.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use hmc_core::types::Rank;
use hmc_core::wire::advert::EndpointDesc;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};

use crate::base::address::Address;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::paths::{private_dir, socket_path};

/// Pending connections that the kernel may hold back for us; no more than net.core.somaxconn, which is as much by default.
const BACKLOG: i32 = 4096;

#[derive(Debug)]
pub(crate) enum Listener {
    Tcp { fd: OwnedFd, addr: SocketAddr },
    Uds { fd: OwnedFd, path: PathBuf, lock: OwnedFd },
}

/// Who came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerAddr {
    Tcp(SocketAddr),
    /// A process of this host, as the kernel names it.
    Uds {
        pid: u32,
    },
}

/// Where the ports of a process of this host are found that came by a local socket.
pub(crate) const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

pub(crate) fn new_socket(family: AddressFamily) -> Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(family, SocketType::STREAM, flags, None)
        .map_err(|e| Error::io("cannot make a socket", e))
}

/// Settings of every TCP connection: no delay for small frames, and the kernel gives up on a host
/// that takes nothing for 30 s (TCP_USER_TIMEOUT, tcp(7)), should heartbeats be off. Not sooner: a
/// peer that lets its inbox fill is slow, not dead.
pub(crate) fn tune_tcp(fd: BorrowedFd<'_>) {
    let _ = sockopt::set_tcp_nodelay(fd, true);
    let _ = sockopt::set_tcp_user_timeout(fd, 30_000);
}

impl Listener {
    pub(crate) fn tcp(addr: SocketAddr) -> Result<Self> {
        let family = if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let fd = new_socket(family)?;
        let what = || format!("cannot listen on tcp://{addr}");
        sockopt::set_socket_reuseaddr(&fd, true).map_err(|e| Error::io(what(), e))?;
        rustix::net::bind(&fd, &addr).map_err(|e| Error::io(what(), e))?;
        rustix::net::listen(&fd, BACKLOG).map_err(|e| Error::io(what(), e))?;
        let bound = rustix::net::getsockname(&fd).map_err(|e| Error::io(what(), e))?;
        let addr = SocketAddr::try_from(bound).unwrap_or(addr);
        Ok(Self::Tcp { fd, addr })
    }

    /// Listens in `dir`, which is made if needed and must be private to this user.
    pub(crate) fn uds(dir: &Path, rank: Rank) -> Result<Self> {
        private_dir(dir)?;
        let path = socket_path(dir, rank)?;
        let lock = lock_rank(&path, rank)?;
        let here = SocketAddrUnix::new(&path).map_err(|e| Error::io(path.display(), e))?;
        // The lock says that no session of ours lives there. Another program may.
        let probe = new_socket(AddressFamily::UNIX)?;
        if rustix::net::connect(&probe, &here).is_ok() {
            return Err(taken(&path, rank));
        }
        // Bound under another name and renamed, so that the path never leads to a socket that does
        // not listen yet.
        let temp = path.with_extension("new");
        let _ = rustix::fs::unlink(&temp);
        let fd = new_socket(AddressFamily::UNIX)?;
        // Who is let in by an ATTACH may pass some.
        hmc_mem::os::fd_passing::allow(&fd, false);
        let what = |e| Error::io(format_args!("cannot listen at {}", path.display()), e);
        let there = SocketAddrUnix::new(&temp).map_err(what)?;
        rustix::net::bind(&fd, &there).map_err(what)?;
        rustix::net::listen(&fd, BACKLOG).map_err(what)?;
        rustix::fs::rename(&temp, &path).map_err(what)?;
        Ok(Self::Uds { fd, path, lock })
    }

    /// What the kernel can be asked to watch.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp { fd, .. } | Self::Uds { fd, .. } => fd.as_fd(),
        }
    }

    /// What a peer that connects to it names.
    pub(crate) fn address(&self) -> Address {
        match self {
            Self::Tcp { addr, .. } => Address::Tcp(*addr),
            Self::Uds { path, .. } => Address::uds(path.parent().unwrap_or(Path::new("/"))),
        }
    }

    pub(crate) fn addr(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp { addr, .. } => Some(*addr),
            Self::Uds { .. } => None,
        }
    }

    /// Whether its port at an address of this host leads here.
    pub(crate) fn is_at(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        self.addr().is_some_and(|addr| match addr.ip().to_canonical() {
            own if own == ip => true,
            IpAddr::V4(own) => own.is_unspecified() && ip.is_ipv4(),
            IpAddr::V6(own) => own.is_unspecified() && (ip.is_ipv6() || self.takes_ipv4()),
        })
    }

    /// Whether connections over IPv4 come to a listener of IPv6.
    fn takes_ipv4(&self) -> bool {
        sockopt::ipv6_v6only(self.fd()) == Ok(false)
    }

    pub(crate) fn path(&self) -> Option<PathBuf> {
        match self {
            Self::Uds { path, .. } => Some(path.clone()),
            _ => None,
        }
    }

    /// Calls `f` with what peers are told about this listener.
    pub(crate) fn with_endpoint<R>(&self, f: impl FnOnce(&EndpointDesc<'_>) -> R) -> R {
        match self {
            Self::Tcp { addr, .. } => f(&EndpointDesc::tcp(addr.port())),
            Self::Uds { path, .. } => f(&EndpointDesc::Shm { path: path.as_os_str().as_bytes() }),
        }
    }

    /// The next pending connection, if one waits. Local ones of another user are turned away.
    pub(crate) fn accept(&self) -> std::result::Result<Option<(OwnedFd, PeerAddr)>, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        loop {
            let (fd, from) = match rustix::net::acceptfrom_with(self.fd(), flags) {
                Ok(r) => r,
                Err(Errno::AGAIN) => return Ok(None),
                // accept(2): errors of the connection that was to be accepted.
                Err(Errno::INTR | Errno::CONNABORTED | Errno::PROTO | Errno::TIMEDOUT) => continue,
                Err(e) => return Err(e),
            };
            match self {
                Self::Tcp { .. } => {
                    if let Some(Ok(addr)) = from.map(SocketAddr::try_from) {
                        return Ok(Some((fd, PeerAddr::Tcp(addr))));
                    }
                }
                Self::Uds { .. } => {
                    if let Some(pid) = local_peer(fd.as_fd()) {
                        return Ok(Some((fd, PeerAddr::Uds { pid })));
                    }
                    tracing::warn!("turned away a local process of another user");
                }
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Uds { path, lock, .. } = self {
            // The lock is still held, so the path is ours.
            let _ = rustix::fs::unlink(&*path);
            // A process that is being started may have a copy of the descriptor for a moment, until its exec(3): closing
            // ours would leave the lock to it.
            let _ = rustix::fs::flock(&*lock, FlockOperation::Unlock);
        }
    }
}

/// The process at the other end of a local socket, when it is of this user (SO_PEERCRED, unix(7)); 0 when it has no number
/// here.
pub(crate) fn local_peer(fd: BorrowedFd<'_>) -> Option<u32> {
    let who = hmc_mem::os::process::credentials(fd).ok()?;
    let ours = who.uid == rustix::process::geteuid().as_raw();
    ours.then(|| who.pid.unwrap_or(0))
}

fn taken(path: &Path, rank: Rank) -> Error {
    Error::new(
        ErrorKind::DuplicateRank,
        format!("a live process already is rank {rank} at {}", path.display()),
    )
    .with_remedy("choose another rank or folder, or end it")
}

/// Holds the rank's lock for as long as the descriptor lives.
fn lock_rank(path: &Path, rank: Rank) -> Result<OwnedFd> {
    let at = path.with_extension("lock");
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let fd = rustix::fs::open(&at, flags, Mode::RUSR | Mode::WUSR)
        .map_err(|e| Error::io(format_args!("cannot open {}", at.display()), e))?;
    match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(fd),
        Err(Errno::WOULDBLOCK) => Err(taken(path, rank)),
        Err(e) => Err(Error::io(format_args!("cannot lock {}", at.display()), e)),
    }
}

#[cfg(test)]
mod tests {
    use super::{LOCALHOST, Listener, private_dir};
    use crate::base::error::ErrorKind;
    use hmc_core::types::Rank;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    fn scratch(name: &str) -> std::path::PathBuf {
        let dir = std::env::temp_dir().join(format!("hmc-listen-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        dir
    }

    #[test]
    fn a_rank_is_taken_while_its_listener_lives_and_free_after() {
        let dir = scratch("rank");
        let first = Listener::uds(&dir, Rank(3)).expect("free");
        let e = Listener::uds(&dir, Rank(3)).expect_err("taken");
        assert_eq!(e.kind(), ErrorKind::DuplicateRank);
        Listener::uds(&dir, Rank(4)).expect("another rank");
        drop(first);
        // A stale file, as a killed process leaves it, is no obstacle.
        std::fs::write(dir.join("hmc_ctrl_rank_3.sock"), b"").expect("writable");
        Listener::uds(&dir, Rank(3)).expect("free again");
        std::fs::remove_dir_all(&dir).expect("clean");
    }

    /// Where 127.0.0.1 leads is asked of the socket: ipv6(7), IPV6_V6ONLY.
    #[test]
    fn a_listener_of_ipv6_is_at_localhost_if_it_takes_ipv4() {
        let any = std::net::SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, 0));
        let socket = |only: bool| {
            let fd = super::new_socket(rustix::net::AddressFamily::INET6).ok()?;
            super::sockopt::set_ipv6_v6only(&fd, only).ok()?;
            Some(Listener::Tcp { fd, addr: any })
        };
        let (Some(both), Some(only)) = (socket(false), socket(true)) else {
            Listener::tcp(any).expect_err("this system has no IPv6");
            return;
        };
        assert_eq!((both.is_at(LOCALHOST), only.is_at(LOCALHOST)), (true, false));
        for (address, is_there) in [("127.0.0.1:0", true), ("0.0.0.0:0", true), ("[::1]:0", false)]
        {
            let listener = Listener::tcp(address.parse().expect("an address")).expect("free");
            assert_eq!(listener.is_at(LOCALHOST), is_there, "{address}");
        }
    }

    #[test]
    fn a_folder_that_others_can_enter_or_a_link_is_refused() {
        let dir = scratch("open");
        std::fs::create_dir(&dir).expect("new");
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o755)).expect("ours");
        let e = private_dir(&dir).expect_err("open to others");
        assert!(e.to_string().contains("0700"), "{e}");
        let link = scratch("link");
        let _ = std::fs::remove_file(&link);
        symlink(&dir, &link).expect("new");
        private_dir(&link).expect_err("a link");
        std::fs::remove_file(&link).expect("clean");
        std::fs::remove_dir(&dir).expect("clean");
    }

    /// Which addresses lead to a listener is asked of the kernel, by connecting.
    #[test]
    fn a_listener_at_any_address_of_ipv6_is_at_localhost_if_it_takes_ipv4() {
        let Ok(listener) = Listener::tcp("[::]:0".parse().expect("address")) else {
            return assert!(std::net::TcpListener::bind("[::]:0").is_err(), "IPv6 is here");
        };
        let port = listener.addr().expect("tcp").port();
        let led = std::net::TcpStream::connect(("127.0.0.1", port)).is_ok();
        assert_eq!(listener.is_at(LOCALHOST), led);
        for (at, is) in [("127.0.0.1:0", true), ("0.0.0.0:0", true), ("127.0.0.2:0", false)] {
            let listener = Listener::tcp(at.parse().expect("address")).expect("free");
            assert_eq!(listener.is_at(LOCALHOST), is, "{at}");
        }
    }

    #[test]
    fn a_busy_port_is_an_error_of_the_call() {
        let first = Listener::tcp("127.0.0.1:0".parse().expect("address")).expect("free");
        let addr = first.addr().expect("tcp");
        let e = Listener::tcp(addr).expect_err("busy");
        assert_eq!(e.kind(), ErrorKind::InvalidConfig);
        assert!(e.to_string().contains(&addr.to_string()), "{e}");
    }
}
