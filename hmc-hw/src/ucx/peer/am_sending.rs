//! Puts and gets over the AM path: sends fragments, and takes the replies of the peer.

use std::sync::Arc;

use hmc_core::wire::data::{DataFlags, DataFrame, DataKind};
use hmc_core::work::{Failure, Opcode, WorkRequest};

use super::am_initiator::AmOp;
use super::state::{PeerState, failure_of};
use crate::ucx::am::{AmPath, FRAGMENT, GetDest};
use crate::ucx::endpoint::params_with_callback;
use crate::ucx::records::FIRST_SEND;
use crate::ucx::result::{NbxResult, Status};
use crate::ucx::sys;
use crate::ucx::ucp_worker::LockedWorker;

/// Bytes of the longest put that shares its message with others.
const MAX_COALESCED: u64 = 1024;

/// The number of the wireup message. The highest bit of an operation's number is 0.
const WIREUP: u32 = u32::MAX;

impl PeerState {
    /// Sends the wireup message, whose answer shows that the path is open.
    pub(in crate::ucx) fn send_am_wireup(&mut self, guard: &LockedWorker<'_>) {
        let Some(endpoint) = &self.endpoint else { return };
        let Some(am) = &mut self.am else { return };
        let path = AmPath { endpoint: endpoint.handle(), target: am.target };
        self.target.set_reply_path(path);
        let Some(message) = am.messages.first_mut() else { return };
        message.clear();
        let param = params_with_callback(&self.queue, u32::from(FIRST_SEND));
        let wireup = DataFrame::new(DataKind::Write, WIREUP);
        if let Err(status) = message.send(guard, path, &wireup, param) {
            self.queue.fail(status);
        }
    }

    /// Starts queued operations.
    #[cold]
    pub(in crate::ucx) fn start_queued(&mut self, guard: &LockedWorker<'_>) {
        while let Some((record, request)) = self.requests.next_queued() {
            let work = request.work;
            match self.memory.request_args(&work) {
                // CPUs write and read the payload of messages.
                Ok(args) if args.memory_type != sys::UCS_MEMORY_TYPE_HOST => {
                    self.fail(record, Failure::Unsupported);
                }
                Ok(args) if args.len == 0 => {
                    request.request_done = true;
                    self.finish_if_done(record);
                }
                Ok(_) => self.start_op(guard, record, &work),
                Err(why) => self.fail(record, why),
            }
        }
    }

    fn start_op(&mut self, guard: &LockedWorker<'_>, record: u16, work: &WorkRequest) {
        let memory = self.memory.local(work.local.key).map(|l| Arc::clone(&l.memory));
        let (Some(am), Some(memory)) = (&mut self.am, memory) else { return };
        let Some(op) = am.op(record) else { return };
        let uses = (op.seq >> 8).wrapping_add(1) & 0x7F_FFFF;
        *op = AmOp { seq: uses << 8 | u32::from(record), ..AmOp::default() };
        let (seq, total) = (op.seq, work.local.span.len());
        am.queue.push_back(record);
        if work.opcode == Opcode::Get {
            self.target.expect_get(GetDest { seq, memory, span: work.local.span, received: 0 });
        }
        // Small operations that are posted while others are in flight wait, so that several share a message: until the
        // next poll or the next reply.
        if self.requests.len() <= 1 || total > MAX_COALESCED {
            self.progress_am(guard);
        }
    }

    /// Sends fragments while messages are free.
    #[inline]
    pub(in crate::ucx) fn progress_am(&mut self, guard: &LockedWorker<'_>) {
        if self.am.is_some() {
            self.send_fragments(guard);
        }
    }

    fn send_fragments(&mut self, guard: &LockedWorker<'_>) {
        while let Some((record, sent)) = self.send_fragment(guard) {
            if let Err(status) = sent {
                // The peer does not reply to bytes that it did not receive.
                self.fail_am_op(record, failure_of(status));
            }
        }
    }

    /// Sends the next fragment, if any and if a message is free.
    fn send_fragment(
        &mut self,
        guard: &LockedWorker<'_>,
    ) -> Option<(u16, Result<NbxResult, Status>)> {
        let (record, work) = self.next_to_send()?;
        let memory = Arc::clone(&self.memory.local(work.local.key)?.memory);
        let endpoint = self.endpoint.as_ref()?.handle();
        let am = self.am.as_mut()?;
        let at = am.messages.iter().position(|p| !p.is_busy())?;
        let message = am.messages.get_mut(at)?;
        let op = am.ops.get_mut(usize::from(record))?;
        let (put, total, from) = (work.opcode != Opcode::Get, work.local.span.len(), op.sent);
        let kind = if put { DataKind::Write } else { DataKind::Read };
        let mut frame = DataFrame::new(kind, op.seq);
        (frame.window, frame.epoch) = (work.remote.window, work.remote.epoch);
        (frame.offset, frame.total) = (work.remote.span.split_at_most(from).1.offset(), total);
        let mut loaded = true;
        op.sent = total;
        if put {
            let (fragment, rest) = work.local.span.split_at_most(from).1.split_at_most(FRAGMENT);
            op.sent = total.saturating_sub(rest.len());
            // At most one fragment.
            frame.len = u32::try_from(fragment.len()).unwrap_or(0);
            let bytes = memory.view(fragment);
            loaded = bytes.is_some_and(|b| message.load(&b, b.extent().whole()).is_some());
        } else {
            message.clear();
        }
        if op.sent >= total {
            am.queue.pop_front();
            if put {
                frame.flags = DataFlags::LAST;
            }
        }
        if !loaded {
            return Some((record, Err(Status::INVALID_PARAM)));
        }
        if put && total <= MAX_COALESCED {
            self.coalesce(at);
        }
        let number = FIRST_SEND.saturating_add(u16::try_from(at).unwrap_or(0));
        self.posted_since_arm = true;
        let am = self.am.as_mut()?;
        let (path, param) = (
            AmPath { endpoint, target: am.target },
            params_with_callback(&self.queue, u32::from(number)),
        );
        Some((record, am.messages.get_mut(at)?.send(guard, path, &frame, param)))
    }

    /// Appends small puts that wait to the one that the message has.
    fn coalesce(&mut self, at: usize) {
        while let Some((record, work)) = self.next_to_send() {
            let len = work.local.span.len();
            let memory = self.memory.local(work.local.key).map(|l| Arc::clone(&l.memory));
            let (Some(am), Some(memory)) = (&mut self.am, memory) else { return };
            let Some(message) = am.messages.get_mut(at) else { return };
            let Some(op) = am.ops.get_mut(usize::from(record)) else { return };
            if work.opcode == Opcode::Get || len > MAX_COALESCED || !message.can_append(len) {
                return;
            }
            let mut frame = DataFrame::new(DataKind::Write, op.seq);
            (frame.window, frame.epoch) = (work.remote.window, work.remote.epoch);
            (frame.offset, frame.total) = (work.remote.span.offset(), len);
            (frame.len, frame.flags) = (u32::try_from(len).unwrap_or(0), DataFlags::LAST);
            let Some(bytes) = memory.view(work.local.span) else { return };
            if message.add_with(&frame, &bytes).is_none() {
                return;
            }
            op.sent = len;
            am.queue.pop_front();
        }
    }

    /// Returns the first operation with fragments to send. Skips operations that have failed meanwhile.
    fn next_to_send(&mut self) -> Option<(u16, WorkRequest)> {
        let am = self.am.as_mut()?;
        while let Some(record) = am.queue.front().copied() {
            if let Some(request) = self.requests.get(record).filter(|f| f.result.is_ok()) {
                return Some((record, request.work));
            }
            am.queue.pop_front();
        }
        None
    }

    /// Called when UCX has completed a message.
    pub(in crate::ucx) fn message_completed(&mut self, at: usize, status: Status) {
        let message = self.am.as_mut().and_then(|t| t.messages.get_mut(at));
        if let Some(message) = message {
            message.completed();
        }
        if status != Status::OK {
            // If one message is lost, all after it are, and no reply will come.
            self.queue.fail(status);
        }
    }

    /// Fails an operation without the peer's reply.
    fn fail_am_op(&mut self, record: u16, why: Failure) {
        if let Some(request) = self.requests.get(record) {
            request.fail(why);
        }
        self.finish_am_op(record);
    }

    /// Completes an operation.
    fn finish_am_op(&mut self, record: u16) {
        let seq = self.am.as_mut().and_then(|t| t.op(record)).map(|op| op.seq);
        let Some(request) = self.requests.get(record) else { return };
        request.request_done = true;
        if let Some(seq) = seq
            && request.result.is_err()
            && request.work.opcode == Opcode::Get
        {
            self.target.forget_get(seq);
        }
        self.finish_if_done(record);
    }

    /// Takes the results that the peer has sent.
    pub(in crate::ucx) fn take_replies(&mut self) {
        while let Some((seq, result)) = self.target.take_result() {
            if seq == WIREUP {
                self.is_wired_up = true;
                continue;
            }
            let Some(am) = &mut self.am else { continue };
            let Some(record) = am.record_of(seq) else { continue };
            match result {
                Ok(()) => self.finish_am_op(record),
                Err(why) => self.fail_am_op(record, why),
            }
        }
    }

    /// Fails all operations: the peer is gone.
    pub(in crate::ucx) fn fail_am_ops(&mut self) {
        self.target.close_all();
        let Some(am) = &mut self.am else { return };
        am.queue.clear();
        for record in 0..FIRST_SEND {
            self.fail_am_op(record, Failure::PeerDead);
        }
    }
}
