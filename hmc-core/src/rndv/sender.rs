//! The sender's end of one rendezvous: offers the message, fills halves as credits allow (or puts it
//! as one chunk), and ends once.
//!
//! It releases the source only after every put has passed its fence. It puts to a half only after
//! the credit for it.

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
    Tell(RndvMsg),
    /// Put these bytes, and say [`Sender::put_done`] when the put has passed its fence.
    Put(PutChunk),
    /// Cancel the puts that run.
    Withdraw,
    /// The transfer ended: bytes, or why not. Told once.
    Ended(Result<u64, RndvError>),
    /// Nothing reads the source any more. Told once, after `Ended`.
    Free,
}

/// The state of a sender: the rows of the stored table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SenderPhase {
    /// It waits for the target.
    Offered,
    /// Its bytes go.
    Moving,
    /// All bytes are there; the receiver has to say so.
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
    /// What no put was asked for yet.
    rest: ByteRange,
    target: Option<RecvTarget>,
    pieces: u64,
    /// Puts asked for, pieces told as filled, credits received: each runs ahead of the next.
    posted: u64,
    told: u64,
    credited: u64,
    /// Which piece flies to each half.
    flying: [Option<u64>; 2],
    landed: [bool; 2],
    offered: bool,
    withdrawn: bool,
    /// A put found the target revoked.
    refused: bool,
    /// Whether the END that was sent was `Ok`.
    said: Option<bool>,
    heard: Option<bool>,
    failure: Option<RndvError>,
    ended: bool,
    freed: bool,
}

impl Sender {
    /// The sender of a message of `len` bytes. Number `id` must be the next of the link's.
    #[must_use]
    pub const fn new(id: RndvId, len: u64) -> Self {
        Self {
            id,
            len,
            rest: Extent::new(len).whole(),
            target: None,
            pieces: 0,
            posted: 0,
            told: 0,
            credited: 0,
            flying: [None; 2],
            landed: [false; 2],
            offered: false,
            withdrawn: false,
            refused: false,
            said: None,
            heard: None,
            failure: None,
            ended: false,
            freed: false,
        }
    }

    /// The number of the transfer.
    #[must_use]
    pub const fn id(&self) -> RndvId {
        self.id
    }

    /// Returns its state.
    #[must_use]
    pub const fn phase(&self) -> SenderPhase {
        match (self.heard, self.failure, self.target, self.said) {
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
        self.said.is_some() && self.heard.is_some() && self.freed
    }

    /// A message of the receiver came.
    ///
    /// # Errors
    /// [`Violation`]; nothing changed.
    pub fn receive(&mut self, note: &RndvMsg) -> Result<(), Violation> {
        if self.heard.is_some() || !self.offered {
            return Err(Violation::NotNow);
        }
        match (*note, self.target) {
            (RndvMsg::Ready { target, .. }, None) => self.start(target),
            (RndvMsg::Credit { seq, .. }, Some(target)) if target.mode() == RndvMode::Staged => {
                self.credit(seq)
            }
            (RndvMsg::End { from: RndvRole::Receiver, how: Err(why), .. }, _) => {
                self.heard = Some(false);
                self.failure = self.failure.or(Some(RndvError::There(why)));
                Ok(())
            }
            (RndvMsg::End { from: RndvRole::Receiver, how: Ok(()), .. }, Some(target))
                if self.said == Some(true)
                    && (target.mode() == RndvMode::Direct || self.credited == self.pieces) =>
            {
                self.heard = Some(true);
                Ok(())
            }
            _ => Err(Violation::NotNow),
        }
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
        if seq != self.credited || seq >= self.told {
            return Err(Violation::Sequence { want: self.credited, got: seq });
        }
        self.credited = self.credited.saturating_add(1);
        Ok(())
    }

    /// A put that was asked for has passed its fence. A piece that does not fly is passed over.
    pub fn put_done(&mut self, seq: u64, result: Result<(), Failure>) {
        let flying = half_mut(&mut self.flying, seq);
        if *flying != Some(seq) {
            return;
        }
        *flying = None;
        match result {
            Ok(()) => *half_mut(&mut self.landed, seq) = true,
            // The receiver revoked the target: its END, which is on its way, has the reason. If it
            // never comes, the deadline ends the rendezvous.
            Err(Failure::Window(
                WindowFault::Revoked | WindowFault::Unknown | WindowFault::StaleEpoch,
            )) => self.refused = true,
            Err(failure) => self.end(RndvError::Failed(failure)),
        }
    }

    /// Ends the transfer, unless it has ended: it was cancelled, its deadline passed, a put failed,
    /// or the peer died. Puts that run still have to pass their fences.
    pub fn end(&mut self, why: RndvError) {
        if why == RndvError::PeerDead {
            // Nobody is there to tell or to be heard.
            self.offered = true;
            self.said = self.said.or(Some(false));
            if self.heard.is_none() {
                self.failure = self.failure.or(Some(why));
                self.heard = Some(false);
            }
        } else if self.heard.is_none() {
            self.failure = self.failure.or(Some(why));
        }
    }

    /// What is to be done next; ask until there is nothing.
    pub fn poll(&mut self) -> Option<SenderOutput> {
        let id = self.id;
        if !self.offered {
            self.offered = true;
            return Some(SenderOutput::Tell(RndvMsg::Offer { id, len: self.len }));
        }
        if self.failure.is_none()
            && !self.refused
            && let Some(output) = self.move_on()
        {
            return Some(output);
        }
        if self.said.is_none()
            && let Some(ending) = self.failure
        {
            self.said = Some(false);
            let how = Err(ending.why());
            return Some(SenderOutput::Tell(RndvMsg::End { id, from: RndvRole::Sender, how }));
        }
        if self.failure.is_some() && self.flies() && !self.withdrawn {
            self.withdrawn = true;
            return Some(SenderOutput::Withdraw);
        }
        let result = match (self.failure, self.heard) {
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
        if self.ended && !self.flies() && !self.freed {
            self.freed = true;
            return Some(SenderOutput::Free);
        }
        None
    }

    const fn flies(&self) -> bool {
        let [first, second] = self.flying;
        first.is_some() || second.is_some()
    }

    fn move_on(&mut self) -> Option<SenderOutput> {
        let (id, target) = (self.id, self.target?);
        // Landed in any order, told in theirs.
        if of_half(&self.landed, self.told) {
            *half_mut(&mut self.landed, self.told) = false;
            let seq = self.told;
            self.told = self.told.saturating_add(1);
            if target.mode() == RndvMode::Staged {
                return Some(SenderOutput::Tell(RndvMsg::Filled { id, seq }));
            }
        }
        if self.told == self.pieces {
            if self.said.is_some() {
                return None;
            }
            self.said = Some(true);
            return Some(SenderOutput::Tell(RndvMsg::End {
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
        *half_mut(&mut self.flying, seq) = Some(seq);
        let to = WindowSlice { span, ..area };
        Some(SenderOutput::Put(PutChunk { seq, source, target: to }))
    }
}
