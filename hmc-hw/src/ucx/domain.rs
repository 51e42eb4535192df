//! UCX of one session: its context, its workers, and the memory that is registered there.
//!
//! A worker ([`super::session_worker`]) serves one peer on the same host, or many on other hosts (`worker_pool`).
//! Its progress lock is the only lock that these peers share, and no thread sleeps while it holds it. If the lock
//! is taken, a thread queues its requests.

use std::collections::HashMap;
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use hmc_core::region::{LocalSlice, RegionKey};
use hmc_mem::registered::{CachedHandle, Registered};

use super::context::Context;
use super::fault::UcxFault;
use super::lock::lock;
use super::memory::Memory;
use super::session_worker::UcxWorker;
use super::worker_pool::WorkerPool;
use crate::host::{Host, SharedWorker as _};

/// How a session takes part in UCX.
#[derive(Clone, Copy, Debug)]
pub struct DomainOptions {
    /// The number of workers that links to other hosts share. With lanes of shared memory, a link to a process of this
    /// system has a worker of its own.
    pub workers: u32,
    /// The number of the first worker, under which [`Host::watch`] is called with its descriptor. The others follow.
    pub first_worker: u32,
    /// If `true`, only callers make progress: [`Host::watch`] is never called.
    pub is_manual: bool,
}

/// A session's part in UCX: its context, its workers, and the registrations of its memory. All methods may be called by several threads at a
/// time.
pub struct UcxDomain {
    context: Arc<Context>,
    host: Arc<dyn Host>,
    pool: WorkerPool,
    /// Whether it has lanes of hardware.
    has_nic: bool,
    /// Whether it has lanes of shared memory.
    shares_memory: bool,
    /// What was registered, as long as anything uses it.
    memories: Mutex<HashMap<RegionKey, Weak<Memory>>>,
    /// How often memory was registered.
    registrations: AtomicU64,
}

impl fmt::Debug for UcxDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UcxDomain").finish_non_exhaustive()
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

impl UcxDomain {
    /// Creates a session's part with a context of its own. Creates no worker: links do.
    #[must_use]
    pub fn new(context: Arc<Context>, host: Arc<dyn Host>, options: DomainOptions) -> Arc<Self> {
        let transports = context.transports();
        let has_nic = transports.iter().any(|t| is_hardware(t));
        let shares_memory = transports.iter().any(|t| is_shared_memory(t));
        let DomainOptions { workers, first_worker, is_manual } = options;
        let numbers = (workers, first_worker);
        let pool = WorkerPool::new(&context, &host, is_manual, numbers, shares_memory);
        let (memories, registrations) = (Mutex::default(), AtomicU64::new(0));
        Arc::new(Self { context, host, pool, has_nic, shares_memory, memories, registrations })
    }

    /// Returns its context.
    #[must_use]
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Its session.
    pub(super) fn host(&self) -> &Arc<dyn Host> {
        &self.host
    }

    /// Returns the worker for the link of that number: one of its own if the peer is a process of this system (`same_system`).
    ///
    /// # Errors
    /// [`UcxFault`].
    pub(super) fn worker(
        &self,
        serial: u32,
        same_system: bool,
    ) -> Result<Arc<UcxWorker>, UcxFault> {
        self.pool.for_link(serial, same_system)
    }

    /// Makes progress on the worker of that number, whose descriptor is readable. Returns `true` if anything happened.
    /// Moves memory of closed peers that no request uses to `free`; drop it without holding a lock.
    pub fn service(&self, worker: u32, free: &mut Vec<Arc<Memory>>) -> bool {
        self.pool.find(worker).is_some_and(|worker| worker.service(Some(free)))
    }

    /// Calls [`Self::service`] for all workers, for work that is due at a time. Drops workers that no link needs.
    pub fn service_all(&self, free: &mut Vec<Arc<Memory>>) {
        for worker in self.pool.all().iter() {
            if worker.is_manual() && WorkerPool::is_unused(worker) {
                // No caller makes its progress any more.
                worker.progress_and_reap(free);
            } else {
                worker.service(Some(free));
            }
        }
        self.pool.reap();
    }

    /// Makes progress on all workers, even if another thread does. Drops workers that no link needs. Returns `true` if
    /// anything happened.
    pub fn progress_all(&self, free: &mut Vec<Arc<Memory>>) -> bool {
        let all = self.pool.all();
        let busy = all.iter().fold(false, |busy, worker| worker.progress_and_reap(free) | busy);
        self.pool.reap();
        busy
    }

    /// Returns `true` if a worker still has work of closed links.
    #[must_use]
    pub fn has_leftovers(&self) -> bool {
        self.pool.has_leftovers()
    }

    /// Returns `true` if some worker cannot be armed: see [`UcxWorker::must_poll`].
    #[must_use]
    pub fn must_poll(&self) -> bool {
        self.pool.all().iter().any(|worker| worker.must_poll())
    }

    /// Returns `true` if the process ends by exit(3): other threads stop where they would call UCX, with what they have locked.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.context.library().is_ending()
    }

    /// Returns `true` if the context has lanes of a NIC, which check memory keys and use no processor time of the
    /// target.
    #[must_use]
    pub fn has_nic(&self) -> bool {
        self.has_nic
    }

    /// Returns `true` if the context has shared-memory lanes, which map memory that UCX allocated into processes of
    /// this host.
    #[must_use]
    pub fn shares_memory(&self) -> bool {
        self.shares_memory
    }

    /// Allocates `len` zeroed bytes that UCX's shared-memory lanes can map. The owner of the region over these bytes
    /// then passes its key to [`Self::add_memory`].
    ///
    /// # Errors
    /// [`UcxFault`].
    pub fn allocate(&self, len: usize) -> Result<Arc<Memory>, UcxFault> {
        let memory = Arc::new(Memory::allocate(&self.context, len)?);
        self.registrations.fetch_add(1, Ordering::Relaxed);
        Ok(memory)
    }

    /// Records `memory` as the registration of the region with that key.
    pub fn add_memory(&self, key: RegionKey, memory: &Arc<Memory>) {
        lock(&self.memories).insert(key, Arc::downgrade(memory));
    }

    /// Returns the registration of a whole region, which the first call creates.
    ///
    /// # Errors
    /// [`UcxFault`].
    pub fn memory_of(&self, region: &impl Registered) -> Result<Arc<Memory>, UcxFault> {
        let local = region.local();
        let mut memories = lock(&self.memories);
        if let Some(memory) = memories.get(&local.key).and_then(Weak::upgrade) {
            return Ok(memory);
        }
        memories.retain(|_, m| m.strong_count() != 0);
        let whole = LocalSlice { key: local.key, span: local.extent.whole() };
        let memory = Arc::new(self.register(region, whole)?);
        memories.insert(local.key, Arc::downgrade(&memory));
        Ok(memory)
    }

    /// Returns a registration for a window. Where there is a NIC it is of exactly the window's bytes, so that the peer reaches
    /// nothing else, and of this window alone, so that the peer reaches nothing once the window is closed: the registration of the
    /// whole region lasts as long as any link uses it. That one serves where there is no NIC, and whole regions for a peer of
    /// this system (`same_system`) whose lanes of shared memory map them: such a peer's end, or its word, is the fence.
    ///
    /// # Errors
    /// [`UcxFault`].
    pub(super) fn memory_of_window(
        &self,
        region: &impl Registered,
        window: LocalSlice,
        same_system: bool,
    ) -> Result<Arc<Memory>, UcxFault> {
        let is_whole = window.span.len() == region.local().extent.len();
        let maps = same_system && self.shares_memory && is_whole;
        if !self.has_nic || maps {
            return self.memory_of(region);
        }
        Ok(Arc::new(self.register(region, window)?))
    }

    fn register(&self, region: &impl Registered, part: LocalSlice) -> Result<Memory, UcxFault> {
        region.note_pinned();
        // SAFETY: requests and windows of the application name what UCX accesses.
        let bytes = unsafe { region.bytes() };
        let part = bytes.part(part.span).map_err(UcxFault::Memory)?;
        let start = NonNull::new(part.as_ptr()).unwrap_or(NonNull::dangling());
        // It came from the region's length, which is one of memory.
        let len = usize::try_from(part.extent().len()).unwrap_or(0);
        let (keep, kind) = (Box::new(CachedHandle::new(region)), region.local().place.kind());
        // SAFETY: the range lies within the region, of which `keep` is a handle: its bytes stay valid, and are accessed by copies
        // only (`Registered`).
        let memory = unsafe { Memory::register(&self.context, start, len, kind, Some(keep)) }?;
        self.registrations.fetch_add(1, Ordering::Relaxed);
        Ok(memory)
    }

    /// Returns how many registrations the domain has made.
    #[must_use]
    pub fn registrations(&self) -> u64 {
        self.registrations.load(Ordering::Relaxed)
    }
}
