//! Completion of requests: bytes move, flushes complete, endpoints fail and close.

use core::ffi::c_uint;

use crate::faults::Order;
use crate::handle::Handle;
use crate::request::{Ended, HELD, What};
use crate::state::{EpErrorCall, FakeUcp, Memory, PendingPut};
use crate::sys::{self, ucs_status_t};

/// The callbacks of one call of progress.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) errors: Vec<EpErrorCall>,
    pub(crate) ended: Vec<Ended>,
    pub(crate) count: c_uint,
}

impl FakeUcp {
    /// Returns `true` if the memory is registered and contains these bytes.
    fn holds(&self, memory: Handle, start: *const u8, len: usize) -> bool {
        self.memories.get(memory).is_some_and(|Memory { start: from, len: capacity, .. }| {
            let at = start.addr().wrapping_sub(from.addr());
            at <= *capacity && len <= capacity - at
        })
    }

    /// Writes bytes to the target's memory, if it is still registered.
    ///
    /// # Safety
    /// `from` may be read for `len` bytes. Registered memory is valid; its owner vouches for it.
    unsafe fn write_target(&mut self, from: *const u8, to: *mut u8, len: usize, target: Handle) {
        if !self.holds(target, to, len) {
            self.counters.late += 1;
            return;
        }
        // SAFETY: the caller vouched for the source, the registration for the target; they may overlap.
        unsafe { core::ptr::copy(from, to, len) };
    }

    /// Reads bytes of the target's memory.
    ///
    /// # Safety
    /// `to` may be written for `len` bytes; as for `write_target`.
    pub(crate) unsafe fn read_target(
        &mut self,
        from: *const u8,
        to: *mut u8,
        len: usize,
        target: Handle,
    ) {
        if !self.holds(target, from, len) {
            self.counters.late += 1;
            return;
        }
        // SAFETY: as in `write_target`.
        unsafe { core::ptr::copy(from, to, len) };
    }

    /// Reads the bytes of a put from their buffer and writes them to the target, or keeps them until a flush.
    ///
    /// # Safety
    /// As for `write_target`.
    pub(crate) unsafe fn complete_put(
        &mut self,
        endpoint: Handle,
        seq: u64,
        from: *const u8,
        there: *mut u8,
        len: usize,
        target: Handle,
    ) {
        if !self.script.knobs.staged {
            // SAFETY: the caller vouched for it.
            return unsafe { self.write_target(from, there, len, target) };
        }
        let mut bytes = self.buffer();
        // SAFETY: the caller vouched for the source.
        bytes.extend_from_slice(unsafe { core::slice::from_raw_parts(from, len) });
        let landing = self.script.knobs.landing;
        let Some(e) = self.endpoints.get_mut(endpoint) else { return };
        let due = self.workers.get(e.worker).map_or(0, |w| w.tick.saturating_add(landing));
        e.pending_puts.push_back(PendingPut { seq, due, there, target, bytes });
    }

    /// Writes bytes to the target that reached their time limit without a flush.
    fn deliver_due(&mut self, worker: Handle, tick: u64) {
        for index in 0..self.endpoints.len() {
            let Some(name) = self.endpoints.name(index) else { continue };
            let e = self.endpoints.get(name).filter(|e| e.worker == worker);
            let late =
                e.and_then(|e| e.pending_puts.iter().rfind(|s| s.due <= tick)).map(|s| s.seq);
            if let Some(seq) = late {
                self.deliver(name, seq.saturating_add(1));
            }
        }
    }

    /// Writes the bytes of completed puts before `seq` to the target.
    pub(crate) fn deliver(&mut self, endpoint: Handle, seq: u64) {
        let mut at = 0;
        while let Some(e) = self.endpoints.get_mut(endpoint) {
            match e.pending_puts.get(at) {
                None => return,
                Some(staged) if staged.seq >= seq => at += 1,
                Some(_) => {
                    let Some(staged) = e.pending_puts.remove(at) else { return };
                    let (from, len) = (staged.bytes.as_ptr(), staged.bytes.len());
                    // SAFETY: the bytes are our own.
                    unsafe { self.write_target(from, staged.there, len, staged.target) };
                    self.pool.push(staged.bytes);
                }
            }
        }
    }

    /// Returns `true` if a request must wait for an earlier one.
    fn waits(&self, name: Handle, pending: &[Handle]) -> bool {
        let Some(own) = self.requests.get(name) else { return false };
        if own.cancelled {
            return false;
        }
        if own.what == What::Flush
            && self.endpoints.get(own.endpoint).is_none_or(|e| e.in_flight == 0)
        {
            return false;
        }
        pending.iter().filter(|n| **n != name).filter_map(|n| self.requests.get(*n)).any(|other| {
            if other.ended.is_some()
                || (other.endpoint != own.endpoint && own.what != What::WorkerFlush)
            {
                return false;
            }
            let earlier = other.seq < own.seq;
            match own.what {
                What::Put | What::Get => false,
                // Messages of an endpoint arrive in order.
                What::Message => earlier && other.what == What::Message,
                What::Flush | What::WorkerFlush => earlier && other.what.is_data(),
                What::Close => true,
            }
        })
    }

    /// Returns `true` if progress would advance a request, now or later.
    pub(crate) fn can_move(&self, worker: Handle) -> bool {
        let Some(w) = self.workers.get(worker) else { return false };
        let held = |n: &Handle| self.requests.get(*n).is_some_and(|r| r.due == HELD);
        let blocked = |n: &Handle| {
            w.pending.iter().filter(|o| *o != n && held(o)).any(|o| self.waits(*n, &[*o]))
        };
        let lands = self.endpoints.names().any(|n| {
            self.endpoints.get(n).is_some_and(|e| e.worker == worker && !e.pending_puts.is_empty())
        });
        lands || w.pending.iter().any(|n| !held(n) && !blocked(n))
    }

    /// One call of progress.
    pub(crate) fn advance(&mut self, worker: Handle) -> Outcome {
        let Some(w) = self.workers.get_mut(worker) else { return Outcome::default() };
        w.tick += 1;
        let tick = w.tick;
        self.deliver_due(worker, tick);
        let Some(w) = self.workers.get_mut(worker) else { return Outcome::default() };
        if w.pending.is_empty() && w.errors.is_empty() {
            return Outcome::default();
        }
        let mut ended = core::mem::take(&mut w.ended);
        let errors = core::mem::take(&mut w.errors);
        self.pass(worker, tick, What::is_data, &mut ended);
        self.pass(worker, tick, What::is_flush, &mut ended);
        self.arrange(&mut ended);
        // The close of an endpoint is reported after the completions of its requests.
        self.pass(worker, tick, |what| what == What::Close, &mut ended);
        let count = c_uint::try_from(ended.len() + errors.len()).unwrap_or(c_uint::MAX);
        Outcome { errors, ended, count }
    }

    fn pass(&mut self, worker: Handle, tick: u64, of: fn(What) -> bool, ended: &mut Vec<Ended>) {
        let Some(w) = self.workers.get_mut(worker) else { return };
        let mut pending = core::mem::take(&mut w.pending);
        let mut kept = 0;
        for at in 0..pending.len() {
            let name = pending[at];
            let due = self.requests.get(name).is_some_and(|r| of(r.what) && r.due <= tick);
            if due && !self.waits(name, &pending) {
                ended.extend(self.end(name));
            } else {
                pending[kept] = name;
                kept += 1;
            }
        }
        pending.truncate(kept);
        if let Some(w) = self.workers.get_mut(worker) {
            w.pending = pending;
        }
    }

    fn arrange(&mut self, ended: &mut [Ended]) {
        match self.script.knobs.order {
            Order::Posted => {}
            Order::Reversed => ended.reverse(),
            Order::Shuffled => {
                for at in (1..ended.len()).rev() {
                    let limit = u64::try_from(at + 1).unwrap_or(1);
                    let other = usize::try_from(self.script.below(limit)).unwrap_or(0);
                    ended.swap(at, other);
                }
            }
        }
    }

    /// Completes a request: its memory access happens now. Returns its callback, unless its owner has freed it.
    pub(crate) fn end(&mut self, name: Handle) -> Option<Ended> {
        let r = self.requests.get_mut(name)?;
        let (what, result, endpoint, seq) = (r.what, r.result, r.endpoint, r.seq);
        let (here, there, len, target) = (r.here, r.there, r.len, r.target);
        let (memory, key, message) = (r.memory, r.key, r.message.take());
        let mut told =
            Ended { request: name, callback: r.callback, user_data: r.user_data, status: result };
        self.counters.ended += 1;
        if what.is_data() {
            if let Some(m) = self.memories.get_mut(memory) {
                m.users -= 1;
            }
            if let Some(k) = self.keys.get_mut(key) {
                k.users -= 1;
            }
            if let Some(e) = self.endpoints.get_mut(endpoint) {
                e.in_flight -= 1;
            }
        }
        // A failed request moves half of its bytes: the target has old, new or mixed bytes.
        let moved = if result == sys::UCS_OK { len } else { len / 2 };
        match what {
            What::Put | What::Get if target == Handle::NONE => {}
            What::Put if result == sys::UCS_OK => {
                // SAFETY: the caller keeps its buffer until this request has completed.
                unsafe { self.complete_put(endpoint, seq, here, there, len, target) };
            }
            What::Put => {
                // SAFETY: as above.
                unsafe { self.write_target(here, there, moved, target) };
            }
            What::Get => {
                // SAFETY: as above.
                unsafe { self.read_target(there, here, moved, target) };
            }
            What::Message => {
                if let Some(message) = message.filter(|_| result == sys::UCS_OK) {
                    told.status = self.drop_into_inbox(endpoint, message);
                }
            }
            What::Flush => {
                if let Some(e) = self.endpoints.get_mut(endpoint) {
                    e.flushes -= 1;
                }
                if result == sys::UCS_OK {
                    self.deliver(endpoint, seq);
                }
            }
            What::WorkerFlush => self.deliver_all(name, seq),
            What::Close => {
                self.endpoints.remove(endpoint);
            }
        }
        let r = self.requests.get_mut(name)?;
        r.ended = Some(told.status);
        if r.released {
            self.requests.remove(name);
            return None;
        }
        Some(told)
    }

    fn deliver_all(&mut self, flush: Handle, seq: u64) {
        let Some(worker) = self.requests.get(flush).map(|r| r.worker) else { return };
        for endpoint in self.endpoints_of(worker) {
            self.deliver(endpoint, seq);
        }
    }

    /// Cancels the requests in flight on an endpoint: they complete with `status` after `delay` calls of progress.
    pub(crate) fn cancel_all(&mut self, endpoint: Handle, status: ucs_status_t, delay: u64) {
        let Some(worker) = self.endpoints.get(endpoint).map(|e| e.worker) else { return };
        let Some(w) = self.workers.get(worker) else { return };
        let due = w.tick + delay;
        for name in &w.pending {
            if let Some(r) = self.requests.get_mut(*name).filter(|r| r.endpoint == endpoint) {
                (r.due, r.result, r.cancelled) = (due, status, true);
            }
        }
        if let Some(e) = self.endpoints.get_mut(endpoint) {
            e.pending_puts.clear();
        }
    }

    /// Fails an endpoint: its error handler will be called, and no request can be posted any more.
    pub(crate) fn fail(&mut self, endpoint: Handle, status: ucs_status_t) {
        let Some(e) = self.endpoints.get_mut(endpoint) else { return };
        e.failed = Some(status);
        let (worker, handler) = (e.worker, e.handler);
        if let (Some(handler), Some(w)) = (handler, self.workers.get_mut(worker)) {
            w.errors.push(EpErrorCall { handler, endpoint, status });
        }
        self.signal_worker(worker);
    }
}
