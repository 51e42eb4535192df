//! UCX of one session: its context, its worker, and the memory that is registered there.
//!
//! One worker serves all peers. Its crank is the one lock that peers share, and nobody sleeps with it: who finds it taken
//! leaves its work to be posted later. Its descriptor is watched by the background thread, or by a caller that waits.

use std::collections::HashMap;
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use hmc_core::region::{LocalSlice, RegionKey};
use hmc_hw::ucx::context::{Context, Failed, Settings};
use hmc_hw::ucx::library::{Library, Search, Unavailable};
use hmc_hw::ucx::memory::Memory;
use hmc_hw::ucx::worker::{Armed, Worker};

use crate::config::{Progress, Ucx as Config};
use crate::driver::{Driver, Token};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::{Region, StableBytes};
use crate::probe::UcxFacts;
use crate::shared::{Shared, lock};

/// Turns of the worker for one event, before others get theirs.
const TURNS: usize = 16;

/// The session's part in UCX.
pub(crate) struct Plane {
    context: Arc<Context>,
    worker: Arc<Worker>,
    driver: Arc<Driver>,
    progress: Progress,
    /// What was registered, as long as somebody uses it.
    memories: Mutex<HashMap<RegionKey, Weak<Memory>>>,
    /// How often memory was registered.
    registrations: AtomicU64,
    /// Callers that wait and drive the worker themselves.
    attending: AtomicUsize,
}

impl std::fmt::Debug for Plane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plane").finish_non_exhaustive()
    }
}

impl From<Unavailable> for Error {
    fn from(e: Unavailable) -> Self {
        Self::new(ErrorKind::Unavailable, format!("no UCX: {e}"))
    }
}

impl From<Failed> for Error {
    fn from(e: Failed) -> Self {
        use hmc_hw::ucx::result::Kind;
        let kind = match e.status.kind() {
            Kind::Resources => ErrorKind::NoSpace,
            Kind::Unreachable | Kind::Unsupported => ErrorKind::Unavailable,
            Kind::PeerLost => ErrorKind::PeerDead,
            Kind::TimedOut => ErrorKind::DeadlineExceeded,
            _ => ErrorKind::Io,
        };
        Self::new(kind, format!("UCX: {e}"))
    }
}

/// A region that a registration keeps, as a cache does: it goes when nobody else holds it.
struct Kept(Region);

impl Kept {
    fn new(region: &Region) -> Self {
        region.note_cached(true);
        Self(region.clone())
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.0.note_cached(false);
    }
}

/// Bytes that UCX made.
#[derive(Debug)]
struct UcxBytes(Arc<Memory>);

// SAFETY: memory of UCX's that does not move while its registration lives, which this value holds; it is reached through
// regions only.
unsafe impl StableBytes for UcxBytes {
    fn as_bytes_ptr(&self) -> (*mut u8, usize) {
        (self.0.start().as_ptr(), self.0.len())
    }
}

/// The library and a context with all its devices.
fn open(config: &Config) -> Result<Arc<Context>> {
    let folders = known_folders(&config.prefixes);
    let search = Search { named: config.library.clone(), folders };
    let library = Library::load(&search)?;
    let settings = Settings { keys: config.keys.clone(), user_tls: config.user_tls.clone() };
    Ok(Context::new(library, &settings)?)
}

/// What UCX says of itself.
///
/// # Errors
/// As [`Plane::start`].
pub(crate) fn facts(config: &Config) -> Result<UcxFacts> {
    let context = open(config)?;
    let kinds = context.memory_kinds()?;
    // ucs/memory/memory_type.h
    let devices = [("cuda", 1), ("rocm", 3)].into_iter().filter(|(_, bit)| kinds >> bit & 1 == 1);
    Ok(UcxFacts {
        version: context.library().version().to_string(),
        path: context.library().path().to_owned(),
        devices: devices.map(|(name, _)| name).collect(),
    })
}

impl Plane {
    /// Loads UCX, opens its devices and makes the worker: some 30 ms.
    ///
    /// # Errors
    /// `Unavailable` when there is no UCX, or none that can be used; it says how to get one.
    pub(crate) fn start(
        config: &Config,
        progress: Progress,
        driver: &Arc<Driver>,
    ) -> Result<Arc<Self>> {
        let context = open(config)?;
        let library = context.library();
        let worker = Worker::new(&context)?;
        tracing::info!(version = %library.version(), path = %library.path().display(), "UCX");
        let plane = Arc::new(Self {
            context,
            worker,
            driver: Arc::clone(driver),
            progress,
            memories: Mutex::default(),
            registrations: AtomicU64::new(0),
            attending: AtomicUsize::new(0),
        });
        if progress == Progress::Thread {
            driver.watch(&plane.worker, Token::Ucx)?;
            plane.serve();
        }
        Ok(plane)
    }

    pub(crate) fn worker(&self) -> &Arc<Worker> {
        &self.worker
    }

    /// New memory of `len` bytes that UCX's lanes of shared memory map, as a region of `table`.
    pub(crate) fn allocate(
        &self,
        table: &Arc<crate::memory::RegionTable>,
        len: u64,
    ) -> Result<Region> {
        let bytes = usize::try_from(len).map_err(|_| {
            Error::new(ErrorKind::NoSpace, format!("{len} bytes do not fit memory"))
        })?;
        let memory = Arc::new(Memory::allocate(&self.context, bytes)?);
        self.registrations.fetch_add(1, Ordering::Relaxed);
        let region = table.adopt(Box::new(UcxBytes(Arc::clone(&memory))))?;
        lock(&self.memories).insert(region.key(), Arc::downgrade(&memory));
        Ok(region)
    }

    /// The registration of a whole region, made at its first use.
    pub(crate) fn memory_of(&self, region: &Region) -> Result<Arc<Memory>> {
        let mut memories = lock(&self.memories);
        if let Some(memory) = memories.get(&region.key()).and_then(Weak::upgrade) {
            return Ok(memory);
        }
        memories.retain(|_, m| m.strong_count() != 0);
        let whole = region.slice(0, region.len())?;
        let memory = Arc::new(self.register(region, whole)?);
        memories.insert(region.key(), Arc::downgrade(&memory));
        Ok(memory)
    }

    /// A registration for a window: of exactly its bytes, so that a NIC lets the peer reach nothing else. That of a whole
    /// region serves where it exists, as it does for memory that UCX made, which lanes of shared memory then map.
    pub(crate) fn memory_of_window(
        &self,
        region: &Region,
        window: LocalSlice,
    ) -> Result<Arc<Memory>> {
        if window.span.len() == region.len() {
            return self.memory_of(region);
        }
        Ok(Arc::new(self.register(region, window)?))
    }

    fn register(&self, region: &Region, part: LocalSlice) -> Result<Memory> {
        region.note_pinned();
        let bytes = region.bytes();
        let part = bytes.part(part.span).map_err(hmc_mem::error::MemError::from)?;
        let start = NonNull::new(part.as_ptr()).unwrap_or(NonNull::dangling());
        // It came from the region's length, which is one of memory.
        let len = usize::try_from(part.extent().len()).unwrap_or(0);
        let keep = Box::new(Kept::new(region));
        // SAFETY: the range lies within the region, which `keep` holds; whoever made the region vouched for its bytes
        // until then, and they are reached by copies only.
        let memory = unsafe { Memory::register(&self.context, start, len, Some(keep)) }?;
        self.registrations.fetch_add(1, Ordering::Relaxed);
        Ok(memory)
    }

    /// How often memory was registered since the beginning.
    pub(crate) fn registrations(&self) -> u64 {
        self.registrations.load(Ordering::Relaxed)
    }

    /// Something came for the worker, or was posted to it: lets it work, and asks to be told of more. To be called after
    /// whatever was posted by one who does not wait for it: UCX tells of nothing that was begun after it was asked.
    pub(crate) fn serve(&self) -> bool {
        let mut busy = false;
        if self.progress == Progress::Manual {
            return busy;
        }
        if self.attending.load(Ordering::Acquire) != 0 {
            // It looks anew at what was posted meanwhile, and asks again to be told.
            self.worker.crank().signal();
            return busy;
        }
        for _ in 0..TURNS {
            let crank = self.worker.crank();
            crank.tend();
            busy |= crank.progress();
            if crank.arm() == Armed::Yes {
                break;
            }
            busy = true;
        }
        busy
    }

    /// Lets the worker work, whoever watches it. Whether anything happened.
    pub(crate) fn crank(&self) -> bool {
        self.worker.try_crank().is_some_and(|crank| crank.progress())
    }

    /// Whether the worker's descriptor can be slept on.
    pub(crate) fn can_sleep(&self) -> bool {
        self.worker.turn() == Some(Armed::Yes)
    }

    /// A caller that waits drives the worker from now on, or no longer: the background thread leaves it alone meanwhile.
    pub(crate) fn attend(&self, on: bool) {
        if self.progress == Progress::Manual {
            return;
        }
        if on {
            if self.attending.fetch_add(1, Ordering::AcqRel) == 0 {
                self.driver.unwatch(&self.worker);
            }
        } else if self.attending.fetch_sub(1, Ordering::AcqRel) == 1 {
            // What comes from now on is told to the background thread.
            if let Err(e) = self.driver.watch(&self.worker, Token::Ucx) {
                tracing::error!(error = %e, "cannot watch UCX");
            }
            self.serve();
        }
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        self.driver.unwatch(&self.worker);
    }
}

impl Shared {
    /// The session's part in UCX, begun at its first use.
    ///
    /// # Errors
    /// As [`Plane::start`].
    pub(crate) fn ucx(&self) -> Result<Arc<Plane>> {
        let mut place = lock(&self.plane);
        if let Some(plane) = &*place {
            return Ok(Arc::clone(plane));
        }
        let plane = Plane::start(&self.config.ucx, self.config.progress, &self.driver)?;
        *place = Some(Arc::clone(&plane));
        Ok(plane)
    }

    /// The session's part in UCX, if it has begun.
    pub(crate) fn ucx_begun(&self) -> Option<Arc<Plane>> {
        lock(&self.plane).clone()
    }
}

/// Where a UCX that the loader does not know by itself may lie.
fn known_folders(prefixes: &[PathBuf]) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> =
        ["/usr/local/ucx/lib", "/opt/ucx/lib", "/usr/local/lib"].map(PathBuf::from).into();
    for prefix in prefixes {
        folders.push(prefix.join("lib"));
        // The wheel libucx: lib/pythonX.Y/site-packages/libucx/lib.
        let Ok(versions) = std::fs::read_dir(prefix.join("lib")) else { continue };
        for version in versions.flatten() {
            if version.file_name().to_string_lossy().starts_with("python") {
                for packages in ["site-packages", "dist-packages"] {
                    folders.push(version.path().join(packages).join("libucx/lib"));
                }
            }
        }
    }
    folders
}
