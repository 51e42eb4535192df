//! A session's part in RDMA verbs, which are in [`hmc_hw::verbs`]: their configuration, and their interface to the
//! other modules.

mod host;

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use hmc_core::types::ConnType;
use hmc_core::wire::advert::EndpointBlob;
use hmc_hw::host::SharedWorker;
use hmc_hw::verbs::ENDPOINT_VERBS;
use hmc_hw::verbs::data_plane::VerbsDataPlane;
use hmc_hw::verbs::domain::{DomainOptions, VerbsDomain};
use hmc_hw::verbs::library::{Library, Search};

use crate::base::config::{Progress, Rdma as Config};
use crate::base::error::Result;
use crate::base::lock::lock;
use crate::io::reactor::Reactor;
use crate::transport::data_plane::AnyDataPlane;
use crate::transport::domain::{DataPlaneParams, Domain, PeerFacts, Side};
use crate::transport::link_waker::LinkWaker;
use crate::transport::released::Released;
use crate::transport::session_host::{NotifyLink, SessionHost};
use crate::transport::with_stream::WithStream;
use crate::transport::worker::Worker;

/// Where the kernel lists RDMA devices.
const DEVICES: &str = "/sys/class/infiniband";

/// The number of the worker that takes the device's events: above those of all other transports.
const EVENTS_WORKER: u32 = 1 << 30;
/// The number of the first link's worker.
const FIRST_WORKER: u32 = EVENTS_WORKER + 1;
/// With [`Progress::Manual`] a round of progress in so many looks for events, beside each tick: that is a system call.
const ROUNDS_PER_LOOK: u32 = 64;

/// RDMA verbs, whose library is loaded at its first use.
pub(crate) struct SessionVerbs {
    config: Config,
    progress: Progress,
    reactor: Arc<Reactor>,
    domain: Mutex<Option<Arc<VerbsDomain>>>,
    /// Rounds of progress with [`Progress::Manual`].
    rounds: AtomicU32,
}

impl SessionVerbs {
    pub(crate) fn new(config: &Config, progress: Progress, reactor: &Arc<Reactor>) -> Self {
        let (config, reactor) = (config.clone(), Arc::clone(reactor));
        Self { config, progress, reactor, domain: Mutex::default(), rounds: AtomicU32::new(0) }
    }

    /// The session's NICs, opened now if they were not.
    fn start(&self) -> Result<Arc<VerbsDomain>> {
        let mut place = lock(&self.domain);
        if let Some(domain) = &*place {
            return Ok(Arc::clone(domain));
        }
        let search = Search { named: self.config.library.clone() };
        let ports = self.config.nics.open(Library::load(&search)?)?;
        let options = DomainOptions {
            lanes: self.config.lanes,
            chosen: self.config.nics.reason(),
            events_worker: EVENTS_WORKER,
            first_worker: FIRST_WORKER,
            is_manual: self.progress == Progress::Manual,
        };
        let host = Arc::new(SessionHost(Arc::clone(&self.reactor)));
        let domain = VerbsDomain::new(ports, host, options)?;
        for port in domain.ports() {
            tracing::info!(%port, "RDMA verbs");
        }
        *place = Some(Arc::clone(&domain));
        Ok(domain)
    }

    fn started(&self) -> Option<Arc<VerbsDomain>> {
        lock(&self.domain).clone()
    }
}

impl Domain for SessionVerbs {
    fn kind(&self) -> ConnType {
        ConnType::Rdma
    }

    fn endpoint(&self) -> u8 {
        ENDPOINT_VERBS
    }

    fn side(&self) -> Side {
        Side::Either
    }

    /// Every session takes part where the kernel has a device. It is opened for the first link.
    fn is_active(&self) -> bool {
        let has_device = || {
            let listed = Path::new(DEVICES).read_dir();
            listed.is_ok_and(|mut devices| devices.next().is_some())
        };
        self.config.library.is_some() || has_device()
    }

    fn activate(&self) -> Result<()> {
        self.start().map(drop)
    }

    fn announcement(&self) -> Option<EndpointBlob<'static>> {
        self.is_active().then_some(EndpointBlob { kind: ENDPOINT_VERBS, bytes: &[] })
    }

    /// Whether the two ends' ports reach each other is not known before they are connected.
    fn unfit(&self, peer: &PeerFacts<'_>, by_name: bool) -> Option<String> {
        let why = if !peer.endpoints.contains(&ENDPOINT_VERBS) {
            "the peer has no RDMA device"
        } else if !by_name {
            "ask for it by name"
        } else {
            return None;
        };
        Some(why.to_owned())
    }

    fn fit(&self) -> &'static str {
        "RDMA devices at both ends"
    }

    fn data_plane(&self, params: DataPlaneParams<'_>) -> Result<AnyDataPlane> {
        let (serial, near) = (params.serial, params.near);
        let tags = Box::new(params.tags());
        let stream = params.stream(Side::Either);
        let waker = LinkWaker::new(serial, Arc::clone(&self.reactor))?;
        let notify = Box::new(NotifyLink(Arc::clone(&waker)));
        // The layer has the table of windows.
        let plane = VerbsDataPlane::new(&self.start()?, serial, 0, notify, tags)?;
        let shared: Arc<dyn SharedWorker> = plane.link_worker();
        let worker = Worker { shared, waker };
        Ok(AnyDataPlane::new(WithStream::new(plane, stream, Some(worker), near)))
    }

    fn poll_worker(&self, worker: u32, _released: &mut Released) -> bool {
        worker >= EVENTS_WORKER && self.started().is_some_and(|domain| domain.service(worker))
    }

    /// The session's thread does not watch the device's events with [`Progress::Manual`].
    fn tick_workers(&self, _released: &mut Released) {
        let Some(domain) = self.started() else { return };
        if self.progress == Progress::Manual {
            let _ = domain.take_events();
        }
        domain.look();
    }

    fn must_poll(&self) -> bool {
        self.started().is_some_and(|domain| domain.must_look())
    }

    fn progress_workers(&self, _released: &mut Released) -> bool {
        let is_due = self.progress == Progress::Manual
            && self.rounds.fetch_add(1, Ordering::Relaxed).is_multiple_of(ROUNDS_PER_LOOK);
        is_due && self.started().is_some_and(|domain| domain.take_events())
    }
}
