//! The connections of a sans-IO session, and who serves them.

use hmc_std::internals::link::LinkHalf;

use super::pipe::Pipe;

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
    /// A half of a link.
    Link(LinkHalf),
}
