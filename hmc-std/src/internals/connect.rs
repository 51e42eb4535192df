//! A connect of a driven session: the machine of `conn::connector`, with its owner as the driver.

use std::net::SocketAddr;

use hmc_core::time::Instant;
use hmc_core::types::{ConnType, Rank};

use super::link::DrivenLink;
use super::session::{ByteStream, DrivenSession};
use crate::base::address::Address;
use crate::base::error::Result;
use crate::conn::connector::{ConnectStep, Connector};
use crate::conn::dial_target::DialTarget;
use crate::io::socket::Socket;

/// What a connect needs next.
#[derive(Debug)]
pub enum DrivenStep {
    /// A connection to that address, to be handed in by [`DrivenConnect::opened`]; `None`: to one that is no address of TCP.
    Open(Option<SocketAddr>),
    /// An answer on the connection that was opened last.
    Receive,
    /// The rest of the handshake on this link.
    Drive(DrivenLink),
    /// Events, or that time.
    Event(Instant),
    /// That time.
    Pause(Instant),
    /// Nothing: the link is ready.
    Ready(DrivenLink),
}

/// One wish to be connected.
pub struct DrivenConnect(Connector);

impl DrivenConnect {
    /// To that rank, until `deadline`.
    #[must_use]
    pub fn new(rank: Rank, address: &Address, conn: ConnType, deadline: Instant) -> Self {
        Self(Connector::new(rank, address, conn, deadline))
    }

    /// Goes on as far as what there is allows.
    ///
    /// # Errors
    /// It is over.
    pub fn advance(&mut self, session: &DrivenSession) -> Result<DrivenStep> {
        Ok(match self.0.advance(&session.shared)? {
            Ok(link) => DrivenStep::Ready(DrivenLink(link)),
            Err(ConnectStep::Open(DialTarget::Address(at))) => DrivenStep::Open(at.tcp_addr()),
            Err(ConnectStep::Open(DialTarget::Path(_))) => DrivenStep::Open(None),
            Err(ConnectStep::Receive) => DrivenStep::Receive,
            Err(ConnectStep::Drive(link)) => DrivenStep::Drive(DrivenLink(link)),
            Err(ConnectStep::Event { by, .. }) => DrivenStep::Event(by),
            Err(ConnectStep::Pause(until)) => DrivenStep::Pause(until),
        })
    }

    /// The connection that was asked for, or why there is none.
    ///
    /// # Errors
    /// It is over.
    pub fn opened(
        &mut self,
        session: &DrivenSession,
        opened: Result<Box<dyn ByteStream>>,
    ) -> Result<()> {
        self.0.opened(&session.shared, opened.map(Socket::from))
    }

    /// It is given up.
    pub fn abandon(&mut self, session: &DrivenSession) {
        self.0.abandon(&session.shared);
    }
}
