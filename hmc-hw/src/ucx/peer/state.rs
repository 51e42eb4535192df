//! State of one peer: requests, the flushes that make puts visible, keys to the peer's windows.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hmc_core::region::WindowId;
use hmc_core::work::{Failure, Opcode};

use super::am_initiator::AmInitiator;
use super::memory_table::MemoryTable;
use super::requests::RequestTable;
use crate::ucx::am::{AmTarget, Reach};
use crate::ucx::cq::{CompletionQueue, on_complete};
use crate::ucx::endpoint::{Endpoint, Key, params, params_with_callback};
use crate::ucx::records::{CLOSE, FIRST_FLUSH, FIRST_SEND, WIREUP};
use crate::ucx::result::{NbxResult, Status, StatusKind};
use crate::ucx::sys;
use crate::ucx::ucp_worker::LockedWorker;

#[derive(Debug)]
pub(in crate::ucx) struct PeerState {
    pub(in crate::ucx) queue: Arc<CompletionQueue>,
    /// Receives the peer's messages.
    pub(in crate::ucx) target: Arc<AmTarget>,
    /// Set if operations use the AM path, except those on mapped windows.
    pub(in crate::ucx) am: Option<AmInitiator>,
    pub(in crate::ucx) reach: Reach,
    pub(in crate::ucx) endpoint: Option<Endpoint>,
    /// The key to the peer's wireup page.
    pub(in crate::ucx) wireup_key: Option<Key>,
    /// The wireup put is in flight.
    pub(in crate::ucx) wireup_in_flight: bool,
    pub(in crate::ucx) names_memory: bool,
    pub(in crate::ucx) memory: MemoryTable,
    pub(in crate::ucx) requests: RequestTable,
    pub(in crate::ucx) sends_tags: bool,
    /// The first flush was begun.
    pub(in crate::ucx) first_flush_begun: bool,
    /// A flush has completed: the path is open in both directions.
    pub(in crate::ucx) is_wired_up: bool,
    /// The peer is gone.
    pub(in crate::ucx) down: bool,
    /// A request was submitted since the worker was armed: a thread that sleeps on the worker has to arm it again.
    pub(in crate::ucx) posted_since_arm: bool,
}

impl PeerState {
    /// Returns `true` if puts need a flush and one can be begun now.
    pub(in crate::ucx) fn can_flush(&self) -> bool {
        self.requests.needs_flush() && self.requests.may_flush()
    }

    /// Returns `true` if a flush or the wireup put is in flight.
    #[inline]
    pub(in crate::ucx) fn is_flushing(&self) -> bool {
        self.wireup_in_flight || self.requests.is_flushing()
    }

    /// Returns `true` if progress may complete something or completions wait. On the AM path it always may.
    #[inline]
    pub(in crate::ucx) fn needs_progress(&self) -> bool {
        let settled = self.is_wired_up && !self.down && self.reach != Reach::Messages;
        !settled || self.has_requests() || self.queue.has_completions()
    }

    /// Returns `true` if a request names that window.
    pub(in crate::ucx) fn uses_window(&self, window: WindowId) -> bool {
        self.requests.iter().any(|f| f.work.remote.window == window)
    }

    /// Returns `true` if UCX has requests of this peer.
    #[inline]
    pub(in crate::ucx) fn has_requests(&self) -> bool {
        self.requests.len() != 0 || self.is_flushing()
    }

    /// Returns `true` if nothing is in flight, and the endpoint is either open or closed permanently.
    pub(in crate::ucx) fn is_idle(&self) -> bool {
        let closed = || self.endpoint.is_none() && self.queue.closed.load(Ordering::Acquire);
        let sends = || self.am.as_ref().is_some_and(|t| !t.is_idle());
        let all_back = self.requests.len() == 0 && !self.is_flushing();
        all_back && (!self.down || closed()) && !sends() && self.target.is_idle()
    }

    /// Returns `true` if UCX or a reply of the peer may still access memory of an operation. Messages are copies. Where
    /// lanes reach memory by themselves, requests that a forced close has completed prove nothing about the lane before
    /// the close itself completes.
    pub(in crate::ucx) fn uses_memory(&self) -> bool {
        let closes = self.down
            && self.reach == Reach::Memory
            && !(self.endpoint.is_none() && self.queue.closed.load(Ordering::Acquire));
        self.has_requests() || closes
    }

    /// Submits queued requests to UCX.
    #[inline]
    pub(in crate::ucx) fn submit_queued(&mut self, guard: &LockedWorker<'_>) {
        if !self.requests.has_queued() {
            return;
        }
        let Some(to) = self.endpoint.as_ref().map(Endpoint::handle) else {
            return self.fail_queued();
        };
        if self.am.is_some() {
            return self.start_queued(guard);
        }
        self.posted_since_arm = true;
        let api = guard.api();
        let mut param = params();
        param.op_attr_mask = sys::UCP_OP_ATTR_FIELD_CALLBACK
            | sys::UCP_OP_ATTR_FIELD_USER_DATA
            | sys::UCP_OP_ATTR_FIELD_MEMORY_TYPE;
        if self.names_memory {
            param.op_attr_mask |= sys::UCP_OP_ATTR_FIELD_MEMH;
        }
        param.cb = sys::ucp_request_param_cb { send: Some(on_complete) };
        while let Some((record, request)) = self.requests.next_queued() {
            let work = &request.work;
            let args = match self.memory.request_args(work) {
                Ok(args) => args,
                Err(why) => {
                    self.fail(record, why);
                    continue;
                }
            };
            param.user_data = self.queue.request_arg(u32::from(record));
            (param.memory_type, param.memh) = (args.memory_type, args.memory);
            let (here, there) = (args.here.cast(), args.there);
            let result = if work.opcode == Opcode::Get {
                // SAFETY: the range was proven against registered memory, which `memory` owns until nothing is in
                // flight; the caller of the operation keeps others away from it. The progress lock is held.
                unsafe { (api.ucp_get_nbx)(to, here, args.len, there, args.key, &param) }
            } else {
                // SAFETY: as above; the bytes are only read.
                unsafe { (api.ucp_put_nbx)(to, here, args.len, there, args.key, &param) }
            };
            request.needs_flush = match work.opcode {
                Opcode::Get => false,
                // Whoever completes locally waits for the flush, too: a window of the peer counts as unused, and its release is
                // confirmed, when no put into it is on its way.
                Opcode::Put | Opcode::PutNotify { .. } => true,
            };
            request.request_done = match NbxResult::of(result) {
                Ok(NbxResult::Done) => true,
                Ok(NbxResult::Request(_)) => false,
                Err(status) => {
                    self.fail(record, failure_of(status));
                    continue;
                }
            };
            if request.needs_flush {
                self.requests.queue_for_flush(record);
            } else if request.request_done {
                self.finish_if_done(record);
            }
        }
    }

    /// Fails queued requests: the peer is gone.
    #[cold]
    pub(in crate::ucx) fn fail_queued(&mut self) {
        while let Some((record, _)) = self.requests.next_queued() {
            self.fail(record, Failure::PeerDead);
        }
    }

    /// Fails a request that was not submitted, or that UCX did not accept.
    #[cold]
    pub(in crate::ucx) fn fail(&mut self, record: u16, why: Failure) {
        if let Some(request) = self.requests.get(record) {
            (request.request_done, request.needs_flush, request.result) = (true, false, Err(why));
        }
        self.finish_if_done(record);
    }

    /// Begins a flush for all puts that need one, if one may be begun. The first one is begun without any put: it
    /// completes when the path is open in both directions.
    #[inline]
    pub(in crate::ucx) fn flush(&mut self, guard: &LockedWorker<'_>) {
        let nothing = self.first_flush_begun && !self.requests.needs_flush();
        if nothing || self.reach == Reach::Messages || self.queue.failure().is_some() {
            return;
        }
        let Some(endpoint) = &self.endpoint else { return };
        let Some(number) = self.requests.begin_flush() else { return };
        let param =
            params_with_callback(&self.queue, u32::from(FIRST_FLUSH.saturating_add(number)));
        // SAFETY: the progress lock is held, the endpoint lives.
        let result = unsafe { (guard.api().ucp_ep_flush_nbx)(endpoint.handle(), &param) };
        (self.first_flush_begun, self.posted_since_arm) = (true, true);
        match NbxResult::of(result) {
            Ok(NbxResult::Request(_)) => {}
            Ok(NbxResult::Done) => self.flushed(number, Status::OK),
            Err(status) => self.flushed(number, status),
        }
    }

    /// Called when a flush has completed: its puts are visible, or failed.
    #[inline]
    pub(in crate::ucx) fn flushed(&mut self, number: u16, status: Status) {
        if status != Status::OK && !self.down {
            // No event tells when bytes of its puts stop arriving: the endpoint has failed, and the puts finish when it
            // is closed.
            self.queue.fail(status);
            return self.requests.fail_flush(number);
        }
        if status == Status::OK {
            self.is_wired_up = true;
            return self.requests.complete_flush(number);
        }
        let mut list = self.requests.end_flush(number);
        while let Some(record) = self.requests.pop(&mut list) {
            self.release(record, failure_of(status));
        }
    }

    /// Fails a put that waits for a flush: none will complete.
    pub(in crate::ucx) fn release(&mut self, record: u16, why: Failure) {
        if let Some(request) = self.requests.get(record) {
            request.needs_flush = false;
            request.fail(why);
        }
        self.finish_if_done(record);
    }

    /// Finishes a request that UCX has completed and that needs no flush.
    pub(in crate::ucx) fn finish_if_done(&mut self, record: u16) {
        let Some(request) = self.requests.get(record) else { return };
        if !request.request_done || request.needs_flush {
            return;
        }
        if self.down && request.result.is_err() {
            request.result = Err(Failure::PeerDead);
        }
        self.requests.finish(record);
    }

    /// Takes what the callbacks have written.
    #[inline]
    pub(in crate::ucx) fn drain_completions(&mut self, guard: &LockedWorker<'_>) {
        if !self.queue.has_completions() {
            return;
        }
        if self.queue.replies_ready.swap(false, Ordering::AcqRel) {
            self.take_replies();
        }
        // No callback marks it between this and the taking, since the progress lock is held. Other threads have to be
        // notified of a failure, too.
        if self.queue.failure().is_none() {
            self.queue.unmark();
        }
        let mut completed = self.queue.take(guard.held());
        while let Some((record, status)) = self.queue.next(&mut completed) {
            self.on_complete(u16::try_from(record).unwrap_or(CLOSE), status);
        }
        self.progress_am(guard);
        self.close_endpoint(guard);
    }

    /// Called when UCX has completed the request of a record.
    #[inline]
    fn on_complete(&mut self, record: u16, status: Status) {
        if record < FIRST_FLUSH {
            if let Some(request) = self.requests.get(record) {
                request.request_done = true;
                if status != Status::OK {
                    request.fail(failure_of(status));
                }
            }
            self.finish_if_done(record);
        } else if record < CLOSE {
            self.flushed(record.saturating_sub(FIRST_FLUSH), status);
        } else if record == CLOSE {
            self.queue.closed.store(true, Ordering::Release);
        } else if record == WIREUP {
            self.wireup_in_flight = false;
            if status != Status::OK {
                self.queue.fail(status);
            }
        } else {
            self.message_completed(usize::from(record.saturating_sub(FIRST_SEND)), status);
        }
    }

    /// Ends flushes that UCX has not completed although the endpoint is closed: 1.13.1 loses a flush that waits in the
    /// queue of a killed peer. A flush names no memory; if it completes after all, its queue still exists.
    pub(in crate::ucx) fn end_lost_flushes(&mut self, guard: &LockedWorker<'_>) {
        let closed = self.endpoint.is_none() && self.queue.closed.load(Ordering::Acquire);
        if !closed || self.queue.has_completions() || !self.requests.is_flushing() {
            return;
        }
        guard.keep(Arc::clone(&self.queue));
        for number in 0..CLOSE.saturating_sub(FIRST_FLUSH) {
            let mut list = self.requests.end_flush(number);
            while let Some(record) = self.requests.pop(&mut list) {
                self.release(record, Failure::PeerDead);
            }
        }
    }

    pub(in crate::ucx) fn destroy_keys(&mut self, guard: &LockedWorker<'_>) {
        let keys = self.memory.remotes.drain(..).flatten().map(|remote| remote.key);
        for key in keys.chain(self.wireup_key.take()) {
            key.destroy(guard);
        }
    }
}

/// Requests of a failed endpoint may complete before UCX calls its error handler.
pub(in crate::ucx) fn failure_of(status: Status) -> Failure {
    match status.kind() {
        StatusKind::PeerLost => Failure::PeerDead,
        _ => Failure::Transport(i32::from(status.0)),
    }
}
