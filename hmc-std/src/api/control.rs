//! Messages by rank: the C++ HMC's CtrlSocketManager, owned by a communicator and never global.

use std::sync::Arc;
use std::time::Duration;

use hmc_core::types::Rank;

use crate::api::communicator::Communicator;
use crate::api::peer::{Peer, take_message};
use crate::base::clock;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::wait_limit::WaitLimit;
use crate::node::inbox::{Message, Want};
use crate::state::inner::SessionInner;

/// Small messages between ranks. Per peer they arrive in the order in which they were sent.
#[derive(Clone, Copy, Debug)]
pub struct Control<'a> {
    pub(crate) shared: &'a Arc<SessionInner>,
}

impl Communicator {
    /// Messages by rank.
    #[must_use]
    pub fn control(&self) -> Control<'_> {
        Control { shared: &self.shared }
    }
}

impl Control<'_> {
    fn peer(&self, rank: u32) -> Result<Peer> {
        let link = self.shared.live_link(Rank(rank))?;
        Ok(Peer { link, shared: Arc::clone(self.shared) })
    }

    /// The peer, waiting for it to appear.
    fn peer_by(&self, rank: u32, until: WaitLimit) -> Result<Peer> {
        self.shared.check_process()?;
        if let Some(link) = self.shared.link(Rank(rank)) {
            return Ok(Peer { link, shared: Arc::clone(self.shared) });
        }
        let found = self.shared.wait_for_event(until, |s| match s.link(Rank(rank)) {
            // Nobody connects any more.
            None => s.is_leaving().then_some(None),
            link => Some(link),
        });
        match found {
            Ok(Some(link)) => Ok(Peer { link, shared: Arc::clone(self.shared) }),
            Ok(None) => Err(Error::new(ErrorKind::Closed, "this session is shutting down")
                .with_peer(Rank(rank))),
            Err(stop) => {
                let error = stop.error(format_args!("waiting for rank {rank} to connect"));
                Err(error.with_peer(Rank(rank)))
            }
        }
    }

    /// Sends a tag; see [`Peer::send_tag`].
    ///
    /// # Errors
    /// As there, and `NotFound`.
    pub fn send_tag(&self, rank: u32, tag: u64) -> Result<()> {
        self.peer(rank)?.send_tag(tag)
    }

    /// Sends a 32-bit number.
    ///
    /// # Errors
    /// As [`Control::send_tag`].
    pub fn send_int(&self, rank: u32, n: i32) -> Result<()> {
        self.peer(rank)?.send_int(n)
    }

    /// Sends opaque bytes, at most 1 MiB.
    ///
    /// # Errors
    /// As [`Peer::send_struct`], and `NotFound`.
    pub fn send_struct(&self, rank: u32, bytes: &[u8]) -> Result<()> {
        self.peer(rank)?.send_struct(bytes)
    }

    /// Receives the oldest message of `rank` that is wanted, waiting for the rank to appear if need
    /// be. Other messages stay.
    ///
    /// # Errors
    /// As [`Peer::recv`].
    pub fn recv(&self, rank: u32, want: Want, timeout: Duration) -> Result<Message> {
        let until = self.shared.until(timeout);
        let peer = self.peer_by(rank, until)?;
        peer.recv(want, Duration::from_nanos(clock::left(until.at).as_nanos()))
    }

    /// As [`Control::recv`], but waits for the rank to appear up to `appears`, and then for its message up to `timeout`.
    ///
    /// # Errors
    /// As [`Peer::recv`]; `PeerDead` at once for a rank that has gone, if there is no limit (`Duration::MAX`).
    pub fn recv_of(
        &self,
        rank: u32,
        want: Want,
        appears: Duration,
        timeout: Duration,
    ) -> Result<Message> {
        if timeout == Duration::MAX
            && let Err(gone) = self.shared.live_link(Rank(rank))
            && gone.kind() == ErrorKind::PeerDead
        {
            // It may never come back.
            return Err(gone);
        }
        self.peer_by(rank, self.shared.until(appears))?.recv(want, timeout)
    }

    /// Receives the oldest tag of `rank`.
    ///
    /// # Errors
    /// As [`Peer::recv`].
    pub fn recv_tag(&self, rank: u32, timeout: Duration) -> Result<u64> {
        match self.recv(rank, Want::Tag, timeout)? {
            Message::Tag(tag) | Message::Notify(tag) => Ok(tag),
            other => Err(Error::new(ErrorKind::Protocol, format!("not a tag: {other:?}"))),
        }
    }

    /// Receives a wanted message of whichever peer has one, and says whose it is. Peers that have one take turns.
    ///
    /// # Errors
    /// `DeadlineExceeded`; `Interrupted`.
    pub fn recv_any(&self, want: Want, timeout: Duration) -> Result<(Rank, Message)> {
        self.shared.check_process()?;
        let found = self.shared.wait_for_event(self.shared.until(timeout), |s| {
            s.links.find_round_robin(|l| take_message(l, want).map(|m| (l.peer, m)))
        });
        found.map_err(|stop| stop.error("waiting for a message from anyone"))
    }

    /// Whether `rank` is connected.
    #[must_use]
    pub fn is_connected(&self, rank: u32) -> bool {
        self.shared.link(Rank(rank)).is_some_and(|l| l.is_ready_now())
    }
}
