//! The handle of a message: its owner waits for the result and the memory.

use std::sync::{Arc, Mutex, PoisonError};

use crate::base::error::Result;
use crate::callbacks::wakers::Notice;
use crate::io::eventfd::EventfdWaker;
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
    /// Nothing touches its memory any more.
    free: bool,
    waker: Option<Notice>,
}

impl State {
    /// Success is reported when the memory is back; failure at once.
    fn result(&self) -> Option<&Result<u64>> {
        self.result.as_ref().filter(|r| self.free || r.is_err())
    }

    /// Who is to be told, now that something has changed.
    fn notice(&mut self) -> Option<Notice> {
        if self.result().is_some() { self.waker.take() } else { None }
    }
}

impl MessageHandle {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It ended. The first result stays.
    pub(super) fn ended(&self, result: Result<u64>) -> Option<Notice> {
        let mut s = self.state();
        s.result.get_or_insert(result);
        s.notice()
    }

    /// Nothing touches its memory any more.
    pub(super) fn released(&self, span: Option<Span>) -> Option<Notice> {
        let mut s = self.state();
        s.span = span;
        s.free = true;
        s.notice()
    }

    /// It ended well, and nothing touches its memory any more.
    pub(super) fn over(&self, len: u64, span: Option<Span>) -> Option<Notice> {
        let mut s = self.state();
        s.result.get_or_insert(Ok(len));
        (s.span, s.free) = (span, true);
        s.notice()
    }

    /// How it ended, if that is known.
    pub(crate) fn result(&self) -> Option<Result<u64>> {
        self.state().result().cloned()
    }

    /// Whether nothing touches its memory any more.
    pub(crate) fn is_free(&self) -> bool {
        self.state().free
    }

    /// The span that was given for it, once, if nothing touches that any more.
    pub(crate) fn take_span(&self) -> Option<Span> {
        self.state().span.take()
    }

    /// The result, if it is known, and the span.
    pub(crate) fn take(&self) -> Option<Found> {
        let mut s = self.state();
        let result = s.result()?.clone();
        Some((result, s.span.take()))
    }

    /// Has `notice` given when it ends, and in place of a later one when its memory is free: look after this. Gives back the one
    /// that it replaces, to be dropped without locks.
    pub(crate) fn set_waker(&self, notice: Notice) -> Option<Notice> {
        self.state().waker.replace(notice)
    }

    /// As [`MessageHandle::set_waker`], unless somebody else waits already. Whether it was set.
    pub(crate) fn add_waker(&self, waker: &Arc<EventfdWaker>) -> bool {
        let mut s = self.state();
        let others = match &s.waker {
            None => false,
            Some(Notice::Own(own)) => !Arc::ptr_eq(own, waker),
            Some(Notice::User(_)) => true,
        };
        if !others {
            s.waker = Some(Notice::Own(Arc::clone(waker)));
        }
        !others
    }

    /// Takes that waker back, unless another one took its place.
    pub(crate) fn take_waker(&self, waker: &Arc<EventfdWaker>) -> Option<Notice> {
        let is = |n: &mut Notice| matches!(n, Notice::Own(own) if Arc::ptr_eq(own, waker));
        self.state().waker.take_if(is)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::task::Waker;

    use super::{MessageHandle, Notice};
    use crate::base::error::{Error, ErrorKind};
    use crate::io::eventfd::EventfdWaker;
    use crate::memory::{RegionTable, Span};

    fn span() -> Span {
        let region = Arc::new(RegionTable::default()).allocate(1).expect("memory");
        region.take_all().expect("a span")
    }

    fn failure() -> Error {
        Error::new(ErrorKind::Cancelled, "it was cancelled")
    }

    fn user() -> Notice {
        Notice::User(Waker::noop().clone())
    }

    #[test]
    fn success_is_reported_when_the_memory_is_back_and_failure_at_once() {
        for free_first in [false, true] {
            let handle = MessageHandle::default();
            assert!(handle.set_waker(user()).is_none());
            assert!(handle.set_waker(user()).is_some(), "replaced");
            let first =
                if free_first { handle.released(Some(span())) } else { handle.ended(Ok(7)) };
            assert!(first.is_none() && handle.take().is_none(), "half of it");
            assert!(handle.result().is_none() && handle.is_free() == free_first);
            let last = if free_first { handle.ended(Ok(7)) } else { handle.released(Some(span())) };
            assert!(last.is_some(), "it is known now");
            assert_eq!(handle.result().expect("it is known").expect("well"), 7);
            let (result, span) = handle.take().expect("it is known");
            assert_eq!((result.expect("well"), span.map(|s| s.len())), (7, Some(1)));
            let (again, gone) = handle.take().expect("the result stays");
            assert!(again.is_ok() && gone.is_none() && handle.take_span().is_none());
        }
        let handle = MessageHandle::default();
        assert!(handle.set_waker(user()).is_none());
        assert!(handle.ended(Err(failure())).is_some());
        // The first result stays.
        assert!(handle.ended(Ok(1)).is_none());
        let (result, none) = handle.take().expect("it failed");
        assert_eq!(
            (result.map_err(|e| e.kind()), none.is_none(), handle.is_free()),
            (Err(ErrorKind::Cancelled), true, false)
        );
        // Who waits for its memory is told when that is free.
        assert!(handle.set_waker(user()).is_none());
        assert!(handle.released(Some(span())).is_some() && handle.is_free());
        assert_eq!(handle.take_span().map(|s| s.len()), Some(1));
    }

    #[test]
    fn a_waker_that_is_taken_back_is_nobody_elses() {
        let handle = MessageHandle::default();
        let [first, second] = [(); 2].map(|()| EventfdWaker::new().expect("a descriptor"));
        assert!(handle.set_waker(Notice::Own(Arc::clone(&first))).is_none());
        assert!(handle.take_waker(&second).is_none(), "not its own");
        assert!(handle.take_waker(&first).is_some() && handle.take_waker(&first).is_none());
        assert!(handle.add_waker(&first) && handle.add_waker(&first) && !handle.add_waker(&second));
        assert!(handle.take_waker(&second).is_none() && handle.take_waker(&first).is_some());
        assert!(handle.set_waker(user()).is_none() && handle.take_waker(&first).is_none());
        assert!(!handle.add_waker(&first), "a future waits");
    }
}
