//! RDMA verbs of one session: the port it uses, and the completion queues of its links.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use super::async_event::{AsyncEvent, Subject};
use super::current_port::CurrentPort;
use super::device::Device;
use super::error::VerbsError;
use super::event::{EventEffect, EventType};
use super::fault::VerbsFault;
use super::link_worker::{LinkWorker, WorkerOptions};
use super::objects::CompletionQueue;
use super::page::Page;
use super::select::Port;
use super::shared_regions::SharedRegions;
use super::sys::ibv_cq;
use super::window_probe::window_scheme;
use super::window_scheme::WindowScheme;
use crate::host::{Event, Host, Notify};

/// How a session takes part.
#[derive(Clone, Copy, Debug)]
pub struct DomainOptions {
    /// Queue pairs of each link, 1 to 16, over which long transfers are spread; fewer where the peer has fewer.
    pub lanes: usize,
    /// The number of the worker that takes the device's asynchronous events.
    pub events_worker: u32,
    /// The number of the first link's worker.
    pub first_worker: u32,
    /// Only callers look at completions and events: the host's thread watches no channel.
    pub is_manual: bool,
}

/// Gets under way at a time on one queue pair.
const MAX_GETS: u32 = 16;
/// Asynchronous events that are taken at a time: whoever takes them has other things to do.
const MAX_EVENTS: usize = 64;

/// The worker of a link, and the completion queue by which events name it.
struct WorkerEntry {
    cq: *mut ibv_cq,
    worker: Weak<LinkWorker>,
}

// SAFETY: the pointer is compared, and never followed.
unsafe impl Send for WorkerEntry {}

/// A session's part in RDMA verbs.
pub struct VerbsDomain {
    device: Arc<Device>,
    port: CurrentPort,
    host: Arc<dyn Host>,
    options: DomainOptions,
    workers: Mutex<HashMap<u32, WorkerEntry>>,
    /// Space for them while they are called.
    live: Mutex<Vec<Arc<LinkWorker>>>,
    /// Links at which the host's thread looks each millisecond.
    looked_at: Arc<AtomicUsize>,
    /// The event by which the device has failed.
    failed: OnceLock<EventType>,
    /// A word that never changes: flushes of peers read it.
    flush_source: Arc<Page>,
    /// Where flushes of this end put what they read.
    flush_sink: Arc<Page>,
    /// How the device keeps peers within their windows.
    scheme: WindowScheme,
    /// What new links share if it does so by memory windows.
    shared: Mutex<Option<Arc<SharedRegions>>>,
}

impl fmt::Debug for VerbsDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerbsDomain").field("port", &self.port).finish_non_exhaustive()
    }
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl VerbsDomain {
    /// A session's part, by this port. The host's thread watches the device's events unless only callers look at them.
    ///
    /// # Errors
    /// [`VerbsFault::Call`], [`VerbsFault::Watch`].
    pub fn new(
        port: Port,
        host: Arc<dyn Host>,
        options: DomainOptions,
    ) -> Result<Arc<Self>, VerbsFault> {
        let scheme = window_scheme(&port);
        let (flush_source, flush_sink) = (Arc::new(Page::new()?), Arc::new(Page::new()?));
        let this = Arc::new(Self {
            device: Arc::clone(port.device()),
            port: CurrentPort::new(port),
            host,
            options,
            workers: Mutex::default(),
            live: Mutex::default(),
            looked_at: Arc::default(),
            failed: OnceLock::new(),
            flush_source,
            flush_sink,
            scheme,
            shared: Mutex::default(),
        });
        // What cannot be made is told here, not by the first link.
        this.with_shared(|_| Ok(()))?;
        if !options.is_manual {
            this.host.watch(options.events_worker, this.device.event_fd())?;
        }
        Ok(this)
    }

    /// Returns the device.
    #[must_use]
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Returns how the device keeps peers within the windows that are exposed to them.
    #[must_use]
    pub fn window_scheme(&self) -> &WindowScheme {
        &self.scheme
    }

    /// Makes the queue pairs of a new link: in the protection domain that links share, if they share one. None is made in a domain
    /// that [`Self::retire`] has retired.
    ///
    /// # Errors
    /// Those of `make`, and [`VerbsFault::Call`].
    pub(super) fn with_shared<T>(
        &self,
        make: impl FnOnce(Option<&Arc<SharedRegions>>) -> Result<T, VerbsFault>,
    ) -> Result<T, VerbsFault> {
        if self.scheme != WindowScheme::Type2b {
            return make(None);
        }
        let mut shared = lock(&self.shared);
        if shared.is_none() {
            let new = SharedRegions::new(&self.device, &self.flush_source, &self.flush_sink)?;
            *shared = Some(Arc::new(new));
        }
        make(shared.as_ref())
    }

    /// A memory window in that domain was not ended: it lets in whichever queue pair of the domain has the number of its own, which the
    /// device may give to another one. New links share another domain.
    pub(super) fn retire(&self, domain: &Arc<SharedRegions>) {
        let mut shared = lock(&self.shared);
        shared.take_if(|shared| Arc::ptr_eq(shared, domain));
    }

    /// Returns the port, as it was read last.
    #[must_use]
    pub fn port(&self) -> Arc<Port> {
        self.port.last()
    }

    /// Returns the port for a new link, as it is now.
    ///
    /// # Errors
    /// [`VerbsFault::Device`], [`VerbsFault::Port`].
    pub(super) fn usable_port(&self) -> Result<Arc<Port>, VerbsFault> {
        let _ = self.take_events();
        match self.failed.get() {
            Some(event) => Err(VerbsFault::Device(*event)),
            None => self.port.read(),
        }
    }

    /// Gets that a queue pair of this end may have under way.
    pub(super) fn gets(&self) -> u8 {
        limited(self.device().attrs().max_initiator_gets)
    }

    /// Gets of a peer that a queue pair serves at a time.
    pub(super) fn gets_of_peer(&self) -> u8 {
        limited(self.device().attrs().max_target_gets)
    }

    pub(super) fn host(&self) -> &Arc<dyn Host> {
        &self.host
    }

    pub(super) fn options(&self) -> &DomainOptions {
        &self.options
    }

    pub(super) fn flush_source(&self) -> &Arc<Page> {
        &self.flush_source
    }

    pub(super) fn flush_sink(&self) -> &Arc<Page> {
        &self.flush_sink
    }

    /// The worker of the link of that number, over `cq`.
    ///
    /// # Errors
    /// [`VerbsFault::Watch`].
    pub(super) fn new_worker(
        &self,
        serial: u32,
        cq: &Arc<CompletionQueue>,
        notify: Box<dyn Notify>,
    ) -> Result<Arc<LinkWorker>, VerbsFault> {
        let DomainOptions { first_worker, is_manual, .. } = self.options;
        let number = first_worker.wrapping_add(serial);
        let options = WorkerOptions { number, is_manual, looked_at: &self.looked_at };
        let worker = LinkWorker::new(cq, &self.host, options, notify)?;
        let entry = WorkerEntry { cq: cq.raw(), worker: Arc::downgrade(&worker) };
        let mut workers = lock(&self.workers);
        workers.retain(|_, entry| entry.worker.strong_count() != 0);
        workers.insert(number, entry);
        drop(workers);
        // The device may have failed before it was in the table.
        if let Some(event) = self.failed.get() {
            worker.end(*event);
        }
        Ok(worker)
    }

    /// The channel of the worker of that number is readable, or there are events. Returns `true` if there is such a worker.
    pub fn service(&self, worker: u32) -> bool {
        if worker == self.options.events_worker {
            let _ = self.take_events();
            return true;
        }
        let found = lock(&self.workers).get(&worker).and_then(|entry| entry.worker.upgrade());
        found.is_some_and(|worker| {
            worker.service();
            true
        })
    }

    /// Returns `true` if [`Self::look`] is to be called each millisecond.
    #[must_use]
    pub fn must_look(&self) -> bool {
        self.looked_at.load(Ordering::Acquire) != 0
    }

    /// Has links look at completions that nobody waits for. May be called more often.
    pub fn look(&self) {
        if self.must_look() {
            let now = self.host.now();
            self.for_each_worker(|worker| worker.look(now));
        }
    }

    /// Calls `each` with the links' workers, without the lock.
    fn for_each_worker(&self, each: impl Fn(&LinkWorker)) {
        let mut live = std::mem::take(&mut *lock(&self.live));
        live.extend(lock(&self.workers).values().filter_map(|entry| entry.worker.upgrade()));
        live.iter().for_each(|worker| each(worker));
        // They may be the last owners.
        live.clear();
        *lock(&self.live) = live;
    }

    /// Takes the device's asynchronous events, and does what follows from them. Returns `true` if there was one.
    pub fn take_events(&self) -> bool {
        let events = std::iter::from_fn(|| AsyncEvent::take(&self.device)).take(MAX_EVENTS);
        events.map(|event| self.apply(event)).count() != 0
    }

    fn apply(&self, event: AsyncEvent<'_>) {
        let (kind, subject) = (event.kind(), event.subject());
        match (subject, kind.effect()) {
            (Subject::Queue(cq), EventEffect::Failed) => {
                // It owns the queue, which is not destroyed before the event is acknowledged.
                let worker = self.worker_of(cq);
                drop(event);
                if let Some(worker) = worker {
                    worker.end(kind);
                }
            }
            (Subject::Device, EventEffect::Failed) => self.fail(kind),
            (Subject::Device, EventEffect::Changed) => self.port.record(kind, &*self.host),
            (Subject::Port(number), EventEffect::Changed) if number == self.port().number() => {
                self.port.record(kind, &*self.host);
            }
            _ => {}
        }
    }

    /// The worker of the link with that completion queue.
    fn worker_of(&self, cq: *mut ibv_cq) -> Option<Arc<LinkWorker>> {
        // An entry of a link that is gone may have the address of a later queue.
        let workers = lock(&self.workers);
        workers.values().filter(|entry| entry.cq == cq).find_map(|entry| entry.worker.upgrade())
    }

    /// The host's thread watches the device's events no more.
    fn unwatch(&self) {
        if !self.options.is_manual {
            self.host.unwatch(self.device.event_fd());
        }
    }

    /// The device has failed: all links end, and no more begin.
    fn fail(&self, event: EventType) {
        if self.failed.set(event).is_ok() {
            self.host.report(Event::DeviceFailed(&event));
            // The descriptor of a device that was removed is readable for ever, and has no more events.
            self.unwatch();
        }
        self.for_each_worker(|worker| worker.end(event));
    }
}

impl Drop for VerbsDomain {
    fn drop(&mut self) {
        // In a forked child it is the parent's, whose descriptors the child shares: the parent goes on watching.
        if self.failed.get().is_none() && !self.device.library().is_inherited() {
            self.unwatch();
        }
    }
}

/// Gets under way at a time, of a device that can have so many: more than some would only take space there.
fn limited(count: u32) -> u8 {
    u8::try_from(count.min(MAX_GETS)).unwrap_or(u8::MAX)
}

/// Returns a packet number that nobody can guess: what comes late from an earlier connection is not taken for one of this.
///
/// # Errors
/// [`VerbsError`].
pub(super) fn random_psn() -> Result<u32, VerbsError> {
    let mut bytes = [0_u8; 4];
    // SAFETY: it writes to the four bytes.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if got != 4 {
        return Err(VerbsError::last("drawing a number", ""));
    }
    Ok(u32::from_le_bytes(bytes) & 0x00ff_ffff)
}
