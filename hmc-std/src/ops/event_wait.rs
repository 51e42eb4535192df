//! How a future waits for something that an event of its session brings: a message, a window, a peer, space to send.

use std::task::{Context, Poll};
use std::time::Duration;

use hmc_core::time::Instant;

use crate::base::error::{Error, Result};
use crate::callbacks::timer::Timer;
use crate::callbacks::waker_set::WakerSet;
use crate::ops::started::given;
use crate::state::inner::SessionInner;

/// The time of one future, which counts from its first poll.
#[derive(Debug)]
pub(crate) struct EventWait {
    within: Option<Duration>,
    deadline: Option<Instant>,
    timer: Option<Timer>,
    /// The result was given.
    given: bool,
}

impl EventWait {
    /// One that ends after `within`, or after the session's deadline.
    pub(crate) fn new(within: Option<Duration>) -> Self {
        Self { within, deadline: None, timer: None, given: false }
    }

    /// When it ends. The time begins with the first call.
    pub(crate) fn deadline(&mut self, shared: &SessionInner) -> Instant {
        let within = self.within.unwrap_or(shared.config.deadline);
        *self.deadline.get_or_insert_with(|| shared.clock.deadline_in(within))
    }

    /// What `look` finds, or the error `late` once the time is over. Otherwise the task is woken by the next event of the
    /// session, and at the end of the time.
    pub(crate) fn poll<R>(
        &mut self,
        shared: &SessionInner,
        cx: &Context<'_>,
        late: impl FnOnce() -> Error,
        look: impl FnMut() -> Option<Result<R>>,
    ) -> Poll<Result<R>> {
        self.poll_on(shared, &shared.event_wakers, cx, late, look)
    }

    /// As [`EventWait::poll`], for what is announced to `wakers`.
    pub(crate) fn poll_on<R>(
        &mut self,
        shared: &SessionInner,
        wakers: &WakerSet,
        cx: &Context<'_>,
        late: impl FnOnce() -> Error,
        mut look: impl FnMut() -> Option<Result<R>>,
    ) -> Poll<Result<R>> {
        shared.check_process()?;
        if let Some(found) = look() {
            return Poll::Ready(found);
        }
        let deadline = self.deadline(shared);
        if shared.clock.now() >= deadline {
            return Poll::Ready(Err(late()));
        }
        shared.wakers.start();
        self.timer
            .get_or_insert_with(|| Timer::new(&shared.wakers, shared.origin, deadline))
            .wake(cx.waker());
        wakers.add(cx.waker());
        // What came before the waker was added woke nobody.
        look().map_or(Poll::Pending, Poll::Ready)
    }

    /// Notes that a future has given its result, if it has. Those that would do something once more ask [`EventWait::check`].
    pub(crate) fn give<R>(&mut self, polled: Poll<R>) -> Poll<R> {
        self.given |= polled.is_ready();
        polled
    }

    /// # Errors
    /// `Stale` for a future that is polled after it gave its result.
    pub(crate) fn check(&self) -> Result<()> {
        if self.given { Err(given()) } else { Ok(()) }
    }
}
