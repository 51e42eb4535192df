//! The target's side of one peer: its windows as they are here, what came for them, what is to be answered.
//!
//! Messages come in during calls of progress, in the thread that holds the worker's progress lock; windows are opened
//! and closed by the link's threads. One lock is between them, held for one fragment at the most. Once [`Door::close`] has
//! returned, no message writes into that window any more, whatever the peer does.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock};

use hmc_core::kinds::{Access, MemoryKind};
use hmc_core::region::{Epoch, RemoteRegion, WindowId};
use hmc_core::span::{Extent, Side, Span};
use hmc_core::window::WindowFault;
use hmc_core::wire::data::{DATA_FRAME_BYTES, DataFrame, DataKind};
use hmc_core::work::Failure;

use super::answers::{Answers, Reading};
use super::path::AmPath;
use super::violation::Violation;
use crate::ucx::cq::CompletionQueue;
use crate::ucx::lock::lock;
use crate::ucx::memory::Memory;
use crate::ucx::records::MAX_REQUESTS;
use crate::ucx::result::Status;
use crate::ucx::ucp_worker::LockedWorker;

/// More than an honest peer can have under way, twice.
const MOST: usize = 2 * MAX_REQUESTS;

/// One window as it is here.
#[derive(Debug)]
struct Opening {
    region: RemoteRegion,
    memory: Arc<Memory>,
    /// Where it lies within that memory.
    place: Span,
}

/// Bytes of a put that have come so far.
#[derive(Clone, Copy, Debug, Default)]
struct Arrival {
    seq: u32,
    bytes: u64,
    failure: Option<Failure>,
}

/// Where the bytes of a get of ours go.
#[derive(Debug)]
pub(in crate::ucx) struct Landing {
    pub(in crate::ucx) seq: u32,
    pub(in crate::ucx) memory: Arc<Memory>,
    pub(in crate::ucx) span: Span,
    pub(in crate::ucx) come: u64,
}

#[derive(Debug)]
pub(super) struct Inner {
    openings: Vec<Option<Opening>>,
    arrivals: Box<[Arrival]>,
    landings: Box<[Option<Landing>]>,
    /// How operations of ours ended.
    mail: VecDeque<(u32, Result<(), Failure>)>,
    pub(super) answers: Answers,
    /// The peer works by messages alone: closing a window keeps it out.
    peer_is_soft: bool,
    /// A wireup message was received since the last look.
    wireup_seen: bool,
}

/// Where one peer's messages come in.
pub struct Door {
    number: u64,
    pub(in crate::ucx) queue: Arc<CompletionQueue>,
    pub(super) replies: Arc<CompletionQueue>,
    pub(super) inner: Mutex<Inner>,
    /// The first one of the peer's.
    violation: OnceLock<Violation>,
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Door").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Inner {
    fn opening(&self, id: WindowId, epoch: Epoch) -> Result<&Opening, WindowFault> {
        let place = self.openings.get(usize::from(id.index())).and_then(Option::as_ref);
        match place.filter(|o| o.region.window == id) {
            None => Err(WindowFault::Unknown),
            Some(o) if o.region.epoch != epoch => Err(WindowFault::StaleEpoch),
            Some(o) => Ok(o),
        }
    }

    fn judge(
        &self,
        frame: &DataFrame,
        len: u64,
        wanted: Access,
    ) -> Result<(&Opening, Span), Failure> {
        let opening = self.opening(frame.window, frame.epoch).map_err(Failure::Window)?;
        if !opening.region.access.contains(wanted) {
            return Err(Failure::Window(WindowFault::Access));
        }
        match opening.region.extent.span(Side::Remote, frame.offset, len) {
            Ok(span) => Ok((opening, span)),
            Err(e) => Err(Failure::Window(WindowFault::OutOfWindow(e))),
        }
    }

    fn write(&self, frame: &DataFrame, data: &[u8]) -> Result<(), Failure> {
        let (opening, span) = self.judge(frame, u64::from(frame.len), Access::WRITE)?;
        let bytes = opening.memory.view(opening.place).ok_or(Failure::Unsupported)?;
        bytes.write_at(span, data).map_err(|_| Failure::UnknownRegion)
    }

    /// A fragment of a put.
    fn take_write(&mut self, frame: &DataFrame, data: &[u8]) -> Result<(), Violation> {
        if frame.total == 0 {
            // Whoever waits for the way to be open looks again.
            self.wireup_seen = true;
            self.peer_is_soft = true;
            return self.say(DataFrame::ack(frame.seq, 1));
        }
        let written = self.write(frame, data);
        // A byte names a place, so that there is one.
        let Some(arrival) = self.arrivals.get_mut(place_of(frame.seq)) else { return Ok(()) };
        if arrival.seq != frame.seq {
            *arrival = Arrival { seq: frame.seq, ..Arrival::default() };
        }
        arrival.failure = arrival.failure.or(written.err());
        arrival.bytes = arrival.bytes.saturating_add(u64::from(frame.len));
        if arrival.bytes < frame.total {
            return Ok(());
        }
        let answer = match arrival.failure {
            None => DataFrame::ack(frame.seq, 1),
            Some(why) => DataFrame::nack(frame.seq, why),
        };
        // No operation has this number.
        *arrival = Arrival { seq: u32::MAX, ..Arrival::default() };
        self.say(answer)
    }

    /// Queues an acknowledgement or a refusal.
    fn say(&mut self, answer: DataFrame) -> Result<(), Violation> {
        let room = self.answers.say(answer);
        room.then_some(()).ok_or(Violation("more requests than can be answered"))
    }

    /// Fragments of puts, one behind the other.
    fn take_writes(&mut self, first: &DataFrame, data: &[u8]) -> Result<(), Violation> {
        let (mut frame, mut rest) = (*first, data);
        loop {
            let len = usize::try_from(frame.len).unwrap_or(usize::MAX);
            let split = rest.split_at_checked(len);
            let (payload, more) = split.ok_or(Violation("a put without all of its bytes"))?;
            self.take_write(&frame, payload)?;
            if more.is_empty() {
                return Ok(());
            }
            let next = more.split_first_chunk::<DATA_FRAME_BYTES>();
            let (next, after) = next.ok_or(Violation("a part of a frame behind a put"))?;
            let next = DataFrame::parse(next).ok().filter(|f| f.kind == DataKind::Write);
            (frame, rest) = (next.ok_or(Violation("no put behind a put"))?, after);
        }
    }

    fn take_read(&mut self, frame: &DataFrame) -> Result<(), Violation> {
        match self.judge(frame, frame.total, Access::READ) {
            Err(why) => self.say(DataFrame::nack(frame.seq, why)),
            Ok((opening, _)) if opening.memory.kind() != MemoryKind::Cpu => {
                self.say(DataFrame::nack(frame.seq, Failure::Unsupported))
            }
            Ok((opening, span)) => {
                let rest = opening.place.take(span.offset()).1.take(span.len()).0;
                let reading = Reading {
                    seq: frame.seq,
                    window: frame.window,
                    epoch: frame.epoch,
                    memory: Arc::clone(&opening.memory),
                    rest,
                    total: frame.total,
                };
                let room = self.answers.read(reading);
                room.then_some(()).ok_or(Violation("more gets than were agreed"))
            }
        }
    }

    /// A fragment of a get of ours.
    fn take_data(&mut self, frame: &DataFrame, data: &[u8]) -> Result<(), Violation> {
        // What comes after its operation was given up has no place to go.
        let place = self.landings.get_mut(place_of(frame.seq));
        let Some(place) = place.filter(|p| p.as_ref().is_some_and(|l| l.seq == frame.seq)) else {
            return Ok(());
        };
        let Some(landing) = place else { return Ok(()) };
        let (whole, len) = (landing.span, u64::from(frame.len));
        let of_it = (frame.total == whole.len()).then(|| Extent::new(whole.len()));
        let span = of_it.and_then(|all| all.span(Side::Local, frame.offset, len).ok());
        let bytes = landing.memory.view(whole);
        let written = span.zip(bytes).and_then(|(span, bytes)| bytes.write_at(span, data).ok());
        written.ok_or(Violation("an answer that does not fit its request"))?;
        landing.come = landing.come.saturating_add(len);
        if landing.come >= whole.len() {
            *place = None;
            self.mail.push_back((frame.seq, Ok(())));
        }
        Ok(())
    }

    fn take_answers(&mut self, first: &DataFrame, more: &[u8]) -> Result<(), Violation> {
        let mut frame = Some(*first);
        let mut rest = more;
        while let Some(answer) = frame {
            let result = match answer.kind {
                DataKind::Ack => Ok(()),
                DataKind::Nack => Err(answer.why().map_or(Failure::Unsupported, |w| w.failure())),
                _ => return Err(Violation("no answer behind an answer")),
            };
            if let Some(place) = self.landings.get_mut(place_of(answer.seq))
                && place.as_ref().is_some_and(|l| l.seq == answer.seq)
            {
                if result.is_ok() {
                    // A get is answered by its bytes, or refused.
                    return Err(Violation("an acknowledgement of a get"));
                }
                *place = None;
            }
            if self.mail.len() >= MOST {
                return Err(Violation("more answers than there can be requests"));
            }
            self.mail.push_back((answer.seq, result));
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

/// The place of an operation among those of its initiator.
pub(in crate::ucx) fn place_of(seq: u32) -> usize {
    usize::from(seq.to_le_bytes()[0])
}
const _: () = assert!(MAX_REQUESTS == 256, "a byte names a record");

impl Door {
    /// A door of that number. `queue` is that of the transport behind it, `replies` that of the messages that it sends.
    pub(super) fn new(
        number: u64,
        queue: Arc<CompletionQueue>,
        replies: Arc<CompletionQueue>,
    ) -> Arc<Self> {
        let inner = Inner {
            openings: Vec::new(),
            arrivals: vec![Arrival { seq: u32::MAX, ..Arrival::default() }; MAX_REQUESTS].into(),
            landings: std::iter::repeat_with(|| None).take(MAX_REQUESTS).collect(),
            // Room for all that may be under way: a put allocates nothing.
            mail: VecDeque::with_capacity(MAX_REQUESTS),
            answers: Answers::new(MOST),
            peer_is_soft: false,
            wireup_seen: false,
        };
        let (inner, violation) = (Mutex::new(inner), OnceLock::new());
        Arc::new(Self { number, queue, replies, inner, violation })
    }

    /// Its number, which the peer puts before all it sends.
    pub(in crate::ucx) fn number(&self) -> u64 {
        self.number
    }

    /// Lets messages of the peer into a window, which lies at `place` of `memory`.
    pub fn open(&self, region: RemoteRegion, memory: Arc<Memory>, place: Span) {
        let mut inner = lock(&self.inner);
        let at = usize::from(region.window.index());
        if at >= inner.openings.len() {
            inner.openings.resize_with(at.saturating_add(1), || None);
        }
        if let Some(opening) = inner.openings.get_mut(at) {
            *opening = Some(Opening { region, memory, place });
        }
    }

    /// Keeps messages out of a window: after this none of them writes there or reads of it, whatever the peer does.
    pub fn close(&self, id: WindowId) {
        let mut inner = lock(&self.inner);
        if let Some(place) = inner.openings.get_mut(usize::from(id.index()))
            && place.as_ref().is_some_and(|o| o.region.window == id)
        {
            *place = None;
        }
        inner.answers.refuse(id);
        drop(inner);
        self.call();
    }

    /// Whether the peer reaches memory here by messages alone, so that closing a window keeps it out.
    #[must_use]
    pub fn peer_is_soft(&self) -> bool {
        lock(&self.inner).peer_is_soft
    }

    /// The rule that the peer has broken, if it has: the endpoint counts as failed then.
    #[must_use]
    pub fn violation(&self) -> Option<Violation> {
        self.violation.get().copied()
    }

    /// The peer can be answered from now on.
    pub(in crate::ucx) fn set_reply_path(&self, path: AmPath) {
        lock(&self.inner).answers.reply_path = Some(path);
        self.call();
    }

    /// The peer is gone: nothing is answered, nothing lands, no window is open.
    pub(in crate::ucx) fn shut(&self) {
        let mut inner = lock(&self.inner);
        inner.answers.forget();
        inner.openings.clear();
        inner.landings.iter_mut().for_each(|place| *place = None);
    }

    /// Whether nothing of it is being sent.
    pub(in crate::ucx) fn is_idle(&self) -> bool {
        lock(&self.inner).answers.is_idle()
    }

    /// The bytes of a get of ours may come.
    pub(in crate::ucx) fn expect(&self, landing: Landing) {
        let mut inner = lock(&self.inner);
        if let Some(place) = inner.landings.get_mut(place_of(landing.seq)) {
            *place = Some(landing);
        }
    }

    /// They may not any more.
    pub(in crate::ucx) fn expect_no_more(&self, seq: u32) {
        if let Some(place) = lock(&self.inner).landings.get_mut(place_of(seq)) {
            *place = None;
        }
    }

    /// How an operation of ours ended.
    pub(in crate::ucx) fn take_mail(&self) -> Option<(u32, Result<(), Failure>)> {
        lock(&self.inner).mail.pop_front()
    }

    /// Has [`Door::answer`] called by whoever makes progress next.
    pub(super) fn call(&self) {
        self.replies.mark();
    }

    /// A message came.
    pub(super) fn take(&self, frame: &DataFrame, data: &[u8]) {
        let mut inner = lock(&self.inner);
        let fits = usize::try_from(frame.len) == Ok(data.len());
        let judged = match frame.kind {
            DataKind::Write => inner.take_writes(frame, data),
            DataKind::Read if !data.is_empty() => Err(Violation("bytes behind a request")),
            DataKind::Read if frame.total == 0 => Err(Violation("a request for nothing")),
            DataKind::Read => inner.take_read(frame),
            DataKind::ReadData if !fits => {
                Err(Violation("an answer of another length than its bytes"))
            }
            DataKind::ReadData => inner.take_data(frame, data),
            DataKind::Ack | DataKind::Nack => inner.take_answers(frame, data),
            DataKind::WriteRef | DataKind::ReadRef | DataKind::Region => {
                Err(Violation("a frame that only streams have"))
            }
        };
        let mail = !inner.mail.is_empty() || std::mem::take(&mut inner.wireup_seen);
        let answers = inner.answers.is_wanted();
        drop(inner);
        if let Err(violation) = judged {
            // Whoever sees the failure finds the reason.
            let _ = self.violation.set(violation);
            self.queue.fail(Status::INVALID_PARAM);
        }
        if mail || judged.is_err() {
            self.queue.replies_ready.store(true, Ordering::Release);
            self.queue.mark();
        }
        if answers {
            self.call();
        }
    }

    /// Sends what there is to be answered. Whether there was something.
    pub(super) fn answer(&self, guard: &LockedWorker<'_>) -> bool {
        let mut inner = lock(&self.inner);
        let mut freed = false;
        let mut completed = self.replies.take(guard.held());
        while let Some((number, _)) = self.replies.next(&mut completed) {
            inner.answers.completed(number);
            freed = true;
        }
        let sent = inner.answers.send(guard, &self.replies);
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
