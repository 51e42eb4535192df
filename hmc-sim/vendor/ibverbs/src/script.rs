//! The script, as C functions that a test finds by name. All are called between libibverbs' calls, from any thread.

use core::ffi::{c_char, c_int};
use std::ffi::CStr;

use crate::abi::{
    IBV_EVENT_CLIENT_REREGISTER, IBV_EVENT_CQ_ERR, IBV_EVENT_DEVICE_FATAL,
    IBV_EVENT_DEVICE_SPEED_CHANGE, IBV_EVENT_GID_CHANGE, IBV_EVENT_PATH_MIG_ERR,
    IBV_EVENT_PORT_ACTIVE, IBV_EVENT_PORT_ERR, IBV_EVENT_QP_FATAL, IBV_EVENT_QP_LAST_WQE_REACHED,
    IBV_EVENT_SM_CHANGE, IBV_EVENT_SRQ_ERR, IBV_EVENT_SRQ_LIMIT_REACHED, IBV_EVENT_WQ_FATAL,
    IBV_PORT_ACTIVE, IBV_PORT_DOWN,
};
use crate::device::Gid;
use crate::faults::{Action, Call, HELD, Outcome, call};
use crate::object::{AsyncEvent, Element};
use crate::state::{FakeIbv, state};
use crate::table::Id;

/// [`hmc_fake_ibv_rule`]: the call fails with the value, an errno; an operation is not posted.
pub const REFUSE: c_int = 1;
/// [`hmc_fake_ibv_rule`]: the operation moves half of its bytes and completes with the value: a status, with the vendor's
/// number in the bits from 8 on. Its queue pair fails.
pub const FAIL: c_int = 2;
/// [`hmc_fake_ibv_rule`]: the operation is carried out that many ticks later.
pub const LATE: c_int = 3;
/// [`hmc_fake_ibv_rule`]: it is carried out when held operations are released.
pub const HOLD: c_int = 4;
/// [`hmc_fake_ibv_rule`]: it is carried out, and completes that many ticks later.
pub const ACK_LATE: c_int = 5;
/// [`hmc_fake_ibv_rule`]: it is carried out, and completes when held operations are released.
pub const ACK_HOLD: c_int = 6;
/// [`hmc_fake_ibv_rule`]: it is carried out, and its completion is lost as with an overrun of the completion queue.
pub const DROP: c_int = 7;

/// # Safety
/// `text` is a C string.
unsafe fn text<'a>(text: *const c_char) -> &'a str {
    // SAFETY: the caller vouched for it.
    unsafe { CStr::from_ptr(text) }.to_str().unwrap_or_default()
}

fn answer(done: Option<()>) -> c_int {
    done.map_or(-1, |()| 0)
}

/// Scripts the `nth` call of a function, or post of an operation, from now (1 is the next; 0 is all). Operations are
/// `write`, `write_imm`, `send`, `send_imm`, `send_inv`, `read`, `local_inv` and `bind`, and with `@` and a number those of
/// one queue pair: `write@2` is a write of the second since the last reset. Returns 0, or -1 if an argument is invalid.
///
/// # Safety
/// `function` is a C string.
// SAFETY: the name carries the project's prefix, and this library alone exports it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hmc_fake_ibv_rule(
    function: *const c_char,
    nth: u64,
    action: c_int,
    value: u64,
) -> c_int {
    // SAFETY: the caller vouched for it.
    let function = unsafe { text(function) };
    let (name, qp) = match function.split_once('@').map(|(name, qp)| (name, qp.parse())) {
        None => (function, 0),
        Some((name, Ok(qp @ 1..))) => (name, qp),
        Some(_) => return -1,
    };
    let Some(call) = call(name) else { return -1 };
    let is_operation = call as usize >= Call::Write as usize;
    if qp != 0 && !is_operation {
        return -1;
    }
    let Ok(small) = u32::try_from(value) else { return -1 };
    let outcome = Outcome { status: small & 0xFF, vendor_err: small >> 8 };
    let action = match (action, c_int::try_from(value)) {
        (REFUSE, Ok(errno)) => Action::Refuse(errno),
        (FAIL, _) if is_operation && outcome.status != 0 => Action::Fail(outcome),
        (LATE, _) if is_operation => Action::Late(value),
        (HOLD, _) if is_operation => Action::Hold,
        (ACK_LATE, _) if is_operation => Action::AckLate(value),
        (ACK_HOLD, _) if is_operation => Action::AckHold,
        (DROP, _) if is_operation => Action::Drop,
        _ => return -1,
    };
    state().script.add(call, qp, nth, action);
    0
}

/// Sets a number: `devices`, 1 to 4; `delay`, `ack_delay` and `jitter` in ticks; `order` of queue pairs in a tick (0 as
/// posted, 1 reversed, 2 shuffled) and `seed`; `batch`, the operations of a tick (0: all); `staged` (1: bytes of a write
/// are visible with a later read or receive of its queue pair, or after `landing` ticks); `poll_progress` (0: a poll is
/// no tick, only [`hmc_fake_ibv_progress`] is); `ticker_us`, ticks by the clock (0: none); `memlock`, bytes (0: without limit);
/// `fork_status`.
/// Returns 0, or -1 if there is no number of that name.
///
/// # Safety
/// `name` is a C string.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hmc_fake_ibv_set(name: *const c_char, value: u64) -> c_int {
    let mut w = state();
    // SAFETY: the caller vouched for it.
    let name = unsafe { text(name) };
    if name == "ticker_us" {
        w.set_ticker(value);
        return 0;
    }
    answer(w.script.set(name, value))
}

/// Sets a number of a device, which counts from 0: `ports` (1 or 2, made anew); `windows` (0 none, 1 type 2B; as 1 in
/// its attributes, but 2 without calls, 3 `ibv_alloc_mw` fails, 4 binds fail); `window_range` (0: not checked, as rxe);
/// `window_qp` (0: a key lets each queue pair in); `window_rights` (0: a window for reads takes writes); `invalidation` and `window_end`, that is `ibv_dealloc_mw` (0: without
/// effect); `dmabuf` (1: registers descriptors); or a limit by its name in `ibv_device_attr`, or `max_inline_data`.
/// Returns 0, or -1 if there is no such device or number.
///
/// # Safety
/// `name` is a C string.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hmc_fake_ibv_device(
    device: u32,
    name: *const c_char,
    value: u64,
) -> c_int {
    let mut w = state();
    let at = device as usize;
    // SAFETY: the caller vouched for it.
    let name = unsafe { text(name) };
    answer(w.devices.get_mut(at).and_then(|d| d.set(at, name, value)))
}

/// Sets a number of a port, which counts from 1: `link_layer` (1 InfiniBand, 2 Ethernet; the port is made anew), `state`,
/// `lid`, `active_mtu`, `gids` (the length of the table). Returns 0, or -1 if there is no such port or number.
///
/// # Safety
/// `name` is a C string.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hmc_fake_ibv_port(
    device: u32,
    port: u32,
    name: *const c_char,
    value: u64,
) -> c_int {
    let mut w = state();
    let at = device as usize;
    // SAFETY: the caller vouched for it.
    let name = unsafe { text(name) };
    answer(w.devices.get_mut(at).and_then(|d| d.set_port(at, port, name, value)))
}

/// Writes an entry of a port's GID table; a null pointer empties it. Returns 0, or -1 if there is no such entry.
///
/// # Safety
/// `raw` is null or points to 16 bytes.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hmc_fake_ibv_gid(
    device: u32,
    port: u32,
    index: u32,
    gid_type: u32,
    raw: *const u8,
) -> c_int {
    let mut w = state();
    let Some(device) = w.devices.get_mut(device as usize) else { return -1 };
    let port = (port as usize).checked_sub(1).and_then(|p| device.ports.get_mut(p));
    let Some(entry) = port.and_then(|p| p.gids.get_mut(index as usize)) else { return -1 };
    // SAFETY: the caller vouched for it.
    let raw = unsafe { raw.cast::<[u8; 16]>().as_ref() };
    *entry = raw.map(|raw| Gid { raw: *raw, kind: gid_type });
    0
}

/// How often a function was called, or an operation posted, since the last reset.
///
/// # Safety
/// `function` is a C string.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hmc_fake_ibv_calls(function: *const c_char) -> u64 {
    // SAFETY: the caller vouched for it.
    call(unsafe { text(function) }).map_or(u64::MAX, |call| state().script.calls(call))
}

/// A count: `live` objects of all kinds, or `lists`, `contexts`, `pds`, `mrs`, `mws`, `channels`, `cqs`, `qps`, `srqs`
/// that are alive; `registered` bytes; `posted`, requests of send queues that have not completed; `held` ones of them;
/// `unpolled` completions; `staged` writes that are not visible; since the last reset, `doorbells` (calls that posted
/// something), `signalled` and `unsignalled` and `inlined` requests, `completions`, of which `failures` and `flushed`,
/// `overruns` (lost completions), `refused` requests, `bytes_0` to `bytes_3` of the requests of a device, `notifications`, `queue_pairs`, `ticks`; `findings`.
///
/// # Safety
/// `what` is a C string.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hmc_fake_ibv_count(what: *const c_char) -> u64 {
    // SAFETY: the caller vouched for it.
    state().number(unsafe { text(what) }).unwrap_or(u64::MAX)
}

/// Moves the `nth` queue pair since the last reset (0: all) to the error state. Returns the number of queue pairs moved.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn hmc_fake_ibv_kill(nth: u64) -> u64 {
    let mut w = state();
    let meant: Vec<Id> =
        w.qps.iter().filter(|(_, q)| nth == 0 || q.ordinal == nth).map(|(id, _)| id).collect();
    for id in &meant {
        w.enter_error(*id);
    }
    meant.len() as u64
}

/// Raises an asynchronous event. Of a port: `nth` is its number, and `PORT_ERR` and `PORT_ACTIVE` set its state. Of a
/// queue: the `nth` of the device that is alive, from 1; `QP_FATAL` moves it to the error state. `DEVICE_FATAL` ends the device: its queue pairs fail, and calls that set
/// something up return `EIO`. Returns 0, or -1 if there is no such object.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn hmc_fake_ibv_event(device: u32, event_type: u32, nth: u32) -> c_int {
    answer(state().raise(device as usize, event_type, nth))
}

/// Lets held operations and completions come with the next tick. Returns their number.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn hmc_fake_ibv_release() -> u64 {
    let mut w = state();
    let mut count = 0;
    for qp in w.qps.values_mut() {
        for number in qp.completed..qp.posted {
            let at = qp.at(number);
            let request = &mut qp.queue[at];
            if request.due == HELD {
                request.due = 0;
                count += 1;
            }
            if request.ack == HELD {
                request.ack = 0;
                count += 1;
            }
        }
    }
    count
}

/// Makes `ticks` ticks.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn hmc_fake_ibv_progress(ticks: u64) {
    (0..ticks).for_each(|_| state().progress());
}

/// Removes the rules; numbers and counts stay.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn hmc_fake_ibv_forget() {
    state().script.forget();
}

/// Misuse is collected instead of aborting the process if `on` is not 0.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn hmc_fake_ibv_collect(on: c_int) {
    state().collects = on != 0;
}

/// Removes the oldest finding and writes up to `capacity` bytes of it, without a zero. Returns its length; 0 if there is none.
///
/// # Safety
/// `out` may be written for `capacity` bytes.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hmc_fake_ibv_finding(out: *mut u8, capacity: usize) -> usize {
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

/// Removes the script, all counts, findings and objects, and sets all devices to what they were. Returns the number of objects.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn hmc_fake_ibv_reset() -> u64 {
    state().reset() as u64
}

impl FakeIbv {
    /// Raises an event of the `nth` object of a device, from 1.
    fn raise(&mut self, device: usize, kind: u32, nth: u32) -> Option<()> {
        let at = (nth as usize).checked_sub(1);
        let element = match kind {
            IBV_EVENT_CQ_ERR => {
                let (id, _) = self.cqs.iter().filter(|(_, c)| c.device == device).nth(at?)?;
                Element::Cq(id)
            }
            IBV_EVENT_DEVICE_FATAL | IBV_EVENT_DEVICE_SPEED_CHANGE => Element::Device,
            IBV_EVENT_SRQ_ERR | IBV_EVENT_SRQ_LIMIT_REACHED => {
                let (id, _) = self.srqs.iter().filter(|(_, s)| s.device == device).nth(at?)?;
                Element::Srq(id)
            }
            IBV_EVENT_WQ_FATAL => return None,
            IBV_EVENT_PORT_ACTIVE..=IBV_EVENT_SM_CHANGE
            | IBV_EVENT_CLIENT_REREGISTER
            | IBV_EVENT_GID_CHANGE => {
                let port = self.devices.get_mut(device)?.ports.get_mut(at?)?;
                match kind {
                    IBV_EVENT_PORT_ERR => port.state = IBV_PORT_DOWN,
                    IBV_EVENT_PORT_ACTIVE => port.state = IBV_PORT_ACTIVE,
                    _ => {}
                }
                Element::Port(c_int::try_from(nth).ok()?)
            }
            IBV_EVENT_QP_FATAL..=IBV_EVENT_PATH_MIG_ERR | IBV_EVENT_QP_LAST_WQE_REACHED => {
                let (id, _) = self.qps.iter().filter(|(_, q)| q.device == device).nth(at?)?;
                Element::Qp(id)
            }
            // One of a later kernel: libibverbs passes on the number that it has in place of an object.
            _ => Element::Port(c_int::try_from(nth).ok()?),
        };
        let event = AsyncEvent { kind, element };
        let context = match element {
            Element::Device | Element::Port(_) => None,
            Element::Cq(id) => self.cqs.get(id).map(|c| c.context),
            Element::Qp(id) => self.qps.get(id).map(|q| q.context),
            Element::Srq(id) => self.srqs.get(id).map(|s| s.context),
        };
        match context {
            Some(context) => self.raise_async(context, event),
            None => self.raise_async_all(device, event),
        }
        if let (IBV_EVENT_QP_FATAL, Element::Qp(id)) = (kind, element) {
            self.enter_error(id);
        }
        if kind == IBV_EVENT_DEVICE_FATAL {
            self.devices.get_mut(device)?.is_dead = true;
            let own: Vec<Id> =
                self.qps.iter().filter(|(_, q)| q.device == device).map(|(id, _)| id).collect();
            own.into_iter().for_each(|id| self.enter_error(id));
        }
        Some(())
    }

    fn number(&self, what: &str) -> Option<u64> {
        let c = &self.counters;
        let pending = || {
            self.qps
                .values()
                .flat_map(|q| (q.completed..q.posted).map(|number| &q.queue[q.at(number)]))
        };
        let number = match what {
            "live" => self.live(),
            "lists" => self.lists.len(),
            "contexts" => self.contexts.live(),
            "pds" => self.pds.live(),
            "mrs" => self.mrs.live(),
            "mws" => self.mws.live(),
            "channels" => self.channels.live(),
            "cqs" => self.cqs.live(),
            "qps" => self.qps.live(),
            "srqs" => self.srqs.live(),
            "posted" => pending().count(),
            "held" => pending().filter(|r| r.due == HELD || r.ack == HELD).count(),
            "unpolled" => self.cqs.values().map(|c| c.ring.len()).sum(),
            "staged" => self.qps.values().map(|q| q.staged.len()).sum(),
            "findings" => self.findings.len(),
            "registered" => return Some(c.registered),
            "doorbells" => return Some(c.doorbells),
            "signalled" => return Some(c.signalled),
            "unsignalled" => return Some(c.unsignalled),
            "inlined" => return Some(c.inlined),
            "completions" => return Some(c.completions),
            "failures" => return Some(c.failures),
            "flushed" => return Some(c.flushed),
            "overruns" => return Some(c.overruns),
            "refused" => return Some(c.refused),
            "notifications" => return Some(c.notifications),
            "queue_pairs" => return Some(c.queue_pairs),
            "ticks" => return Some(self.tick),
            _ => {
                return what
                    .strip_prefix("bytes_")
                    .and_then(|d| c.bytes.get(d.parse::<usize>().ok()?).copied());
            }
        };
        Some(number as u64)
    }
}
