//! One peer over one transport: post, progress, wait.
//!
//! A [`WorkQueue`] assigns an id to each operation, posts it to the transport and passes every completion to its
//! slot. It has no clock (the caller passes in the time), wakes no thread and owns no memory: its owner calls
//! [`WorkQueue::next_event`], wakes waiting threads and releases memory. It is not for several threads.
//! [`crate::slots`] defines "known" and "fenced".

mod waiting;

use crate::limits::MAX_SLOTS;
use crate::slots::{Full, Outcome, Slot, SlotEvent, Slots, Stale};
use crate::time::Instant;
use crate::transport::{CancelOutcome, PostErrorKind, Transport};
pub use crate::work::Transfer;
use crate::work::{Completion, Failure, SlotId};

/// Completions taken from the transport at a time.
const POLL_BATCH: usize = 16;
/// Polls in one call of [`WorkQueue::progress`]: enough for every slot, and a bound on its length.
const POLL_ROUNDS: usize = MAX_SLOTS / POLL_BATCH;

/// What an operation holds until its fence, beside the transfers that the transport has no space for yet.
pub trait Hold: Default {
    /// The first of the last `left` transfers of the operation. Asked for with the same number again, or with one less: what is
    /// held may keep its place in a list that is not stored transfer by transfer.
    fn transfer(&mut self, left: u32) -> Option<Transfer>;

    /// Keeps the one transfer of an operation, for [`Hold::transfer`]; `false` if it cannot.
    fn keep(&mut self, t: &Transfer) -> bool;
}

/// Nothing is held and nothing waits.
impl Hold for () {
    #[inline]
    fn transfer(&mut self, _left: u32) -> Option<Transfer> {
        None
    }

    #[inline]
    fn keep(&mut self, _t: &Transfer) -> bool {
        false
    }
}

/// A list that is posted as one operation ([`WorkQueue::post_list`]). A single transfer does not wait.
impl Hold for &[Transfer] {
    fn transfer(&mut self, left: u32) -> Option<Transfer> {
        let at = self.len().checked_sub(usize::try_from(left).ok()?)?;
        self.get(at).copied()
    }

    fn keep(&mut self, _t: &Transfer) -> bool {
        false
    }
}

/// Why a work queue did not take a transfer. Nothing was posted by the call that answers this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueError<E> {
    /// All slots are taken.
    Full {
        /// How many there are.
        limit: usize,
    },
    /// The transport is full: progress, then post again.
    Busy,
    /// The two ranges are not equally long.
    Length {
        /// Bytes here.
        local: u64,
        /// Bytes there.
        remote: u64,
    },
    /// The transport refused.
    Transport(E),
}

impl<E: core::fmt::Debug> core::fmt::Display for QueueError<E> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Full { limit } => Full { limit: *limit }.fmt(f),
            Self::Busy => f.write_str("the transport is full; make progress first"),
            Self::Length { local, remote } => write!(
                f,
                "the local range has {local} bytes and the remote one {remote}; \
                 both must be equally long"
            ),
            Self::Transport(e) => write!(f, "the transport refused: {e:?}"),
        }
    }
}

impl<E: core::fmt::Debug> core::error::Error for QueueError<E> {}

/// The failure that an operation ends with when the transport refuses a part of it.
pub(crate) const fn failure_of(kind: PostErrorKind) -> Failure {
    match kind {
        PostErrorKind::Disconnected => Failure::PeerDead,
        PostErrorKind::Unsupported => Failure::Unsupported,
        PostErrorKind::UnknownRegion => Failure::UnknownRegion,
        // The trait carries no number here.
        PostErrorKind::Busy | PostErrorKind::Other => Failure::Transport(0),
    }
}

/// One peer over one transport. `S` is the storage of the slots (`[Slot; N]`, `&mut [Slot]`, ...), and `X` what each holds.
#[derive(Debug)]
pub struct WorkQueue<T, S, X = ()> {
    transport: T,
    slots: Slots<S, X>,
    stale: u64,
    // Kept here so that progress need not fill it anew each time.
    polled: [Completion; POLL_BATCH],
}

impl<T: Transport, X: Hold, S: AsRef<[Slot<X>]> + AsMut<[Slot<X>]>> WorkQueue<T, S, X> {
    /// A work queue over `transport` with a slot for each operation in `slots`, which is overwritten.
    pub fn new(transport: T, slots: S) -> Self {
        let blank = Completion { op: SlotId { index: 0, generation: 0 }, result: Ok(0) };
        Self { transport, slots: Slots::new(slots), stale: 0, polled: [blank; POLL_BATCH] }
    }

    /// As [`Slots::grow`].
    pub fn grow(&mut self, extend: impl FnOnce(&mut S)) {
        self.slots.grow(extend);
    }

    /// The transport.
    pub const fn transport(&self) -> &T {
        &self.transport
    }

    /// The transport. A caller that posts to it directly gets no completion.
    pub const fn transport_mut(&mut self) -> &mut T {
        &mut self.transport
    }

    /// The operations.
    pub const fn slots(&self) -> &Slots<S, X> {
        &self.slots
    }

    /// Begins one transfer, which fails with `DeadlineExceeded` unless it is done by `deadline`. A
    /// transfer of no bytes is done at once and the transport does not see it (a notify it does).
    ///
    /// # Errors
    /// `Length`, `Full`, `Busy` or `Transport`; nothing was posted and no slot is used.
    #[inline]
    pub fn post(
        &mut self,
        t: &Transfer,
        deadline: Instant,
    ) -> Result<SlotId, QueueError<T::Error>> {
        self.post_holding(t, deadline, &mut X::default())
    }

    /// As [`WorkQueue::post`]; the operation takes `hold` and holds it until its fence. If the transport is full, or other
    /// transfers wait for it, the transfer waits in its record, unless `hold` cannot keep it.
    ///
    /// # Errors
    /// As there, and `hold` is as it was; `Busy` only if `hold` cannot keep the transfer.
    #[inline]
    pub fn post_holding(
        &mut self,
        t: &Transfer,
        deadline: Instant,
        hold: &mut X,
    ) -> Result<SlotId, QueueError<T::Error>> {
        if let Some((local, remote)) = t.lengths() {
            return Err(QueueError::Length { local, remote });
        }
        let parts = if t.is_nothing() { 0 } else { 1 };
        let op = match self.slots.acquire(deadline, parts) {
            Ok(op) => op,
            Err(Full { limit }) => return Err(QueueError::Full { limit }),
        };
        self.set_hold(op, hold);
        if parts == 0 || (self.has_waiting() && self.wait(op, t)) {
            return Ok(op);
        }
        match self.transport.post(&t.work(op)) {
            Ok(()) => Ok(op),
            Err(e) => self.not_taken(op, t, e, hold),
        }
    }

    /// Lets the transport work, brings every completion to its operation, and posts transfers that waited for space. Returns
    /// how many completions there were. A call is bounded; zero means that there is none now.
    #[inline]
    pub fn progress(&mut self) -> usize {
        let mut total: usize = 0;
        for _ in 0..POLL_ROUNDS {
            let count = self.transport.poll(&mut self.polled);
            // More than there is space for cannot be true.
            let polled = self.polled.get(..count).unwrap_or_default();
            let count = polled.len();
            for done in polled {
                if self.slots.complete_one(done).is_err() {
                    self.stale = self.stale.saturating_add(1);
                }
            }
            // Cannot wrap: at most `MAX_SLOTS` in all.
            total = total.wrapping_add(count);
            if count < POLL_BATCH {
                break;
            }
        }
        if self.has_waiting() {
            self.post_waiting();
        }
        total
    }

    /// Completions that belonged to no operation: late or doubled by the transport.
    pub const fn stale(&self) -> u64 {
        self.stale
    }

    /// Takes the outcome of an operation once it is known; its name is stale then. It makes no
    /// progress. When the outcome is not `fenced`, an event says later that the memory is free.
    ///
    /// # Errors
    /// [`Stale`] when there is no such operation.
    #[inline]
    pub fn try_wait(&mut self, op: SlotId) -> Result<Option<Outcome>, Stale> {
        self.slots.take(op)
    }

    /// As [`WorkQueue::try_wait`], with what the operation still holds when the outcome says `fenced`.
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn take(&mut self, op: SlotId) -> Result<Option<(Outcome, X)>, Stale> {
        self.slots.take_held(op)
    }

    /// What an operation holds, to be changed.
    ///
    /// # Errors
    /// [`Stale`] when there is no such operation.
    #[inline]
    pub fn hold_mut(&mut self, op: SlotId) -> Result<&mut X, Stale> {
        self.slots.hold_mut(op)
    }

    /// What became of an operation; `None` while it is not known. Takes nothing.
    ///
    /// # Errors
    /// [`Stale`] when there is no such operation.
    #[inline]
    pub fn outcome(&self, op: SlotId) -> Result<Option<Outcome>, Stale> {
        self.slots.outcome(op)
    }

    /// Whether the outcome of an operation is known.
    ///
    /// # Errors
    /// [`Stale`] when there is no such operation.
    #[inline]
    pub fn test(&self, op: SlotId) -> Result<bool, Stale> {
        self.slots.outcome(op).map(|outcome| outcome.is_some())
    }

    /// Withdraws an operation: it ends as `Cancelled`, unless it has ended. Its memory is free only
    /// when the outcome says `fenced`. Cancelling a second time tries again to get the fence.
    ///
    /// # Errors
    /// [`Stale`] when there is no such operation.
    pub fn cancel(&mut self, op: SlotId) -> Result<(), Stale> {
        self.end(op, Failure::Cancelled)
    }

    fn end(&mut self, op: SlotId, failure: Failure) -> Result<(), Stale> {
        if self.slots.outcome(op)?.is_some_and(|outcome| outcome.fenced) {
            return Ok(());
        }
        let (_, due) = self.slots.parts(op)?;
        if due != 0 && matches!(self.transport.cancel(op), CancelOutcome::Withdrawn) {
            self.slots.fence(op, failure)
        } else {
            self.slots.fail(op, failure).map(|_| ())
        }
    }

    /// Nobody will ask for the outcome. The operation runs on; what is not posted of a list never
    /// will be. An event says when its memory is free, and the slot is free once that was read.
    ///
    /// # Errors
    /// [`Stale`] when there is no such operation.
    pub fn abandon(&mut self, op: SlotId) -> Result<Option<X>, Stale> {
        self.slots.abandon(op)
    }

    /// Ends every operation whose deadline is `now` or before, as [`WorkQueue::cancel`] does but with
    /// `DeadlineExceeded`. Cheap while no deadline has passed.
    pub fn expire(&mut self, now: Instant) {
        let mut from = 0;
        while let Some(op) = self.slots.next_expired(now, from) {
            // Cannot be stale: it was pending a moment ago.
            let _ = self.end(op, Failure::DeadlineExceeded);
            from = op.index.saturating_add(1);
        }
    }

    /// When to call [`WorkQueue::expire`] next; it may be too early, never too late.
    #[inline]
    pub const fn next_deadline(&self) -> Instant {
        self.slots.next_deadline()
    }

    /// The peer is gone: every operation that has not ended fails. `fenced` says whether the memory
    /// of all of them is out of reach now; if not, call again once it is.
    pub fn fail_all(&mut self, failure: Failure, fenced: bool) {
        self.slots.fail_all(failure, fenced);
    }

    /// Returns the next event: a known outcome, or free memory. Call it until it returns `None`.
    #[inline]
    pub fn next_event(&mut self) -> Option<SlotEvent<X>> {
        self.slots.next_event()
    }

    /// Operations whose memory is not free yet. When it is 0, nothing of this work queue touches memory.
    #[inline]
    pub const fn in_flight(&self) -> usize {
        self.slots.in_flight()
    }
}
