//! The links of a driven session.

use std::sync::{Arc, Weak};

use hmc_core::region::WindowDesc;
use hmc_core::time::Instant;
use hmc_core::types::{Incarnation, Rank};
use hmc_core::wire::message::ControlMessage;

use super::session::ByteStream;
use crate::api::peer::Peer;
use crate::base::error::Result;
use crate::io::reactor::Channel;
use crate::io::socket::Socket;
use crate::link::{Link, LinkState};
use crate::node::inbox::{Message, Wanted};
use crate::ops::recv::take_message;
use crate::ops::running::Running;
use crate::ops::started::Op;

/// A link of a driven session.
#[derive(Clone, Debug)]
pub struct DrivenLink(pub(super) Arc<Link>);

/// A half of a link. It keeps the link from nothing: one that is over closes its connections when it is dropped.
#[derive(Debug)]
pub struct LinkHalf {
    link: Weak<Link>,
    channel: Channel,
}

impl LinkHalf {
    /// Takes in what has come on its connection.
    pub fn poll(&self) {
        if let Some(link) = self.link.upgrade().filter(|l| l.state() != LinkState::Dead) {
            link.poll(self.channel);
        }
    }
}

impl DrivenLink {
    /// The link of a peer's handle.
    #[must_use]
    pub fn of(peer: &Peer) -> Self {
        Self(Arc::clone(&peer.link))
    }

    /// Whether it is the same link.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The rank of the peer.
    #[must_use]
    pub fn rank(&self) -> Rank {
        self.0.peer
    }

    /// The incarnation of the peer.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.0.incarnation
    }

    /// Whether the peer is connected.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.0.state() == LinkState::Ready
    }

    /// Whether it is over.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.0.state() == LinkState::Dead
    }

    /// Whether one side said BYE.
    #[must_use]
    pub fn was_leaving(&self) -> bool {
        self.0.was_leaving()
    }

    /// Whether new operations may be posted.
    ///
    /// # Errors
    /// `Closed`, `PeerDead`.
    pub fn check_open(&self) -> Result<()> {
        self.0.check_open()
    }

    /// How many operations have not ended.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.0.data().queue().in_flight()
    }

    /// No new operations are posted.
    pub fn begin_to_leave(&self) {
        self.0.advance(LinkState::Leaving);
    }

    /// Says BYE. An answer is awaited until `by`.
    pub fn bye(&self, by: Instant) {
        self.0.bye(by);
    }

    /// Ends it.
    pub fn close(&self, why: &str) {
        self.0.close(false, why);
    }

    /// The half whose connection it is about which `is_it` says so.
    pub fn half_of(&self, is_it: impl Fn(&dyn ByteStream) -> bool) -> Option<LinkHalf> {
        let is_it = |s: &Socket| matches!(s, Socket::Given(stream) if is_it(&**stream));
        let half = |channel| Some(LinkHalf { link: Arc::downgrade(&self.0), channel });
        if is_it(self.0.ctrl_socket()) {
            return half(Channel::Ctrl);
        }
        self.0.data_socket().filter(|s| is_it(s)).and_then(|_| half(Channel::Data))
    }

    /// The oldest message of the peer that nobody has taken.
    #[must_use]
    pub fn take_message(&self) -> Option<Message<'static>> {
        take_message(&self.0, Wanted::Any)
    }

    /// Sends a message. At which mark the system has all of it; `None` if it has that already.
    ///
    /// # Errors
    /// `Full`; otherwise as sending.
    pub fn send_out(&self, message: &ControlMessage<'_>) -> Result<Option<u64>> {
        self.0.send_out(message)
    }

    /// Whether the system has all up to a mark; `None` while it has not.
    #[must_use]
    pub fn has_left(&self, mark: u64) -> Option<Result<()>> {
        self.0.has_left(mark)
    }

    /// The window that the peer exposed under a name.
    #[must_use]
    pub fn named_remote(&self, label: u64) -> Option<WindowDesc> {
        self.0.data().named_remote(label)
    }

    /// Whether an operation has ended and its local memory is not used any more.
    #[must_use]
    pub fn is_free(&self, op: &Op) -> bool {
        let posted = match op.running() {
            Some(Running::Posted(posted)) => posted,
            Some(Running::Message(message)) => return message.handle().is_free(),
            None => return true,
        };
        let Some(outcome) = posted.outcome() else { return false };
        outcome.fenced || !self.0.data().plane().uses_memory_of(posted.slot())
    }
}
