//! The listeners of a session, which are opened and closed while it runs.
//!
//! Each has a number of its own, never given again: what the kernel still tells of a closed listener reaches no other. A listener
//! is used under the lock only, so that a closed one has released its port or file when [`Listeners::close`] returns.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use hmc_core::wire::hello::EndpointList;
use rustix::io::Errno;

use crate::driver::{Driver, Token};
use crate::error::{Error, ErrorKind, Result};
use crate::listen::{Listener, Source};
use crate::lock::lock;

/// What listens, by number, in the order in which it was opened.
#[derive(Debug)]
pub(crate) struct Listeners {
    driver: Arc<Driver>,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    open: Vec<(u32, Listener)>,
    next: u32,
}

impl Inner {
    fn find(&self, number: u32) -> Option<&Listener> {
        self.open.iter().find(|(n, _)| *n == number).map(|(_, door)| door)
    }

    /// The door of that number, then all others.
    fn beginning_with(&self, number: Option<u32>) -> impl Iterator<Item = &Listener> {
        let is_first = move |n: u32| Some(n) == number;
        let first = self.open.iter().filter(move |(n, _)| is_first(*n));
        let others = self.open.iter().filter(move |(n, _)| !is_first(*n));
        first.chain(others).map(|(_, door)| door)
    }
}

impl Listeners {
    /// None. Whoever waits on `driver` is told who comes.
    pub(crate) fn new(driver: &Arc<Driver>) -> Self {
        Self { driver: Arc::clone(driver), inner: Mutex::default() }
    }

    /// Takes a listener in.
    ///
    /// # Errors
    /// `SystemLimit`; `Full` after 4 billion.
    pub(crate) fn open(&self, door: Listener) -> Result<()> {
        let mut inner = lock(&self.inner);
        let number = inner.next;
        let full = || Error::new(ErrorKind::Full, "no door of this session can be opened any more");
        inner.next = number.checked_add(1).ok_or_else(full)?;
        if let Some(fd) = door.fd() {
            self.driver.watch(fd, Token::Listener(number))?;
        }
        inner.open.push((number, door));
        Ok(())
    }

    /// Closes all. Who waits before one is sent away by the kernel.
    pub(crate) fn close(&self) {
        let mut inner = lock(&self.inner);
        for (_, door) in inner.open.drain(..) {
            // First: a process that is being forked may have a copy of the descriptor for a moment.
            if let Some(fd) = door.fd() {
                self.driver.unwatch(fd);
            }
        }
    }

    /// The next stranger at a door, if one waits there, and if it is open.
    pub(crate) fn accept(
        &self,
        number: u32,
    ) -> std::result::Result<Option<(OwnedFd, Source)>, Errno> {
        lock(&self.inner).find(number).map_or(Ok(None), Listener::accept)
    }

    /// Stops to watch a door, or watches it again.
    pub(crate) fn attend(&self, number: u32, on: bool) {
        let inner = lock(&self.inner);
        let Some(fd) = inner.find(number).and_then(Listener::fd) else { return };
        if on {
            let _ = self.driver.watch(fd, Token::Listener(number));
        } else {
            self.driver.unwatch(fd);
        }
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.inner).open.is_empty()
    }

    /// Where TCP doors are, oldest first.
    pub(crate) fn tcp_addrs(&self) -> Vec<SocketAddr> {
        lock(&self.inner).open.iter().filter_map(|(_, door)| door.addr()).collect()
    }

    /// Where local doors are, oldest first.
    pub(crate) fn uds_paths(&self) -> Vec<PathBuf> {
        lock(&self.inner).open.iter().filter_map(|(_, door)| door.path()).collect()
    }

    /// Whether a local door is there.
    pub(crate) fn is_at(&self, path: &Path) -> bool {
        lock(&self.inner).open.iter().any(|(_, door)| door.path().as_deref() == Some(path))
    }

    /// Whether a connection to `addr` that begins at `from` leads to a door.
    pub(crate) fn leads_here(&self, addr: SocketAddr, from: Option<IpAddr>) -> bool {
        let inner = lock(&self.inner);
        inner.open.iter().filter_map(|(_, door)| door.addr()).any(|door| leads(door, addr, from))
    }

    /// Tells of one door of each kind: of the one by which the peer came, else of the oldest. A port goes without its address:
    /// a peer that came is told of one that it finds where it came, and a local one, of one that it finds at 127.0.0.1.
    /// At other addresses somebody else may listen, and at 127.0.0.1 of another network namespace (`elsewhere`), too.
    pub(crate) fn tell(&self, came_by: Option<u32>, elsewhere: bool, list: &mut EndpointList) {
        let inner = lock(&self.inner);
        let doors = || inner.beginning_with(came_by);
        let tcp = match came_by {
            None => doors().find(|door| door.addr().is_some()),
            Some(number) => inner.find(number).and_then(|door| match door.addr() {
                Some(_) => Some(door),
                None => doors().find(|door| door.is_at_localhost() && !elsewhere),
            }),
        };
        let local = doors().find(|door| door.path().is_some());
        for door in [tcp, local].into_iter().flatten() {
            // Two blobs, 120 bytes at most: they fit.
            let _ = door.with_endpoint(|e| list.push(e.blob()));
        }
    }
}

/// Whether a connection to `addr` that begins at `from` leads to a listener at `door`.
fn leads(door: SocketAddr, addr: SocketAddr, from: Option<IpAddr>) -> bool {
    let ip = addr.ip();
    let near = ip.is_loopback() || ip.is_unspecified() || from == Some(ip);
    let leads = door.ip() == ip || door.ip().is_unspecified() && near;
    leads && door.port() == addr.port()
}

#[cfg(test)]
mod tests {
    use super::leads;

    #[test]
    fn an_address_leads_here_if_a_listener_is_reached_by_it() {
        let leads = |door: &str, addr: &str, from: Option<&str>| {
            let ip = |text: &str| text.parse().expect("an address");
            leads(door.parse().expect("an address"), addr.parse().expect("one"), from.map(ip))
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
}
