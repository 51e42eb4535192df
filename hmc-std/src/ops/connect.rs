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
    whom: Whom,
}

#[derive(Clone, Copy, Debug)]
enum Whom {
    /// Whoever listens there.
    Anyone,
    Rank(u32),
    /// What this program calls the peer.
    Named(u32),
    /// A node of the C++ HMC.
    Cxx(u32),
}

impl<'a> Request<Connect<'a>> {
    pub(crate) fn connect(shared: &'a Arc<SessionInner>, address: &Address) -> Self {
        let (address, conn, whom) = (address.clone(), ConnType::Auto, Whom::Anyone);
        Self::new(Connect { shared, plan: Plan { address, conn, whom } })
    }

    /// Connects to the peer of that rank, and refuses any other. Without it whoever listens at the address is asked for its
    /// rank first, and counts that connection as refused; in a folder of control sockets one process but this may listen then.
    pub fn rank(self, rank: u32) -> Self {
        self.map(|c| c.plan.whom = Whom::Rank(rank))
    }

    /// Uses the transport of that name, and no other: it never falls back. [`ConnType::Auto`], the default, takes the best one
    /// that both ends have; [`ConnType::Loopback`] connects the session to itself.
    pub fn over(self, conn: ConnType) -> Self {
        self.map(|c| c.plan.conn = conn)
    }

    /// Connects to a peer that this program calls `name`, as programs of the C++ HMC do: the name need not be the rank that
    /// the peer has, except that it names the socket in a folder of control sockets (that of [`rank_of`](crate::rank_of) the
    /// name). [`Peer::rank`] tells how this session knows the peer: by its rank, or by a private one if that is this session's
    /// own rank (the peer must allow [`private_ranks`](crate::session::SessionBuilder::private_ranks) then) or that of a peer at
    /// another address. Too many private ranks are `Full`.
    pub fn named(self, name: u32) -> Self {
        self.map(|c| c.plan.whom = Whom::Named(name))
    }

    /// Connects to a node of the C++ HMC of that rank: for control messages only. Its dialect has no answer to a HELLO, so that
    /// a refusal shows with the first message.
    pub fn cxx(self, rank: u32) -> Self {
        self.map(|c| c.plan.whom = Whom::Cxx(rank))
    }
}

impl Plan {
    fn run(&self, shared: &Arc<SessionInner>, until: WaitLimit) -> Result<Peer> {
        let link = self.link(shared, until)?;
        Ok(Peer { link, shared: Arc::clone(shared) })
    }

    fn link(&self, shared: &SessionInner, until: WaitLimit) -> Result<Arc<Link>> {
        let Self { address, conn, whom } = self;
        match *whom {
            Whom::Rank(_) if *conn == ConnType::Loopback => shared.dial_self(),
            Whom::Rank(rank) => {
                check_rank(rank)?;
                shared.dial(Rank(rank), address, *conn, until)
            }
            Whom::Anyone if *conn == ConnType::Loopback => {
                Err(Error::config("loopback needs no address; use `peer(own rank)`"))
            }
            Whom::Anyone => shared.dial(shared.rank_at(address, until)?, address, *conn, until),
            Whom::Named(name) => shared.dial_named(name, address, *conn, until),
            Whom::Cxx(rank) => shared.dial_cxx(Rank(rank), address, until),
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

/// It as a future: a thread of its own dials. Dropped after its first poll it leaves that to its end.
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
