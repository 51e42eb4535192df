//! Finds the rank that listens at an address, before a dial by rank.
//!
//! Over TCP, a HELLO to an impossible rank (this session's own) gets a reply with the actual rank, and no link
//! starts. The names of Unix control sockets contain their ranks.

use std::net::SocketAddr;
use std::path::Path;

use hmc_core::types::Rank;
use hmc_core::wire::hello::EndpointList;
use hmc_core::wire::reject::RejectReason;
use rustix::io::Errno;

use crate::base::address::Address;
use crate::base::clock;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::paths::{rank_of_socket, socket_path};
use crate::base::wait_limit::{WaitLimit, WaitStopped};
use crate::conn::handshake::{HandshakeOutcome, is_served, open, wait_for_answer};
use crate::conn::retry::Retries;
use crate::state::inner::SessionInner;

impl SessionInner {
    /// The rank of whoever listens at `address`: never this session's own.
    ///
    /// # Errors
    /// `InvalidConfig` when it is this session, or when several listen in a folder; `DuplicateRank` when it is another process of
    /// this rank; else as for a dial.
    pub(crate) fn rank_at(&self, address: &Address, until: WaitLimit) -> Result<Rank> {
        if self.is_leaving() {
            return Err(Error::new(ErrorKind::Closed, "this session is shutting down"));
        }
        match address {
            Address::Tcp(addr) | Address::UnauthenticatedTcp(addr) => {
                self.check_exposure(address)?;
                self.query_rank(*addr, until)
            }
            Address::Uds(dir) | Address::Local { dir, .. } => self.find_rank(dir),
        }
    }

    fn query_rank(&self, addr: SocketAddr, until: WaitLimit) -> Result<Rank> {
        let mut retries = Retries::default();
        loop {
            let again = match self.query_once(addr, until) {
                Err(e) if Retries::is_worth_it(&e) => retries.next(clock::now()),
                Err(e) if e.kind() == ErrorKind::DeadlineExceeded => return Err(retries.deadline()),
                asked => return asked,
            };
            let nothing = |_: &Self| None::<()>;
            if let Err(stop @ (WaitStopped::Interrupted | WaitStopped::Forked)) =
                self.wait_for_event(until.with_deadline(again.min(until.at)), nothing)
            {
                return Err(stop.error("connecting"));
            }
            if clock::now() >= until.at {
                return Err(retries.deadline());
            }
        }
    }

    fn query_once(&self, addr: SocketAddr, until: WaitLimit) -> Result<Rank> {
        let (me, none) = (self.config.rank, EndpointList::new());
        let fd = open(&Address::Tcp(addr), me, until)?;
        let from = rustix::net::getsockname(&fd).ok().and_then(|a| SocketAddr::try_from(a).ok());
        let is_own = self.listeners.is_own_address(addr, from.map(|f| f.ip()));
        let mut talk = self.begin_handshake(
            fd.into(),
            &Address::Tcp(addr),
            &none,
            self.next_incarnation(),
            me,
        )?;
        let reached = loop {
            match talk.advance(clock::now())? {
                Some(reached) => break reached,
                None => wait_for_answer(&talk.socket, self.config.spin, until)?,
            }
        };
        match reached {
            HandshakeOutcome::Refused(RejectReason::WrongRank { ours }) if ours != me => Ok(ours),
            // It took the rank for its own, and decided about this session by it.
            HandshakeOutcome::Connected(_)
            | HandshakeOutcome::Refused(
                RejectReason::Duplicate
                | RejectReason::Stale { .. }
                | RejectReason::BadRank { .. }
                | RejectReason::Busy,
            ) => Err(self.same_rank(&Address::Tcp(addr), is_own)),
            HandshakeOutcome::Refused(why) => Err(self.refusal(me, why).without_peer()),
            HandshakeOutcome::Attached => {
                Err(Error::new(ErrorKind::Protocol, "an answer to another question"))
            }
        }
    }

    fn find_rank(&self, dir: &Path) -> Result<Rank> {
        let me = self.config.rank;
        let failed = |e: std::io::Error| {
            let errno = Errno::from_io_error(&e).unwrap_or(Errno::IO);
            Error::io(format_args!("cannot look into {}", dir.display()), errno)
        };
        let (mut others, mut own) = (Vec::new(), false);
        for entry in std::fs::read_dir(dir).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            let Some(rank) = name.to_str().and_then(rank_of_socket) else { continue };
            let path = socket_path(dir, rank)?;
            if self.listeners.is_at(&path) {
                own = true;
            } else if is_served(&path) {
                others.push(rank);
            }
        }
        others.sort_unstable();
        match others.as_slice() {
            [rank] if *rank == me => Err(self.same_rank(&Address::Uds(dir.into()), false)),
            [rank] => Ok(*rank),
            [] if own => Err(self.same_rank(&Address::Uds(dir.into()), true)),
            [] => Err(Error::new(
                ErrorKind::Unavailable,
                format!("nobody listens in {}", dir.display()),
            )
            .with_remedy("start the peer first")),
            several => {
                let ranks: Vec<String> = several.iter().map(ToString::to_string).collect();
                let (ranks, dir) = (ranks.join(", "), dir.display());
                Err(Error::config(format!("several ranks listen in {dir} ({ranks})"))
                    .with_remedy("connect to one of them by its rank"))
            }
        }
    }

    fn same_rank(&self, address: &Address, is_own: bool) -> Error {
        let me = self.config.rank;
        if is_own {
            return Error::config(format!("{address} is this session itself (rank {me})"))
                .with_remedy("for transfers to itself use `loopback()` (Rust: `Session::peer` of its own rank)");
        }
        Error::new(
            ErrorKind::DuplicateRank,
            format!("who listens at {address} has this session's own rank, {me}"),
        )
        .with_remedy("one of the two must take another")
    }
}
