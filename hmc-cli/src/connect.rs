//! How a command reaches its peer: the options and the dial.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use hmc_core::limits::{MAX_PEERS, MAX_SLOTS};
use hmc_std::config::Environment;
use hmc_std::{Address, ConnType, ErrorKind, Peer, Session};
use serde::Serialize;

use crate::failure::{Failure, Result};

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
    /// RDMA verbs, or fail
    Rdma,
}

impl Via {
    pub(crate) fn conn(self) -> ConnType {
        match self {
            Self::Auto => ConnType::Auto,
            Self::Shm => ConnType::Shm,
            Self::Tcp => ConnType::Tcp,
            Self::Ucx => ConnType::Ucx,
            Self::Rdma => ConnType::Rdma,
        }
    }
}

/// Where a session listens over TCP, if it does: `IP:PORT`.
pub(crate) fn tcp_listener(session: &Session) -> Option<String> {
    session.info().listeners.iter().find_map(|l| match l.address() {
        Address::Tcp(addr) => Some(addr.to_string()),
        _ => None,
    })
}

/// Where the peer is and how to talk to it.
#[derive(Args, Clone, Debug)]
pub(crate) struct PeerArgs {
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

impl PeerArgs {
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
        if self.rank == Some(self.peer) {
            let text = "this command cannot have the peer's rank; choose another --rank";
            return Err(Failure::new(text).during(what()));
        }
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
            match session
                .connect(&address)
                .rank(self.peer)
                .over(self.via.conn())
                .within(self.timeout())
                .wait()
            {
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
pub(crate) struct TransportChoice {
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
    pub(crate) considered: Vec<TransportChoice>,
    /// Who checks accesses.
    pub(crate) trust: &'static str,
}

/// The name of the transport that moves bytes to and from `peer`.
pub(crate) fn transport(peer: &Peer) -> &'static str {
    peer.explain().conn.map_or("none", ConnType::name)
}

/// Which transport moves the bytes and why not the others.
pub(crate) fn route(peer: &Peer) -> Route {
    let told = peer.explain();
    let considered = told
        .choices
        .iter()
        .map(|c| TransportChoice {
            transport: c.conn.name(),
            chosen: c.chosen,
            why: c.why.to_string(),
        })
        .collect();
    Route { transport: transport(peer), considered, trust: told.trust }
}

#[cfg(test)]
mod tests {
    use super::{FIRST_FREE_RANK, PeerArgs, TRIES, Via, free_rank};
    use hmc_core::limits::MAX_PEERS;
    use hmc_std::{Address, ConnType};
    use std::collections::BTreeSet;
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::time::Duration;

    fn reach(to: Option<String>, rank: Option<u32>) -> PeerArgs {
        PeerArgs { to, uds: None, peer: 0, rank, via: Via::Auto, insecure: false, timeout: 20 }
    }

    #[test]
    fn a_free_rank_is_any_from_1024_on() {
        let ranks: BTreeSet<u32> = (0..256).map(|_| free_rank()).collect();
        assert!(ranks.iter().all(|rank| (FIRST_FREE_RANK..MAX_PEERS).contains(rank)), "{ranks:?}");
        // Of 3,072 ranks 256 draws give about 246 different ones.
        assert!(ranks.len() > 200, "{} different ranks", ranks.len());
        let below = ranks.iter().filter(|rank| **rank < 2560).count();
        assert!((50..200).contains(&below), "{below} of {} in the lower half", ranks.len());
    }

    #[test]
    fn an_option_of_the_transport_is_that_transport() {
        let all = [Via::Auto, Via::Shm, Via::Tcp, Via::Ucx, Via::Rdma].map(Via::conn);
        let kinds = [ConnType::Auto, ConnType::Shm, ConnType::Tcp, ConnType::Ucx, ConnType::Rdma];
        assert_eq!(all, kinds);
    }

    #[test]
    fn a_folder_is_an_address_and_seconds_are_a_timeout() {
        let mut by_folder = reach(None, None);
        by_folder.uds = Some("/a/folder".into());
        assert_eq!(by_folder.address().unwrap(), Address::Uds("/a/folder".into()));
        let by_address = reach(Some("tcp://127.0.0.1:7000".to_owned()), None);
        assert_eq!(by_address.address().unwrap(), Address::Tcp("127.0.0.1:7000".parse().unwrap()));
        assert_eq!(by_address.timeout(), Duration::from_secs(20));
    }

    /// Connects to a listener that refuses everybody by that code (docs/WIRE.md, 3.2): the ranks that were tried, and the failure.
    fn refused(rank: Option<u32>, code: u16) -> (Vec<u32>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("tcp://{}", listener.local_addr().unwrap());
        let mut reject = vec![2, 0, 0, 0xc0, 11, 0, 0, 0, 3];
        reject.extend(code.to_le_bytes());
        reject.extend([0; 8]);
        let serve = std::thread::spawn(move || {
            let mut ranks = Vec::new();
            // Whoever tries without end is refused by a listener that is closed at last.
            while ranks.len() < 3 * TRIES {
                let (mut near, _) = listener.accept().unwrap();
                // The frame's header has 8 bytes, the kind one, and the rank stands at 12 of the fixed part.
                let mut hello = [0; 121];
                if near.read_exact(&mut hello).is_err() {
                    break;
                }
                ranks.push(u32::from_le_bytes(hello[21..25].try_into().unwrap()));
                near.write_all(&reject).unwrap();
                let _ = near.read_to_end(&mut Vec::new());
            }
            ranks
        });
        let failure = reach(Some(address.clone()), rank).connect(0).expect_err("refused");
        // The listener's thread ends with a connection that says nothing.
        let _ = std::net::TcpStream::connect(address.trim_start_matches("tcp://"));
        (serve.join().unwrap(), failure.to_string())
    }

    #[test]
    fn a_rank_that_somebody_has_is_drawn_anew_a_few_times() {
        const TAKEN: u16 = 5;
        let (ranks, failure) = refused(None, TAKEN);
        assert_eq!(ranks.len(), 1 + TRIES, "{failure}");
        assert!(ranks.iter().collect::<BTreeSet<_>>().len() > 2, "{ranks:?}");
        assert!(failure.starts_with("cannot reach rank 0 at tcp://127.0.0.1:"), "{failure}");
        let own = reach(Some("tcp://127.0.0.1:1".to_owned()), Some(0)).connect(0);
        let own = own.expect_err("the peer's rank").to_string();
        assert!(own.contains("choose another --rank"), "{own}");
        // One that was asked for is tried once.
        assert_eq!(refused(Some(7), TAKEN).0, [7]);
    }

    #[test]
    fn another_refusal_is_reported_at_once() {
        const ANOTHER_JOB: u16 = 3;
        assert_eq!(refused(Some(7), ANOTHER_JOB).0, [7]);
        let (ranks, failure) = refused(None, ANOTHER_JOB);
        assert_eq!(ranks.len(), 1, "{failure}");
    }
}
