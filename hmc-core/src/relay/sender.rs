//! The sender's end of one message: offers it, fills halves as credits allow (or puts it in one
//! piece), and ends once.
//!
//! It reads the source until every put has passed its fence, and only then lets it go. It never puts
//! to a half whose credit has not come.

use super::{Ending, Mode, Note, Place, RelayId, Role, Violation, half_mut, of_half};
use crate::region::WindowSlice;
use crate::span::{Extent, Span};
use crate::window::WindowFault;
use crate::work::Failure;

/// A put to be posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Put {
    /// Which piece; to be named in [`Sender::put_done`].
    pub seq: u64,
    /// The range of the message.
    pub source: Span,
    /// The range of the receiver's window, equally long.
    pub target: WindowSlice,
}

/// What the owner of a sender has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SenderOutput {
    /// Tell the peer.
    Tell(Note),
    /// Put these bytes, and say [`Sender::put_done`] when the put has passed its fence.
    Put(Put),
    /// Cancel the puts that run.
    Withdraw,
    /// The transfer ended: bytes, or why not. Told once.
    Ended(Result<u64, Ending>),
    /// Nothing reads the source any more. Told once, after `Ended`.
    Free,
}

/// Where a sender stands: the rows of the stored table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SenderPhase {
    /// It waits for a place.
    Offered,
    /// Its bytes go.
    Moving,
    /// All bytes are there; the receiver has to say so.
    Closing,
    /// It failed; the receiver's last word is due.
    Failing,
    /// The receiver spoke its last word.
    Over,
}

/// The sender's end of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender {
    id: RelayId,
    len: u64,
    /// What no put was asked for yet.
    rest: Span,
    place: Option<Place>,
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
    /// A put found the place taken back.
    refused: bool,
    /// Whether the last word was well.
    said: Option<bool>,
    heard: Option<bool>,
    failure: Option<Ending>,
    ended: bool,
    freed: bool,
}

impl Sender {
    /// The sender of a message of `len` bytes. Number `id` must be the next of the link's.
    #[must_use]
    pub const fn new(id: RelayId, len: u64) -> Self {
        Self {
            id,
            len,
            rest: Extent::new(len).whole(),
            place: None,
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
    pub const fn id(&self) -> RelayId {
        self.id
    }

    /// Where it stands.
    #[must_use]
    pub const fn phase(&self) -> SenderPhase {
        match (self.heard, self.failure, self.place, self.said) {
            (Some(_), ..) => SenderPhase::Over,
            (None, Some(_), ..) => SenderPhase::Failing,
            (None, None, None, _) => SenderPhase::Offered,
            (None, None, Some(_), None) => SenderPhase::Moving,
            (None, None, Some(_), Some(_)) => SenderPhase::Closing,
        }
    }

    /// Whether both ends spoke their last word and the source is free: forget it.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.said.is_some() && self.heard.is_some() && self.freed
    }

    /// The receiver told something.
    ///
    /// # Errors
    /// [`Violation`]; nothing changed.
    pub fn receive(&mut self, note: &Note) -> Result<(), Violation> {
        if self.heard.is_some() || !self.offered {
            return Err(Violation::NotNow);
        }
        match (*note, self.place) {
            (Note::Ready { place, .. }, None) => self.start(place),
            (Note::Credit { seq, .. }, Some(place)) if place.mode() == Mode::Staged => {
                self.credit(seq)
            }
            (Note::End { from: Role::Receiver, how: Err(why), .. }, _) => {
                self.heard = Some(false);
                self.failure = self.failure.or(Some(Ending::There(why)));
                Ok(())
            }
            (Note::End { from: Role::Receiver, how: Ok(()), .. }, Some(place))
                if self.said == Some(true)
                    && (place.mode() == Mode::Direct || self.credited == self.pieces) =>
            {
                self.heard = Some(true);
                Ok(())
            }
            (
                Note::Offer { .. }
                | Note::Ready { .. }
                | Note::Filled { .. }
                | Note::Credit { .. }
                | Note::End { .. },
                _,
            ) => Err(Violation::NotNow),
        }
    }

    fn start(&mut self, place: Place) -> Result<(), Violation> {
        let area = place.area().span.len();
        if place.mode() == Mode::Direct && area != self.len {
            return Err(Violation::Place { len: self.len, area });
        }
        self.pieces = place.pieces(self.len);
        self.place = Some(place);
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
            // The receiver took the place back: its last word, which is on its way, says why. Should
            // it never come, the deadline does.
            Err(Failure::Window(
                WindowFault::Revoked | WindowFault::Unknown | WindowFault::StaleEpoch,
            )) => self.refused = true,
            Err(failure) => self.end(Ending::Failed(failure)),
        }
    }

    /// Ends the transfer, unless it has ended: it was cancelled, its deadline passed, a put failed,
    /// or the peer died. Puts that run still have to pass their fences.
    pub fn end(&mut self, why: Ending) {
        if why == Ending::PeerDead {
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
            return Some(SenderOutput::Tell(Note::Offer { id, len: self.len }));
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
            return Some(SenderOutput::Tell(Note::End { id, from: Role::Sender, how }));
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
        let (id, place) = (self.id, self.place?);
        // Landed in any order, told in theirs.
        if of_half(&self.landed, self.told) {
            *half_mut(&mut self.landed, self.told) = false;
            let seq = self.told;
            self.told = self.told.saturating_add(1);
            if place.mode() == Mode::Staged {
                return Some(SenderOutput::Tell(Note::Filled { id, seq }));
            }
        }
        if self.told == self.pieces {
            if self.said.is_some() {
                return None;
            }
            self.said = Some(true);
            return Some(SenderOutput::Tell(Note::End { id, from: Role::Sender, how: Ok(()) }));
        }
        if self.posted == self.pieces || self.posted.saturating_sub(self.credited) >= 2 {
            return None;
        }
        let seq = self.posted;
        let (room, piece_len) = match place.mode() {
            Mode::Direct => (place.area(), self.len),
            Mode::Staged => (of_half(&place.halves(), seq), place.half_len()),
        };
        let (source, rest) = self.rest.split_at_most(piece_len);
        let (target, _) = room.span.split_at_most(source.len());
        self.rest = rest;
        self.posted = self.posted.saturating_add(1);
        *half_mut(&mut self.flying, seq) = Some(seq);
        let target = WindowSlice { span: target, ..room };
        Some(SenderOutput::Put(Put { seq, source, target }))
    }
}
