//! Transfers of bytes that are lent for the call: they are in no region, so that only this process copies them, and only in the
//! caller's own calls. Nothing of them is under way when a call returns.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hmc_core::limits::{MAX_CHUNK_BYTES, RNDV_HALF_BYTES};
use hmc_core::range::Side;
use hmc_core::time::Instant;
use hmc_core::work::{CompleteWhen, Opcode};
use hmc_mem::error::MemError;
use hmc_mem::shared::SharedBytes;

use crate::base::clock;
use crate::base::error::{Error, Result};
use crate::memory::{Span, check_writable};
use crate::ops::carried::Done;
use crate::ops::remote::{Remote, There};
use crate::ops::transfer::{Move, PendingMove};

/// Bytes of a slice, which a transfer or message reads or fills in the caller's own calls.
#[derive(Debug)]
pub struct Lent<'b>(pub(crate) SharedBytes<'b>);

impl<'b> Lent<'b> {
    /// The bytes of a view, which others may read and write meanwhile.
    #[must_use]
    pub fn new(bytes: SharedBytes<'b>) -> Self {
        Self(bytes)
    }

    /// The `len` bytes at `offset` of them.
    ///
    /// # Errors
    /// `Range`.
    pub fn part(self, offset: u64, len: u64) -> Result<Self> {
        let range = self.0.extent().span(Side::Local, offset, len)?;
        Ok(Self(self.0.part(range).map_err(MemError::from)?))
    }
}

/// Copies of at most 1 MiB between two looks at the time, and in one poll.
const COPIES: u32 = 16;

/// What a transfer of lent bytes goes on with.
enum LentStep {
    /// A piece has to be transferred.
    Piece(Opcode, There, Span),
    /// More is to be copied.
    More,
    Done,
}

/// A transfer of lent bytes, and how far it is.
#[derive(Debug)]
pub(crate) struct LentMove<'a, 'b> {
    remote: &'a Remote,
    code: Opcode,
    there: There,
    bytes: Lent<'b>,
    within: Option<Duration>,
    /// Bytes that are where they belong.
    done: u64,
    /// A piece was posted with the tag.
    is_tagged: bool,
}

impl<'a, 'b> From<Move<'a, Lent<'b>>> for LentMove<'a, 'b> {
    fn from(m: Move<'a, Lent<'b>>) -> Self {
        // Whoever lends bytes has them back when the call returns, and pieces go through memory that is used again.
        let Move { remote, code, when: _, there, bytes, within } = m;
        Self { remote, code, there, bytes, within, done: 0, is_tagged: false }
    }
}

impl<'a, 'b> LentMove<'a, 'b> {
    /// Copies what can be copied straight from or to the mapped window, for [`COPIES`] at most. Else gives a piece, in memory of
    /// its own, that has to be transferred.
    fn next(&mut self) -> Result<LentStep> {
        let view = self.bytes.0;
        let whole = view.extent();
        for _ in 0..COPIES {
            let left = whole.len().saturating_sub(self.done);
            let (code, there) = (self.code, self.there.skip(self.done));
            let has_tag = matches!(code, Opcode::PutNotify { .. });
            // Without bytes there is the tag alone.
            if left == 0 && (self.done != 0 || self.is_tagged || !has_tag) {
                return Ok(LentStep::Done);
            }
            let chunk = whole.span(Side::Local, self.done, left.min(MAX_CHUNK_BYTES))?;
            // The tag goes with the last piece.
            let is_last = chunk.len() == left;
            let plain = if has_tag && !is_last { Opcode::Put } else { code };
            if self.remote.copy_direct(plain, there, view, chunk, whole.len())
                || self.remote.copy_lent(plain, there, view, chunk)?
            {
                self.done = self.done.saturating_add(chunk.len());
                continue;
            }
            let piece = whole.span(Side::Local, self.done, left.min(RNDV_HALF_BYTES))?;
            let plain = if has_tag && piece.len() < left { Opcode::Put } else { code };
            let span = self.remote.peer.bounce(piece.len())?.take(0, piece.len())?;
            if plain != Opcode::Get {
                let bounce = span.region().bytes();
                view.copy_to(piece, &bounce, span.slice().span).map_err(MemError::from)?;
            }
            self.is_tagged |= matches!(plain, Opcode::PutNotify { .. });
            return Ok(LentStep::Piece(plain, there, span));
        }
        Ok(LentStep::More)
    }

    /// A piece was transferred.
    fn landed(&mut self, span: Span) -> Result<()> {
        let view = self.bytes.0;
        let piece = view.extent().span(Side::Local, self.done, span.len())?;
        if self.code == Opcode::Get {
            span.region()
                .bytes()
                .copy_to(span.slice().span, &view, piece)
                .map_err(MemError::from)?;
        }
        self.done = self.done.saturating_add(span.len());
        let bounce = span.region().clone();
        // Whoever takes the bounce buffers next takes a range of them.
        drop(span);
        self.remote.peer.link.rndv_storage(|rndv| rndv.give_bounce(bounce));
        Ok(())
    }

    /// Checks all of it before anything is done.
    fn check(&self) -> Result<()> {
        let r = self.remote.slice(self.there, self.bytes.0.extent().len()).map(drop);
        let r = if self.code == Opcode::Get { r.and(check_writable(&self.bytes.0)) } else { r };
        r.map_err(|e| e.with_peer(self.remote.peer.rank()))
    }

    fn all_done(&self) -> Done {
        Done { bytes: self.done, memory: () }
    }

    pub(crate) fn wait(mut self) -> Result<Done> {
        self.check()?;
        let until = self.remote.until(self.within);
        loop {
            let (code, there, bytes) = match self.next()? {
                LentStep::Piece(code, there, bytes) => (code, there, bytes),
                LentStep::More if self.remote.peer.shared.clock.now() < until.at => continue,
                LentStep::More => return Err(self.late()),
                LentStep::Done => return Ok(self.all_done()),
            };
            let left = Duration::from_nanos(clock::left(until.at).as_nanos());
            let within = if self.done == 0 { self.within } else { Some(left) };
            let when = CompleteWhen::Visible;
            let piece = Move { remote: self.remote, code, when, there, bytes, within };
            let moved = piece.wait().map_err(Error::from)?;
            self.landed(moved.memory)?;
        }
    }

    fn late(&self) -> Error {
        Error::deadline("copying").with_peer(self.remote.peer.rank())
    }

    pub(crate) fn pending(self) -> PendingLent<'a, 'b> {
        PendingLent { rest: self, piece: None, deadline: None }
    }
}

/// A transfer of lent bytes as a future, which copies them in its own polls.
#[derive(Debug)]
pub struct PendingLent<'a, 'b> {
    rest: LentMove<'a, 'b>,
    /// The piece that is under way.
    piece: Option<PendingMove<'a, Span>>,
    /// Of all of it, from the first poll on.
    deadline: Option<Instant>,
}

impl Future for PendingLent<'_, '_> {
    type Output = Result<Done>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let deadline = match this.deadline {
            Some(deadline) => deadline,
            None => {
                this.rest.check()?;
                *this.deadline.insert(this.rest.remote.until(this.rest.within).at)
            }
        };
        loop {
            if let Some(piece) = &mut this.piece {
                let moved = ready!(Pin::new(piece).poll(cx));
                this.piece = None;
                this.rest.landed(moved.map_err(Error::from)?.memory)?;
            }
            let (code, there, bytes) = match this.rest.next()? {
                LentStep::Piece(code, there, bytes) => (code, there, bytes),
                LentStep::More if this.rest.remote.peer.shared.clock.now() < deadline => {
                    // Others have their turn.
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                LentStep::More => return Poll::Ready(Err(this.rest.late())),
                LentStep::Done => return Poll::Ready(Ok(this.rest.all_done())),
            };
            let within = Some(Duration::from_nanos(clock::left(deadline).as_nanos()));
            let when = CompleteWhen::Visible;
            let piece = Move { remote: this.rest.remote, code, when, there, bytes, within };
            this.piece = Some(piece.pending());
        }
    }
}
