//! The receiver's end of one rendezvous: names the target, copies halves out, sends credits, and ends once.
//!
//! It sends a credit only after its half was copied out. It releases memory that the sender can access only after
//! the owner reported the fence: the sender's END is not a fence.

use super::{AbortReason, RecvTarget, RndvError, RndvId, RndvMode, RndvMsg, RndvRole, Violation};
use crate::range::{ByteRange, Extent};
use crate::work::Failure;

/// A chunk to copy out of a half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyOut {
    /// Which piece; even ones lie in the first half, odd ones in the second, from its start. An eager message is one piece, and lies
    /// where its owner has it.
    pub seq: u64,
    /// The range of the message that it is.
    pub to: ByteRange,
}

/// What the owner of a receiver has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiverOutput {
    /// Send this message to the peer.
    Send(RndvMsg),
    /// Copy a half out and say [`Receiver::copied`].
    Copy(CopyOut),
    /// Revoke the target and call [`Receiver::fenced`] when the peer can no longer write it.
    Revoke,
    /// The transfer ended: bytes, or why not. Told once, if it was answered.
    Ended(Result<u64, RndvError>),
    /// Nothing writes to the target or to the destination. Returned once, after `Ended`.
    Free,
}

/// The state of a receiver: the rows of the stored table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReceiverPhase {
    /// It was offered; nobody wants it yet.
    Waiting,
    /// Its bytes come.
    Moving,
    /// All bytes are there; halves have to be copied out.
    Closing,
    /// It failed; the sender's END is due.
    Failing,
    /// The sender's END came.
    Over,
}

/// The receiver's end of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receiver {
    id: RndvId,
    len: u64,
    /// Its bytes came with the offer.
    eager: bool,
    /// Its owner counts what is put straight into its memory.
    counted: bool,
    /// What no copy was asked for yet.
    rest: ByteRange,
    target: Option<RecvTarget>,
    /// Somebody wants it.
    wanted: bool,
    /// There is space for its bytes, which have come.
    taken: bool,
    ready: bool,
    /// All bytes were put, by the owner's count.
    all_put: bool,
    pieces: u64,
    /// Pieces told as filled, copied out, credits told: each runs ahead of the next.
    filled: u64,
    copied: u64,
    credited: u64,
    copying: bool,
    end_sent: Option<bool>,
    end_received: Option<bool>,
    failure: Option<RndvError>,
    revoked: bool,
    fenced: bool,
    ended: bool,
    released: bool,
}

impl Receiver {
    /// The receiver of a message of `len` bytes that the peer offers. [`super::OfferCounter`] checks the
    /// number.
    #[must_use]
    pub const fn new(id: RndvId, len: u64) -> Self {
        Self::with(id, len, false)
    }

    /// As [`Self::new`], of a message whose bytes came with the offer.
    #[must_use]
    pub const fn eager(id: RndvId, len: u64) -> Self {
        Self::with(id, len, true)
    }

    const fn with(id: RndvId, len: u64, eager: bool) -> Self {
        Self {
            id,
            len,
            eager,
            counted: false,
            rest: Extent::new(len).whole(),
            target: None,
            wanted: false,
            taken: false,
            ready: false,
            all_put: false,
            pieces: 0,
            filled: 0,
            copied: 0,
            credited: 0,
            copying: false,
            end_sent: None,
            end_received: None,
            failure: None,
            revoked: false,
            fenced: false,
            ended: false,
            released: false,
        }
    }

    /// The same, if its owner counts the bytes that are put and the sender knows that: the successful END of this end stands for both
    /// if the message is direct.
    #[must_use]
    pub const fn counted(self) -> Self {
        Self { counted: true, ..self }
    }

    /// The number of the transfer.
    #[must_use]
    pub const fn id(&self) -> RndvId {
        self.id
    }

    /// Bytes of the message.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Whether the message has no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns its state.
    #[must_use]
    pub const fn phase(&self) -> ReceiverPhase {
        match (self.end_received, self.failure, self.target) {
            (Some(true), None, _) if self.end_sent.is_none() => ReceiverPhase::Closing,
            (Some(_), ..) => ReceiverPhase::Over,
            (None, Some(_), _) => ReceiverPhase::Failing,
            (None, None, None) if !self.taken => ReceiverPhase::Waiting,
            (None, None, _) => ReceiverPhase::Moving,
        }
    }

    /// Returns `true` if both ends sent END and the memory is free: the machine can be dropped.
    #[must_use]
    pub const fn is_finished(&self) -> bool {
        self.has_ended() && (self.released || !self.wanted)
    }

    /// Returns `true` if both ends sent END: the peer may offer another in its place.
    #[must_use]
    pub const fn has_ended(&self) -> bool {
        self.end_sent.is_some() && self.end_received.is_some()
    }

    /// Whether it can be answered: nobody has yet, and the sender has not ended it.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        !self.wanted && self.failure.is_none() && self.end_received.is_none()
    }

    /// `true` if it failed: copies are no longer needed.
    #[must_use]
    pub const fn is_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// The caller wants the message and has space for `capacity` bytes; the sender is to put it to `target`,
    /// whose area, if direct, has the message's length. A longer message is refused on both ends
    /// ([`AbortReason::TooLong`]), and so is a place that does not fit; no byte is written then. Does nothing
    /// unless [`Receiver::is_open`], and for a message whose bytes have come.
    pub fn answer(&mut self, capacity: u64, target: RecvTarget) {
        if !self.is_open() || self.eager {
            return;
        }
        self.wanted = true;
        if self.len > capacity {
            self.failure = Some(RndvError::Here(AbortReason::TooLong { capacity }));
        } else if target.mode() == RndvMode::Direct && target.area().span.len() != self.len {
            self.failure = Some(RndvError::Failed(Failure::Unsupported));
        } else {
            self.pieces = target.pieces(self.len);
            self.target = Some(target);
        }
    }

    /// Whether its bytes came with its offer: [`Receiver::take`] it.
    #[must_use]
    pub const fn is_eager(&self) -> bool {
        self.eager
    }

    /// The caller wants the message, whose bytes have come, and has space for `capacity` bytes. A longer message is refused
    /// ([`AbortReason::TooLong`]). Does nothing unless [`Receiver::is_open`], and for a message that is to be
    /// [answered](Receiver::answer).
    pub fn take(&mut self, capacity: u64) {
        if !self.is_open() || !self.eager {
            return;
        }
        self.wanted = true;
        if self.len > capacity {
            self.failure = Some(RndvError::Here(AbortReason::TooLong { capacity }));
        } else {
            self.taken = true;
            self.pieces = if self.len == 0 { 0 } else { 1 };
            self.filled = self.pieces;
        }
    }

    /// Somebody wants the message and cannot take it. Does nothing unless [`Receiver::is_open`].
    pub fn refuse(&mut self, why: RndvError) {
        if self.is_open() {
            self.wanted = true;
            self.failure = Some(why);
        }
    }

    /// A message of the sender came.
    ///
    /// # Errors
    /// [`Violation`]; nothing changed.
    pub fn receive(&mut self, note: &RndvMsg) -> Result<(), Violation> {
        if self.end_received.is_some() {
            // A failure of the sender may have crossed with the END that stood for both.
            let crossed = (self.eager || self.is_counted())
                && matches!(note, RndvMsg::End { from: RndvRole::Sender, how: Err(_), .. });
            let crossed = crossed && self.end_sent == Some(true);
            return if crossed { Ok(()) } else { Err(Violation::NotNow) };
        }
        let mode = if self.ready { self.target.map(|p| p.mode()) } else { None };
        match (*note, mode) {
            (RndvMsg::Filled { seq, .. }, Some(RndvMode::Staged)) => self.fill(seq),
            (RndvMsg::End { from: RndvRole::Sender, how: Err(why), .. }, _) => {
                self.end_received = Some(false);
                self.failure = self.failure.or(Some(RndvError::There(why)));
                Ok(())
            }
            (RndvMsg::End { from: RndvRole::Sender, how: Ok(()), .. }, Some(mode))
                if !self.is_counted()
                    && (mode == RndvMode::Direct || self.filled == self.pieces) =>
            {
                self.end_received = Some(true);
                Ok(())
            }
            _ => Err(Violation::NotNow),
        }
    }

    fn fill(&mut self, seq: u64) -> Result<(), Violation> {
        // Two halves: the sender has no credit for a third piece.
        let full = self.filled.saturating_sub(self.credited) >= 2;
        if seq != self.filled || seq >= self.pieces || full {
            return Err(Violation::Sequence { want: self.filled, got: seq });
        }
        self.filled = self.filled.saturating_add(1);
        Ok(())
    }

    /// Returns `true` if its owner is to count the bytes that are put, and to report all of them by [`Self::all_put`].
    #[must_use]
    pub fn is_counted(&self) -> bool {
        self.counted && self.target.is_some_and(|t| t.mode() == RndvMode::Direct)
    }

    /// All bytes of the message were put, and can be read. Does nothing unless [`Self::is_counted`].
    pub fn all_put(&mut self) {
        self.all_put = self.is_counted() && self.ready;
    }

    /// The requested copy has ended: it reads and writes nothing.
    pub fn copied(&mut self, result: Result<(), Failure>) {
        if !core::mem::take(&mut self.copying) {
            return;
        }
        match result {
            Ok(()) => self.copied = self.copied.saturating_add(1),
            Err(failure) => self.end(RndvError::Failed(failure)),
        }
    }

    /// The target has passed its fence: the peer can no longer write there.
    pub const fn fenced(&mut self) {
        self.fenced = self.revoked;
    }

    /// Ends the transfer, unless it has ended: it was cancelled, its deadline passed, a copy failed,
    /// or the peer died. The memory is released when no copy runs and the target is fenced.
    pub fn end(&mut self, why: RndvError) {
        if self.end_sent == Some(true) {
            // Both ends reported success; only its memory is not free yet.
            return;
        }
        if why == RndvError::PeerDead {
            self.end_sent = self.end_sent.or(Some(false));
            self.end_received = self.end_received.or(Some(false));
        }
        self.failure = self.failure.or(Some(why));
    }

    /// Returns the next output; call it until it returns `None`.
    pub fn poll(&mut self) -> Option<ReceiverOutput> {
        let id = self.id;
        if self.failure.is_none()
            && let Some(output) = self.move_on()
        {
            return Some(output);
        }
        if self.end_sent.is_none()
            && let Some(ending) = self.failure
        {
            self.end_sent = Some(false);
            let how = Err(ending.why());
            return Some(ReceiverOutput::Send(RndvMsg::End { id, from: RndvRole::Receiver, how }));
        }
        let result = match (self.failure, self.end_sent) {
            (Some(ending), _) => Some(Err(ending)),
            (None, Some(true)) => Some(Ok(self.len)),
            (None, _) => None,
        };
        let result = result.filter(|_| self.wanted)?;
        // Halves that went well are handed back as they are: the sender has no credit for them.
        let shared = self.ready && (result.is_err() || !self.is_staged());
        if shared && !self.revoked {
            self.revoked = true;
            return Some(ReceiverOutput::Revoke);
        }
        if !self.ended {
            self.ended = true;
            return Some(ReceiverOutput::Ended(result));
        }
        if !self.copying && (!shared || self.fenced) && !self.released {
            self.released = true;
            return Some(ReceiverOutput::Free);
        }
        None
    }

    fn is_staged(&self) -> bool {
        self.target.is_some_and(|p| p.mode() == RndvMode::Staged)
    }

    /// Returns the next output of a message whose bytes have arrived.
    fn move_eager_on(&mut self) -> Option<ReceiverOutput> {
        if !self.taken || self.end_sent.is_some() {
            return None;
        }
        if self.copied < self.filled {
            if self.copying {
                return None;
            }
            self.copying = true;
            return Some(ReceiverOutput::Copy(CopyOut { seq: 0, to: self.rest }));
        }
        Some(self.end_for_both())
    }

    /// Sends the successful END that stands for the sender's, too.
    const fn end_for_both(&mut self) -> ReceiverOutput {
        (self.end_sent, self.end_received) = (Some(true), Some(true));
        ReceiverOutput::Send(RndvMsg::End { id: self.id, from: RndvRole::Receiver, how: Ok(()) })
    }

    fn move_on(&mut self) -> Option<ReceiverOutput> {
        if self.eager {
            return self.move_eager_on();
        }
        let (id, target) = (self.id, self.target?);
        if !self.ready {
            self.ready = true;
            return Some(ReceiverOutput::Send(RndvMsg::Ready { id, target }));
        }
        if self.is_counted() {
            let is_whole = self.all_put || self.pieces == 0;
            return (is_whole && self.end_sent.is_none()).then(|| self.end_for_both());
        }
        if self.credited < self.copied {
            let seq = self.credited;
            self.credited = self.credited.saturating_add(1);
            return Some(ReceiverOutput::Send(RndvMsg::Credit { id, seq }));
        }
        if self.copied < self.filled && !self.copying {
            let (to, rest) = self.rest.split_at_most(target.half_len());
            self.rest = rest;
            self.copying = true;
            return Some(ReceiverOutput::Copy(CopyOut { seq: self.copied, to }));
        }
        let whole = target.mode() == RndvMode::Direct || self.copied == self.pieces;
        if self.end_received == Some(true) && whole && self.end_sent.is_none() {
            self.end_sent = Some(true);
            return Some(ReceiverOutput::Send(RndvMsg::End {
                id,
                from: RndvRole::Receiver,
                how: Ok(()),
            }));
        }
        None
    }
}
