//! The transports of this build, and the choice among them.

use std::sync::Arc;

use hmc_core::types::ConnType;
use hmc_core::wire::hello::Features;

use crate::config::Config;
use crate::driver::Driver;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::{Region, RegionTable};
use crate::node::inbox::SharedInbox;
use crate::transport::data_plane::AnyDataPlane;
use crate::transport::domain::Domain;
use crate::transport::loopback::LoopbackDataPlane;
use crate::transport::released::Released;
use crate::transport::shm::domain::ShmDomain;
use crate::transport::tcp::TcpDomain;
use crate::transport::ucx::SessionUcx;

/// One session's part in each transport, in the order in which they are tried. The last one serves every peer.
#[derive(Clone)]
pub(crate) struct Domains(Arc<[Box<dyn Domain>]>);

impl std::fmt::Debug for Domains {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter().map(|domain| domain.kind())).finish()
    }
}

impl Domains {
    /// All transports of this build. A new one is added here, and nowhere else.
    pub(crate) fn new(config: &Config, driver: &Arc<Driver>) -> Self {
        Self(Arc::new([
            Box::new(ShmDomain),
            Box::new(SessionUcx::new(&config.ucx, config.progress, driver, 0)),
            Box::new(TcpDomain),
        ]))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &dyn Domain> {
        self.0.iter().map(|domain| &**domain)
    }

    /// The transport of that kind.
    ///
    /// # Errors
    /// `Unavailable`.
    pub(crate) fn find(&self, kind: ConnType) -> Result<&dyn Domain> {
        self.iter().find(|domain| domain.kind() == kind).ok_or_else(|| {
            let all: Vec<String> = self.iter().map(|domain| domain.kind().to_string()).collect();
            let what = format!("{kind} is not in this build; use auto, {}", all.join(", "));
            Error::new(ErrorKind::Unavailable, what)
        })
    }

    /// The transport that a dialer asks for by that number.
    pub(crate) fn of_endpoint(&self, endpoint: u8) -> Option<&dyn Domain> {
        self.iter().find(|domain| domain.endpoint() == endpoint)
    }

    /// The transport that is tried first, or after `kind`.
    pub(crate) fn next(&self, kind: Option<ConnType>) -> Option<&dyn Domain> {
        let mut all = self.iter();
        if let Some(kind) = kind {
            all.find(|domain| domain.kind() == kind)?;
        }
        all.next()
    }

    /// What HELLO says of the session.
    pub(crate) fn features(&self) -> Features {
        self.iter().fold(Features::empty(), |all, domain| all | domain.features())
    }

    /// Memory of the first transport that has memory of its own.
    pub(crate) fn allocate(&self, table: &Arc<RegionTable>, len: u64) -> Option<Result<Region>> {
        self.iter().find_map(|domain| domain.allocate(table, len))
    }

    /// See [`Domain::poll_worker`].
    pub(crate) fn poll_worker(&self, worker: u32, released: &mut Released) -> bool {
        self.iter().any(|domain| domain.poll_worker(worker, released))
    }

    /// See [`Domain::tick_workers`].
    pub(crate) fn tick_workers(&self, released: &mut Released) {
        self.iter().for_each(|domain| domain.tick_workers(released));
    }

    /// See [`Domain::progress_workers`].
    pub(crate) fn progress_workers(&self, released: &mut Released) -> bool {
        self.iter().fold(false, |busy, domain| domain.progress_workers(released) | busy)
    }

    /// See [`Domain::must_poll`].
    pub(crate) fn must_poll(&self) -> bool {
        self.iter().any(Domain::must_poll)
    }

    /// See [`Domain::has_leftovers`].
    pub(crate) fn has_leftovers(&self) -> bool {
        self.iter().any(Domain::has_leftovers)
    }

    /// See [`Domain::is_ending`].
    pub(crate) fn is_ending(&self) -> bool {
        self.iter().any(Domain::is_ending)
    }
}

/// The data plane of a session's link to itself.
pub(crate) fn loopback(windows: usize, inbox: SharedInbox) -> AnyDataPlane {
    AnyDataPlane::new(LoopbackDataPlane::new(windows, inbox))
}
