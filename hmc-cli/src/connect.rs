//! How a command reaches its peer: the options and the dial.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use hmc_core::limits::{MAX_PEERS, MAX_SLOTS};
use hmc_std::config::Environment;
use hmc_std::{Address, ConnType, ErrorKind, Peer, Session};
use serde::Serialize;

use crate::fail::{Failure, Result};

/// Ranks from here on are taken by commands that were given none.
const FIRST_FREE_RANK: u32 = 1024;
/// How many ranks are tried.
const TRIES: usize = 8;

/// Which transport may move the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Via {
    /// The best that both ends have
    Auto,
    /// Shared memory, or fail
    Shm,
    /// TCP, or fail
    Tcp,
    /// UCX, or fail; the peer must take part in it (`hmc serve --ucx`)
    Ucx,
}

impl Via {
    pub(crate) fn conn(self) -> ConnType {
        match self {
            Self::Auto => ConnType::Auto,
            Self::Shm => ConnType::Shm,
            Self::Tcp => ConnType::Tcp,
            Self::Ucx => ConnType::Ucx,
        }
    }
}

/// Where the peer is and how to talk to it.
#[derive(Args, Clone, Debug)]
pub(crate) struct Reach {
    /// Address of the peer: tcp://HOST:PORT, HOST:PORT or uds://FOLDER
    #[arg(long, value_name = "ADDR", conflicts_with = "uds")]
    pub(crate) to: Option<String>,
    /// Folder of the peer's control socket [default: the user's own, as for `hmc serve`]
    #[arg(long, value_name = "DIR")]
    pub(crate) uds: Option<PathBuf>,
    /// Rank of the peer
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) peer: u32,
    /// Rank of this process, 0 to 4095 [default: a free one from 1024 on]
    #[arg(long, value_name = "N")]
    pub(crate) rank: Option<u32>,
    /// Transport of the bytes; a named one never falls back
    #[arg(long, value_enum, default_value_t = Via::Auto)]
    pub(crate) via: Via,
    /// Allow addresses beyond loopback although nothing proves who answers there
    #[arg(long)]
    pub(crate) insecure: bool,
    /// Seconds that the peer may keep silent or take to answer
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) timeout: u64,
}

impl Reach {
    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }

    pub(crate) fn address(&self) -> Result<Address> {
        match (&self.to, &self.uds) {
            (Some(text), _) => Ok(text.parse()?),
            (None, Some(dir)) => Ok(Address::Uds(dir.clone())),
            (None, None) => Ok(Address::Uds(Environment::read().default_uds_dir())),
        }
    }

    /// Starts a session with a buffer of `buffer` bytes and connects it to the peer.
    pub(crate) fn connect(&self, buffer: u64) -> Result<(Session, Peer)> {
        let address = self.address()?;
        let what = || format!("cannot reach rank {} at {address}", self.peer);
        let mut tries = TRIES;
        loop {
            let rank = self.rank.unwrap_or_else(free_rank);
            let mut builder = Session::builder(rank)
                .buffer(buffer)
                .redial(false)
                .slots(MAX_SLOTS)
                .deadline(self.timeout());
            if self.insecure {
                builder = builder.insecure();
            }
            if self.via == Via::Ucx {
                builder = builder.ucx();
            }
            let session = builder.start()?;
            match session.connect_with(self.peer, &address, self.via.conn(), self.timeout()) {
                Ok(peer) => return Ok((session, peer)),
                Err(e)
                    if e.kind() == ErrorKind::DuplicateRank && self.rank.is_none() && tries > 0 =>
                {
                    tries -= 1;
                }
                Err(e) => return Err(Failure::from(e).during(what())),
            }
        }
    }
}

/// A rank that is probably nobody's.
fn free_rank() -> u32 {
    let mut bytes = [0; 4];
    // Without random numbers the process id does; a clash is answered with another try.
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    let random = u32::from_le_bytes(bytes) ^ std::process::id();
    FIRST_FREE_RANK + random % (MAX_PEERS - FIRST_FREE_RANK)
}

/// One transport that was considered.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Considered {
    transport: &'static str,
    chosen: bool,
    why: String,
}

/// Who moves the bytes, as told by itself, and why.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Route {
    /// The transport.
    pub(crate) transport: &'static str,
    /// All that were considered.
    pub(crate) considered: Vec<Considered>,
    /// Who checks accesses.
    pub(crate) trust: &'static str,
}

/// The name of the transport that moves bytes to and from `peer`.
pub(crate) fn transport(peer: &Peer) -> &'static str {
    peer.conn().map_or("none", ConnType::name)
}

/// Which transport moves the bytes and why not the others.
pub(crate) fn route(peer: &Peer) -> Route {
    let told = peer.explain();
    let considered = told
        .choices
        .iter()
        .map(|c| Considered { transport: c.conn.name(), chosen: c.chosen, why: c.why.to_string() })
        .collect();
    Route { transport: transport(peer), considered, trust: told.trust }
}
