//! Listeners of a session that the application opens and closes while the session runs.
//!
//! Each has a number of its own, which is never reused: an event of a closed listener reaches no other. A listener is used under
//! the lock only, so that a closed one has released its port or file when
//! [`Listeners::close_one`](crate::state::listeners::Listeners::close_one) returns.

use std::sync::{Arc, Weak};

use crate::api::session::Session;
use crate::base::address::Address;
use crate::base::error::{Error, ErrorKind, Result};
use crate::io::listener::Listener as Socket;
use crate::state::inner::SessionInner;

/// A place where a session listens. It is open until [`Listener::close`], or until the session ends: dropping this closes nothing.
#[derive(Clone, Debug)]
pub struct Listener {
    session: Weak<SessionInner>,
    number: u32,
    address: Address,
}

impl Listener {
    /// Returns its address, with the port that the system chose for port 0.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Closes it: its port or file is free when this returns, for this session and for others. Links live on. A process that is
    /// about to connect may be refused; peers that lose their links cannot dial this address again. Does nothing if it is
    /// closed, or in a forked child.
    pub fn close(&self) {
        // The listeners of a forked child are its parent's.
        if let Some(shared) = self.session.upgrade()
            && shared.check_process().is_ok()
        {
            shared.listeners.close_one(self.number);
        }
    }
}

impl Session {
    /// Listens at one more address: a TCP address, or a folder, which must be private to this user and is made if needed. It
    /// accepts connections when this returns. A TCP address that is not a loopback address needs
    /// [`Address::unauthenticated`].
    ///
    /// # Errors
    /// - `InvalidConfig` if another socket has the address, if others can enter the folder, or for [`Address::Local`], which
    ///   names two places.
    /// - `DuplicateRank` if a session of this rank listens in the folder, be it this one.
    /// - `NoCredentials`, `Closed`, `SystemLimit`, `Forked`.
    pub fn listen(&self, at: &Address) -> Result<Listener> {
        let shared = &self.shared;
        shared.check_process()?;
        if shared.is_leaving() {
            return Err(Error::new(ErrorKind::Closed, "this session is shutting down"));
        }
        let socket = match at {
            Address::Tcp(addr) | Address::UnauthenticatedTcp(addr) => {
                shared.check_exposure(at)?;
                shared.check_secret(addr.ip())?;
                Socket::tcp(*addr)?
            }
            Address::Uds(dir) => Socket::uds(dir, shared.config.rank)?,
            Address::Local { .. } => {
                let what = format!("`{at}` names two places: listen at each of them");
                return Err(Error::config(what));
            }
        };
        let address = socket.address();
        let number = shared.listeners.open(socket)?;
        Ok(Listener { session: Arc::downgrade(shared), number, address })
    }

    /// Returns its open listeners, oldest first, those of the builder included: TCP before the folder. None in a forked child.
    #[must_use]
    pub fn listeners(&self) -> Vec<Listener> {
        if self.shared.origin.is_child() {
            return Vec::new();
        }
        let of = |(number, address)| {
            let session = Arc::downgrade(&self.shared);
            Listener { session, number, address }
        };
        self.shared.listeners.all().into_iter().map(of).collect()
    }
}
