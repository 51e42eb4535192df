//! The sender's end of one rendezvous: offers the message, fills halves as credits allow (or puts it as one chunk),
//! and ends once.
//!
//! It releases the source only after every put has passed its fence. It puts to a half only after the credit for
//! it.

use super::{
    RecvTarget, RndvError, RndvId, RndvMode, RndvMsg, RndvRole, Violation, half_mut, of_half,
};
use crate::range::{ByteRange, Extent};
use crate::region::WindowSlice;
use crate::window::WindowFault;
use crate::work::Failure;

/// A chunk to put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PutChunk {
    /// Which piece; to be named in [`Sender::put_done`].
    pub seq: u64,
    /// The range of the message.
    pub source: ByteRange,
    /// The range of the receiver's window, equally long.
    pub target: WindowSlice,
}

/// What the owner of a sender has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SenderOutput {
    /// Send this message to the peer.
    Send(RndvMsg),
    /// Send the bytes of the message to the peer, as its offer.
    SendEager,
    /// Put these bytes, and say [`Sender::put_done`] when the put has passed its fence.
    Put(PutChunk),
    /// Cancel the puts that run.
    Withdraw,
    /// The transfer ended: bytes, or why not. Told once.
    Ended(Result<u64, RndvError>),
    /// Nothing reads the source. Returned once, after `Ended`.
    Free,
}

/// The state of a sender: the rows of the stored table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SenderPhase {
    /// It waits for the target.
    Offered,
    /// Its bytes go.
    Moving,
    /// All bytes are there; the receiver has to confirm it.
    Closing,
    /// It failed; the receiver's END is due.
    Failing,
    /// The receiver's END came.
    Over,
}

/// The sender's end of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender {
    id: RndvId,
    len: u64,
    /// Its bytes go with the offer.
    eager: bool,
    /// The receiver counts what is put straight into its memory.
    counted: bool,
    /// What no put was asked for yet.
    rest: ByteRange,
    target: Option<RecvTarget>,
    pieces: u64,
    /// Puts asked for, pieces reported as filled, credits received: each runs ahead of the next.
    posted: u64,
    reported: u64,
    credited: u64,
    /// Which piece is in flight to each half.
    in_flight: [Option<u64>; 2],
    landed: [bool; 2],
    offered: bool,
    withdrawn: bool,
    /// A put found the target revoked, or its answer was lost: how the message ends is told otherwise.
    refused: bool,
    /// Whether the END that was sent was `Ok`.
    end_sent: Option<bool>,
    end_received: Option<bool>,
    failure: Option<RndvError>,
    ended: bool,
    released: bool,
}

impl Sender {
    /// The sender of a message of `len` bytes. Number `id` must be the next of the link's.
    #[must_use]
    pub const fn new(id: RndvId, len: u64) -> Self {
        Self::with(id, len, false)
    }

    /// The sender of a message of `len` bytes that go with its offer: at most
    /// [`MAX_EAGER_BYTES`](crate::limits::MAX_EAGER_BYTES), and only to a peer that takes them.
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
            pieces: 0,
            posted: 0,
            reported: 0,
            credited: 0,
            in_flight: [None; 2],
            landed: [false; 2],
            offered: false,
            withdrawn: false,
            refused: false,
            end_sent: None,
            end_received: None,
            failure: None,
            ended: false,
            released: false,
        }
    }

    /// The same, if the receiver counts the bytes that are put: the successful END of a direct message's receiver stands for both.
    #[must_use]
    pub const fn counted(self) -> Self {
        Self { counted: true, ..self }
    }

    /// The number of the transfer.
    #[must_use]
    pub const fn id(&self) -> RndvId {
        self.id
    }

    /// Returns its state.
    #[must_use]
    pub const fn phase(&self) -> SenderPhase {
        match (self.end_received, self.failure, self.target, self.end_sent) {
            (Some(_), ..) => SenderPhase::Over,
            (None, Some(_), ..) => SenderPhase::Failing,
            (None, None, None, _) => SenderPhase::Offered,
            (None, None, Some(_), None) => SenderPhase::Moving,
            (None, None, Some(_), Some(_)) => SenderPhase::Closing,
        }
    }

    /// Returns `true` if both ends sent END and the source is free: the machine can be dropped.
    #[must_use]
    pub const fn is_finished(&self) -> bool {
        self.end_sent.is_some() && self.end_received.is_some() && self.released
    }

    /// A message of the receiver came.
    ///
    /// # Errors
    /// [`Violation`]; nothing changed.
    pub fn receive(&mut self, note: &RndvMsg) -> Result<(), Violation> {
        if self.end_received.is_some() || !self.offered {
            return Err(Violation::NotNow);
        }
        match (*note, self.target) {
            (RndvMsg::Ready { target, .. }, None) if !self.eager => self.start(target),
            (RndvMsg::Credit { seq, .. }, Some(target)) if target.mode() == RndvMode::Staged => {
                self.credit(seq)
            }
            (RndvMsg::End { from: RndvRole::Receiver, how: Err(why), .. }, _) => {
                self.end_received = Some(false);
                self.failure = self.failure.or(Some(RndvError::There(why)));
                Ok(())
            }
            (RndvMsg::End { from: RndvRole::Receiver, how: Ok(()), .. }, Some(_))
                if self.is_counted() =>
            {
                if self.posted != self.pieces {
                    return Err(Violation::NotNow);
                }
                self.end_for_both();
                Ok(())
            }
            (RndvMsg::End { from: RndvRole::Receiver, how: Ok(()), .. }, Some(target))
                if self.end_sent == Some(true)
                    && (target.mode() == RndvMode::Direct || self.credited == self.pieces) =>
            {
                self.end_received = Some(true);
                Ok(())
            }
            (RndvMsg::End { from: RndvRole::Receiver, how: Ok(()), .. }, None) if self.eager => {
                self.end_for_both();
                Ok(())
            }
            _ => Err(Violation::NotNow),
        }
    }

    /// The receiver's successful END came, which stands for both.
    fn end_for_both(&mut self) {
        self.end_received = Some(true);
        if self.end_sent.is_none() {
            // A failure of which nobody was told comes too late.
            (self.end_sent, self.failure) = (Some(true), self.failure.filter(|_| self.ended));
        }
    }

    /// Whether the receiver counts the bytes of this message.
    fn is_counted(&self) -> bool {
        self.counted && self.target.is_some_and(|t| t.mode() == RndvMode::Direct)
    }

    fn start(&mut self, target: RecvTarget) -> Result<(), Violation> {
        let area = target.area().span.len();
        if target.mode() == RndvMode::Direct && area != self.len {
            return Err(Violation::Target { len: self.len, area });
        }
        self.pieces = target.pieces(self.len);
        self.target = Some(target);
        Ok(())
    }

    fn credit(&mut self, seq: u64) -> Result<(), Violation> {
        if seq != self.credited || seq >= self.reported {
            return Err(Violation::Sequence { want: self.credited, got: seq });
        }
        self.credited = self.credited.saturating_add(1);
        Ok(())
    }

    /// A put that was asked for has passed its fence. A piece that is not in flight is passed over.
    pub fn put_done(&mut self, seq: u64, result: Result<(), Failure>) {
        let in_flight = half_mut(&mut self.in_flight, seq);
        if *in_flight != Some(seq) {
            return;
        }
        *in_flight = None;
        match result {
            Ok(()) => *half_mut(&mut self.landed, seq) = true,
            // The receiver revoked the target: its END, which is on its way, has the reason. If it
            // never comes, the deadline ends the rendezvous.
            Err(Failure::Window(
                WindowFault::Revoked | WindowFault::Unknown | WindowFault::StaleEpoch,
            )) => self.refused = true,
            // The answer was lost with the connection, the bytes perhaps not: the receiver's END tells, or the link's end.
            Err(Failure::PeerDead) if self.is_counted() => self.refused = true,
            Err(failure) => self.end(RndvError::Failed(failure)),
        }
    }

    /// Ends the transfer, unless it has ended: it was cancelled, its deadline passed, a put failed,
    /// or the peer died. Puts that run still have to pass their fences.
    pub fn end(&mut self, why: RndvError) {
        if why == RndvError::PeerDead {
            // Nobody is there to send to or to receive from.
            self.offered = true;
            self.end_sent = self.end_sent.or(Some(false));
            if self.end_received.is_none() {
                self.failure = self.failure.or(Some(why));
                self.end_received = Some(false);
            }
        } else if self.end_received.is_none() {
            self.failure = self.failure.or(Some(why));
        }
    }

    /// Returns the next output; call it until it returns `None`.
    pub fn poll(&mut self) -> Option<SenderOutput> {
        let id = self.id;
        if !self.offered {
            self.offered = true;
            let offer = SenderOutput::Send(RndvMsg::Offer { id, len: self.len });
            return Some(if self.eager { SenderOutput::SendEager } else { offer });
        }
        if self.failure.is_none()
            && !self.refused
            && let Some(output) = self.move_on()
        {
            return Some(output);
        }
        if self.end_sent.is_none()
            && let Some(ending) = self.failure
        {
            self.end_sent = Some(false);
            let how = Err(ending.why());
            return Some(SenderOutput::Send(RndvMsg::End { id, from: RndvRole::Sender, how }));
        }
        if self.failure.is_some() && self.has_in_flight() && !self.withdrawn {
            self.withdrawn = true;
            return Some(SenderOutput::Withdraw);
        }
        let result = match (self.failure, self.end_received) {
            (Some(ending), _) => Some(Err(ending)),
            (None, Some(_)) => Some(Ok(self.len)),
            (None, None) => None,
        };
        if let Some(result) = result
            && !self.ended
        {
            self.ended = true;
            return Some(SenderOutput::Ended(result));
        }
        if self.ended && !self.has_in_flight() && !self.released {
            self.released = true;
            return Some(SenderOutput::Free);
        }
        None
    }

    const fn has_in_flight(&self) -> bool {
        let [first, second] = self.in_flight;
        first.is_some() || second.is_some()
    }

    fn move_on(&mut self) -> Option<SenderOutput> {
        let (id, target) = (self.id, self.target?);
        // Landed in any order, reported in theirs.
        if of_half(&self.landed, self.reported) {
            *half_mut(&mut self.landed, self.reported) = false;
            let seq = self.reported;
            self.reported = self.reported.saturating_add(1);
            if target.mode() == RndvMode::Staged {
                return Some(SenderOutput::Send(RndvMsg::Filled { id, seq }));
            }
        }
        if self.reported == self.pieces {
            if self.end_sent.is_some() || self.is_counted() {
                return None;
            }
            self.end_sent = Some(true);
            return Some(SenderOutput::Send(RndvMsg::End {
                id,
                from: RndvRole::Sender,
                how: Ok(()),
            }));
        }
        if self.posted == self.pieces || self.posted.saturating_sub(self.credited) >= 2 {
            return None;
        }
        let seq = self.posted;
        let (area, chunk_len) = match target.mode() {
            RndvMode::Direct => (target.area(), self.len),
            RndvMode::Staged => (of_half(&target.halves(), seq), target.half_len()),
        };
        let (source, rest) = self.rest.split_at_most(chunk_len);
        let (span, _) = area.span.split_at_most(source.len());
        self.rest = rest;
        self.posted = self.posted.saturating_add(1);
        *half_mut(&mut self.in_flight, seq) = Some(seq);
        let to = WindowSlice { span, ..area };
        Some(SenderOutput::Put(PutChunk { seq, source, target: to }))
    }
}
