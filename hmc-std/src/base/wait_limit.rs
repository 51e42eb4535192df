//! How long a blocking call waits: until a deadline, or until its session's interrupt hook ends it.
//!
//! The hook is code of the application. It is called on the caller's thread, without locks and without the lead of
//! a link, so it may call the session.

use std::fmt;
use std::panic::catch_unwind;

use hmc_core::time::{Duration, Instant};

use crate::base::clock;
use crate::base::error::Error;
use crate::base::process::{Origin, forked};

/// The longest time between two calls of a hook.
const HOOK_INTERVAL: Duration = Duration::from_millis(50);

/// The bound of one blocking call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitLimit {
    /// The time at which the call stops waiting.
    pub(crate) at: Instant,
    hook: Option<fn() -> bool>,
}

/// Why a wait ended without its event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitStopped {
    /// The deadline passed.
    Deadline,
    /// The hook returned `true`.
    Interrupted,
    /// The hook forked, and this is the child, which must not use the parent's session.
    Forked,
}

/// The state of one wait.
#[derive(Debug)]
pub(crate) struct WaitTimer {
    until: WaitLimit,
    /// The time of the next call of the hook; never if there is none.
    ask_at: Instant,
}

impl WaitLimit {
    /// A deadline without a hook.
    pub(crate) fn time(at: Instant) -> Self {
        Self { at, hook: None }
    }

    /// A deadline and the session's hook, if any.
    pub(crate) fn new(at: Instant, hook: Option<fn() -> bool>) -> Self {
        Self { at, hook }
    }

    /// Returns the limit with another deadline and the same hook.
    pub(crate) fn with_deadline(self, at: Instant) -> Self {
        Self { at, ..self }
    }

    /// Begins a wait. Reads no clock if there is no hook.
    pub(crate) fn timer(self) -> WaitTimer {
        let ask_at = self.hook.map_or(Instant::NEVER, |_| clock::now().after(HOOK_INTERVAL));
        WaitTimer { until: self, ask_at }
    }
}

impl WaitTimer {
    /// Returns the time at which a park must end.
    pub(crate) fn park_until(&self) -> Instant {
        self.until.at.min(self.ask_at)
    }

    /// Checks whether the wait continues. Call it after each park, without a lock.
    ///
    /// # Errors
    /// [`WaitStopped`] if the wait has to end.
    pub(crate) fn check(&mut self) -> Result<(), WaitStopped> {
        let now = clock::now();
        if now >= self.until.at {
            return Err(WaitStopped::Deadline);
        }
        if let Some(hook) = self.until.hook.filter(|_| now >= self.ask_at) {
            let here = Origin::here().ok();
            // Its panic does not pass through whatever waits: the call ends in order.
            let says = catch_unwind(hook).unwrap_or(true);
            if here.is_some_and(|here| here.is_child()) {
                return Err(WaitStopped::Forked);
            }
            if says {
                return Err(WaitStopped::Interrupted);
            }
            self.ask_at = clock::now().after(HOOK_INTERVAL);
        }
        Ok(())
    }
}

impl WaitStopped {
    /// Returns the error of a call that waited for `what`.
    #[cold]
    pub(crate) fn error(self, what: impl fmt::Display) -> Error {
        match self {
            Self::Deadline => Error::deadline(what),
            Self::Interrupted => Error::interrupted(what),
            Self::Forked => forked(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{HOOK_INTERVAL, WaitLimit, WaitStopped};
    use crate::base::clock;
    use hmc_core::time::{Duration, Instant};
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn without_a_hook_a_wait_is_bounded_by_its_time_alone() {
        let at = clock::now().after(Duration::from_millis(60_000));
        let mut timer = WaitLimit::time(at).timer();
        assert_eq!(timer.park_until(), at);
        assert_eq!(timer.check(), Ok(()));
        assert_eq!(WaitLimit::time(Instant::ZERO).timer().check(), Err(WaitStopped::Deadline));
    }

    #[test]
    fn a_hook_is_called_when_its_time_has_come_and_not_before() {
        static ASKED: AtomicU32 = AtomicU32::new(0);
        fn hook() -> bool {
            ASKED.fetch_add(1, Ordering::Relaxed) == 1
        }
        let mut timer = WaitLimit::new(Instant::NEVER, Some(hook)).timer();
        assert!(timer.park_until() <= clock::now().after(HOOK_INTERVAL));
        assert_eq!(timer.check(), Ok(()));
        assert_eq!(ASKED.load(Ordering::Relaxed), 0, "asked before a park");
        timer.ask_at = clock::now();
        assert_eq!(timer.check(), Ok(()));
        assert!(timer.ask_at > clock::now(), "asked again at once");
        timer.ask_at = clock::now();
        assert_eq!(timer.check(), Err(WaitStopped::Interrupted));
        assert_eq!(ASKED.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_hook_that_panics_ends_the_wait() {
        let mut timer = WaitLimit::new(Instant::NEVER, Some(|| panic!("for a test"))).timer();
        timer.ask_at = Instant::ZERO;
        assert_eq!(timer.check(), Err(WaitStopped::Interrupted));
    }

    #[test]
    fn a_time_that_has_come_is_no_question_any_more() {
        let mut timer = WaitLimit::new(Instant::ZERO, Some(|| panic!("asked"))).timer();
        timer.ask_at = Instant::ZERO;
        assert_eq!(timer.check(), Err(WaitStopped::Deadline));
    }
}
