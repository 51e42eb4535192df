//! The socket that the rests of closed links share.

use std::sync::{Arc, Mutex, Weak};

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::base::error::{Error, Result};
use crate::base::lock::lock;
use crate::io::socket::Socket;

/// The socket of all rests of a session, as long as there are any.
#[derive(Debug, Default)]
pub(crate) struct RestSocket(Mutex<Weak<Socket>>);

impl RestSocket {
    /// A socket that never says anything. One of datagrams: a stream that is connected to nobody counts as hung up (EINVAL
    /// and POLLHUP).
    pub(crate) fn socket() -> Result<Arc<Socket>> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd = rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)
            .map_err(|e| Error::io("cannot make a socket", e))?;
        Ok(Arc::new(fd.into()))
    }

    /// Returns the socket, made anew if nothing holds the last one; `None` if the system has none.
    pub(crate) fn get(&self) -> Option<Arc<Socket>> {
        let mut known = lock(&self.0);
        if let Some(socket) = known.upgrade() {
            return Some(socket);
        }
        let socket = Self::socket().ok()?;
        *known = Arc::downgrade(&socket);
        Some(socket)
    }
}
