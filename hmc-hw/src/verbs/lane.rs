//! One queue pair of a link, with what was posted to it.

mod bind;

use std::sync::Arc;

use hmc_core::work::{Failure, WorkRequest};

use super::chain::{Chain, ChainEnd, FlushWord, MAX_CHAIN, RdmaAccess};
use super::conn_info::{LaneInfo, MAX_LANES};
use super::error::VerbsError;
use super::event::EventType;
use super::objects::{CompletionQueue, PathTo, ProtectionDomain, QueuePair, QueueSizes};
use super::requests::{Places, RequestParts, RequestTable};
use super::send_queue::{Ended, Piece, SendQueue};
use super::sys::{
    IBV_SEND_INLINE, IBV_SEND_SIGNALED, IBV_SEND_SOLICITED, IBV_WC_REM_ACCESS_ERR,
    IBV_WC_RETRY_EXC_ERR, IBV_WC_RNR_RETRY_EXC_ERR, IBV_WC_WR_FLUSH_ERR, ibv_wc, ibv_wc_status,
};
use super::tags::{ReceiveError, Tags};

/// What completions of receives name. Those of other work requests have the number that [`SendQueue`] gave.
pub(super) const RECEIVE: u64 = u64::MAX;
/// Bits that count the work requests of a queue pair; those above them in a number have the index of the queue pair.
const NUMBER_BITS: u32 = 56;
const _: () = assert!(MAX_LANES <= 255, "no queue pair has the index that `RECEIVE` names");
/// Work requests under way on one queue pair.
pub(super) const LANE_DEPTH: usize = 256;
/// Work requests after which the first chain of a queue pair that has nothing under way is posted: the device begins while the rest
/// of a list is prepared.
const FIRST_CHAIN: usize = 32;
/// Bytes that are posted and not complete at a time on one queue pair; short accesses come on top. A revoked window is free, and an
/// access that is cancelled over, once they have moved: with 1 MiB of short ones 3 MiB, at 3.2 MB/s within the second of
/// the peer's patience ([`super::exposed::GRACE`]).
///
/// A round trip across a data centre takes up to 20 us, in which 400 Gb/s move 50 GB/s x 20 us = 1 MB. Twice that, 42 us, keeps the
/// NIC at work also while this end takes a completion and posts the next pieces.
const MAX_BYTES: u64 = 2 << 20;
/// Accesses of at most so many bytes are posted though [`MAX_BYTES`] are under way: all that a queue pair has space for are 1 MiB.
pub(super) const SMALL_BYTES: u64 = 4096;
/// Bytes after which a work request asks for a completion though others follow it in its chain: a quarter of [`MAX_BYTES`], so that
/// the next pieces are posted while the NIC has three quarters to do.
const SIGNAL_BYTES: u32 = 512 << 10;
/// Bytes that a work request is to carry itself, where the device can: small puts need no second read of host memory then.
const INLINE_BYTES: u32 = 128;

/// Why a queue pair serves no request any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LaneFailure {
    /// A completion had this status, and the vendor's own code, on the NIC of that index.
    Completion { nic: usize, status: ibv_wc_status, vendor: u32 },
    /// A call failed.
    Call(Box<VerbsError>),
    /// The peer broke the protocol.
    Peer(&'static str),
    /// The device of the NIC of that index has reported this.
    Event(usize, EventType),
}

impl From<VerbsError> for Box<LaneFailure> {
    #[cold]
    fn from(e: VerbsError) -> Self {
        Box::new(e).into()
    }
}

impl From<Box<VerbsError>> for Box<LaneFailure> {
    #[cold]
    fn from(e: Box<VerbsError>) -> Self {
        Self::new(LaneFailure::Call(e))
    }
}

/// What a request fails with whose completion has this status.
pub(super) fn failure_of(status: ibv_wc_status) -> Failure {
    match status {
        // The peer's NIC has refused it: the window was revoked, and the message of that has not come.
        IBV_WC_REM_ACCESS_ERR => Failure::Window(hmc_core::window::WindowFault::Revoked),
        IBV_WC_RETRY_EXC_ERR | IBV_WC_RNR_RETRY_EXC_ERR | IBV_WC_WR_FLUSH_ERR => Failure::PeerDead,
        other => Failure::Transport(i32::try_from(other).unwrap_or(i32::MAX)),
    }
}

/// A queue pair and its work requests.
#[derive(Debug)]
pub(super) struct Lane {
    qp: QueuePair,
    queue: SendQueue,
    chain: Chain,
    /// Bytes of the chain behind the last work request that asks for a completion.
    unsignalled: u32,
    /// The chain has what is done with its own completion, or its part of a longer request is.
    needs_signal: bool,
    psn: u32,
    /// The index of its NIC.
    nic: usize,
}

/// What a queue pair is made of.
#[derive(Clone, Copy, Debug)]
pub(super) struct LaneParts<'n> {
    /// The index of its NIC.
    pub(super) nic: usize,
    pub(super) pd: &'n Arc<ProtectionDomain>,
    pub(super) cq: &'n Arc<CompletionQueue>,
    /// The number of its port within the device.
    pub(super) port: u8,
    /// The number of its first packet, of 24 bits.
    pub(super) psn: u32,
    /// Receives that it has space for.
    pub(super) receives: u32,
}

/// Returns the index in the link of the queue pair whose work request has completed.
#[inline]
pub(super) fn lane_of(wc: &ibv_wc) -> usize {
    usize::try_from(wc.wr_id >> NUMBER_BITS).unwrap_or(usize::MAX)
}

impl Lane {
    /// A queue pair that is not connected.
    ///
    /// # Errors
    /// [`VerbsError`].
    pub(super) fn new(parts: LaneParts<'_>) -> Result<Self, VerbsError> {
        let send = u32::try_from(LANE_DEPTH).unwrap_or(u32::MAX);
        let LaneParts { nic, pd, cq, port, psn, receives } = parts;
        let sizes = QueueSizes { send, receive: receives, inline_bytes: INLINE_BYTES };
        let qp = QueuePair::new(pd, cq, port, sizes)?;
        let (queue, chain) = (SendQueue::new(LANE_DEPTH), Chain::new());
        Ok(Self { qp, queue, chain, unsignalled: 0, needs_signal: false, psn, nic })
    }

    /// What the peer needs to connect to it.
    pub(super) fn info(&self) -> LaneInfo {
        LaneInfo { qp_num: self.qp.number(), psn: self.psn }
    }

    /// Where its completions come, and those of the others of its NIC.
    #[inline]
    pub(super) fn cq(&self) -> &CompletionQueue {
        self.qp.cq()
    }

    /// The index of its NIC.
    pub(super) fn nic(&self) -> usize {
        self.nic
    }

    /// Connects it. `index`: its index in the link from now on. `flush`: where its flushes read.
    ///
    /// # Errors
    /// [`VerbsError`].
    pub(super) fn connect(
        &mut self,
        index: u64,
        path: &PathTo,
        flush: FlushWord,
    ) -> Result<(), VerbsError> {
        self.queue.set_first(index << NUMBER_BITS);
        self.chain.set_flush(flush);
        self.qp.connect(&PathTo { our_psn: self.psn, ..*path })
    }

    /// Posts so many receives without memory, for messages and immediates.
    ///
    /// # Errors
    /// [`VerbsError`].
    pub(super) fn post_receives(&self, count: u32) -> Result<(), VerbsError> {
        self.qp.post_receives(RECEIVE, count)
    }

    /// Returns `true` if one more work request may be under way.
    #[inline]
    pub(super) fn has_space(&self) -> bool {
        self.has_space_for(1)
    }

    /// Returns `true` if so many more work requests may be under way.
    #[inline]
    pub(super) fn has_space_for(&self, count: u32) -> bool {
        self.queue.has_space_for(count)
    }

    /// Returns `true` if an access of that length may be pushed.
    #[inline]
    pub(super) fn admits(&self, bytes: u64) -> bool {
        let fits = bytes <= SMALL_BYTES || self.queue.bytes().saturating_add(bytes) <= MAX_BYTES;
        fits && self.has_space()
    }

    /// Returns `true` if the chain has space, and is not to be posted yet.
    #[inline]
    pub(super) fn has_short_chain(&self) -> bool {
        self.chain.len() < FIRST_CHAIN
    }

    /// Posts a chain that is full, and the beginning of one for a queue pair that has nothing to do.
    ///
    /// # Errors
    /// As [`Self::post`].
    pub(super) fn make_space(&mut self) -> Result<(), Box<LaneFailure>> {
        if self.has_short_chain() { Ok(()) } else { self.post_long() }
    }

    /// Appends an access to the next chain; see [`Self::admits`]. Returns `false` if there is no space.
    ///
    /// # Errors
    /// As [`Self::post`]: a chain that is full is posted first, as is the beginning of one for a queue pair that has nothing to do.
    pub(super) fn push(
        &mut self,
        access: &RdmaAccess,
        piece: Piece,
    ) -> Result<bool, Box<LaneFailure>> {
        self.make_space()?;
        // Short ones come on top of `MAX_BYTES`.
        let long = if u64::from(access.len) > SMALL_BYTES { access.len } else { 0 };
        let Some(number) = self.queue.push(piece, long) else { return Ok(false) };
        self.needs_signal |= !matches!(piece, Piece::NeedsFlush(_));
        self.append(number, access);
        Ok(true)
    }

    /// As [`Self::push`], of a request of at most [`SMALL_BYTES`] as a whole, after [`Self::make_space`].
    #[inline(always)]
    pub(super) fn push_short(
        &mut self,
        access: &RdmaAccess,
        work: &WorkRequest,
        needs_flush: bool,
    ) -> bool {
        let Some(number) = self.queue.push_short(work, needs_flush) else { return false };
        self.needs_signal |= !needs_flush;
        self.append(number, access);
        true
    }

    /// Appends an access to the chain.
    #[inline(always)]
    fn append(&mut self, number: u64, access: &RdmaAccess) {
        let mut flags = if access.immediate.is_some() { IBV_SEND_SOLICITED } else { 0 };
        // One without bytes carries none.
        let carries_bytes = access.len.wrapping_sub(1) < self.qp.inline_bytes();
        let has_bytes = if !access.is_read && carries_bytes {
            flags |= IBV_SEND_INLINE;
            true
        } else {
            if self.signals(access.len) {
                flags |= IBV_SEND_SIGNALED;
            }
            access.len != 0
        };
        self.chain.push(number, access, has_bytes, flags);
    }

    /// Counts bytes of the chain. Returns whether their work request is to ask for a completion, though others follow it.
    #[inline]
    fn signals(&mut self, bytes: u32) -> bool {
        self.unsignalled = self.unsignalled.saturating_add(bytes);
        let is_signalled = self.unsignalled >= SIGNAL_BYTES;
        if is_signalled {
            self.unsignalled = 0;
        }
        is_signalled
    }

    /// Appends a message without bytes, of no request, to the next chain; see [`Self::has_space_for`]. One without an immediate wakes
    /// whoever sleeps at the other end.
    ///
    /// # Errors
    /// As [`Self::push`].
    pub(super) fn push_message(&mut self, immediate: Option<u32>) -> Result<(), Box<LaneFailure>> {
        self.make_space()?;
        self.needs_signal = true;
        if let Some(number) = self.queue.push(Piece::Own, 0) {
            let flags = if immediate.is_none() { IBV_SEND_SOLICITED } else { 0 };
            self.chain.push_message(number, immediate, flags);
        }
        Ok(())
    }

    /// Posts a chain that is full, and one for a queue pair that has nothing else to do.
    #[inline(never)]
    fn post_long(&mut self) -> Result<(), Box<LaneFailure>> {
        let waiting = self.chain.len();
        let is_alone = u64::try_from(waiting) == Ok(self.queue.len());
        if waiting == MAX_CHAIN || is_alone { self.post(ChainEnd::Signalled) } else { Ok(()) }
    }

    /// Nothing more comes of the requests whose parts were pushed; see [`Piece::Part`].
    pub(super) fn want_flush(&mut self) {
        self.queue.want_flush();
    }

    /// Posts what waits, with a flush behind puts that need one. Returns whether anything was posted.
    ///
    /// # Errors
    /// [`LaneFailure`].
    #[inline(always)]
    pub(super) fn submit(&mut self) -> Result<bool, Box<LaneFailure>> {
        if let Some(number) = self.queue.push_flush() {
            self.post(ChainEnd::Flush(number))?;
        } else if self.chain.is_empty() {
            return Ok(false);
        } else {
            self.post(ChainEnd::Signalled)?;
        }
        Ok(true)
    }

    /// Returns `true` if half of what may be under way is.
    #[inline]
    pub(super) fn is_half_full(&self) -> bool {
        self.queue.is_half_full()
    }

    /// Posts what waits without a flush, which [`Self::submit`] posts for all later. Puts that need one ask for no completion of their own.
    ///
    /// # Errors
    /// [`LaneFailure`].
    #[inline]
    pub(super) fn submit_unflushed(&mut self) -> Result<(), Box<LaneFailure>> {
        if self.chain.is_empty() {
            return Ok(());
        }
        self.post(if self.needs_signal { ChainEnd::Signalled } else { ChainEnd::Unsignalled })
    }

    #[inline]
    fn post(&mut self, end: ChainEnd) -> Result<(), Box<LaneFailure>> {
        // The last of a chain asks for a completion, or the flush behind it will.
        (self.unsignalled, self.needs_signal) = (0, false);
        // SAFETY: the link's tables hold the memory of each request until it has completed, or until this queue pair, which is
        // destroyed before them, exists no more; the word that flushes read belongs to the link.
        Ok(unsafe { self.chain.post(&self.qp, end) }?)
    }

    /// Returns `true` if puts wait for a flush that cannot be posted yet, or a chain waits to be posted.
    #[inline]
    pub(super) fn has_work(&self) -> bool {
        !self.chain.is_empty() || self.queue.may_flush()
    }

    /// Returns `true` if nothing is under way.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    /// The work request of that number has succeeded, as have those before it. Completions of requests go to `out`.
    #[inline(always)]
    pub(super) fn complete(
        &mut self,
        number: u64,
        requests: &mut RequestTable,
        out: &mut Places<'_>,
    ) {
        self.queue.complete(number, |ended| match ended {
            Ended::Short(op, bytes) => requests.complete_short(op, bytes, out),
            Ended::Piece(record) => requests.complete_piece(record),
        });
    }

    /// A work request has failed: the queue pair is in its error state. Those before it have not.
    #[cold]
    pub(super) fn fail(&mut self, wc: &ibv_wc, requests: &mut RequestTable) -> Box<LaneFailure> {
        let number = wc.wr_id;
        if let Some(before) = number.checked_sub(1) {
            let out = &mut Places::default();
            self.complete(before, requests, out);
        }
        self.record_shorts(requests);
        if let Some(record) = self.queue.record(number) {
            requests.fail(record, failure_of(wc.status));
        }
        let (nic, status, vendor) = (self.nic, wc.status, wc.vendor_err);
        Box::new(LaneFailure::Completion { nic, status, vendor })
    }

    /// The short requests under way.
    pub(super) fn shorts(&self) -> impl Iterator<Item = &RequestParts> {
        self.queue.shorts()
    }

    /// Gives each short request under way a record: some of them fail.
    pub(super) fn record_shorts(&mut self, requests: &mut RequestTable) {
        self.queue.record_shorts(|parts| requests.record_short(parts));
    }

    /// A receive of this queue pair has completed.
    ///
    /// # Errors
    /// [`LaneFailure`].
    pub(super) fn receive(&self, wc: &ibv_wc, tags: &mut Tags) -> Result<(), Box<LaneFailure>> {
        tags.receive(wc).map_err(|e| {
            Box::new(match e {
                ReceiveError::Peer(what) => LaneFailure::Peer(what),
                ReceiveError::Status(status) => {
                    LaneFailure::Completion { nic: self.nic, status, vendor: wc.vendor_err }
                }
            })
        })
    }

    /// Destroys its queue pair, which is a fence.
    ///
    /// # Errors
    /// [`VerbsError`]: it is none.
    pub(super) fn destroy(self) -> Result<(), VerbsError> {
        self.qp.destroy()
    }

    /// Nothing more is executed, whoever asks for it. Returns `false` if the queue pair goes on until it is destroyed.
    pub(super) fn set_error(&mut self) -> bool {
        self.chain.clear();
        self.qp.set_error().is_ok()
    }
}
