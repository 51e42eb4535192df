//! The listeners of a session, which can be opened and closed while it runs.
//!
//! Each has its own number, which is never reused, so a late event of a closed listener reaches no other. A
//! listener is used under the lock only, so a closed one has released its port or file when [`Listeners::close`]
//! returns.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex};

use hmc_core::wire::hello::EndpointList;
use rustix::io::Errno;

use crate::base::address::Address;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::lock::lock;
use crate::io::listener::{LOCALHOST, Listener, PeerAddr};
use crate::io::reactor::{Reactor, Token};

/// How a peer came: by the listener of that number, and over TCP, to that address of this host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CameBy {
    pub(crate) listener: u32,
    pub(crate) at: Option<IpAddr>,
}

/// What listens, by number, in the order in which it was opened.
#[derive(Debug)]
pub(crate) struct Listeners {
    reactor: Arc<Reactor>,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    open: Vec<(u32, Listener)>,
    next: u32,
}

impl Inner {
    fn find(&self, number: u32) -> Option<&Listener> {
        self.open.iter().find(|(n, _)| *n == number).map(|(_, listener)| listener)
    }

    /// The listener of that number, then all others.
    fn beginning_with(&self, number: Option<u32>) -> impl Iterator<Item = &Listener> {
        let is_first = move |n: u32| Some(n) == number;
        let first = self.open.iter().filter(move |(n, _)| is_first(*n));
        let others = self.open.iter().filter(move |(n, _)| !is_first(*n));
        first.chain(others).map(|(_, listener)| listener)
    }
}

impl Listeners {
    /// None. Whoever waits on `reactor` gets the connections that come.
    pub(crate) fn new(reactor: &Arc<Reactor>) -> Self {
        Self { reactor: Arc::clone(reactor), inner: Mutex::default() }
    }

    /// Takes a listener in, and gives its number.
    ///
    /// # Errors
    /// `SystemLimit`; `Full` after 4 billion.
    pub(crate) fn open(&self, listener: Listener) -> Result<u32> {
        let mut inner = lock(&self.inner);
        let number = inner.next;
        let full =
            || Error::new(ErrorKind::Full, "no listener of this session can be opened any more");
        inner.next = number.checked_add(1).ok_or_else(full)?;
        self.reactor.watch(listener.fd(), Token::Listener(number))?;
        inner.open.push((number, listener));
        Ok(number)
    }

    /// Closes the listener of that number, if it is open.
    pub(crate) fn close_one(&self, number: u32) {
        let mut inner = lock(&self.inner);
        if let Some(at) = inner.open.iter().position(|(n, _)| *n == number) {
            let (_, listener) = inner.open.remove(at);
            self.reactor.unwatch(listener.fd());
        }
    }

    /// Closes all. Who waits before one is sent away by the kernel.
    pub(crate) fn close(&self) {
        let mut inner = lock(&self.inner);
        for (_, listener) in inner.open.drain(..) {
            // First: a process that is being forked may have a copy of the descriptor for a moment.
            self.reactor.unwatch(listener.fd());
        }
    }

    /// The next pending connection at a listener, if one waits there, and if it is open.
    pub(crate) fn accept(
        &self,
        number: u32,
    ) -> std::result::Result<Option<(OwnedFd, PeerAddr)>, Errno> {
        lock(&self.inner).find(number).map_or(Ok(None), Listener::accept)
    }

    /// Stops watching a listener, or watches it again.
    pub(crate) fn set_watched(&self, number: u32, on: bool) {
        let inner = lock(&self.inner);
        let Some(fd) = inner.find(number).map(Listener::fd) else { return };
        if on {
            let _ = self.reactor.watch(fd, Token::Listener(number));
        } else {
            self.reactor.unwatch(fd);
        }
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.inner).open.is_empty()
    }

    /// Where TCP listeners are, oldest first.
    pub(crate) fn tcp_addrs(&self) -> Vec<SocketAddr> {
        lock(&self.inner).open.iter().filter_map(|(_, listener)| listener.addr()).collect()
    }

    /// The numbers of all, and where they are, oldest first.
    pub(crate) fn all(&self) -> Vec<(u32, Address)> {
        lock(&self.inner).open.iter().map(|(number, l)| (*number, l.address())).collect()
    }

    /// Whether a local listener is there.
    pub(crate) fn is_at(&self, path: &Path) -> bool {
        lock(&self.inner).open.iter().any(|(_, listener)| listener.path().as_deref() == Some(path))
    }

    /// Whether a connection to `addr` that begins at `from` leads to a listener.
    pub(crate) fn is_own_address(&self, addr: SocketAddr, from: Option<IpAddr>) -> bool {
        let inner = lock(&self.inner);
        inner
            .open
            .iter()
            .filter_map(|(_, listener)| listener.addr())
            .any(|listener| leads(listener, addr, from))
    }

    /// Adds one listener of each kind: the one by which the peer came, else the oldest. A port goes without its address: a
    /// peer that came gets one that it finds where it came, also if its own closed meanwhile, and a local one, one at 127.0.0.1.
    /// At other addresses somebody else may listen, and at 127.0.0.1 of another network namespace (`elsewhere`), too.
    pub(crate) fn add_endpoints(
        &self,
        came_by: Option<CameBy>,
        elsewhere: bool,
        list: &mut EndpointList,
    ) {
        let inner = lock(&self.inner);
        let listeners = || inner.beginning_with(came_by.map(|by| by.listener));
        let tcp = match came_by {
            None => listeners().find(|listener| listener.addr().is_some()),
            Some(CameBy { listener, at }) => {
                let own = inner.find(listener).filter(|listener| listener.addr().is_some());
                own.or_else(|| {
                    let ip = at.or((!elsewhere).then_some(LOCALHOST))?;
                    listeners().find(|listener| listener.is_at(ip))
                })
            }
        };
        let local = listeners().find(|listener| listener.path().is_some());
        for listener in [tcp, local].into_iter().flatten() {
            // Two blobs, 120 bytes at most: they fit.
            let _ = listener.with_endpoint(|e| list.push(e.blob()));
        }
    }
}

/// Whether a connection to `addr` that begins at `from` leads to a listener at `listener`.
fn leads(listener: SocketAddr, addr: SocketAddr, from: Option<IpAddr>) -> bool {
    let ip = addr.ip();
    let near = ip.is_loopback() || ip.is_unspecified() || from == Some(ip);
    let leads = listener.ip() == ip || listener.ip().is_unspecified() && near;
    leads && listener.port() == addr.port()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing, reason = "tests may panic")]

    use std::os::unix::ffi::OsStrExt as _;
    use std::path::PathBuf;

    use super::*;
    use crate::base::clock;
    use crate::base::config::Progress;
    use crate::io::reactor::Events;
    use hmc_core::time::Duration;
    use hmc_core::types::Rank;
    use hmc_core::wire::advert::EndpointDesc;

    #[test]
    fn an_address_leads_here_if_a_listener_is_reached_by_it() {
        let leads = |listener: &str, addr: &str, from: Option<&str>| {
            let ip = |text: &str| text.parse().expect("an address");
            leads(listener.parse().expect("an address"), addr.parse().expect("one"), from.map(ip))
        };
        assert!(leads("127.0.0.1:7", "127.0.0.1:7", None));
        assert!(!leads("127.0.0.1:7", "127.0.0.1:8", None));
        assert!(!leads("127.0.0.1:7", "127.0.0.2:7", None));
        assert!(!leads("10.0.0.1:7", "127.0.0.1:7", Some("127.0.0.1")));
        // At all addresses of this host: those that are known to be its own.
        for own in ["127.0.0.1:7", "127.9.9.9:7", "0.0.0.0:7", "[::1]:7"] {
            assert!(leads("0.0.0.0:7", own, None), "{own}");
            assert!(!leads("0.0.0.0:8", own, None), "{own}");
        }
        assert!(leads("0.0.0.0:7", "10.0.0.1:7", Some("10.0.0.1")), "it begins where it leads");
        assert!(!leads("0.0.0.0:7", "10.0.0.2:7", Some("10.0.0.1")), "another host's");
        assert!(!leads("0.0.0.0:7", "10.0.0.2:7", None));
    }
    /// What a peer gets: the TCP port, and the local socket.
    fn endpoints(
        listeners: &Listeners,
        came_by: Option<(u32, Option<&str>)>,
        elsewhere: bool,
    ) -> (Option<u16>, Option<PathBuf>) {
        let came_by = came_by.map(|(listener, at)| {
            let at = at.map(|ip| ip.parse().expect("an address"));
            CameBy { listener, at }
        });
        let mut list = EndpointList::new();
        listeners.add_endpoints(came_by, elsewhere, &mut list);
        let (mut port, mut path) = (None, None);
        for blob in list.endpoints().iter() {
            match blob.decode() {
                Ok(EndpointDesc::Shm { path: p }) => {
                    assert_eq!(path.replace(PathBuf::from(std::ffi::OsStr::from_bytes(p))), None);
                }
                Ok(e @ EndpointDesc::Tcp { .. }) => assert_eq!(port.replace(e.port()), None),
                other => panic!("{other:?}"),
            }
        }
        (port.flatten(), path)
    }

    #[test]
    fn a_peer_gets_the_listener_by_which_it_came_else_the_oldest() {
        let reactor = Arc::new(Reactor::new(Progress::Thread).expect("a reactor"));
        let listeners = Listeners::new(&reactor);
        assert!(
            listeners.is_empty() && listeners.tcp_addrs().is_empty() && listeners.all().is_empty()
        );
        assert_eq!(endpoints(&listeners, None, false), (None, None));
        let dirs = [0, 1].map(|n| {
            std::env::temp_dir().join(format!("hmc-listeners-{n}-{}", std::process::id()))
        });
        let tcp = |at: &str| Listener::tcp(at.parse().expect("an address")).expect("free");
        // Not at 127.0.0.1.
        listeners.open(tcp("127.0.0.2:0")).expect("open");
        listeners.open(Listener::uds(&dirs[0], Rank(3)).expect("free")).expect("open");
        listeners.open(tcp("127.0.0.1:0")).expect("open");
        listeners.open(Listener::uds(&dirs[1], Rank(3)).expect("free")).expect("open");
        assert!(!listeners.is_empty());
        let ports: Vec<_> = listeners.tcp_addrs().iter().map(|a| a.port()).collect();
        let [far, near] = ports[..] else { panic!("two listeners: {ports:?}") };
        let [old, new] = &dirs.each_ref().map(|dir| dir.join("hmc_ctrl_rank_3.sock"));
        let [port_far, port_near] = [("127.0.0.2", far), ("127.0.0.1", near)]
            .map(|(ip, port)| Address::tcp((ip.parse::<IpAddr>().expect("an address"), port)));
        let [dir_old, dir_new] = dirs.each_ref().map(Address::uds);
        assert_eq!(
            listeners.all(),
            [(0, port_far), (1, dir_old), (2, port_near), (3, dir_new)],
            "by number"
        );
        // Who came by which; whether from elsewhere; the port and the path that it gets.
        for (came_by, elsewhere, port, path) in [
            (None, false, Some(far), old),
            (Some((0, Some("127.0.0.2"))), false, Some(far), old),
            (Some((2, Some("127.0.0.1"))), false, Some(near), old),
            (Some((2, Some("127.0.0.1"))), true, Some(near), old),
            (Some((1, None)), false, Some(near), old),
            (Some((3, None)), false, Some(near), new),
            (Some((3, None)), true, None, new),
            // By one that is closed.
            (Some((9, Some("127.0.0.2"))), false, Some(far), old),
            (Some((9, Some("127.0.0.1"))), true, Some(near), old),
            (Some((9, Some("127.0.0.3"))), false, None, old),
            (Some((9, None)), false, Some(near), old),
            (Some((9, None)), true, None, old),
        ] {
            let want = (port, Some(path.clone()));
            assert_eq!(endpoints(&listeners, came_by, elsewhere), want, "{came_by:?} {elsewhere}");
        }
        assert!(listeners.is_at(new) && listeners.is_at(old) && !listeners.is_at(Path::new("/d")));
        let at = |text: &str, port| SocketAddr::new(text.parse().expect("an address"), port);
        assert!(listeners.is_own_address(at("127.0.0.2", far), None));
        assert!(!listeners.is_own_address(at("127.0.0.2", near), None));
        let _first = std::net::TcpStream::connect(at("127.0.0.1", near)).expect("it listens");
        assert!(matches!(listeners.accept(0), Ok(None)) && matches!(listeners.accept(9), Ok(None)));
        assert!(matches!(listeners.accept(2), Ok(Some((_, PeerAddr::Tcp(_))))));
        assert!(matches!(listeners.accept(2), Ok(None)));
        // The reactor tells of who comes, unless nobody wants to know.
        let ready = || {
            let (mut events, now) = (Events::new(), clock::timespec(Duration::ZERO));
            reactor.wait(&mut events, now.as_ref());
            events.tokens().collect::<Vec<_>>()
        };
        assert_eq!(ready(), []);
        let _second = std::net::TcpStream::connect(at("127.0.0.1", near)).expect("it listens");
        assert_eq!(ready(), [Token::Listener(2)]);
        listeners.set_watched(2, false);
        assert_eq!(ready(), []);
        listeners.set_watched(2, true);
        assert_eq!(ready(), [Token::Listener(2)]);
        listeners.close_one(3);
        assert!(!new.exists() && old.exists(), "one of them");
        listeners.close();
        assert!(listeners.is_empty() && ready().is_empty());
        assert!(std::net::TcpStream::connect(at("127.0.0.1", near)).is_err(), "it is closed");
        assert!(!old.exists(), "its file is gone");
        assert_eq!(listeners.open(tcp("127.0.0.1:0")).expect("open"), 4);
        assert!(matches!(listeners.accept(0), Ok(None)));
        let again = listeners.tcp_addrs()[0];
        let _third = std::net::TcpStream::connect(again).expect("it listens");
        assert_eq!(ready(), [Token::Listener(4)], "a number is never given again");
        dirs.iter().for_each(|dir| drop(std::fs::remove_dir_all(dir)));
    }
}
