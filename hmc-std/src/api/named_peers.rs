//! Peers that a program tells apart by their addresses, as those of the C++ HMC do: which ranks they get here.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hmc_core::limits::MAX_PRIVATE_PEERS;
use hmc_core::types::{ConnType, Rank};

use crate::api::communicator::Communicator;
use crate::api::peer::Peer;
use crate::base::address::Address;
use crate::base::error::Result;
use crate::base::lock::lock;
use crate::base::private_ranks::{FIRST_PRIVATE, is_private, rank_of, too_many};
use crate::base::wait_limit::WaitLimit;
use crate::conn::connector::Connector;
use crate::link::{Link, LinkState};
use crate::state::inner::SessionInner;

impl SessionInner {
    /// A new one, unless there are too many.
    pub(crate) fn private_rank(&self) -> Option<Rank> {
        if self.links().iter().filter(|l| is_private(l.peer)).count() >= MAX_PRIVATE_PEERS {
            return None;
        }
        let next = |n: u32| n.checked_add(1);
        let given =
            self.next_private.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()?;
        Some(Rank(given))
    }

    /// The last link that was made under one, of those that live or have unread messages.
    fn last_private(&self) -> Option<Arc<Link>> {
        self.links.last_from(Rank(FIRST_PRIVATE))
    }

    /// Whether the peer that is known by `peer` may say that it has the rank `claims`.
    pub(crate) fn may_claim(&self, peer: Rank, claims: Rank) -> bool {
        peer == claims || is_private(peer) && claims == self.config.rank
    }

    /// Whether whoever listens at `address` with the rank `claims` must get a private rank: it is our own, or that of a peer
    /// that was dialed elsewhere.
    fn is_apart(&self, claims: Rank, address: &Address) -> bool {
        if claims == self.config.rank {
            return true;
        }
        let lives = self.link(claims).is_some_and(|l| l.state() != LinkState::Dead);
        let elsewhere = match (lock(&self.routes).get(&claims).map(|r| &r.address), address) {
            (Some(Address::Tcp(known)), Address::Tcp(given)) => known != given,
            // Else a process that listens in both ways.
            (Some(known), given) => match (known.folder(), given.folder()) {
                (Some(k), Some(g)) => k != g,
                _ => false,
            },
            (None, _) => false,
        };
        lives && elsewhere
    }

    /// Connects to whoever listens at `address`; see [`Communicator::connect_named`].
    fn dial_named(
        &self,
        name: u32,
        address: &Address,
        conn: ConnType,
        until: WaitLimit,
    ) -> Result<Arc<Link>> {
        // Who listens there tells its rank to whoever takes it for another.
        let mut claims = Rank(rank_of(name));
        let mut asked = false;
        loop {
            let rank = if self.is_apart(claims, address) {
                self.private_rank().ok_or_else(too_many)?
            } else {
                claims
            };
            let mut connector = Connector::new(rank, address, conn, until.at);
            connector.claims = claims;
            let dialed = self.drive(&mut connector, until);
            match connector.found {
                Some(found) if dialed.is_err() && !asked => {
                    claims = found;
                    asked = true;
                }
                _ => return dialed,
            }
        }
    }
}

impl Communicator {
    /// Connects to whoever listens at `address`. `name` is what this program calls it, as in the C++ HMC: it need not be the
    /// rank that the peer has, except that it names the socket in a folder of control sockets (that of [`rank_of`] the name). [`Peer::rank`] tells how this
    /// session knows it: by its rank, or by a private one if that is this session's own rank (the peer must allow
    /// [`private_ranks`](crate::session::SessionBuilder::private_ranks) then) or that of a peer at another address.
    ///
    /// # Errors
    /// As [`Communicator::connect_with`]; `Full` when too many peers have private ranks.
    pub fn connect_named(
        &self,
        name: u32,
        address: &Address,
        conn: ConnType,
        timeout: Duration,
    ) -> Result<Peer> {
        self.shared.check_process()?;
        let link = self.shared.dial_named(name, address, conn, self.shared.until(timeout))?;
        Ok(self.peer_over(link))
    }

    /// The peer that connected last of those that have this session's own rank, waiting for one. It may be gone, if messages of
    /// it are unread.
    ///
    /// # Errors
    /// `DeadlineExceeded`; `Interrupted`.
    pub fn wait_namesake(&self, timeout: Duration) -> Result<Peer> {
        self.shared.check_process()?;
        let found =
            self.shared.wait_for_event(self.shared.until(timeout), SessionInner::last_private);
        let own = self.shared.config.rank;
        found.map(|l| self.peer_over(l)).map_err(|stop| {
            stop.error(format_args!("waiting for another peer of rank {own}")).with_peer(own)
        })
    }
}
