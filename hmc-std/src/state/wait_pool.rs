//! Storage of `wait_any` calls, kept for later calls: only the first ones allocate.

use std::sync::{Arc, Mutex};

use hmc_core::slots::SlotId;

use crate::base::error::Result;
use crate::io::eventfd::EventfdWaker;
use crate::link::Link;
use crate::link::rndv::handle::MessageHandle;

/// Storage of calls that have ended.
#[derive(Debug)]
pub(crate) struct WaitPool(Mutex<heapless::Vec<Box<WaitSpace>, KEPT>>);

/// How many are kept: threads that wait at the same time and allocate nothing.
const KEPT: usize = 16;

/// An operation, and the link whose progress ends it.
#[derive(Debug)]
pub(crate) struct LinkOp {
    pub(crate) link: Arc<Link>,
    pub(crate) what: WaitedFor,
}

/// By what an operation is known to its link.
#[derive(Debug)]
pub(crate) enum WaitedFor {
    Slot(SlotId),
    Message(Arc<MessageHandle>),
}

/// The operations that a call looks at, with their links, and the waker with which it parks, once it has to.
#[derive(Debug, Default)]
pub(crate) struct WaitSpace {
    pub(crate) ops: Vec<LinkOp>,
    waker: Option<Arc<EventfdWaker>>,
}

impl WaitPool {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(heapless::Vec::new()))
    }

    /// Never waits: what another thread takes or leaves at the same time is made anew.
    pub(crate) fn take(&self) -> Box<WaitSpace> {
        let kept = self.0.try_lock().ok().and_then(|mut kept| kept.pop());
        kept.unwrap_or_default()
    }

    pub(crate) fn leave(&self, mut space: Box<WaitSpace>) {
        space.ops.clear();
        if let Ok(mut kept) = self.0.try_lock() {
            let _ = kept.push(space);
        }
    }
}

impl WaitSpace {
    /// Returns the operations and the waker.
    ///
    /// # Errors
    /// `SystemLimit` if the system has no descriptor left.
    pub(crate) fn waker(&mut self) -> Result<(&[LinkOp], &Arc<EventfdWaker>)> {
        let waker = match &mut self.waker {
            Some(waker) => waker,
            none => none.insert(EventfdWaker::new()?),
        };
        Ok((&self.ops, waker))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{KEPT, WaitPool};

    #[test]
    fn what_a_call_has_used_serves_the_next_one() {
        let pool = WaitPool::new();
        let mut space = pool.take();
        let waker = Arc::clone(space.waker().expect("a descriptor").1);
        pool.leave(space);
        let mut space = pool.take();
        assert!(Arc::ptr_eq(space.waker().expect("it has one").1, &waker));
        // Another call at the same time has its own, and no more are kept than threads that wait at the same time.
        let mut other = pool.take();
        assert!(!Arc::ptr_eq(other.waker().expect("a descriptor").1, &waker));
        drop(space);
        for _ in 0..=KEPT {
            pool.leave(Box::default());
        }
        pool.leave(other);
        assert_eq!(pool.0.lock().expect("nobody panics").len(), KEPT);
    }
}
