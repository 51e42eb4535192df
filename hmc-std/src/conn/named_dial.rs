//! Peers that a program tells apart by their addresses, as those of the C++ HMC do: which ranks they get here.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hmc_core::limits::MAX_PRIVATE_PEERS;
use hmc_core::types::{ConnType, Rank};

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
    pub(crate) fn last_private(&self) -> Option<Arc<Link>> {
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
        let elsewhere = lock(&self.routes).get(&claims).is_some_and(|route| {
            let known = &route.address;
            match (known.tcp_addr(), address.tcp_addr(), known.folder(), address.folder()) {
                (Some(known), Some(given), ..) => known != given,
                (_, _, Some(known), Some(given)) => known != given,
                // A process that listens in both ways.
                _ => false,
            }
        });
        lives && elsewhere
    }

    /// Connects to whoever listens at `address`; see [`PeerRank::Alias`](crate::PeerRank::Alias).
    pub(crate) fn dial_named(
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
