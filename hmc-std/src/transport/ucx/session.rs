//! A session's part in UCX.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};

use hmc_core::time::Instant;
use hmc_core::types::ConnType;
use hmc_core::wire::advert::{ENDPOINT_UCX, EndpointBlob};
use hmc_core::wire::hello::Features;
use hmc_hw::host::{Event, Host, WatchError};
use hmc_hw::ucx::context::{Context, UcxError};
use hmc_hw::ucx::domain::{DomainOptions, UcxDomain};
use hmc_hw::ucx::fault::UcxFault;
use hmc_hw::ucx::library::{Library, LoadError, Search};
use hmc_hw::ucx::log::{self, Level};
use hmc_hw::ucx::memory::Memory;
use hmc_hw::ucx::result::StatusKind;
use hmc_hw::ucx::settings::Settings;
use hmc_mem::error::MemError;
use rustix::io::Errno;

use super::UcxDataPlane;
use crate::clock;
use crate::config::{Progress, Ucx as Config};
use crate::driver::{Driver, cannot_watch};
use crate::error::{Error, ErrorKind, Result};
use crate::lock::lock;
use crate::memory::{Region, RegionTable, StableBytes};
use crate::transport::data_plane::AnyDataPlane;
use crate::transport::domain::{DataPlaneParams, Domain, PeerFacts, Side};
use crate::transport::released::Released;

impl From<LoadError> for Error {
    fn from(e: LoadError) -> Self {
        Self::new(ErrorKind::Unavailable, format!("no UCX: {e}"))
    }
}

impl From<UcxError> for Error {
    fn from(e: UcxError) -> Self {
        let kind = match e.status.kind() {
            StatusKind::Resources => ErrorKind::NoSpace,
            StatusKind::Unreachable | StatusKind::Unsupported => ErrorKind::Unavailable,
            StatusKind::PeerLost => ErrorKind::PeerDead,
            StatusKind::TimedOut => ErrorKind::DeadlineExceeded,
            _ => ErrorKind::Io,
        };
        Self::new(kind, format!("UCX: {e}"))
    }
}

fn not_watched(e: WatchError) -> Error {
    cannot_watch(Errno::from_raw_os_error(e.0))
}

impl From<UcxFault> for Error {
    fn from(fault: UcxFault) -> Self {
        match fault {
            UcxFault::Ucx(e) => e.into(),
            UcxFault::Watch(e) => not_watched(e),
            UcxFault::Memory(e) => MemError::from(e).into(),
            other => Self::new(ErrorKind::Io, other.to_string()),
        }
    }
}

/// The session, as its part in UCX sees it.
struct SessionHost(Arc<Driver>);

impl Host for SessionHost {
    fn now(&self) -> Instant {
        clock::now()
    }

    fn watch(&self, worker: u32, fd: BorrowedFd<'_>) -> std::result::Result<(), WatchError> {
        self.0.watch_worker(fd, worker).map_err(|e| WatchError(e.raw_os_error()))
    }

    fn unwatch(&self, fd: BorrowedFd<'_>) {
        self.0.unwatch(fd);
    }

    fn report(&self, event: Event<'_>) {
        match event {
            Event::NeverArmed => tracing::warn!(
                "a worker of UCX's cannot be slept on: its peer stopped in the middle of a message; it is looked at each millisecond"
            ),
            Event::NotWatched(e) => tracing::error!(error = %not_watched(e), "cannot watch UCX"),
            Event::NotRegistered(error) => {
                tracing::warn!(%error, "memory cannot be registered with UCX");
            }
            _ => {}
        }
    }
}

/// Bytes that UCX allocated.
#[derive(Debug)]
struct UcxBytes(Arc<Memory>);

// SAFETY: memory of UCX's that was zeroed and does not move while its registration lives, which this value holds; it is reached
// through the one region that is made of it.
unsafe impl StableBytes for UcxBytes {
    fn as_bytes_ptr(&self) -> (*mut u8, usize) {
        (self.0.start().as_ptr(), self.0.len())
    }
}

/// Passes on a log record of UCX.
fn log_record(m: &log::LogRecord<'_>) {
    let (file, line, text) = (m.file, m.line, m.text);
    match m.level {
        Level::Error => tracing::error!(target: "ucx", file, line, "{text}"),
        Level::Warn => tracing::warn!(target: "ucx", file, line, "{text}"),
        Level::Info => tracing::info!(target: "ucx", file, line, "{text}"),
        Level::Debug => tracing::debug!(target: "ucx", file, line, "{text}"),
        Level::Trace => tracing::trace!(target: "ucx", file, line, "{text}"),
    }
}

/// The library, and a context with all its devices. Takes some 15 ms.
///
/// # Errors
/// `Unavailable` when there is no UCX, or none that can be used; it says how to get one.
pub(crate) fn open(config: &Config) -> Result<Arc<Context>> {
    let library = Library::load(&Search::usual(config.library.clone(), &config.prefixes))?;
    if config.log && !log::install_handler(library, log_record) {
        tracing::warn!("this UCX keeps its messages to itself");
    }
    let settings = Settings {
        keys: config.keys.clone(),
        user_tls: config.user_tls.clone(),
        user_devices: config.user_devices.clone(),
        user_keys: config.user_keys.clone(),
    };
    Ok(Context::new(library, &settings)?)
}

/// UCX, which is loaded at its first use.
pub(crate) struct SessionUcx {
    config: Config,
    progress: Progress,
    driver: Arc<Driver>,
    /// The number of the first worker.
    first_worker: u32,
    domain: Mutex<Option<Arc<UcxDomain>>>,
}

impl SessionUcx {
    /// A session that takes no part yet. Its workers are numbered from `first_worker` on.
    pub(crate) fn new(
        config: &Config,
        progress: Progress,
        driver: &Arc<Driver>,
        first_worker: u32,
    ) -> Self {
        let (config, driver) = (config.clone(), Arc::clone(driver));
        Self { config, progress, driver, first_worker, domain: Mutex::default() }
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
        let host = Arc::new(SessionHost(Arc::clone(&self.driver)));
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
        let plane = UcxDataPlane::new(stream, self.start()?, serial, near, &self.driver)?;
        Ok(AnyDataPlane::new(plane))
    }

    /// Memory that UCX's lanes of shared memory map, once the session takes part.
    fn allocate(&self, table: &Arc<RegionTable>, len: u64) -> Option<Result<Region>> {
        let domain = self.started()?;
        let bytes = usize::try_from(len)
            .map_err(|_| Error::new(ErrorKind::NoSpace, format!("{len} bytes do not fit memory")));
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
