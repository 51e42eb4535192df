//! A session's part in UCX, which is in [`hmc_hw::ucx`]: its configuration, and its interface to the other modules.

mod host;
mod open;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex};

use hmc_core::types::ConnType;
use hmc_core::wire::advert::{ENDPOINT_UCX, EndpointBlob};
use hmc_core::wire::hello::Features;
use hmc_hw::host::SharedWorker;
use hmc_hw::ucx::data_plane::UcxDataPlane;
use hmc_hw::ucx::domain::{DomainOptions, UcxDomain};
use hmc_hw::ucx::memory::Memory;

use self::host::UcxBytes;
pub(crate) use self::open::open;
use crate::base::config::{Progress, Ucx as Config};
use crate::base::error::{Error, ErrorKind, Limit, Result};
use crate::base::lock::lock;
use crate::io::reactor::Reactor;
use crate::memory::{Region, RegionTable};
use crate::transport::data_plane::AnyDataPlane;
use crate::transport::domain::{DataPlaneParams, Domain, PeerFacts, Side};
use crate::transport::link_waker::LinkWaker;
use crate::transport::released::Released;
use crate::transport::session_host::{NotifyLink, SessionHost};
use crate::transport::with_stream::WithStream;
use crate::transport::worker::Worker;

/// UCX, which is loaded at its first use.
pub(crate) struct SessionUcx {
    config: Config,
    progress: Progress,
    reactor: Arc<Reactor>,
    /// The number of the first worker.
    first_worker: u32,
    domain: Mutex<Option<Arc<UcxDomain>>>,
}

impl SessionUcx {
    /// A session that takes no part yet. Its workers are numbered from `first_worker` on.
    pub(crate) fn new(
        config: &Config,
        progress: Progress,
        reactor: &Arc<Reactor>,
        first_worker: u32,
    ) -> Self {
        let (config, reactor) = (config.clone(), Arc::clone(reactor));
        Self { config, progress, reactor, first_worker, domain: Mutex::default() }
    }

    /// UCX, started now if it was not.
    fn start(&self) -> Result<Arc<UcxDomain>> {
        let mut place = lock(&self.domain);
        if let Some(domain) = &*place {
            return Ok(Arc::clone(domain));
        }
        let context = open(&self.config)?;
        let options = DomainOptions {
            workers: self.config.workers.unwrap_or(1),
            first_worker: self.first_worker,
            is_manual: self.progress == Progress::Manual,
        };
        let library = context.library();
        let host = Arc::new(SessionHost(Arc::clone(&self.reactor)));
        let domain = UcxDomain::new(context, host, options);
        tracing::info!(version = %library.version(), path = %library.path().display(), "UCX");
        *place = Some(Arc::clone(&domain));
        Ok(domain)
    }

    /// UCX, if it was started.
    fn started(&self) -> Option<Arc<UcxDomain>> {
        lock(&self.domain).clone()
    }

    fn with(
        &self,
        released: &mut Released,
        run: impl FnOnce(&UcxDomain, &mut Vec<Arc<Memory>>) -> bool,
    ) -> bool {
        let Some(domain) = self.started() else { return false };
        let mut free = Vec::new();
        let busy = run(&domain, &mut free);
        if !free.is_empty() {
            released.push(free);
        }
        busy
    }
}

impl Domain for SessionUcx {
    fn kind(&self) -> ConnType {
        ConnType::Ucx
    }

    fn endpoint(&self) -> u8 {
        ENDPOINT_UCX
    }

    fn side(&self) -> Side {
        Side::Either
    }

    fn is_active(&self) -> bool {
        self.started().is_some()
    }

    fn activate(&self) -> Result<()> {
        self.start().map(drop)
    }

    fn announcement(&self) -> Option<EndpointBlob<'static>> {
        self.is_active().then_some(EndpointBlob { kind: ENDPOINT_UCX, bytes: &[] })
    }

    fn features(&self) -> Features {
        let has_nic = self.started().is_some_and(|domain| domain.has_nic());
        if has_nic { Features::UCX_NIC } else { Features::empty() }
    }

    /// Its lanes of hardware are what makes it worth its trust.
    fn unfit(&self, peer: &PeerFacts<'_>, by_name: bool) -> Option<String> {
        let takes_part = peer.endpoints.contains(&ENDPOINT_UCX);
        let why = match self.started() {
            _ if by_name && takes_part => return None,
            _ if by_name => "the peer takes no part in UCX: start its session with `ucx()`",
            None => "this session takes no part in it",
            Some(_) if !takes_part => "the peer takes no part in it",
            Some(ours) if ours.has_nic() && peer.features.contains(Features::UCX_NIC) => {
                return None;
            }
            Some(_) => "no RDMA hardware at both ends; ask for it by name",
        };
        Some(why.to_owned())
    }

    fn fit(&self) -> &'static str {
        "RDMA hardware at both ends"
    }

    fn data_plane(&self, params: DataPlaneParams<'_>) -> Result<AnyDataPlane> {
        let (serial, near) = (params.serial, params.near);
        let stream = params.stream(Side::Either);
        let waker = LinkWaker::new(serial, Arc::clone(&self.reactor))?;
        let notify = Box::new(NotifyLink(Arc::clone(&waker)));
        // The layer has the table of windows.
        let plane = UcxDataPlane::new(&self.start()?, serial, near, 0, notify)?;
        let shared: Arc<dyn SharedWorker> = plane.shared_worker();
        let worker = Worker { shared, waker };
        Ok(AnyDataPlane::new(WithStream::new(plane, stream, Some(worker), near)))
    }

    /// Memory that UCX's lanes of shared memory map, once the session takes part.
    fn allocate(&self, table: &Arc<RegionTable>, len: u64) -> Option<Result<Region>> {
        let domain = self.started()?;
        let bytes = usize::try_from(len).map_err(|_| {
            let limit = Limit::new("bytes that can be addressed", len, usize::MAX);
            Error::limited(ErrorKind::NoSpace, limit)
        });
        let make = |bytes| {
            let memory = domain.allocate(bytes)?;
            let region = table.adopt_own(Box::new(UcxBytes(Arc::clone(&memory))))?;
            domain.add_memory(region.key(), &memory);
            Ok(region)
        };
        Some(bytes.and_then(make))
    }

    fn register(&self, region: &Region) -> Result<()> {
        self.start()?.memory_of(region).map(drop).map_err(Error::from)
    }

    fn registrations(&self) -> u64 {
        self.started().map_or(0, |domain| domain.registrations())
    }

    fn poll_worker(&self, worker: u32, released: &mut Released) -> bool {
        self.with(released, |domain, free| domain.service(worker, free))
    }

    fn tick_workers(&self, released: &mut Released) {
        self.with(released, |domain, free| {
            domain.service_all(free);
            true
        });
    }

    fn progress_workers(&self, released: &mut Released) -> bool {
        self.with(released, UcxDomain::progress_all)
    }

    fn must_poll(&self) -> bool {
        self.started().is_some_and(|domain| domain.must_poll())
    }

    fn has_leftovers(&self) -> bool {
        self.started().is_some_and(|domain| domain.has_leftovers())
    }

    fn is_ending(&self) -> bool {
        self.started().is_some_and(|domain| domain.is_ending())
    }
}
