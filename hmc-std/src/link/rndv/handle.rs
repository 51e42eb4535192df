//! What the owner of a message waits for: its result, and its memory.

use std::sync::{Mutex, PoisonError};
use std::task::Waker;

use crate::base::error::{Error, ErrorKind, Result};
use crate::memory::Span;

/// How a message ended, and its memory if that is free.
pub(crate) type Found = (Result<u64>, Option<Span>);

/// One message of ours, as its owner sees it.
#[derive(Debug, Default)]
pub(crate) struct MessageHandle(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    result: Option<Result<u64>>,
    span: Option<Span>,
    free: bool,
    /// The result was given.
    taken: bool,
    waker: Option<Waker>,
}

impl State {
    /// Success is reported when the memory is back; failure at once.
    fn is_known(&self) -> bool {
        self.result.as_ref().is_some_and(|r| self.free || r.is_err())
    }

    /// The result and the memory, if they are known; `Stale` once they were given.
    fn take(&mut self) -> Option<Found> {
        if self.taken {
            return Some((Err(stale()), None));
        }
        if !self.is_known() {
            return None;
        }
        let result = self.result.take()?;
        self.taken = true;
        Some((result, self.span.take()))
    }
}

/// The error of a caller that asks for a result that was given before.
pub(crate) fn stale() -> Error {
    Error::new(ErrorKind::Stale, "waited for after it was done")
}

impl MessageHandle {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It ended. The first result stays.
    pub(super) fn ended(&self, result: Result<u64>) -> Option<Waker> {
        let mut s = self.state();
        if s.result.is_none() {
            s.result = Some(result);
        }
        if s.is_known() { s.waker.take() } else { None }
    }

    /// Nothing touches its memory any more.
    pub(super) fn released(&self, span: Option<Span>) -> Option<Waker> {
        let mut s = self.state();
        s.span = span;
        s.free = true;
        if s.is_known() { s.waker.take() } else { None }
    }

    /// The result and the memory, once; `Stale` from then on.
    pub(crate) fn take(&self) -> Option<Found> {
        self.state().take()
    }

    /// As [`MessageHandle::take`]; else `waker` is woken when there is something to take. Gives back the
    /// waker that it replaces, to be dropped without locks.
    pub(crate) fn take_or_wake(&self, waker: Waker) -> std::result::Result<Found, Option<Waker>> {
        let mut s = self.state();
        match s.take() {
            Some(found) => Ok(found),
            None => Err(s.waker.replace(waker)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::task::Waker;

    use super::MessageHandle;
    use crate::base::error::{Error, ErrorKind};
    use crate::memory::{RegionTable, Span};

    fn span() -> Span {
        let region = Arc::new(RegionTable::default()).allocate(1).expect("memory");
        region.take_all().expect("a span")
    }

    fn failure() -> Error {
        Error::new(ErrorKind::Cancelled, "it was cancelled")
    }

    #[test]
    fn success_is_reported_when_the_memory_is_back_and_failure_at_once() {
        for free_first in [false, true] {
            let handle = MessageHandle::default();
            let waker = || Waker::noop().clone();
            assert!(handle.take_or_wake(waker()).is_err_and(|old| old.is_none()));
            assert!(handle.take_or_wake(waker()).is_err_and(|old| old.is_some()), "replaced");
            let first =
                if free_first { handle.released(Some(span())) } else { handle.ended(Ok(7)) };
            assert!(first.is_none() && handle.take().is_none(), "half of it");
            let last = if free_first { handle.ended(Ok(7)) } else { handle.released(Some(span())) };
            assert!(last.is_some(), "it is known now");
            let (result, span) = handle.take_or_wake(waker()).expect("it is known");
            assert_eq!((result.expect("well"), span.map(|s| s.len())), (7, Some(1)));
            for again in [handle.take(), handle.take_or_wake(waker()).ok()] {
                let (result, span) = again.expect("nobody waits for what was given");
                assert_eq!(result.map_err(|e| e.kind()), Err(ErrorKind::Stale));
                assert!(span.is_none());
            }
        }
        let handle = MessageHandle::default();
        assert!(handle.take_or_wake(Waker::noop().clone()).is_err());
        assert!(handle.ended(Err(failure())).is_some());
        // The first result stays.
        assert!(handle.ended(Ok(1)).is_none());
        let (result, span) = handle.take().expect("it failed");
        assert_eq!(
            (result.map_err(|e| e.kind()), span.is_none()),
            (Err(ErrorKind::Cancelled), true)
        );
    }
}
