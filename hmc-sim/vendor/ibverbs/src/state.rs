//! All state of the fake library, under one lock, and the checks of its callers.

use core::ffi::{c_int, c_void};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::device::{DEVICES, Device};
use crate::faults::{CALLS, Call, Script};
use crate::object::{Channel, Context, KeyOwner, Mr, Mw, Pd};
use crate::queue::{Cq, Srq};
use crate::queue_pair::Qp;
use crate::table::{Id, Table};

/// The number of the first key, without its lower 8 bits.
const FIRST_KEY: u32 = 1;

/// Counters, besides those of calls.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    /// Queue pairs that were made.
    pub(crate) queue_pairs: u64,
    /// Calls that posted at least one request or receive.
    pub(crate) doorbells: u64,
    /// Requests that were posted with a completion asked for.
    pub(crate) signalled: u64,
    /// Requests that were posted without one.
    pub(crate) unsignalled: u64,
    pub(crate) inlined: u64,
    /// Bytes of the requests that were posted, of each device.
    pub(crate) bytes: [u64; DEVICES],
    /// Completions that were put into a queue.
    pub(crate) completions: u64,
    /// Those of them that failed, flushed ones apart.
    pub(crate) failures: u64,
    pub(crate) flushed: u64,
    /// Completions that were lost.
    pub(crate) overruns: u64,
    /// Accesses that a target refused.
    pub(crate) refused: u64,
    /// Events of completion channels that were raised.
    pub(crate) notifications: u64,
    /// Bytes that are registered.
    pub(crate) registered: u64,
}

pub(crate) struct FakeIbv {
    pub(crate) script: Script,
    pub(crate) counters: Counters,
    pub(crate) devices: Vec<Device>,
    /// Lists of devices that were not freed, by address, with their length.
    pub(crate) lists: Vec<(usize, usize)>,
    pub(crate) contexts: Table<Context>,
    pub(crate) pds: Table<Pd>,
    pub(crate) mrs: Table<Mr>,
    pub(crate) mws: Table<Mw>,
    pub(crate) channels: Table<Channel>,
    pub(crate) cqs: Table<Cq>,
    pub(crate) qps: Table<Qp>,
    pub(crate) srqs: Table<Srq>,
    /// Owners of keys, by the upper 24 bits.
    pub(crate) keys: BTreeMap<u32, KeyOwner>,
    next_key: u32,
    /// Calls of progress so far: the only clock.
    pub(crate) tick: u64,
    /// Numbers all requests.
    pub(crate) seq: u64,
    /// Numbers the threads that tick by the clock: the last is the one that runs.
    pub(crate) ticker: u64,
    /// Buffers for reuse.
    pub(crate) pool: Vec<Vec<u8>>,
    /// Descriptions of misuse, while they are collected.
    pub(crate) findings: Vec<String>,
    pub(crate) collects: bool,
}

// SAFETY: the pointers in it belong to the callers, who promise that any thread that makes calls may use their targets.
unsafe impl Send for FakeIbv {}

static STATE: LazyLock<Mutex<FakeIbv>> = LazyLock::new(|| {
    Mutex::new(FakeIbv {
        script: Script::new(),
        counters: Counters::default(),
        devices: (0..DEVICES).map(Device::new).collect(),
        lists: Vec::new(),
        contexts: Table::new("context"),
        pds: Table::new("protection domain"),
        mrs: Table::new("region"),
        mws: Table::new("window"),
        channels: Table::new("channel"),
        cqs: Table::new("completion queue"),
        qps: Table::new("queue pair"),
        srqs: Table::new("shared receive queue"),
        keys: BTreeMap::new(),
        next_key: FIRST_KEY,
        tick: 0,
        seq: 0,
        ticker: 0,
        pool: Vec::new(),
        findings: Vec::new(),
        collects: false,
    })
});

pub(crate) fn state() -> MutexGuard<'static, FakeIbv> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long a destroying call waits for an acknowledgement. The library waits without end.
const ACKNOWLEDGED: Duration = Duration::from_secs(2);

/// Waits until the events of an object are acknowledged: another thread that has taken one may be about to. What `is` finds
/// false after that time is a misuse, for the caller to report.
pub(crate) fn await_acknowledged(
    mut w: MutexGuard<'static, FakeIbv>,
    is: impl Fn(&FakeIbv) -> bool,
) -> (MutexGuard<'static, FakeIbv>, bool) {
    let begun = Instant::now();
    while !is(&w) {
        if begun.elapsed() > ACKNOWLEDGED {
            return (w, false);
        }
        drop(w);
        std::thread::yield_now();
        w = state();
    }
    (w, true)
}

impl FakeIbv {
    /// Reports a call that the caller must not make. Aborts the process, unless findings are collected.
    #[cold]
    pub(crate) fn misuse(&mut self, call: Call, what: &str) {
        let name = CALLS[call as usize].1;
        let text = format!("{name}: {what}");
        if !self.collects {
            // The process aborts; an error of this write cannot be reported.
            let _ = writeln!(std::io::stderr(), "fake libibverbs: {text}");
            std::process::abort();
        }
        self.findings.push(text);
    }

    /// Returns the number of the object of a C structure; that of none is a misuse.
    pub(crate) fn known<T, C>(
        &mut self,
        call: Call,
        table: fn(&Self) -> &Table<T>,
        structure: *const C,
    ) -> Option<Id> {
        let id = table(self).id(structure);
        if id.is_none() {
            let kind = table(self).kind;
            self.misuse(call, &format!("this {kind} was destroyed, or never made"));
        }
        id
    }

    /// Counts a call that sets something up; the errno that it fails with, by the script or because its device is dead.
    pub(crate) fn set_up(&mut self, call: Call, device: Option<usize>) -> Option<c_int> {
        let is_dead = device.and_then(|d| self.devices.get(d)).is_some_and(|d| d.is_dead);
        self.script.refused(call).or(is_dead.then_some(libc::EIO))
    }

    /// Returns the upper 24 bits of a new key.
    pub(crate) fn new_key(&mut self, owner: KeyOwner) -> u32 {
        let index = self.next_key;
        self.next_key += 1;
        self.keys.insert(index, owner);
        index << 8
    }

    /// Returns an empty buffer; a reused one has capacity.
    pub(crate) fn buffer(&mut self) -> Vec<u8> {
        let mut buffer = self.pool.pop().unwrap_or_default();
        buffer.clear();
        buffer
    }

    /// Objects that are alive.
    pub(crate) fn live(&self) -> usize {
        self.lists.len()
            + self.contexts.live()
            + self.pds.live()
            + self.mrs.live()
            + self.mws.live()
            + self.channels.live()
            + self.cqs.live()
            + self.qps.live()
            + self.srqs.live()
    }

    /// Removes the script, all counts, findings and objects. Returns the number of objects.
    pub(crate) fn reset(&mut self) -> usize {
        let live = self.live();
        let contexts = self.contexts.values().map(|c| c.fd);
        for fd in contexts.chain(self.channels.values().map(|c| c.fd)) {
            close(fd);
        }
        self.ticker += 1;
        self.script = Script::new();
        self.counters = Counters::default();
        for (at, device) in self.devices.iter_mut().enumerate() {
            device.restart(at);
        }
        self.lists.clear();
        self.contexts.clear();
        self.pds.clear();
        self.mrs.clear();
        self.mws.clear();
        self.channels.clear();
        self.cqs.clear();
        self.qps.clear();
        self.srqs.clear();
        self.keys.clear();
        self.findings.clear();
        self.collects = false;
        live
    }
}

/// Makes a C structure whose memory is never freed.
pub(crate) fn structure<C>(value: C) -> *mut C {
    Box::into_raw(Box::new(value))
}

/// Sets `errno` and returns what a call that makes an object returns then.
pub(crate) fn fail<C>(errno: c_int) -> *mut C {
    // SAFETY: no arguments.
    let location = unsafe { libc::__errno_location() };
    // SAFETY: the thread's own.
    unsafe { location.write(errno) };
    core::ptr::null_mut()
}

/// Makes a descriptor for events. It is readable while its counter is not 0.
pub(crate) fn new_eventfd() -> c_int {
    // SAFETY: no pointers.
    unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) }
}

/// Makes a descriptor readable that is not.
pub(crate) fn raise(fd: c_int) {
    let one = 1u64;
    // SAFETY: eight bytes of ours.
    let _ = unsafe { libc::write(fd, core::ptr::from_ref(&one).cast::<c_void>(), 8) };
}

/// Makes a descriptor unreadable that is readable.
pub(crate) fn lower(fd: c_int) {
    let mut count = 0u64;
    // SAFETY: eight bytes of ours; the counter is not 0, so the read does not block.
    let _ = unsafe { libc::read(fd, core::ptr::from_mut(&mut count).cast::<c_void>(), 8) };
}

/// Closes a descriptor.
pub(crate) fn close(fd: c_int) {
    // SAFETY: the library's own, closed once.
    let _ = unsafe { libc::close(fd) };
}
