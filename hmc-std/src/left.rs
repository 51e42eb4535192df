//! Links that are over: what nobody has received is kept, everything else is let go.
//!
//! A link that is over and has unread messages is replaced by its rest, which has no descriptors and no buffers.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::error::{Error, Result};
use crate::link::{Life, Link};
use crate::private::is_private;
use crate::shared::{Shared, lock};
use crate::socket::Socket;

/// The socket of all rests of a session, as long as there are any.
#[derive(Debug, Default)]
pub(crate) struct Mute(Mutex<Weak<Socket>>);

impl Mute {
    /// A socket that never says anything. One of datagrams: a stream that is connected to nobody counts as hung up (EINVAL
    /// and POLLHUP).
    pub(crate) fn socket() -> Result<Arc<Socket>> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd = rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)
            .map_err(|e| Error::io("cannot make a socket", e))?;
        Ok(Arc::new(fd.into()))
    }

    fn get(&self) -> Option<Arc<Socket>> {
        let mut known = lock(&self.0);
        if let Some(socket) = known.upgrade() {
            return Some(socket);
        }
        let socket = Self::socket().ok()?;
        *known = Arc::downgrade(&socket);
        Some(socket)
    }
}

impl Shared {
    /// Lets go of links that are over: of those without unread messages only why they ended is remembered, of the others
    /// their messages.
    pub(crate) fn retire(&self) {
        if !self.links.has_ended() {
            return;
        }
        // First the reason: who finds no link of the rank any more looks for that.
        let is_done = |l: &Link| {
            let done = l.life() == Life::Dead && l.inbox().len() == 0;
            if done && !is_private(l.peer) {
                lock(&self.departed).insert(l.peer, l.reason().to_owned());
            }
            done
        };
        drop(self.links.retire(is_done));
        self.keep_rests();
    }

    /// Retires links that are over since the last call.
    pub(crate) fn retire_ended(&self) {
        if self.ended.load(Ordering::Relaxed) && self.ended.swap(false, Ordering::AcqRel) {
            self.retire();
        }
    }

    fn keep_rests(&self) {
        let mut socket = None;
        for link in self.links.newest() {
            if link.life() != Life::Dead {
                continue;
            }
            let Some(socket) = socket.get_or_insert_with(|| self.mute.get()) else { return };
            if !link.is_rest(socket) {
                self.links.replace(&link, &link.rest(socket, self.next_serial()));
            }
        }
    }
}
