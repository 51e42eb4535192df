//! UCX of one session: its context, its workers, and the memory that is registered there.
//!
//! A worker ([`seat`]) serves one peer of this system, or many of other hosts ([`seats`]). Its crank is the one lock that
//! these share, and nobody sleeps with it: who finds it taken leaves its work to be posted later.

mod seat;
mod seats;

use std::collections::HashMap;
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use hmc_core::region::{LocalSlice, RegionKey};
use hmc_hw::ucx::context::{Context, UcxError};
use hmc_hw::ucx::library::{Library, LoadError, Search};
use hmc_hw::ucx::log::{self, Level};
use hmc_hw::ucx::memory::Memory;
use hmc_hw::ucx::settings::Settings;
use hmc_mem::registered::{CachedHandle, Registered as _};

use crate::config::{Progress, Ucx as Config};
use crate::driver::Driver;
use crate::error::{Error, ErrorKind, Result};
use crate::lock::lock;
use crate::memory::{Region, StableBytes};

pub(crate) use seat::Seat;
use seats::Seats;

/// The session's part in UCX.
pub(crate) struct Plane {
    context: Arc<Context>,
    seats: Seats,
    /// Whether it has lanes of hardware.
    nic: bool,
    /// Whether it has lanes of shared memory.
    maps: bool,
    /// What was registered, as long as somebody uses it.
    memories: Mutex<HashMap<RegionKey, Weak<Memory>>>,
    /// How often memory was registered.
    registrations: AtomicU64,
}

impl std::fmt::Debug for Plane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plane").finish_non_exhaustive()
    }
}

impl From<LoadError> for Error {
    fn from(e: LoadError) -> Self {
        Self::new(ErrorKind::Unavailable, format!("no UCX: {e}"))
    }
}

impl From<UcxError> for Error {
    fn from(e: UcxError) -> Self {
        use hmc_hw::ucx::result::StatusKind;
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

/// Bytes that UCX made.
#[derive(Debug)]
struct UcxBytes(Arc<Memory>);

// SAFETY: memory of UCX's that was zeroed and does not move while its registration lives, which this value holds; it is reached
// through the one region that is made of it.
unsafe impl StableBytes for UcxBytes {
    fn as_bytes_ptr(&self) -> (*mut u8, usize) {
        (self.0.start().as_ptr(), self.0.len())
    }
}

/// Transports of RDMA hardware, by the beginnings of their names (`ucx_info -d`).
fn is_hardware(transport: &str) -> bool {
    ["rc_", "dc_", "ugni", "gga"].iter().any(|name| transport.starts_with(name))
}

/// Transports that enter messages into a queue in the memory of another process, by the beginnings of their names.
fn is_shared_memory(transport: &str) -> bool {
    ["posix/", "sysv/", "xpmem/"].iter().any(|name| transport.starts_with(name))
}

/// One of UCX's own messages.
fn note(m: &log::LogRecord<'_>) {
    let (file, line, text) = (m.file, m.line, m.text);
    match m.level {
        Level::Error => tracing::error!(target: "ucx", file, line, "{text}"),
        Level::Warn => tracing::warn!(target: "ucx", file, line, "{text}"),
        Level::Info => tracing::info!(target: "ucx", file, line, "{text}"),
        Level::Debug => tracing::debug!(target: "ucx", file, line, "{text}"),
        Level::Trace => tracing::trace!(target: "ucx", file, line, "{text}"),
    }
}

/// The library and a context with all its devices.
fn open(config: &Config) -> Result<Arc<Context>> {
    let folders = known_folders(&config.prefixes);
    let search = Search { named: config.library.clone(), folders };
    let library = Library::load(&search)?;
    if config.log && !log::install_handler(library, note) {
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

/// What UCX says of itself.
///
/// # Errors
/// As [`Plane::start`].
pub(crate) fn facts(config: &Config) -> Result<UcxFacts> {
    let context = open(config)?;
    let kinds = context.memory_kinds();
    // ucs/memory/memory_type.h
    let devices = [("cuda", 1), ("rocm", 3)].into_iter().filter(|(_, bit)| kinds >> bit & 1 == 1);
    Ok(UcxFacts {
        version: context.library().version().to_string(),
        path: context.library().path().to_owned(),
        devices: devices.map(|(name, _)| name).collect(),
        transports: context.transports(),
    })
}

impl Plane {
    /// Loads UCX and opens its devices: some 15 ms.
    ///
    /// # Errors
    /// `Unavailable` when there is no UCX, or none that can be used; it says how to get one.
    pub(crate) fn start(
        config: &Config,
        progress: Progress,
        driver: &Arc<Driver>,
        first_worker: u32,
    ) -> Result<Arc<Self>> {
        let context = open(config)?;
        let library = context.library();
        let transports = context.transports();
        let nic = transports.iter().any(|t| is_hardware(t));
        let maps = transports.iter().any(|t| is_shared_memory(t));
        let shared = config.workers.unwrap_or(1);
        let seats = Seats::new(&context, progress, driver, (shared, first_worker), maps);
        tracing::info!(version = %library.version(), path = %library.path().display(), "UCX");
        let registrations = AtomicU64::new(0);
        Ok(Arc::new(Self { context, seats, nic, maps, memories: Mutex::default(), registrations }))
    }

    /// The worker for the link of that number: one of its own if the peer is a process of this system (`near`).
    ///
    /// # Errors
    /// What UCX answers; `SystemLimit`.
    pub(crate) fn seat(&self, serial: u32, near: bool) -> Result<Arc<Seat>> {
        self.seats.of_link(serial, near)
    }

    /// Something came for the worker of that number: see [`Seat::serve`].
    pub(crate) fn serve(&self, worker: u32, free: &mut Vec<Arc<Memory>>) -> bool {
        self.seats.find(worker).is_some_and(|seat| seat.serve(Some(free)))
    }

    /// Lets all workers look after what has a time of its own, and those go that nobody needs any more.
    pub(crate) fn serve_all(&self, free: &mut Vec<Arc<Memory>>) {
        for seat in self.seats.all().iter() {
            if seat.is_manual() && Seats::is_left(seat) {
                // No caller drives it any more.
                seat.crank_and_tend(free);
            } else {
                seat.serve(Some(free));
            }
        }
        self.seats.retire();
    }

    /// Returns `true` if closed peers have left something for a worker to do.
    pub(crate) fn has_left(&self) -> bool {
        self.seats.has_left()
    }

    /// Lets all workers work, whoever watches them, and those go that nobody needs any more. Whether anything happened.
    pub(crate) fn crank_all(&self, free: &mut Vec<Arc<Memory>>) -> bool {
        let all = self.seats.all();
        let busy = all.iter().fold(false, |busy, seat| seat.crank_and_tend(free) | busy);
        self.seats.retire();
        busy
    }

    /// Whether some worker cannot be slept on: see [`Seat::serve`].
    pub(crate) fn is_restless(&self) -> bool {
        self.seats.all().iter().any(|seat| seat.is_restless())
    }

    /// Whether the process ends by exit(3): other threads rest where they would call UCX, with what they have locked.
    pub(crate) fn is_ending(&self) -> bool {
        self.context.library().is_ending()
    }

    /// Whether it has lanes of hardware, which check memory keys and take no part of a processor.
    pub(crate) fn has_nic(&self) -> bool {
        self.nic
    }

    /// Whether it has lanes of shared memory, which map what UCX made into processes of this system.
    pub(crate) fn shares_memory(&self) -> bool {
        self.maps
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
        let region = table.adopt_own(Box::new(UcxBytes(Arc::clone(&memory))))?;
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

    /// A registration for a window. Where there is a NIC it is of exactly the window's bytes, so that the peer reaches nothing
    /// else, and of this window alone, so that the peer reaches nothing once the window is closed: the registration of the
    /// whole region lasts as long as any link uses it. That one serves where there is no NIC, and whole regions for a peer of
    /// this system (`near`) whose lanes of shared memory map them: such a peer's end, or its word, is the fence.
    pub(crate) fn memory_of_window(
        &self,
        region: &Region,
        window: LocalSlice,
        near: bool,
    ) -> Result<Arc<Memory>> {
        let maps = near && self.maps && window.span.len() == region.len();
        if !self.nic || maps {
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
        let (keep, kind) = (Box::new(CachedHandle::new(region)), region.kind());
        // SAFETY: the range lies within the region, which `keep` holds; whoever made the region vouched for its bytes
        // until then, and they are reached by copies only.
        let memory = unsafe { Memory::register(&self.context, start, len, kind, Some(keep)) }?;
        self.registrations.fetch_add(1, Ordering::Relaxed);
        Ok(memory)
    }

    /// How often memory was registered since the beginning.
    pub(crate) fn registrations(&self) -> u64 {
        self.registrations.load(Ordering::Relaxed)
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

/// The UCX of this machine, as a session would find it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UcxFacts {
    /// Its release, as the library itself says.
    pub version: String,
    /// The file that was loaded.
    pub path: std::path::PathBuf,
    /// Kinds of device memory that it was built and started for: `cuda`, `rocm`.
    pub devices: Vec<&'static str>,
    /// Transports and devices that it may use here, as it names them: `tcp/eth0`, `rc_mlx5/mlx5_0:1`.
    pub transports: Vec<String>,
}
