//! Listeners of a session that the application opens and closes while the session runs.
//!
//! Each has a number of its own, which is never reused: an event of a closed listener reaches no other. A listener is used under
//! the lock only, so that a closed one has released its port or file when
//! [`Listeners::close`](crate::state::listeners::Listeners::close) returns.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::Ordering;

use crate::api::session::Session;
use crate::base::config::{check_exposure, listening_address};
use crate::base::error::{Error, ErrorKind, Result};
use crate::io::listener::Listener;
use crate::state::inner::SessionInner;

impl SessionInner {
    /// Whether machines that prove nothing about themselves are allowed.
    pub(crate) fn is_insecure(&self) -> bool {
        self.insecure.load(Ordering::Acquire)
    }

    fn check_opening(&self) -> Result<()> {
        self.check_process()?;
        if self.is_leaving() {
            return Err(Error::new(ErrorKind::Closed, "this session is shutting down"));
        }
        Ok(())
    }
}

impl Session {
    /// Listens on one more TCP address (`"127.0.0.1:0"`: any free port). Gives the address with the port that the system
    /// chose. Addresses other than loopback need [`Session::allow_insecure`].
    ///
    /// # Errors
    /// `InvalidConfig` for what is no address, or one that another socket has; `NoCredentials`; `Closed`; `SystemLimit`.
    pub fn listen_tcp(&self, addr: &str) -> Result<SocketAddr> {
        self.shared.check_opening()?;
        let wanted = listening_address(addr)?;
        check_exposure(wanted.ip(), self.shared.is_insecure())?;
        self.shared.check_secret(wanted.ip())?;
        let listener = Listener::tcp(wanted)?;
        let bound = listener.addr().unwrap_or(wanted);
        self.shared.listeners.open(listener)?;
        Ok(bound)
    }

    /// Listens on a socket in one more folder, which must be private to this user; it is made if needed.
    ///
    /// # Errors
    /// `InvalidConfig` for a folder that others can enter; `DuplicateRank` when a session of this rank listens there, be it
    /// this one; `Closed`; `SystemLimit`.
    pub fn listen_uds(&self, dir: impl AsRef<Path>) -> Result<()> {
        self.shared.check_opening()?;
        self.shared.listeners.open(Listener::uds(dir.as_ref(), self.shared.config.rank)?)
    }

    /// Closes all listeners: their ports and files are free when this returns, for this session and for others. Links live
    /// on. Who is about to connect may not get in; peers that lose their links cannot dial this end again.
    pub fn close_listeners(&self) {
        // The listeners of a forked child are its parent's.
        if self.shared.check_process().is_ok() {
            self.shared.listeners.close();
        }
    }

    /// From now on, as [`SessionBuilder::insecure`](crate::session::SessionBuilder::insecure).
    pub fn allow_insecure(&self) {
        self.shared.insecure.store(true, Ordering::Release);
    }
}
