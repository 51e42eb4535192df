//! All state of the fake library, under one lock, and the checks of its callers.

use core::ffi::c_int;
use std::alloc::Layout;
use std::collections::VecDeque;
use std::io::Write as _;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::faults::{CALLS, Call, Script};
use crate::handle::{Handle, Kind, MAX_WORKERS, Slab};
use crate::message::{Handler, Message};
use crate::request::{Ended, Request};
use crate::sys;

/// Initial capacity of the lists of operations in flight.
const CAPACITY: usize = 512;

#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) context: Handle,
    /// An eventfd: readable when there is something to progress since it was armed.
    pub(crate) efd: c_int,
    pub(crate) armed: bool,
    /// Calls of progress so far: the only clock.
    pub(crate) tick: u64,
    /// Numbers all operations.
    pub(crate) seq: u64,
    pub(crate) pending: Vec<Handle>,
    /// Pending callbacks; the list keeps its capacity between calls of progress.
    pub(crate) ended: Vec<Ended>,
    pub(crate) errors: Vec<EpErrorCall>,
    pub(crate) inbox: VecDeque<Message>,
    pub(crate) handlers: Vec<Handler>,
}

impl Worker {
    pub(crate) fn new(context: Handle, efd: c_int) -> Self {
        Self {
            context,
            efd,
            armed: false,
            tick: 0,
            seq: 0,
            pending: Vec::with_capacity(CAPACITY),
            ended: Vec::with_capacity(CAPACITY),
            errors: Vec::with_capacity(8),
            inbox: VecDeque::with_capacity(CAPACITY),
            handlers: Vec::new(),
        }
    }
}

/// A call of an error handler.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EpErrorCall {
    pub(crate) handler: sys::ucp_err_handler_t,
    pub(crate) endpoint: Handle,
    pub(crate) status: sys::ucs_status_t,
}

#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) worker: Handle,
    pub(crate) peer: Handle,
    pub(crate) handler: Option<sys::ucp_err_handler_t>,
    /// Its number since the last reset, by which a script names it.
    pub(crate) ordinal: u64,
    /// Puts, gets and messages that have not completed.
    pub(crate) in_flight: usize,
    pub(crate) flushes: u64,
    /// Bytes of completed puts that no flush has written to the target yet.
    pub(crate) pending_puts: VecDeque<PendingPut>,
    pub(crate) failed: Option<sys::ucs_status_t>,
    pub(crate) closed: bool,
}

impl Endpoint {
    pub(crate) fn new(worker: Handle, peer: Handle, ordinal: u64) -> Self {
        Self {
            worker,
            peer,
            handler: None,
            ordinal,
            in_flight: 0,
            flushes: 0,
            pending_puts: VecDeque::with_capacity(CAPACITY),
            failed: None,
            closed: false,
        }
    }
}

#[derive(Debug)]
pub(crate) struct PendingPut {
    pub(crate) seq: u64,
    /// The tick at which the bytes land without a flush.
    pub(crate) due: u64,
    pub(crate) there: *mut u8,
    pub(crate) target: Handle,
    pub(crate) bytes: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) context: Handle,
    pub(crate) start: *mut u8,
    pub(crate) len: usize,
    pub(crate) rights: u32,
    /// The library made it.
    pub(crate) layout: Option<Layout>,
    /// Requests that read or write it.
    pub(crate) users: usize,
}

/// A key that was unpacked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    pub(crate) endpoint: Handle,
    pub(crate) memory: Handle,
    pub(crate) start: u64,
    pub(crate) len: u64,
    pub(crate) rights: u32,
    pub(crate) users: usize,
}

/// Counters, besides those of calls.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) endpoints: u64,
    /// Maximum number of flushes in flight on one endpoint.
    pub(crate) flushes_max: u64,
    /// Accesses beyond their key's range or rights.
    pub(crate) refused: u64,
    /// Transfers to memory that was unmapped.
    pub(crate) late: u64,
    /// Registrations that remain in a NIC's cache although they were unmapped.
    pub(crate) cached: u64,
    pub(crate) ended: u64,
}

pub(crate) struct FakeUcp {
    pub(crate) script: Script,
    pub(crate) counters: Counters,
    /// `true` for a context with a registration cache.
    pub(crate) contexts: Slab<bool>,
    pub(crate) configs: Slab<bool>,
    pub(crate) workers: Slab<Worker>,
    pub(crate) endpoints: Slab<Endpoint>,
    pub(crate) memories: Slab<Memory>,
    pub(crate) keys: Slab<Key>,
    pub(crate) requests: Slab<Request>,
    /// Packed keys and addresses that the caller owns.
    pub(crate) packed: Vec<Box<[u8]>>,
    /// Data of messages that their receiver has not released.
    pub(crate) kept: Vec<Vec<u8>>,
    /// Buffers for reuse.
    pub(crate) pool: Vec<Vec<u8>>,
    /// Descriptions of misuse, while they are collected.
    pub(crate) findings: Vec<String>,
    pub(crate) collects: bool,
    /// The lane that `ucp_ep_print_info` and `ucp_ep_query` report.
    pub(crate) lane: String,
}

// SAFETY: the pointers in it belong to the callers, who promise that any thread that makes calls may use their targets.
unsafe impl Send for FakeUcp {}

static STATE: Mutex<FakeUcp> = Mutex::new(FakeUcp {
    script: Script::new(),
    counters: Counters { endpoints: 0, flushes_max: 0, refused: 0, late: 0, cached: 0, ended: 0 },
    contexts: Slab::new(Kind::Context),
    configs: Slab::new(Kind::Config),
    workers: Slab::new(Kind::Worker),
    endpoints: Slab::new(Kind::Endpoint),
    memories: Slab::new(Kind::Memory),
    keys: Slab::new(Kind::Key),
    requests: Slab::new(Kind::Request),
    packed: Vec::new(),
    kept: Vec::new(),
    pool: Vec::new(),
    findings: Vec::new(),
    collects: false,
    lane: String::new(),
});

pub(crate) fn state() -> MutexGuard<'static, FakeUcp> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The thread that is inside a worker, by the worker's index; 0 for none.
static INSIDE: [AtomicUsize; MAX_WORKERS] = [const { AtomicUsize::new(0) }; MAX_WORKERS];
/// How often a thread yields while it is inside.
pub(crate) static YIELDS: AtomicU64 = AtomicU64::new(0);

/// A call that is inside a worker.
pub(crate) struct WorkerEntry {
    index: usize,
    /// The value that is restored at the exit: this thread, if the call came from a callback, else 0.
    before: usize,
}

fn this_thread() -> usize {
    thread_local! {
        static HERE: u8 = const { 0 };
    }
    HERE.with(|here| core::ptr::from_ref(here).addr())
}

/// Enters the worker that `object` belongs to. Callbacks may enter it again; another thread may not.
pub(crate) fn enter(call: Call, object: Handle) -> WorkerEntry {
    let (me, index) = (this_thread(), object.owner());
    let before = INSIDE[index].swap(me, Ordering::AcqRel);
    if before != 0 && before != me {
        state().misuse(call, "another thread is inside this worker, whose calls are serialised");
    }
    for _ in 0..YIELDS.load(Ordering::Relaxed) {
        std::thread::yield_now();
    }
    // Another thread, whose entry is a misuse, may exit before this one does.
    WorkerEntry { index, before: if before == me { me } else { 0 } }
}

impl Drop for WorkerEntry {
    fn drop(&mut self) {
        INSIDE[self.index].store(self.before, Ordering::Release);
    }
}

impl FakeUcp {
    /// Reports a call that the caller must not make. Aborts the process, unless findings are collected.
    #[cold]
    pub(crate) fn misuse(&mut self, call: Call, what: &str) -> sys::ucs_status_t {
        let name = CALLS[call as usize].1;
        let text = format!("{name}: {what}");
        if !self.collects {
            // The process aborts; an error of this write cannot be reported.
            let _ = writeln!(std::io::stderr(), "fake libucp: {text}");
            std::process::abort();
        }
        self.findings.push(text);
        sys::UCS_ERR_INVALID_PARAM
    }

    /// The endpoint of that name, unless it was closed or has failed.
    pub(crate) fn endpoint(
        &mut self,
        call: Call,
        name: Handle,
    ) -> Result<&mut Endpoint, sys::ucs_status_t> {
        if self.endpoints.get(name).is_none_or(|e| e.closed) {
            return Err(self.misuse(call, "this endpoint was closed, or never made"));
        }
        match self.endpoints.get_mut(name) {
            Some(Endpoint { failed: Some(status), .. }) => Err(*status),
            Some(endpoint) => Ok(endpoint),
            None => Err(sys::UCS_ERR_INVALID_PARAM),
        }
    }

    pub(crate) fn worker(
        &mut self,
        call: Call,
        name: Handle,
    ) -> Result<&mut Worker, sys::ucs_status_t> {
        if self.workers.get(name).is_none() {
            return Err(self.misuse(call, "this worker was destroyed, or never made"));
        }
        self.workers.get_mut(name).ok_or(sys::UCS_ERR_INVALID_PARAM)
    }

    /// Returns an empty buffer; a reused one has capacity.
    pub(crate) fn buffer(&mut self) -> Vec<u8> {
        let mut buffer = self.pool.pop().unwrap_or_default();
        buffer.clear();
        buffer
    }

    /// Returns the name of an endpoint's lane.
    pub(crate) fn lane_name(&self) -> String {
        if self.lane.is_empty() { "rc_mlx5/mlx5_0:1".to_owned() } else { self.lane.clone() }
    }

    /// Returns `true` if a lane belongs to a NIC.
    pub(crate) fn has_nic(&self) -> bool {
        self.lane_name().split('+').any(|l| l.starts_with("rc_") || l.starts_with("dc_"))
    }

    /// Objects that are alive.
    pub(crate) fn live(&self) -> usize {
        self.contexts.live()
            + self.configs.live()
            + self.workers.live()
            + self.endpoints.live()
            + self.memories.live()
            + self.keys.live()
            + self.requests.live()
            + self.packed.len()
            + self.kept.len()
    }
}

/// Encodes a status as the result of a call that may complete later.
pub(crate) fn status_ptr(status: sys::ucs_status_t) -> sys::ucs_status_ptr_t {
    core::ptr::without_provenance_mut(isize::from(status).cast_unsigned())
}

/// Dereferences a parameter of a caller.
///
/// # Safety
/// `pointer` is null or points to a `T` that lives during the call.
pub(crate) unsafe fn given<'a, T>(pointer: *const T) -> Option<&'a T> {
    // SAFETY: the caller vouched for it.
    unsafe { pointer.as_ref() }
}
