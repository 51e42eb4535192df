//! The script, as C functions that a test finds by name. All are called between UCX's calls, from any thread.

use core::ffi::{c_char, c_int};
use std::ffi::CStr;
use std::sync::atomic::Ordering;

use crate::faults::{Action, Script, call};
use crate::handle::Handle;
use crate::request::HELD;
use crate::state::{Counters, FakeUcp, YIELDS, state};

/// [`hmc_fake_ucp_rule`]: the call returns the value, a status, and starts nothing.
pub const REFUSE: c_int = 1;
/// [`hmc_fake_ucp_rule`]: the operation starts and its callback receives the value, a status; half of its bytes move.
pub const FAIL: c_int = 2;
/// [`hmc_fake_ucp_rule`]: it completes that many calls of progress later.
pub const LATE: c_int = 3;
/// [`hmc_fake_ucp_rule`]: it completes when held operations are released, or when its endpoint is closed by force.
pub const HOLD: c_int = 4;
/// [`hmc_fake_ucp_rule`]: a flush never completes, not even with its endpoint; any other operation is held.
pub const LOSE: c_int = 5;

/// # Safety
/// `text` is a C string.
unsafe fn text<'a>(text: *const c_char) -> &'a str {
    // SAFETY: the caller vouched for it.
    unsafe { CStr::from_ptr(text) }.to_str().unwrap_or_default()
}

/// Scripts the `nth` call of that name from now (1 is the next; 0 is all). Returns 0, or -1 if an argument is invalid.
///
/// # Safety
/// `function` is a C string.
// SAFETY: the name carries the project's prefix, and this library alone exports it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hmc_fake_ucp_rule(
    function: *const c_char,
    nth: u64,
    action: c_int,
    value: i64,
) -> c_int {
    // SAFETY: the caller vouched for it.
    let Some(call) = call(unsafe { text(function) }) else { return -1 };
    let (status, number) = (i8::try_from(value), u64::try_from(value));
    let action = match (action, status, number) {
        (REFUSE, Ok(status), _) => Action::Refuse(status),
        (FAIL, Ok(status), _) => Action::Fail(status),
        (LATE, _, Ok(more)) => Action::Late(more),
        (HOLD, ..) => Action::Hold,
        (LOSE, ..) => Action::Lose,
        _ => return -1,
    };
    state().script.add(call, nth, action);
    0
}

/// Sets a number: `put_delay`, `get_delay`, `flush_delay`, `close_delay`, `am_delay` and `jitter` in calls of progress;
/// `immediate_bytes`; `staged` (1: bytes of puts land with a flush, or after `landing` calls of progress); `order` (0 as posted, 1 reversed, 2 shuffled); `seed`; `yields`; `maps` (1: `ucp_rkey_ptr` returns addresses);
/// `memory_types`, a bit for each kind of memory that contexts reach;
/// `version_major`, `version_minor`, `version_release`. Returns 0, or -1 if there is no number of that name.
///
/// # Safety
/// `name` is a C string.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hmc_fake_ucp_set(name: *const c_char, value: u64) -> c_int {
    let mut w = state();
    // SAFETY: the caller vouched for it.
    let done = w.script.set(unsafe { text(name) }, value);
    YIELDS.store(w.script.knobs.yields, Ordering::Relaxed);
    done.map_or(-1, |()| 0)
}

/// The lane that descriptions of endpoints name, such as `tcp/lo`.
///
/// # Safety
/// `name` is a C string.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hmc_fake_ucp_lane(name: *const c_char) {
    // SAFETY: the caller vouched for it.
    unsafe { text(name) }.clone_into(&mut state().lane);
}

/// How often a call of UCX was made since the last reset.
///
/// # Safety
/// `function` is a C string.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hmc_fake_ucp_calls(function: *const c_char) -> u64 {
    // SAFETY: the caller vouched for it.
    call(unsafe { text(function) }).map_or(u64::MAX, |call| state().script.calls(call))
}

/// A count: `live` objects of all kinds, or `contexts`, `workers`, `endpoints`, `memories`, `keys`, `requests` that are
/// alive; `held` operations; `flushes_max`, the most under way on one endpoint; `refused` accesses; `late` bytes, which
/// came for memory that was unmapped; `cached` registrations, which a NIC still serves though they were unmapped; `ended` requests; `findings`.
///
/// # Safety
/// `what` is a C string.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hmc_fake_ucp_count(what: *const c_char) -> u64 {
    let mut w = state();
    // SAFETY: the caller vouched for it.
    w.number(unsafe { text(what) }).unwrap_or(u64::MAX)
}

/// Fails the `nth` endpoint since the last reset (0: all open ones) with a status, for which its error handler is called.
/// With `purge` its operations in flight complete with that status in the next progress, without it when the endpoint is
/// closed by force. Returns the number of failed endpoints.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn hmc_fake_ucp_kill(nth: u64, status: c_int, purge: c_int) -> u64 {
    let mut w = state();
    let Ok(status) = i8::try_from(status) else { return 0 };
    let meant: Vec<Handle> = w
        .endpoints
        .names()
        .filter(|n| {
            w.endpoints.get(*n).is_some_and(|e| !e.closed && (nth == 0 || e.ordinal == nth))
        })
        .collect();
    for endpoint in &meant {
        if purge != 0 {
            w.cancel_all(*endpoint, status, 1);
        }
        w.fail(*endpoint, status);
    }
    u64::try_from(meant.len()).unwrap_or(0)
}

/// Completes held operations with the next progress. Returns their number.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn hmc_fake_ucp_release() -> u64 {
    let mut w = state();
    let held: Vec<Handle> = w.requests.names().filter(|n| w.is_held(*n)).collect();
    for name in &held {
        let Some(worker) = w.requests.get(*name).map(|r| r.worker) else { continue };
        let tick = w.workers.get(worker).map_or(0, |x| x.tick);
        if let Some(request) = w.requests.get_mut(*name) {
            request.due = tick + 1;
        }
        w.signal_worker(worker);
    }
    u64::try_from(held.len()).unwrap_or(0)
}

/// Removes the rules; numbers and counts stay.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn hmc_fake_ucp_forget() {
    state().script.clear();
}

/// Misuse is collected instead of aborting the process if `on` is not 0.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn hmc_fake_ucp_collect(on: c_int) {
    state().collects = on != 0;
}

/// Removes the oldest finding and writes up to `capacity` bytes of it, without a zero. Returns its length; 0 if there is none.
///
/// # Safety
/// `out` may be written for `capacity` bytes.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hmc_fake_ucp_finding(out: *mut u8, capacity: usize) -> usize {
    let mut w = state();
    if w.findings.is_empty() {
        return 0;
    }
    let finding = w.findings.remove(0);
    let len = finding.len().min(capacity);
    // SAFETY: the caller vouched for `out`; the text is our own.
    unsafe { out.copy_from_nonoverlapping(finding.as_ptr(), len) };
    finding.len()
}

/// Removes the script, all counts, findings and objects; allocations of the objects are leaked. Returns the number of objects.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn hmc_fake_ucp_reset() -> u64 {
    let mut w = state();
    let live = u64::try_from(w.live()).unwrap_or(u64::MAX);
    YIELDS.store(0, Ordering::Relaxed);
    w.script = Script::new();
    w.counters = Counters::default();
    w.collects = false;
    w.findings.clear();
    w.lane.clear();
    w.contexts.clear();
    w.configs.clear();
    w.workers.clear();
    w.endpoints.clear();
    w.memories.clear();
    w.keys.clear();
    w.requests.clear();
    let (packed, kept) = (core::mem::take(&mut w.packed), core::mem::take(&mut w.kept));
    core::mem::forget((packed, kept));
    live
}

impl FakeUcp {
    fn is_held(&self, name: Handle) -> bool {
        self.requests.get(name).is_some_and(|r| r.due == HELD && r.ended.is_none())
    }

    fn number(&mut self, what: &str) -> Option<u64> {
        let number = match what {
            "live" => self.live(),
            "contexts" => self.contexts.live(),
            "workers" => self.workers.live(),
            "endpoints" => self.endpoints.live(),
            "memories" => self.memories.live(),
            "keys" => self.keys.live(),
            "requests" => self.requests.live(),
            "held" => self.requests.names().filter(|n| self.is_held(*n)).count(),
            "findings" => self.findings.len(),
            "flushes_max" => return Some(self.counters.flushes_max),
            "refused" => return Some(self.counters.refused),
            "late" => return Some(self.counters.late),
            "cached" => return Some(self.counters.cached),
            "ended" => return Some(self.counters.ended),
            _ => return None,
        };
        u64::try_from(number).ok()
    }
}
