//! Connecting to a peer.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hmc_core::types::{ConnType, Rank};

use crate::base::address::Address;
use crate::base::config::check_rank;
use crate::base::error::{Error, Result};
use crate::base::wait_limit::WaitLimit;
use crate::link::Link;
use crate::ops::background_call::BackgroundCall;
use crate::ops::peer_handle::Peer;
use crate::ops::request::sealed::Sealed;
use crate::ops::request::{Request, Verb};
use crate::state::inner::SessionInner;

/// A connection that is asked for ([`Session::connect`](crate::Session::connect)).
#[derive(Debug)]
pub struct Connect<'a> {
    shared: &'a Arc<SessionInner>,
    plan: Plan,
}

/// Where to, and how.
#[derive(Clone, Debug)]
struct Plan {
    address: Address,
    conn: ConnType,
    /// `None`: whoever listens there.
    peer: Option<PeerRank>,
}

/// What a program knows of the rank of a peer that it connects to ([`Request::rank`]). A number converts into the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PeerRank {
    /// The rank that the peer has. Any other is refused.
    Is(u32),
    /// What this program calls the peer, as programs of the C++ HMC do: it need not be the rank that the peer has, except
    /// that it names the socket in a folder of control sockets (that of [`rank_of`](crate::rank_of) the name).
    /// [`Peer::rank`] tells how this session knows the peer: by its rank, or by a private one if that is this session's own
    /// rank (the peer must allow [`private_ranks`](crate::session::SessionBuilder::private_ranks) then) or that of a peer at
    /// another address. Too many private ranks are `Full`.
    Alias(u32),
    /// The rank of a node of the C++ HMC, which takes part in control messages only. Its dialect has no answer to a HELLO,
    /// so that a refusal shows with the first message.
    Cxx(u32),
}

impl From<u32> for PeerRank {
    fn from(rank: u32) -> Self {
        Self::Is(rank)
    }
}

impl From<Rank> for PeerRank {
    fn from(rank: Rank) -> Self {
        Self::Is(rank.0)
    }
}

impl<'a> Request<Connect<'a>> {
    pub(crate) fn connect(shared: &'a Arc<SessionInner>, address: &Address) -> Self {
        let (address, conn, peer) = (address.clone(), ConnType::Auto, None);
        Self::new(Connect { shared, plan: Plan { address, conn, peer } })
    }

    /// Connects to the peer of that rank, and refuses any other; [`PeerRank`] lists what else may be known of it. Without this call
    /// the listener's rank is queried first, by a connection that the listener counts as refused. If the address is a socket
    /// folder, exactly one other process may listen in it then.
    pub fn rank(self, rank: impl Into<PeerRank>) -> Self {
        let rank = rank.into();
        self.map(|c| c.plan.peer = Some(rank))
    }

    /// Uses this transport and never falls back to another one. The default is [`ConnType::Auto`], the best transport that both ends
    /// have. [`ConnType::Loopback`] connects the session to itself.
    pub fn over(self, conn: ConnType) -> Self {
        self.map(|c| c.plan.conn = conn)
    }
}

impl Plan {
    fn run(&self, shared: &Arc<SessionInner>, until: WaitLimit) -> Result<Peer> {
        let link = self.link(shared, until)?;
        Ok(Peer { link, shared: Arc::clone(shared) })
    }

    fn link(&self, shared: &SessionInner, until: WaitLimit) -> Result<Arc<Link>> {
        let Self { address, conn, peer } = self;
        match *peer {
            Some(PeerRank::Is(_)) if *conn == ConnType::Loopback => shared.dial_self(),
            Some(PeerRank::Is(rank)) => {
                check_rank(rank)?;
                shared.dial(Rank(rank), address, *conn, until)
            }
            None if *conn == ConnType::Loopback => Err(Error::config(
                "loopback needs no address; use `loopback()` (Rust: `Session::peer` of its own rank)",
            )),
            None => shared.dial(shared.rank_at(address, until)?, address, *conn, until),
            Some(PeerRank::Alias(name)) => shared.dial_named(name, address, *conn, until),
            Some(PeerRank::Cxx(rank)) => shared.dial_cxx(Rank(rank), address, until),
        }
    }
}

impl Sealed for Connect<'_> {}

impl<'a> Verb for Connect<'a> {
    type Output = Peer;
    type Error = Error;
    type Pending = PendingConnect<'a>;

    fn wait(self, within: Option<Duration>) -> Result<Peer> {
        let shared = self.shared;
        shared.check_process()?;
        self.plan.run(shared, shared.until(within.unwrap_or(shared.config.deadline)))
    }

    fn pending(self, within: Option<Duration>) -> PendingConnect<'a> {
        PendingConnect { connect: self, within, call: None }
    }
}

/// [`Connect`] as a future: a separate thread dials. If it is dropped after its first poll, the dial continues to its end.
#[derive(Debug)]
pub struct PendingConnect<'a> {
    connect: Connect<'a>,
    within: Option<Duration>,
    call: Option<BackgroundCall<Peer>>,
}

impl Future for PendingConnect<'_> {
    type Output = Result<Peer>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { connect: Connect { shared, plan }, within, call } = &mut *self;
        shared.check_process()?;
        let call = match call {
            Some(call) => call,
            None => {
                let at = shared.clock.deadline_in(within.unwrap_or(shared.config.deadline));
                // The session's hook is asked on the threads of the application only.
                let until = WaitLimit::time(at);
                let (mine, plan) = (Arc::clone(shared), plan.clone());
                shared.wakers.start();
                let dials = move || plan.run(&mine, until);
                call.insert(BackgroundCall::start("hmc-connect", &shared.wakers, dials)?)
            }
        };
        call.poll(cx)
    }
}
