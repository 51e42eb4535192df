//! The two steps of a session's beginning: first its buffer, then its rank, its listeners and its thread. The second can be
//! done again when that session is over.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use hmc_core::limits::MAX_PENDING_CONNS;
use hmc_core::types::{ConnType, Incarnation, Rank};
use hmc_mem::os::life::LifePage;
use rustix::process::{Resource, getrlimit};

use crate::api::session::Session;
use crate::base::address::is_loopback;
use crate::base::clock::{self, Clock};
use crate::base::config::{Config, listening_address};
use crate::base::entropy::Entropy;
use crate::base::error::{Error, Result};
use crate::base::process::{Origin, host_id, netns};
use crate::base::secret::{KeptSecret, SecretPlace};
use crate::callbacks::wakers::Wakers;
use crate::io::listener::Listener;
use crate::io::reactor::Reactor;
use crate::memory::{ConnBuffer, Memory, RegionTable};
use crate::progress::start::Starting;
use crate::state::inner::{SessionInit, SessionInner};
use crate::state::listeners::Listeners;
use crate::transport::registry::{CustomDomains, Domains};

/// How many connections may be unproven at a time: they take a quarter of the descriptors that this process may open at most.
fn places() -> usize {
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(files >> 2).map_or(MAX_PENDING_CONNS, |n| n.clamp(1, MAX_PENDING_CONNS))
}

/// A session to be, whose buffer is there already.
///
/// For programs that fill the buffer before they know their rank or whom they talk to, as those of the C++ HMC do. Nobody
/// reaches the buffer before [`Prepared::start`].
#[derive(Debug)]
pub struct Prepared {
    config: Config,
    /// Where it listens over TCP, as the program named it.
    tcp: Option<String>,
    custom: CustomDomains,
    regions: Arc<RegionTable>,
    /// The transports, once UCX was wanted, and what drives their workers: they stay together from session to session.
    domains: Option<(Domains, Arc<Reactor>)>,
    buffer: ConnBuffer,
    /// The session that was started last.
    last: Weak<SessionInner>,
    origin: Origin,
}

impl Drop for Prepared {
    fn drop(&mut self) {
        if self.origin.is_child() {
            // A transport's objects are the parent's.
            std::mem::forget(self.domains.take());
        }
    }
}

impl Prepared {
    pub(crate) fn new(
        config: Config,
        tcp: Option<String>,
        custom: CustomDomains,
        memory: Option<&Memory>,
    ) -> Result<Self> {
        config.check()?;
        custom.check()?;
        let regions = memory.map_or_else(Arc::default, |memory| Arc::clone(memory.regions()));
        let domains = if config.ucx.wanted { Some(begin_ucx(&config, &custom)?) } else { None };
        let own = match &domains {
            _ if config.buffer_bytes == 0 => None,
            Some((all, _)) => all.allocate(&regions, config.buffer_bytes),
            None => custom.allocate(&regions, config.buffer_bytes),
        };
        let region = match own {
            Some(region) => region?,
            None if config.lazy => regions.allocate_lazily(config.buffer_bytes)?,
            None => regions.allocate(config.buffer_bytes)?,
        };
        let buffer = ConnBuffer::new(region)?;
        Ok(Self {
            config,
            tcp,
            custom,
            regions,
            domains,
            buffer,
            last: Weak::new(),
            origin: Origin::here()?,
        })
    }

    /// The buffer that offsets of `put` and `get` will address.
    #[must_use]
    pub fn buffer(&self) -> &ConnBuffer {
        &self.buffer
    }

    /// Another session to be over the same buffer: with a rank, listeners, a thread and a part in UCX of its own. Peers of
    /// both reach the one memory, and each of the two ends without the other. Regions that one registers are those of the
    /// other, too.
    ///
    /// Its settings are those of this one, without listeners. Where the buffer is of UCX's own making, the other session
    /// registers it with its own part in UCX.
    ///
    /// # Errors
    /// `Forked`.
    pub fn beside(&self) -> Result<Self> {
        self.origin.check()?;
        let mut other = Self {
            config: self.config.clone(),
            tcp: self.tcp.clone(),
            custom: self.custom.clone(),
            regions: Arc::clone(&self.regions),
            domains: None,
            buffer: self.buffer.clone(),
            last: Weak::new(),
            origin: Origin::here()?,
        };
        other.clear_listeners();
        Ok(other)
    }

    /// Another rank than the builder's.
    pub fn set_rank(&mut self, rank: u32) {
        self.config.rank = Rank(rank);
    }

    /// As [`SessionBuilder::tcp`](crate::session::SessionBuilder::tcp).
    pub fn listen_tcp(&mut self, addr: &str) {
        self.tcp = Some(addr.to_owned());
    }

    /// As [`SessionBuilder::uds`](crate::session::SessionBuilder::uds).
    pub fn listen_uds(&mut self, dir: impl AsRef<Path>) {
        self.config.uds_dir = Some(dir.as_ref().to_path_buf());
    }

    /// No listeners: neither the builder's nor those that were asked for since.
    pub fn clear_listeners(&mut self) {
        self.tcp = None;
        self.config.uds_dir = None;
    }

    /// As [`SessionBuilder::num_channels`](crate::session::SessionBuilder::num_channels). Without effect when UCX was begun
    /// with already.
    pub fn set_num_channels(&mut self, channels: u32) {
        self.config.set_channels(channels);
    }

    /// As [`SessionBuilder::insecure`](crate::session::SessionBuilder::insecure).
    pub fn allow_insecure(&mut self) {
        self.config.insecure = true;
    }

    /// As [`SessionBuilder::private_ranks`](crate::session::SessionBuilder::private_ranks).
    pub fn private_ranks(&mut self) {
        self.config.private_ranks = true;
    }

    /// As [`SessionBuilder::accept_upstream`](crate::session::SessionBuilder::accept_upstream).
    pub fn accept_upstream(&mut self) {
        self.config.upstream = true;
    }

    /// As [`SessionBuilder::job`](crate::session::SessionBuilder::job).
    pub fn set_job(&mut self, job: u64) {
        self.config.job = job;
        self.config.job_from = "the program";
    }

    /// As [`SessionBuilder::secret_file`](crate::session::SessionBuilder::secret_file).
    pub fn secret_file(&mut self, path: impl AsRef<Path>) {
        self.config.secret = SecretPlace::named(path.as_ref());
    }

    /// As [`SessionBuilder::insecure_loopback`](crate::session::SessionBuilder::insecure_loopback).
    pub fn insecure_loopback(&mut self) {
        self.config.insecure_loopback = true;
    }

    /// Whether the session takes part in UCX from its start, as by
    /// [`SessionBuilder::ucx`](crate::session::SessionBuilder::ucx). A buffer that was made without stays ordinary memory: it
    /// is registered with UCX when the first peer connects over it, and UCX's lanes of shared memory cannot map it, so that
    /// puts into it go through the kernel or as messages.
    pub fn use_ucx(&mut self, wanted: bool) {
        self.config.ucx.wanted = wanted;
    }

    /// Starts the session: its listeners are up when this returns. After an error the settings can be changed and it can be
    /// tried again: without UCX, if that is `Unavailable`.
    ///
    /// When that session was shut down or dropped, another one can be started over the same buffer, as another rank, say,
    /// because a live process had the first one. It has nothing in common with the earlier one, whose peers and handles it knows
    /// nothing of; only a peer of that one that fell silent in the middle of a copy may still write into the buffer.
    ///
    /// # Errors
    /// As [`SessionBuilder::start`](crate::session::SessionBuilder::start); `Unavailable` with [`Prepared::use_ucx`] and no
    /// UCX; `InvalidConfig` while the session that was started before runs.
    pub fn start(&mut self) -> Result<Session> {
        self.origin.check()?;
        if self.last.upgrade().is_some_and(|s| !s.over.load(Ordering::Acquire)) {
            return Err(Error::config(
                "the session that was started before still runs; shut it down first, or prepare another one",
            ));
        }
        let mut config = self.config.clone();
        if let Some(text) = &self.tcp {
            config.tcp = Some(listening_address(text)?);
        }
        config.check()?;
        if config.upstream {
            tracing::warn!(
                "this session accepts the dialect of the C++ HMC: whoever can connect, any local user too, may claim a free rank"
            );
        }
        let (reactor, domains) = self.drive(&config)?;
        let life = Arc::new(LifePage::new()?);
        let starting = Starting::begin(config.rank, &reactor, &life)?;
        let listeners = Listeners::new(&reactor);
        if let Some(addr) = config.tcp {
            if !config.insecure_loopback && is_loopback(addr.ip()) {
                // Rather now than with each peer.
                config.secret.secret()?;
            }
            listeners.open(Listener::tcp(addr)?)?;
        }
        if let Some(dir) = &config.uds_dir {
            listeners.open(Listener::uds(dir, config.rank)?)?;
        }
        let shared = SessionInner::new(SessionInit {
            config,
            clock: Clock::default(),
            entropy: Entropy::default(),
            reactor,
            regions: Arc::clone(&self.regions),
            buffer: self.buffer.clone(),
            listeners,
            secret: KeptSecret::default(),
            host: host_id(),
            netns: netns(),
            incarnation: Incarnation(clock::unix_nanos()),
            origin: Origin::here()?,
            life: Some(life),
            domains,
            places: places(),
            wakers: Wakers::new(false),
        });
        let thread = starting.serve(&shared)?;
        self.last = Arc::downgrade(&shared);
        Ok(Session::new(shared, thread))
    }

    /// What drives a session with those settings, and its part in each transport.
    fn drive(&mut self, config: &Config) -> Result<(Arc<Reactor>, Domains)> {
        if !config.ucx.wanted {
            let reactor = Arc::new(Reactor::new(config.progress)?);
            let domains = Domains::new(config, &reactor, &self.custom);
            return Ok((reactor, domains));
        }
        let (domains, reactor) = match &self.domains {
            Some(both) => both,
            None => self.domains.insert(begin_ucx(config, &self.custom)?),
        };
        Ok((Arc::clone(reactor), domains.clone()))
    }
}

/// The transports of a session that takes part in UCX from its start.
fn begin_ucx(config: &Config, custom: &CustomDomains) -> Result<(Domains, Arc<Reactor>)> {
    let reactor = Arc::new(Reactor::new(config.progress)?);
    let domains = Domains::new(config, &reactor, custom);
    domains.find(ConnType::Ucx)?.activate()?;
    Ok((domains, reactor))
}
