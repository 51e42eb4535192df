//! Listeners of a session that the application opens and closes while the session runs.
//!
//! Each has a number of its own, which is never reused: an event of a closed listener reaches no other. A listener is used under
//! the lock only, so that a closed one has released its port or file when
//! [`Listeners::close_one`](crate::state::listeners::Listeners::close_one) returns.

use crate::api::listener::Listener;
use crate::api::session::Session;
use crate::base::address::Address;
use crate::base::error::{Error, ErrorKind, Result};
use crate::io::listener::Listener as Socket;

impl Session {
    /// Listens at one more address: a TCP address, or a folder, which must be private to this user and is made if needed. It
    /// accepts connections when this returns. A TCP address that is not a loopback address needs
    /// [`Address::unauthenticated`].
    ///
    /// # Errors
    /// - `InvalidConfig` if another socket has the address, if others can enter the folder, or for [`Address::Local`], which
    ///   names two places.
    /// - `DuplicateRank` if a session of this rank, even this one, listens in the folder.
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
        Ok(Listener::new(shared, number, address))
    }
}
