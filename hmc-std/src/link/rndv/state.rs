//! The messages of one link in flight, in both directions, and posted receives without a sender.

use std::collections::VecDeque;
use std::sync::Arc;

use hmc_core::limits::{MAX_RNDV, RNDV_HALF_BYTES};
use hmc_core::range::{ByteRange, Side};
use hmc_core::region::{LocalSlice, WindowDesc, WindowSlice};
use hmc_core::rndv::receiver::{CopyOut, Receiver};
use hmc_core::rndv::sender::{PutChunk, Sender, SenderPhase};
use hmc_core::rndv::{AbortReason, OfferCounter, RecvTarget, RndvError, RndvId};
use hmc_core::slots::SlotId;
use hmc_core::time::Instant;
use hmc_core::work::Failure;

use super::handle::MessageHandle;
use super::kept_window::KeptWindow;
use super::note::Note;
use crate::base::error::{Error, ErrorKind, Limit};
use crate::memory::{Region, Span};
use crate::transport::data_plane::Fence;

/// A page: less would not make buffers cheaper.
const SMALLEST_HALF_BYTES: u64 = 4096;

/// Two half-buffers, exposed to the peer. They serve one message after the other.
#[derive(Debug)]
pub(crate) struct BounceBuffers {
    pub(crate) region: Region,
    pub(crate) remote: WindowDesc,
}

/// Where the bytes of a message are.
#[derive(Debug)]
pub(crate) enum MessageBuffer {
    /// In a registered region; `span` is what its owner gave for the time of the message.
    Registered {
        /// The region.
        region: Region,
        /// The message's range in it.
        range: ByteRange,
        /// The token of that range, if there is one.
        span: Option<Span>,
    },
    /// At a caller that waits and copies by itself; the region is its two bounce buffers, if it sends.
    Borrowed(Option<Region>),
}

impl MessageBuffer {
    pub(super) const fn is_borrowed(&self) -> bool {
        matches!(self, Self::Borrowed(_))
    }
}

/// A put that a sender asked for, in pieces as they can be posted.
#[derive(Debug)]
pub(super) struct ChunkedPut {
    pub(super) seq: u64,
    pub(super) source: ByteRange,
    pub(super) target: WindowSlice,
    /// Operations, and which bounce buffer each reads.
    pub(super) in_flight: Vec<(SlotId, usize)>,
    pub(super) failed: Option<Failure>,
}

impl ChunkedPut {
    pub(super) fn new(put: &PutChunk) -> Self {
        let (seq, source, target) = (put.seq, put.source, put.target);
        Self { seq, source, target, in_flight: Vec::new(), failed: None }
    }

    /// Whether there are bytes to post.
    pub(super) fn has_more(&self) -> bool {
        self.failed.is_none() && !self.source.is_empty()
    }

    /// Cuts off what is posted next.
    pub(super) fn cut(&mut self, at_most: u64) -> (ByteRange, WindowSlice) {
        let (source, rest) = self.source.split_at_most(at_most);
        let (target, target_rest) = self.target.span.split_at_most(source.len());
        self.source = rest;
        let cut = WindowSlice { span: target, ..self.target };
        self.target.span = target_rest;
        (source, cut)
    }
}

/// A message of ours to the peer.
#[derive(Debug)]
pub(crate) struct SendOp {
    pub(super) machine: Sender,
    pub(super) len: u64,
    pub(super) bytes: MessageBuffer,
    pub(super) runs: Vec<ChunkedPut>,
    pub(super) handle: Arc<MessageHandle>,
    pub(super) deadline: Instant,
    /// What goes with the offer, until it is sent.
    pub(super) eager: Box<[u8]>,
}

/// A receive: what its owner gave for a message to come.
#[derive(Debug)]
pub(crate) struct PostedRecv {
    pub(crate) bytes: MessageBuffer,
    pub(crate) space: u64,
    /// Whether a shorter message is refused as a longer one is.
    exact: bool,
    /// The halves; without them the sender puts straight into `window`.
    pub(crate) staging: Option<BounceBuffers>,
    pub(crate) window: WindowDesc,
    /// Where the memory begins in `window`.
    at: u64,
    /// `window`, if it serves other messages later.
    pub(super) kept: Option<KeptWindow>,
    pub(crate) deadline: Instant,
    pub(crate) handle: Arc<MessageHandle>,
    pub(super) copy: Option<CopyOut>,
    pub(super) fence: Option<Fence>,
    /// Why it ended before a message came, if not by its deadline.
    pub(super) early: Option<Error>,
    /// Its message was refused: no message named its window to the peer.
    pub(super) untold: bool,
}

impl PostedRecv {
    pub(crate) fn new(
        bytes: MessageBuffer,
        space: u64,
        place: std::result::Result<BounceBuffers, WindowDesc>,
        deadline: Instant,
    ) -> Self {
        let (staging, window) = match place {
            Ok(staging) => {
                let window = staging.remote;
                (Some(staging), window)
            }
            Err(window) => (None, window),
        };
        let handle = Arc::default();
        Self {
            bytes,
            space,
            exact: false,
            staging,
            window,
            at: 0,
            kept: None,
            deadline,
            handle,
            copy: None,
            fence: None,
            early: None,
            untold: false,
        }
    }

    /// The same of memory at `at` in a window that serves other messages later.
    pub(crate) fn in_kept(
        bytes: MessageBuffer,
        space: u64,
        (window, at): (KeptWindow, u64),
        deadline: Instant,
    ) -> Self {
        let remote = window.remote;
        Self { at, kept: Some(window), ..Self::new(bytes, space, Err(remote), deadline) }
    }

    /// The same for a message that has just `space` bytes.
    pub(crate) fn exactly(self) -> Self {
        Self { exact: true, ..self }
    }

    /// Whether it takes a message of `len` bytes.
    pub(super) fn takes(&self, len: u64) -> bool {
        if self.exact { len == self.space } else { len <= self.space }
    }

    /// The part of its window that a message of `len` bytes fills: offset and length.
    pub(super) const fn part(&self, len: u64) -> (u64, u64) {
        (self.at, len)
    }

    /// Where a message of `len` bytes is to be put. Only asked when there is space for it.
    fn place(&self, len: u64) -> Option<RecvTarget> {
        match &self.staging {
            Some(s) => RecvTarget::staged(s.remote.slice(0, s.remote.extent.len()).ok()?),
            None => Some(RecvTarget::direct(self.window.slice(self.at, len).ok()?)),
        }
    }

    /// The half in which a piece lies.
    pub(super) fn half(&self, copy: &CopyOut) -> Option<(&Region, ByteRange)> {
        let region = &self.staging.as_ref()?.region;
        let at = if copy.seq & 1 == 0 { 0 } else { region.len() >> 1 };
        Some((region, region.slice(at, copy.to.len()).ok()?.span))
    }
}

/// A message of the peer.
#[derive(Debug)]
pub(crate) struct RecvOp {
    pub(super) machine: Receiver,
    pub(super) want: Option<PostedRecv>,
    /// Both ends have said END: the peer may offer another.
    pub(super) has_ended: bool,
    /// What came with the offer, until it is copied.
    pub(super) eager: Box<[u8]>,
}

impl RecvOp {
    /// Counts it once both ends have said END. Its memory may wait for a fence still.
    pub(super) fn count_end(&mut self, offers: &mut OfferCounter) {
        if !self.has_ended && self.machine.has_ended() {
            self.has_ended = true;
            offers.offer_finished();
        }
    }

    /// Gives it, whose bytes have come, to a receive.
    fn take_eager(&mut self, want: &PostedRecv) {
        if want.takes(self.machine.len()) {
            self.machine.take(want.space);
        } else {
            self.machine.refuse(RndvError::Here(AbortReason::TooLong { capacity: want.space }));
        }
    }
}

/// The length of each half of buffers for a message of up to `len` bytes: as long as it is, in powers of two,
/// so that what served one message serves others.
pub(crate) fn half_for(len: u64) -> u64 {
    let whole = len.min(RNDV_HALF_BYTES).next_power_of_two();
    whole.max(SMALLEST_HALF_BYTES)
}

/// Of buffers with two halves, and so many bytes in all, the shortest that is long enough.
fn smallest(lens: impl Iterator<Item = u64>, half: u64) -> Option<usize> {
    let fits = lens.enumerate().filter(|(_, len)| len >> 1 >= half);
    fits.min_by_key(|(_, len)| *len).map(|(at, _)| at)
}

/// Half-buffers and bounce buffers of each kind that are kept for the next messages.
pub(super) const MAX_SPARE: usize = 8;

/// Keeps bounce buffers for the next messages, unless there are enough.
pub(super) fn keep_spare(spare: &mut Vec<Region>, bounce: Region) {
    if spare.len() < MAX_SPARE {
        spare.push(bounce);
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct RndvState {
    pub(super) outbound: Vec<SendOp>,
    pub(super) inbound: Vec<RecvOp>,
    pub(super) posted_recvs: VecDeque<PostedRecv>,
    /// Receives that ended before a message came, until the peer is out of their windows.
    pub(super) fencing_recvs: Vec<PostedRecv>,
    pub(super) incoming: OfferCounter,
    /// Notes of the peer, to be looked at in the next poll; storage at other times.
    pub(super) received: Vec<Note>,
    pub(super) outgoing: VecDeque<Note>,
    pub(super) spare: Vec<BounceBuffers>,
    /// Windows that serve messages, the one that served last at the end.
    pub(super) kept: Vec<KeptWindow>,
    /// Those of `kept` that are useless are to be taken back.
    pub(super) evicts: bool,
    /// Windows that no message has, to be taken back.
    pub(super) retired: Vec<BounceBuffers>,
    /// Half-buffers and windows that are not needed any more, until the peer is out of them.
    pub(super) fencing_buffers: Vec<(BounceBuffers, Option<Fence>)>,
    pub(super) bounces: Vec<Region>,
    next: u32,
}

impl RndvState {
    /// Half-buffers for a receive that served before, each of `half` bytes at least.
    pub(crate) fn take_staging(&mut self, half: u64) -> Option<BounceBuffers> {
        let at = smallest(self.spare.iter().map(|s| s.region.len()), half)?;
        Some(self.spare.swap_remove(at))
    }

    /// Bounce buffers for a send that served before, as [`RndvState::take_staging`].
    pub(crate) fn take_bounce(&mut self, half: u64) -> Option<Region> {
        let at = smallest(self.bounces.iter().map(Region::len), half)?;
        Some(self.bounces.swap_remove(at))
    }

    /// Keeps bounce buffers that are not needed any more for later ones.
    pub(crate) fn give_bounce(&mut self, bounce: Region) {
        keep_spare(&mut self.bounces, bounce);
    }

    /// Offers a message.
    ///
    /// # Errors
    /// `Full`.
    pub(crate) fn send(&mut self, bytes: MessageBuffer, len: u64, by: Instant) -> SendResult {
        self.send_with(bytes, by, Box::default(), |id| Sender::new(id, len), len)
    }

    /// Offers a short message together with its bytes. `bytes` are given back with its end.
    ///
    /// # Errors
    /// `Full`.
    pub(crate) fn send_eager(
        &mut self,
        bytes: MessageBuffer,
        copy: Box<[u8]>,
        by: Instant,
    ) -> SendResult {
        let len = u64::try_from(copy.len()).unwrap_or(u64::MAX);
        self.send_with(bytes, by, copy, |id| Sender::eager(id, len), len)
    }

    fn send_with(
        &mut self,
        bytes: MessageBuffer,
        by: Instant,
        eager: Box<[u8]>,
        machine: impl FnOnce(RndvId) -> Sender,
        len: u64,
    ) -> SendResult {
        if self.is_full() {
            let limit = Limit::one_more("messages to this peer under way", MAX_RNDV);
            let e = Error::limited(ErrorKind::Full, limit).with_remedy("wait for some");
            return Err((e, bytes));
        }
        let machine = machine(RndvId(self.next));
        self.next = self.next.wrapping_add(1);
        let handle = Arc::<MessageHandle>::default();
        let (runs, mine) = (Vec::new(), Arc::clone(&handle));
        self.outbound.push(SendOp { machine, len, bytes, runs, handle: mine, deadline: by, eager });
        Ok(handle)
    }

    /// Whether as many messages to the peer are under way as may be.
    pub(crate) fn is_full(&self) -> bool {
        self.outbound.len() >= usize::try_from(MAX_RNDV).unwrap_or(usize::MAX)
    }

    /// Whether each message of the peer has its receive.
    pub(super) fn is_nothing_unmatched(&self) -> bool {
        !self.inbound.iter().any(|m| m.machine.is_open())
    }

    /// Waits for a message.
    pub(crate) fn receive(&mut self, want: PostedRecv) -> Arc<MessageHandle> {
        let handle = Arc::clone(&want.handle);
        self.posted_recvs.push_back(want);
        handle
    }

    /// Gives the oldest messages to the oldest receives.
    pub(super) fn match_recvs(&mut self) {
        for m in self.inbound.iter_mut().filter(|m| m.machine.is_open()) {
            let Some(mut want) = self.posted_recvs.pop_front() else {
                return;
            };
            let len = m.machine.len();
            if m.machine.is_eager() {
                m.take_eager(&want);
                want.untold = want.has_own_window();
                want.give_back(&mut self.spare, &mut self.kept);
                m.want = Some(want);
                continue;
            }
            // Of a message that does not fit, the machine only needs some place to refuse.
            match want.place(len.min(want.space)) {
                Some(_) if !want.takes(len) => {
                    m.machine
                        .refuse(RndvError::Here(AbortReason::TooLong { capacity: want.space }));
                    want.untold = want.has_own_window();
                    want.give_back(&mut self.spare, &mut self.kept);
                }
                Some(place) => m.machine.answer(want.space, place),
                None => m.machine.refuse(RndvError::Failed(Failure::Unsupported)),
            }
            m.want = Some(want);
        }
    }

    /// Ends the message of `handle`.
    pub(crate) fn end(&mut self, handle: &Arc<MessageHandle>, why: RndvError) {
        let is = |h: &Arc<MessageHandle>| Arc::ptr_eq(h, handle);
        for m in self.outbound.iter_mut().filter(|m| is(&m.handle)) {
            m.machine.end(why);
        }
        for m in &mut self.inbound {
            if m.want.as_ref().is_some_and(|w| is(&w.handle)) {
                m.machine.end(why);
            }
        }
        // A receive that no message came for ends at its deadline: bring that forward.
        for w in self.posted_recvs.iter_mut().filter(|w| is(&w.handle)) {
            w.deadline = Instant::ZERO;
            if let RndvError::Here(AbortReason::Cancelled) = why {
                let e = Error::new(ErrorKind::Cancelled, "the receive was cancelled");
                w.early = Some(e);
            }
        }
    }

    /// Whether the message of `handle` waits for its other end: if this one ends now, the other never receives anything of it.
    pub(crate) fn is_unmatched(&self, handle: &Arc<MessageHandle>) -> bool {
        let is = |h: &Arc<MessageHandle>| Arc::ptr_eq(h, handle);
        let offered = |m: &SendOp| m.machine.phase() == SenderPhase::Offered;
        self.outbound.iter().any(|m| is(&m.handle) && offered(m))
            || self.posted_recvs.iter().any(|w| is(&w.handle))
    }

    /// Whether anything of the message of `handle` is left, at this end or on its way to the other.
    pub(crate) fn knows(&self, handle: &Arc<MessageHandle>) -> bool {
        let is = |h: &Arc<MessageHandle>| Arc::ptr_eq(h, handle);
        self.outbound.iter().any(|m| is(&m.handle))
            || self.inbound.iter().any(|m| m.want.as_ref().is_some_and(|w| is(&w.handle)))
            || self.posted_recvs.iter().any(|w| is(&w.handle))
    }

    /// What was not matched never will be.
    pub(crate) fn leave(&mut self) {
        let fencing_recvs = RndvError::Here(AbortReason::Closing);
        for m in &mut self.outbound {
            if m.machine.phase() == SenderPhase::Offered {
                m.machine.end(fencing_recvs);
            }
        }
        for m in self.inbound.iter_mut().filter(|m| m.want.is_none()) {
            m.machine.end(fencing_recvs);
        }
        for w in &mut self.posted_recvs {
            w.deadline = Instant::ZERO;
            let e = Error::new(ErrorKind::Closed, "the connection is closing: no message comes");
            w.early = w.early.take().or(Some(e));
        }
    }

    /// Whether a caller has something to copy from or to its borrowed memory.
    pub(super) fn needs_borrowed_copy(&self) -> bool {
        let borrowed = |b: &MessageBuffer| matches!(b, MessageBuffer::Borrowed(_));
        let out = |m: &SendOp| borrowed(&m.bytes) && m.runs.iter().any(ChunkedPut::has_more);
        let inbound = |m: &RecvOp| m.want.as_ref().is_some_and(|w| w.copy.is_some());
        self.outbound.iter().any(out) || self.inbound.iter().any(inbound)
    }

    /// Whether nothing is under way, but for receives that wait.
    pub(super) fn is_idle(&self) -> bool {
        self.outbound.is_empty() && self.inbound.is_empty() && self.outgoing.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.is_idle()
            && self.posted_recvs.is_empty()
            && self.fencing_recvs.is_empty()
            && self.fencing_buffers.is_empty()
    }

    /// Whether memory waits for a fence.
    pub(super) fn holds(&self) -> bool {
        !self.outbound.is_empty()
            || !self.inbound.is_empty()
            || !self.fencing_recvs.is_empty()
            || !self.fencing_buffers.is_empty()
    }

    /// Bytes that wait for a fence.
    pub(super) fn held_bytes(&self) -> u64 {
        let of = |b: &MessageBuffer| match b {
            MessageBuffer::Registered { region, .. } | MessageBuffer::Borrowed(Some(region)) => {
                region.len()
            }
            MessageBuffer::Borrowed(None) => 0,
        };
        let halves = |s: &BounceBuffers| s.region.len();
        let want =
            |w: &PostedRecv| of(&w.bytes).saturating_add(w.staging.as_ref().map_or(0, halves));
        let sent = self.outbound.iter().map(|m| of(&m.bytes));
        let received =
            self.inbound.iter().filter_map(|m| m.want.as_ref()).chain(&self.fencing_recvs);
        let fencing_buffers = self.fencing_buffers.iter().map(|(s, _)| halves(s));
        sent.chain(received.map(want)).chain(fencing_buffers).fold(0, u64::saturating_add)
    }
}

/// The handle of a message, or why it was not taken, with its bytes.
pub(crate) type SendResult = std::result::Result<Arc<MessageHandle>, (Error, MessageBuffer)>;

/// The local side of a part of a message.
pub(super) fn local(region: &Region, range: ByteRange, part: ByteRange) -> Option<LocalSlice> {
    let span = range.sub(Side::Local, part.offset(), part.len()).ok()?;
    Some(LocalSlice { key: region.key(), span })
}

#[cfg(test)]
mod tests;
