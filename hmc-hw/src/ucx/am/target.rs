//! AM target: receives the messages of one peer. It has the peer's open windows, the bytes received per put, and queued
//! replies.
//!
//! UCX delivers messages in calls of progress, in the thread that holds the worker's progress lock; threads of the link
//! open and close windows. One lock serialises them, held for one fragment at most. After [`AmTarget::close`] has
//! returned, no message writes into that window, whatever the peer does.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock};

use hmc_core::range::{ByteRange, Extent, Side};
use hmc_core::region::{Epoch, WindowDesc, WindowId};
use hmc_core::types::{Access, MemoryKind};
use hmc_core::window::WindowFault;
use hmc_core::wire::data::{DATA_FRAME_BYTES, DataFrame, DataKind};
use hmc_core::work::Failure;

use super::path::AmPath;
use super::replies::{AmReplies, GetReply};
use super::violation::Violation;
use crate::ucx::cq::CompletionQueue;
use crate::ucx::lock::lock;
use crate::ucx::memory::Memory;
use crate::ucx::records::MAX_REQUESTS;
use crate::ucx::result::Status;
use crate::ucx::ucp_worker::LockedWorker;

/// Twice the number of requests that an honest peer has in flight.
const MAX_QUEUED: usize = 2 * MAX_REQUESTS;

/// A window that the peer may access.
#[derive(Debug)]
struct OpenWindow {
    region: WindowDesc,
    memory: Arc<Memory>,
    /// Its range within that memory.
    range: ByteRange,
}

/// Bytes of a put that have been received.
#[derive(Clone, Copy, Debug, Default)]
struct PutProgress {
    seq: u32,
    bytes: u64,
    failure: Option<Failure>,
}

/// Destination of a get of this end.
#[derive(Debug)]
pub(in crate::ucx) struct GetDest {
    pub(in crate::ucx) seq: u32,
    pub(in crate::ucx) memory: Arc<Memory>,
    pub(in crate::ucx) span: ByteRange,
    pub(in crate::ucx) received: u64,
}

#[derive(Debug)]
pub(super) struct Inner {
    windows: Vec<Option<OpenWindow>>,
    puts: Box<[PutProgress]>,
    gets: Box<[Option<GetDest>]>,
    /// Results of operations of this end.
    op_results: VecDeque<(u32, Result<(), Failure>)>,
    pub(super) replies: AmReplies,
    /// The peer uses the AM path alone: closing a window fences it.
    peer_uses_am: bool,
    /// A wireup message was received since the last look.
    wireup_seen: bool,
}

/// Receives the messages of one peer.
pub struct AmTarget {
    number: u64,
    pub(in crate::ucx) queue: Arc<CompletionQueue>,
    pub(super) replies: Arc<CompletionQueue>,
    pub(super) inner: Mutex<Inner>,
    /// The first violation of the peer.
    violation: OnceLock<Violation>,
}

impl fmt::Debug for AmTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AmTarget").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Inner {
    fn window(&self, id: WindowId, epoch: Epoch) -> Result<&OpenWindow, WindowFault> {
        let slot = self.windows.get(usize::from(id.index())).and_then(Option::as_ref);
        match slot.filter(|o| o.region.window == id) {
            None => Err(WindowFault::Unknown),
            Some(o) if o.region.epoch != epoch => Err(WindowFault::StaleEpoch),
            Some(o) => Ok(o),
        }
    }

    fn validate(
        &self,
        frame: &DataFrame,
        len: u64,
        wanted: Access,
    ) -> Result<(&OpenWindow, ByteRange), Failure> {
        let window = self.window(frame.window, frame.epoch).map_err(Failure::Window)?;
        if frame.generation().is_some() {
            // They are compared by the stream alone.
            return Err(Failure::Unsupported);
        }
        if !window.region.access.contains(wanted) {
            return Err(Failure::Window(WindowFault::Access));
        }
        match window.region.extent.span(Side::Remote, frame.offset, len) {
            Ok(span) => Ok((window, span)),
            Err(e) => Err(Failure::Window(WindowFault::OutOfWindow(e))),
        }
    }

    fn write(&self, frame: &DataFrame, data: &[u8]) -> Result<(), Failure> {
        let (window, span) = self.validate(frame, u64::from(frame.len), Access::WRITE)?;
        let bytes = window.memory.view(window.range).ok_or(Failure::Unsupported)?;
        bytes.write_at(span, data).map_err(|_| Failure::UnknownRegion)
    }

    /// Receives a fragment of a put.
    fn on_write(&mut self, frame: &DataFrame, data: &[u8]) -> Result<(), Violation> {
        if frame.total == 0 {
            // A thread that waits for the wireup re-checks.
            self.wireup_seen = true;
            self.peer_uses_am = true;
            return self.queue_ack(DataFrame::ack(frame.seq, 1));
        }
        let written = self.write(frame, data);
        // A byte is always a valid index.
        let Some(put) = self.puts.get_mut(record_index(frame.seq)) else { return Ok(()) };
        if put.seq != frame.seq {
            *put = PutProgress { seq: frame.seq, ..PutProgress::default() };
        }
        put.failure = put.failure.or(written.err());
        put.bytes = put.bytes.saturating_add(u64::from(frame.len));
        if put.bytes < frame.total {
            return Ok(());
        }
        let answer = match put.failure {
            None => DataFrame::ack(frame.seq, 1),
            Some(why) => DataFrame::nack(frame.seq, why),
        };
        // No operation has this number.
        *put = PutProgress { seq: u32::MAX, ..PutProgress::default() };
        self.queue_ack(answer)
    }

    /// Queues an acknowledgement or a refusal.
    fn queue_ack(&mut self, answer: DataFrame) -> Result<(), Violation> {
        let accepted = self.replies.queue_ack(answer);
        accepted.then_some(()).ok_or(Violation("more requests than can be answered"))
    }

    /// Receives a message with fragments of puts.
    fn on_writes(&mut self, first: &DataFrame, data: &[u8]) -> Result<(), Violation> {
        let (mut frame, mut rest) = (*first, data);
        loop {
            let len = usize::try_from(frame.len).unwrap_or(usize::MAX);
            let split = rest.split_at_checked(len);
            let (payload, more) = split.ok_or(Violation("a put without all of its bytes"))?;
            self.on_write(&frame, payload)?;
            if more.is_empty() {
                return Ok(());
            }
            let next = more.split_first_chunk::<DATA_FRAME_BYTES>();
            let (next, after) = next.ok_or(Violation("a part of a frame behind a put"))?;
            let next = DataFrame::parse(next).ok().filter(|f| f.kind == DataKind::Write);
            (frame, rest) = (next.ok_or(Violation("no put behind a put"))?, after);
        }
    }

    fn on_read(&mut self, frame: &DataFrame) -> Result<(), Violation> {
        match self.validate(frame, frame.total, Access::READ) {
            Err(why) => self.queue_ack(DataFrame::nack(frame.seq, why)),
            Ok((window, _)) if window.memory.kind() != MemoryKind::Cpu => {
                self.queue_ack(DataFrame::nack(frame.seq, Failure::Unsupported))
            }
            Ok((window, span)) => {
                let rest = window.range.split_at_most(span.offset()).1.split_at_most(span.len()).0;
                let reply = GetReply {
                    seq: frame.seq,
                    window: frame.window,
                    epoch: frame.epoch,
                    memory: Arc::clone(&window.memory),
                    rest,
                    total: frame.total,
                };
                let accepted = self.replies.queue_get(reply);
                accepted.then_some(()).ok_or(Violation("more gets than were agreed"))
            }
        }
    }

    /// Receives a fragment of a get of this end.
    fn on_read_data(&mut self, frame: &DataFrame, data: &[u8]) -> Result<(), Violation> {
        // Fragments of a get that was cancelled are dropped.
        let slot = self.gets.get_mut(record_index(frame.seq));
        let Some(slot) = slot.filter(|p| p.as_ref().is_some_and(|l| l.seq == frame.seq)) else {
            return Ok(());
        };
        let Some(get) = slot else { return Ok(()) };
        let (whole, len) = (get.span, u64::from(frame.len));
        let of_it = (frame.total == whole.len()).then(|| Extent::new(whole.len()));
        let span = of_it.and_then(|all| all.span(Side::Local, frame.offset, len).ok());
        let bytes = get.memory.view(whole);
        let written = span.zip(bytes).and_then(|(span, bytes)| bytes.write_at(span, data).ok());
        written.ok_or(Violation("an answer that does not fit its request"))?;
        get.received = get.received.saturating_add(len);
        if get.received >= whole.len() {
            *slot = None;
            self.op_results.push_back((frame.seq, Ok(())));
        }
        Ok(())
    }

    fn on_replies(&mut self, first: &DataFrame, more: &[u8]) -> Result<(), Violation> {
        let mut frame = Some(*first);
        let mut rest = more;
        while let Some(answer) = frame {
            let result = match answer.kind {
                DataKind::Ack => Ok(()),
                DataKind::Nack => Err(answer.why().unwrap_or(Failure::Unsupported)),
                _ => return Err(Violation("no answer behind an answer")),
            };
            if let Some(slot) = self.gets.get_mut(record_index(answer.seq))
                && slot.as_ref().is_some_and(|l| l.seq == answer.seq)
            {
                if result.is_ok() {
                    // The reply to a get is its bytes, or a refusal.
                    return Err(Violation("an acknowledgement of a get"));
                }
                *slot = None;
            }
            if self.op_results.len() >= MAX_QUEUED {
                return Err(Violation("more answers than there can be requests"));
            }
            self.op_results.push_back((answer.seq, result));
            frame = match rest.split_first_chunk::<DATA_FRAME_BYTES>() {
                Some((next, after)) => {
                    rest = after;
                    let malformed = Violation("a malformed frame behind an answer");
                    Some(DataFrame::parse(next).map_err(|_| malformed)?)
                }
                None => None,
            };
        }
        let whole = rest.is_empty();
        whole.then_some(()).ok_or(Violation("a part of a frame behind an answer"))
    }
}

/// Returns the index of an operation's record at its initiator.
pub(in crate::ucx) fn record_index(seq: u32) -> usize {
    usize::from(seq.to_le_bytes()[0])
}
const _: () = assert!(MAX_REQUESTS == 256, "a byte names a record");

impl AmTarget {
    /// Makes a target of that number. `queue` is the completion queue of its transport, `replies` that of the messages
    /// that it sends.
    pub(super) fn new(
        number: u64,
        queue: Arc<CompletionQueue>,
        replies: Arc<CompletionQueue>,
    ) -> Arc<Self> {
        let inner = Inner {
            windows: Vec::new(),
            puts: vec![PutProgress { seq: u32::MAX, ..PutProgress::default() }; MAX_REQUESTS]
                .into(),
            gets: std::iter::repeat_with(|| None).take(MAX_REQUESTS).collect(),
            // Capacity for all requests that may be in flight: a put allocates nothing.
            op_results: VecDeque::with_capacity(MAX_REQUESTS),
            replies: AmReplies::new(MAX_QUEUED),
            peer_uses_am: false,
            wireup_seen: false,
        };
        let (inner, violation) = (Mutex::new(inner), OnceLock::new());
        Arc::new(Self { number, queue, replies, inner, violation })
    }

    /// Its number, which the header of each message of the peer has.
    pub(in crate::ucx) fn number(&self) -> u64 {
        self.number
    }

    /// Opens a window, the range `range` of `memory`, for messages of the peer.
    pub fn open(&self, region: WindowDesc, memory: Arc<Memory>, range: ByteRange) {
        let mut inner = lock(&self.inner);
        let at = usize::from(region.window.index());
        if at >= inner.windows.len() {
            inner.windows.resize_with(at.saturating_add(1), || None);
        }
        if let Some(window) = inner.windows.get_mut(at) {
            *window = Some(OpenWindow { region, memory, range });
        }
    }

    /// Closes a window. After the call no message of the peer reads or writes it: closing is the fence.
    pub fn close(&self, id: WindowId) {
        let mut inner = lock(&self.inner);
        if let Some(slot) = inner.windows.get_mut(usize::from(id.index()))
            && slot.as_ref().is_some_and(|o| o.region.window == id)
        {
            *slot = None;
        }
        inner.replies.reject_gets(id);
        drop(inner);
        self.schedule_reply();
    }

    /// Returns `true` if the peer accesses memory of this process by messages only, so that closing a window is its
    /// fence.
    #[must_use]
    pub fn peer_uses_am(&self) -> bool {
        lock(&self.inner).peer_uses_am
    }

    /// Returns the rule that the peer has broken, if any. The endpoint has then failed.
    #[must_use]
    pub fn violation(&self) -> Option<Violation> {
        self.violation.get().copied()
    }

    /// Sets the path of replies.
    pub(in crate::ucx) fn set_reply_path(&self, path: AmPath) {
        lock(&self.inner).replies.reply_path = Some(path);
        self.schedule_reply();
    }

    /// Closes all windows, cancels gets and drops replies: the peer is gone.
    pub(in crate::ucx) fn close_all(&self) {
        let mut inner = lock(&self.inner);
        inner.replies.clear();
        inner.windows.clear();
        inner.gets.iter_mut().for_each(|slot| *slot = None);
    }

    /// Returns `true` if no reply is in flight.
    pub(in crate::ucx) fn is_idle(&self) -> bool {
        lock(&self.inner).replies.is_idle()
    }

    /// Registers the destination of a get of this end.
    pub(in crate::ucx) fn expect_get(&self, get: GetDest) {
        let mut inner = lock(&self.inner);
        if let Some(slot) = inner.gets.get_mut(record_index(get.seq)) {
            *slot = Some(get);
        }
    }

    /// Removes the destination of a get.
    pub(in crate::ucx) fn forget_get(&self, seq: u32) {
        if let Some(slot) = lock(&self.inner).gets.get_mut(record_index(seq)) {
            *slot = None;
        }
    }

    /// Takes the result of an operation of this end.
    pub(in crate::ucx) fn take_result(&self) -> Option<(u32, Result<(), Failure>)> {
        lock(&self.inner).op_results.pop_front()
    }

    /// Schedules [`AmTarget::send_replies`] for the next call of progress.
    pub(super) fn schedule_reply(&self) {
        self.replies.mark();
    }

    /// Receives a message.
    pub(super) fn on_message(&self, frame: &DataFrame, data: &[u8]) {
        let mut inner = lock(&self.inner);
        let fits = usize::try_from(frame.len) == Ok(data.len());
        let checked = match frame.kind {
            DataKind::Write => inner.on_writes(frame, data),
            DataKind::Read if !data.is_empty() => Err(Violation("bytes behind a request")),
            DataKind::Read if frame.total == 0 => Err(Violation("a request for nothing")),
            DataKind::Read => inner.on_read(frame),
            DataKind::ReadData if !fits => {
                Err(Violation("an answer of another length than its bytes"))
            }
            DataKind::ReadData => inner.on_read_data(frame, data),
            DataKind::Ack | DataKind::Nack => inner.on_replies(frame, data),
            DataKind::WriteRef | DataKind::ReadRef | DataKind::Region | DataKind::Gather => {
                Err(Violation("a frame that only streams have"))
            }
        };
        let has_results = !inner.op_results.is_empty() || std::mem::take(&mut inner.wireup_seen);
        let replies = inner.replies.has_queued();
        drop(inner);
        if let Err(violation) = checked {
            // A thread that sees the failure finds the reason.
            let _ = self.violation.set(violation);
            self.queue.fail(Status::INVALID_PARAM);
        }
        if has_results || checked.is_err() {
            self.queue.replies_ready.store(true, Ordering::Release);
            self.queue.mark();
        }
        if replies {
            self.schedule_reply();
        }
    }

    /// Sends queued replies. Returns `true` if it did anything.
    pub(super) fn send_replies(&self, guard: &LockedWorker<'_>) -> bool {
        let mut inner = lock(&self.inner);
        let mut freed = false;
        let mut completed = self.replies.take(guard.held());
        while let Some((number, _)) = self.replies.next(&mut completed) {
            inner.replies.completed(number);
            freed = true;
        }
        let sent = inner.replies.send(guard, &self.replies);
        drop(inner);
        match sent {
            Ok(any) => any || freed,
            Err(status) => {
                self.queue.fail(status);
                self.queue.mark();
                true
            }
        }
    }
}
