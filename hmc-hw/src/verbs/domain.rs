//! RDMA verbs of one session: the NICs it uses, and the completion queues of its links.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::async_event::{AsyncEvent, Subject};
use super::error::VerbsError;
use super::event::{EventEffect, EventType};
use super::fault::VerbsFault;
use super::link_queues::LinkQueues;
use super::link_worker::{LinkWorker, WorkerOptions};
use super::nic::Nic;
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
    /// Queue pairs of each link: 1 to 16, and at least one on each NIC. Long transfers use all of them. If the peer has fewer, so has the
    /// link.
    pub lanes: usize,
    /// The reason why these NICs are used, an English phrase.
    pub chosen: &'static str,
    /// The number under which [`Host::watch`] is called with the descriptors of the devices' asynchronous events.
    pub events_worker: u32,
    /// The number of the first link's worker. Link `n` has this number plus `n`, which wraps.
    pub first_worker: u32,
    /// If `true`, only callers take completions and events: [`Host::watch`] is never called.
    pub is_manual: bool,
}

/// Asynchronous events that are taken at a time from a device: whoever takes them has other things to do.
const MAX_EVENTS: usize = 64;

/// The worker of a link, and the completion queues by which events name it.
struct WorkerEntry {
    cqs: Vec<*mut ibv_cq>,
    worker: Weak<LinkWorker>,
}

// SAFETY: the pointers are compared, and never followed.
unsafe impl Send for WorkerEntry {}

/// A session's part in RDMA verbs: its NICs, and the workers of its links. All methods may be called by several threads at a time. In a
/// forked child it is the parent's, and its drop has no effect.
pub struct VerbsDomain {
    nics: Vec<Nic>,
    host: Arc<dyn Host>,
    options: DomainOptions,
    workers: Mutex<HashMap<u32, WorkerEntry>>,
    /// Space for them while they are called.
    live: Mutex<Vec<Arc<LinkWorker>>>,
    /// Links at which the host's thread looks each millisecond.
    looked_at: Arc<AtomicUsize>,
    /// A word that never changes: flushes of peers read it.
    flush_source: Arc<Page>,
    /// Where flushes of this end put what they read.
    flush_sink: Arc<Page>,
    /// How the devices keep peers within their windows, and the index of the NIC that decides it.
    scheme: (WindowScheme, usize),
    /// See [`Self::making`].
    making: Mutex<()>,
}

impl fmt::Debug for VerbsDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerbsDomain").field("nics", &self.nics).finish_non_exhaustive()
    }
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns how these ports' devices keep peers within windows, and the index of the one that decides it: by memory windows if all can.
fn common_scheme(ports: &[Port]) -> (WindowScheme, usize) {
    let schemes = ports.iter().map(window_scheme).zip(0..);
    let mut without = schemes.filter(|(scheme, _)| *scheme != WindowScheme::Type2b);
    without.next().unwrap_or((WindowScheme::Type2b, 0))
}

impl VerbsDomain {
    /// Creates a session's part that uses `ports`, one of each NIC. Tries the memory windows of each device that this process has not tried
    /// yet ([`window_scheme`]), and passes the descriptors of asynchronous events to [`Host::watch`] unless `is_manual` is set.
    ///
    /// # Errors
    /// [`VerbsFault::Call`] if a protection domain or a registration cannot be created; [`VerbsFault::Watch`] if a descriptor cannot be
    /// watched.
    pub fn new(
        ports: Vec<Port>,
        host: Arc<dyn Host>,
        options: DomainOptions,
    ) -> Result<Arc<Self>, VerbsFault> {
        let scheme = common_scheme(&ports);
        let (flush_source, flush_sink) = (Arc::new(Page::new()?), Arc::new(Page::new()?));
        let this = Arc::new(Self {
            nics: ports.into_iter().map(Nic::new).collect(),
            host,
            options,
            workers: Mutex::default(),
            live: Mutex::default(),
            looked_at: Arc::default(),
            flush_source,
            flush_sink,
            scheme,
            making: Mutex::default(),
        });
        // What cannot be made is told here, not by the first link.
        this.nics.iter().try_for_each(|nic| this.shared_on(nic).map(drop))?;
        if !options.is_manual {
            for nic in &this.nics {
                this.host.watch(options.events_worker, nic.device().event_fd())?;
            }
        }
        Ok(this)
    }

    /// Returns how the devices keep peers within the windows that are exposed to them.
    #[must_use]
    pub fn window_scheme(&self) -> &WindowScheme {
        &self.scheme.0
    }

    /// Returns that for people, with the device that decides it if there are several.
    pub(super) fn describe_windows(&self) -> String {
        let (scheme, decides) = &self.scheme;
        match (scheme, self.nics.get(*decides)) {
            (WindowScheme::DomainPerPeer(_), Some(nic)) if self.nics.len() > 1 => {
                format!("windows: {scheme}, as {} decides", nic.device().name())
            }
            _ => format!("windows: {scheme}"),
        }
    }

    /// Returns `true` if its links share protection domains and registrations.
    pub(super) fn shares_memory(&self) -> bool {
        self.scheme.0 == WindowScheme::Type2b
    }

    /// Held while a link makes its queue pairs, and while a protection domain is retired: none is made in one that was.
    pub(super) fn making(&self) -> MutexGuard<'_, ()> {
        lock(&self.making)
    }

    /// What new links share on that NIC, if they share memory.
    ///
    /// # Errors
    /// [`VerbsFault::Call`].
    pub(super) fn shared_on(&self, nic: &Nic) -> Result<Option<Arc<SharedRegions>>, VerbsFault> {
        let (source, sink) = (&self.flush_source, &self.flush_sink);
        let make = || SharedRegions::new(nic.device(), source, sink);
        let shared = self.shares_memory().then(|| nic.shared_or(make)).transpose();
        shared.map_err(VerbsFault::from)
    }

    /// A memory window in that domain was not ended: it lets in whichever queue pair of the domain has the number of its own, which the
    /// device may give to another one. New links share another domain.
    pub(super) fn retire(&self, nic: &Nic, domain: &Arc<SharedRegions>) {
        let _making = self.making();
        nic.retire(domain);
    }

    /// Returns its NICs.
    pub(super) fn nics(&self) -> &[Nic] {
        &self.nics
    }

    /// Returns the ports of its NICs, with the attributes as they were read last: at the start, or by the first link after an event of the port.
    #[must_use]
    pub fn ports(&self) -> Vec<Arc<Port>> {
        self.nics.iter().map(|nic| nic.port.last()).collect()
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

    /// The worker of the link of that number, over these queues.
    ///
    /// # Errors
    /// [`VerbsFault::Watch`].
    pub(super) fn new_worker(
        &self,
        serial: u32,
        queues: LinkQueues,
        notify: Box<dyn Notify>,
    ) -> Result<Arc<LinkWorker>, VerbsFault> {
        let DomainOptions { first_worker, is_manual, .. } = self.options;
        let number = first_worker.wrapping_add(serial);
        let options = WorkerOptions { number, is_manual, looked_at: &self.looked_at };
        let cqs = queues.raw();
        let worker = LinkWorker::new(queues, &self.host, options, notify)?;
        let entry = WorkerEntry { cqs, worker: Arc::downgrade(&worker) };
        let mut workers = lock(&self.workers);
        workers.retain(|_, entry| entry.worker.strong_count() != 0);
        workers.insert(number, entry);
        drop(workers);
        // A device may have failed before it was in the table.
        for (index, nic) in self.nics.iter().enumerate() {
            if let Some(event) = nic.failed() {
                worker.end(index, event);
            }
        }
        Ok(worker)
    }

    /// Handles a readable descriptor: the host's thread calls it with the number that [`Host::watch`] received. Takes the events of a
    /// link's completion channel, or those of the devices, and does not block. Returns `false` if no link has a worker of that number.
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

    /// Returns `true` if the host's thread must call [`Self::look`] each millisecond: a link has requests under way whose completions no
    /// thread waits for.
    #[must_use]
    pub fn must_look(&self) -> bool {
        self.looked_at.load(Ordering::Acquire) != 0
    }

    /// Polls the completion queues of these links, without a system call. May be called more often than each millisecond, by any thread.
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

    /// Takes asynchronous events (`ibv_get_async_event`), at most 64 of each device, without blocking. If a device has failed, all links
    /// end; if a completion queue has failed, its link ends; if a port has changed, the next link reads its attributes again. Returns `true`
    /// if there was an event.
    pub fn take_events(&self) -> bool {
        let mut any = false;
        for (index, nic) in self.nics.iter().enumerate() {
            let events = std::iter::from_fn(|| AsyncEvent::take(nic.device())).take(MAX_EVENTS);
            any |= events.map(|event| self.apply(index, nic, event)).count() != 0;
        }
        any
    }

    fn apply(&self, index: usize, nic: &Nic, event: AsyncEvent<'_>) {
        let (kind, subject) = (event.kind(), event.subject());
        match (subject, kind.effect()) {
            (Subject::Queue(cq), EventEffect::Failed) => {
                // It owns the queue, which is not destroyed before the event is acknowledged.
                let worker = self.worker_of(cq);
                drop(event);
                if let Some(worker) = worker {
                    worker.end(index, kind);
                }
            }
            (Subject::Device, EventEffect::Failed) => self.fail(index, nic, kind),
            (Subject::Device, EventEffect::Changed) => nic.port.record(kind, &*self.host),
            (Subject::Port(number), EventEffect::Changed) if number == nic.port.last().number() => {
                nic.port.record(kind, &*self.host);
            }
            _ => {}
        }
    }

    /// The worker of the link with that completion queue.
    fn worker_of(&self, cq: *mut ibv_cq) -> Option<Arc<LinkWorker>> {
        // An entry of a link that is gone may have the address of a later queue.
        let workers = lock(&self.workers);
        workers
            .values()
            .filter(|entry| entry.cqs.contains(&cq))
            .find_map(|entry| entry.worker.upgrade())
    }

    /// The host's thread watches that device's events no more.
    fn unwatch(&self, nic: &Nic) {
        if !self.options.is_manual {
            self.host.unwatch(nic.device().event_fd());
        }
    }

    /// A device has failed: all links end, and no more begin.
    fn fail(&self, index: usize, nic: &Nic, event: EventType) {
        nic.fail(event, |what| {
            self.host.report(Event::DeviceFailed(what));
            // The descriptor of a device that was removed is readable for ever, and has no more events.
            self.unwatch(nic);
        });
        self.for_each_worker(|worker| worker.end(index, event));
    }
}

impl Drop for VerbsDomain {
    fn drop(&mut self) {
        // In a forked child it is the parent's, whose descriptors the child shares: the parent goes on watching.
        let is_watched =
            |nic: &&Nic| nic.failed().is_none() && !nic.device().library().is_inherited();
        self.nics.iter().filter(is_watched).for_each(|nic| self.unwatch(nic));
    }
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
