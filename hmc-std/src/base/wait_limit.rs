//! How long a blocking call waits: until a time, or until its session's interrupt hook tells it to stop.
//!
//! The hook is foreign code: it is called on the caller's thread, without locks and without the lead of a link, so that
//! it may use the session itself.

use std::fmt;
use std::panic::catch_unwind;

use hmc_core::time::{Duration, Instant};

use crate::base::clock;
use crate::base::error::Error;
use crate::base::process::{Origin, forked};

/// The longest time between two questions to a hook.
const ASK_EVERY: Duration = Duration::from_millis(50);

/// The bound of one blocking call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Until {
    /// When it gives up.
    pub(crate) at: Instant,
    hook: Option<fn() -> bool>,
}

/// Why a wait ended although what it waited for had not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Its time had come.
    Deadline,
    /// The hook said so.
    Interrupted,
    /// The hook forked, and this is the child: it has no part in what its parent waits for.
    Forked,
}

/// One wait as it goes on.
#[derive(Debug)]
pub(crate) struct Vigil {
    until: Until,
    /// When the hook is to be asked; never without one.
    ask_at: Instant,
}

impl Until {
    /// A time alone: nobody is asked.
    pub(crate) fn time(at: Instant) -> Self {
        Self { at, hook: None }
    }

    /// A time, and `hook`, if there is one.
    pub(crate) fn new(at: Instant, hook: Option<fn() -> bool>) -> Self {
        Self { at, hook }
    }

    /// Another time with the same hook.
    pub(crate) fn moved_to(self, at: Instant) -> Self {
        Self { at, ..self }
    }

    /// Begins to wait. Reads no clock where there is no hook.
    pub(crate) fn vigil(self) -> Vigil {
        let ask_at = self.hook.map_or(Instant::NEVER, |_| clock::now().after(ASK_EVERY));
        Vigil { until: self, ask_at }
    }
}

impl Vigil {
    /// When a nap has to be over.
    pub(crate) fn nap_until(&self) -> Instant {
        self.until.at.min(self.ask_at)
    }

    /// Whether the wait goes on. To be called without anything held, after each nap.
    ///
    /// # Errors
    /// Why it does not.
    pub(crate) fn check(&mut self) -> Result<(), Stop> {
        let now = clock::now();
        if now >= self.until.at {
            return Err(Stop::Deadline);
        }
        if let Some(hook) = self.until.hook.filter(|_| now >= self.ask_at) {
            let here = Origin::here().ok();
            // Its panic does not pass through whatever waits: the call ends in order.
            let says = catch_unwind(hook).unwrap_or(true);
            if here.is_some_and(|here| here.is_child()) {
                return Err(Stop::Forked);
            }
            if says {
                return Err(Stop::Interrupted);
            }
            self.ask_at = clock::now().after(ASK_EVERY);
        }
        Ok(())
    }
}

impl Stop {
    /// The error of a call that was doing `what`.
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
    use super::{ASK_EVERY, Stop, Until};
    use crate::base::clock;
    use hmc_core::time::{Duration, Instant};
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn without_a_hook_a_wait_is_bounded_by_its_time_alone() {
        let at = clock::now().after(Duration::from_millis(60_000));
        let mut vigil = Until::time(at).vigil();
        assert_eq!(vigil.nap_until(), at);
        assert_eq!(vigil.check(), Ok(()));
        assert_eq!(Until::time(Instant::ZERO).vigil().check(), Err(Stop::Deadline));
    }

    #[test]
    fn a_hook_is_asked_when_its_time_has_come_and_not_before() {
        static ASKED: AtomicU32 = AtomicU32::new(0);
        fn hook() -> bool {
            ASKED.fetch_add(1, Ordering::Relaxed) == 1
        }
        let mut vigil = Until::new(Instant::NEVER, Some(hook)).vigil();
        assert!(vigil.nap_until() <= clock::now().after(ASK_EVERY));
        assert_eq!(vigil.check(), Ok(()));
        assert_eq!(ASKED.load(Ordering::Relaxed), 0, "asked before a nap");
        vigil.ask_at = clock::now();
        assert_eq!(vigil.check(), Ok(()));
        assert!(vigil.ask_at > clock::now(), "asked again at once");
        vigil.ask_at = clock::now();
        assert_eq!(vigil.check(), Err(Stop::Interrupted));
        assert_eq!(ASKED.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_hook_that_panics_ends_the_wait() {
        let mut vigil = Until::new(Instant::NEVER, Some(|| panic!("for a test"))).vigil();
        vigil.ask_at = Instant::ZERO;
        assert_eq!(vigil.check(), Err(Stop::Interrupted));
    }

    #[test]
    fn a_time_that_has_come_is_no_question_any_more() {
        let mut vigil = Until::new(Instant::ZERO, Some(|| panic!("asked"))).vigil();
        vigil.ask_at = Instant::ZERO;
        assert_eq!(vigil.check(), Err(Stop::Deadline));
    }
}
