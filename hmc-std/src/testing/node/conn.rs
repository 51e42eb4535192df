//! The connections of a driven session, and who serves them.

use std::sync::{Arc, Weak};

use super::pipe::Pipe;
use crate::io::reactor::Channel;
use crate::io::socket::Socket;
use crate::link::Link;
use crate::state::inner::SessionInner;

/// A connection and what serves it.
pub(super) struct Conn {
    pub(super) pipe: Pipe,
    /// Who serves it; `None` while a dial has it, and when nobody does any more.
    pub(super) server: Option<Server>,
}

/// Who serves a connection.
pub(super) enum Server {
    /// The unproven connection of that number.
    PendingConn(u32),
    /// A half of a link. Weak: a link that is over closes its connections when it is dropped.
    Link(Weak<Link>, Channel),
}

impl Server {
    /// The link that a pending connection's connection has become a part of.
    pub(super) fn of(shared: &SessionInner, pipe: &Pipe) -> Option<Self> {
        shared.links().iter().find_map(|link| Self::half_of(link, pipe))
    }

    /// The half of that link whose connection it is.
    pub(super) fn half_of(link: &Arc<Link>, pipe: &Pipe) -> Option<Self> {
        let is_it = |s: &Socket| matches!(s, Socket::Given(stream) if pipe.is_behind(&**stream));
        let half = |channel| Some(Self::Link(Arc::downgrade(link), channel));
        if is_it(link.ctrl_socket()) {
            return half(Channel::Ctrl);
        }
        link.data_socket().filter(|s| is_it(s)).and_then(|_| half(Channel::Data))
    }
}
