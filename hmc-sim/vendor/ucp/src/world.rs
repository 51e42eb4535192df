//! All state of the stand-in, under one lock, and what watches over its callers.

use core::ffi::c_int;
use std::alloc::Layout;
use std::collections::VecDeque;
use std::io::Write as _;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::handle::{Handle, Kind, MAX_WORKERS, Slab};
use crate::message::{Handler, Message};
use crate::request::{Ended, Request};
use crate::rules::{CALLS, Call, Script};
use crate::sys;

/// Room that is made at once for what may be under way.
const ROOM: usize = 512;

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
    /// Callbacks to be made; it keeps its room between calls of progress.
    pub(crate) ended: Vec<Ended>,
    pub(crate) news: Vec<News>,
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
            pending: Vec::with_capacity(ROOM),
            ended: Vec::with_capacity(ROOM),
            news: Vec::with_capacity(8),
            inbox: VecDeque::with_capacity(ROOM),
            handlers: Vec::new(),
        }
    }
}

/// A call of an error handler.
#[derive(Clone, Copy, Debug)]
pub(crate) struct News {
    pub(crate) handler: sys::ucp_err_handler_t,
    pub(crate) endpoint: Handle,
    pub(crate) status: sys::ucs_status_t,
}

#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) worker: Handle,
    pub(crate) peer: Handle,
    pub(crate) handler: Option<sys::ucp_err_handler_t>,
    /// The how many-th since the last reset: how a script names it.
    pub(crate) ordinal: u64,
    /// Puts, gets and messages that have not ended.
    pub(crate) flying: usize,
    pub(crate) flushes: u64,
    /// Bytes of ended puts that no flush has brought to the target yet.
    pub(crate) staged: VecDeque<Staged>,
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
            flying: 0,
            flushes: 0,
            staged: VecDeque::with_capacity(ROOM),
            failed: None,
            closed: false,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Staged {
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

/// What is counted beside calls.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Books {
    pub(crate) endpoints: u64,
    /// The most flushes under way on one endpoint.
    pub(crate) flushes_max: u64,
    /// Accesses beyond their key's range or rights.
    pub(crate) refused: u64,
    /// Bytes that came for memory which was unmapped.
    pub(crate) late: u64,
    /// Registrations that a NIC still serves although they were unmapped.
    pub(crate) cached: u64,
    pub(crate) ended: u64,
}

pub(crate) struct World {
    pub(crate) script: Script,
    pub(crate) books: Books,
    /// Whether they have a cache of registrations.
    pub(crate) contexts: Slab<bool>,
    pub(crate) configs: Slab<bool>,
    pub(crate) workers: Slab<Worker>,
    pub(crate) endpoints: Slab<Endpoint>,
    pub(crate) memories: Slab<Memory>,
    pub(crate) keys: Slab<Key>,
    pub(crate) requests: Slab<Request>,
    /// Packed keys and addresses that were handed out.
    pub(crate) papers: Vec<Box<[u8]>>,
    /// Data of messages that their receiver keeps.
    pub(crate) kept: Vec<Vec<u8>>,
    /// Buffers to be used again.
    pub(crate) pool: Vec<Vec<u8>>,
    /// Sentences about misuse, while they are collected.
    pub(crate) findings: Vec<String>,
    pub(crate) collects: bool,
    /// What `ucp_ep_print_info` and `ucp_ep_query` name.
    pub(crate) lane: String,
}

// SAFETY: the pointers in it are the callers', who promise that what they name may be used by any thread that makes calls.
unsafe impl Send for World {}

static WORLD: Mutex<World> = Mutex::new(World {
    script: Script::new(),
    books: Books { endpoints: 0, flushes_max: 0, refused: 0, late: 0, cached: 0, ended: 0 },
    contexts: Slab::new(Kind::Context),
    configs: Slab::new(Kind::Config),
    workers: Slab::new(Kind::Worker),
    endpoints: Slab::new(Kind::Endpoint),
    memories: Slab::new(Kind::Memory),
    keys: Slab::new(Kind::Key),
    requests: Slab::new(Kind::Request),
    papers: Vec::new(),
    kept: Vec::new(),
    pool: Vec::new(),
    findings: Vec::new(),
    collects: false,
    lane: String::new(),
});

pub(crate) fn world() -> MutexGuard<'static, World> {
    WORLD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The thread that is inside a worker, by the worker's place; 0 for none.
static INSIDE: [AtomicUsize; MAX_WORKERS] = [const { AtomicUsize::new(0) }; MAX_WORKERS];
/// How often a thread yields while it is inside.
pub(crate) static LINGER: AtomicU64 = AtomicU64::new(0);

/// A call that is inside a worker.
pub(crate) struct Inside {
    place: usize,
    /// What the worker's place holds when it is left: this thread, if the call came from a callback, else nobody.
    before: usize,
}

fn this_thread() -> usize {
    thread_local! {
        static HERE: u8 = const { 0 };
    }
    HERE.with(|here| core::ptr::from_ref(here).addr())
}

/// Enters the worker that `object` belongs to. Callbacks may enter it again; another thread may not.
pub(crate) fn enter(call: Call, object: Handle) -> Inside {
    let (me, place) = (this_thread(), object.owner());
    let before = INSIDE[place].swap(me, Ordering::AcqRel);
    if before != 0 && before != me {
        world().misuse(call, "another thread is inside this worker, whose calls are serialised");
    }
    for _ in 0..LINGER.load(Ordering::Relaxed) {
        std::thread::yield_now();
    }
    // Another thread, which should not be there, may have left before this one does.
    Inside { place, before: if before == me { me } else { 0 } }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE[self.place].store(self.before, Ordering::Release);
    }
}

impl World {
    /// A caller did what it must not. Ends the process, unless findings are collected.
    #[cold]
    pub(crate) fn misuse(&mut self, call: Call, what: &str) -> sys::ucs_status_t {
        let name = CALLS[call as usize].1;
        let text = format!("{name}: {what}");
        if !self.collects {
            // The last words of a process; there is nobody to tell when they cannot be written.
            let _ = writeln!(std::io::stderr(), "stand-in libucp: {text}");
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

    /// An empty buffer, with room where one was used before.
    pub(crate) fn buffer(&mut self) -> Vec<u8> {
        let mut buffer = self.pool.pop().unwrap_or_default();
        buffer.clear();
        buffer
    }

    /// What an endpoint's lane is called.
    pub(crate) fn lane_name(&self) -> String {
        if self.lane.is_empty() { "rc_mlx5/mlx5_0:1".to_owned() } else { self.lane.clone() }
    }

    /// Whether a lane is one of a NIC.
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
            + self.papers.len()
            + self.kept.len()
    }
}

/// A status as the result of a call that may end later.
pub(crate) fn answer(status: sys::ucs_status_t) -> sys::ucs_status_ptr_t {
    core::ptr::without_provenance_mut(isize::from(status).cast_unsigned())
}

/// The order as a caller gave it.
///
/// # Safety
/// `pointer` is null or points to a `T` that lives during the call.
pub(crate) unsafe fn given<'a, T>(pointer: *const T) -> Option<&'a T> {
    // SAFETY: the caller vouched for it.
    unsafe { pointer.as_ref() }
}
