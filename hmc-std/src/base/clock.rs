//! The clock: monotonic nanoseconds, as the core uses them.
//!
//! A session takes decisions by its own [`Clock`]. Code that really waits reads the system's clock, [`now`].

use std::sync::Arc;

use hmc_core::time::{Duration, Instant};

/// A clock in place of the system's. It stands still while the thread runs that reads it.
#[allow(unreachable_pub, reason = "hmc-testkit implements it, through `internals`")]
pub trait TimeSource: Send + Sync {
    /// Now.
    fn now(&self) -> Instant;

    /// Nanoseconds of the wall clock.
    fn unix_nanos(&self) -> u64;
}

/// The clock of a session: the system's, unless one was handed in.
#[derive(Clone, Default)]
pub(crate) struct Clock(Option<Arc<dyn TimeSource>>);

impl From<Arc<dyn TimeSource>> for Clock {
    fn from(source: Arc<dyn TimeSource>) -> Self {
        Self(Some(source))
    }
}

impl Clock {
    /// Now, on this clock.
    #[inline]
    #[must_use]
    pub(crate) fn now(&self) -> Instant {
        match &self.0 {
            None => now(),
            Some(source) => source.now(),
        }
    }

    /// The point `d` from now.
    #[inline]
    #[must_use]
    pub(crate) fn deadline_in(&self, d: std::time::Duration) -> Instant {
        self.now().after(from_std(d))
    }

    /// As [`unix_nanos`], on this clock.
    #[must_use]
    pub(crate) fn unix_nanos(&self) -> u64 {
        match &self.0 {
            None => unix_nanos(),
            Some(source) => source.unix_nanos(),
        }
    }

    /// Whether time passes while a thread waits: on a clock that stands still no wait would end.
    #[inline]
    #[must_use]
    pub(crate) fn runs(&self) -> bool {
        self.0.is_none()
    }
}

/// Now, on the system's monotonic clock (`CLOCK_MONOTONIC`, clock_gettime(2)).
#[must_use]
pub(crate) fn now() -> Instant {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let secs = u64::try_from(t.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(t.tv_nsec).unwrap_or(0);
    Instant::from_nanos(secs.saturating_mul(1_000_000_000).saturating_add(nanos))
}

/// Nanoseconds of the wall clock: later lives of a process have higher numbers. Never compared with
/// a deadline.
#[must_use]
pub(crate) fn unix_nanos() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(1, |d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
}

/// A std duration as the core's, saturating.
#[must_use]
pub(crate) fn from_std(d: std::time::Duration) -> Duration {
    Duration::from_nanos(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
}

/// Time left until `deadline`; zero when it passed.
#[must_use]
pub(crate) fn left(deadline: Instant) -> Duration {
    deadline.since(now())
}

/// A core duration as rustix's `Timespec`, for poll, futex and epoll. `None` means "for ever".
#[must_use]
pub(crate) fn timespec(d: Duration) -> Option<rustix::time::Timespec> {
    if d == Duration::MAX {
        return None;
    }
    let ns = d.as_nanos();
    Some(rustix::time::Timespec {
        tv_sec: i64::try_from(ns.wrapping_div(1_000_000_000)).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(ns.wrapping_rem(1_000_000_000)).unwrap_or(0),
    })
}

/// A point on the same clock as [`now`], for tests and drivers that compute their own deadlines.
#[must_use]
pub(crate) fn deadline_in(d: std::time::Duration) -> Instant {
    now().after(from_std(d))
}

#[cfg(test)]
mod tests {
    use super::{Clock, TimeSource, now};
    use hmc_core::time::Instant;
    use std::sync::Arc;
    use std::time::Duration;

    struct Stopped;

    impl TimeSource for Stopped {
        fn now(&self) -> Instant {
            Instant::from_nanos(5)
        }

        fn unix_nanos(&self) -> u64 {
            7
        }
    }

    #[test]
    fn the_clock_that_was_handed_in_is_read_or_the_systems() {
        let source: Arc<dyn TimeSource> = Arc::new(Stopped);
        let (given, system) = (Clock::from(source), Clock::default());
        assert_eq!((given.now().as_nanos(), given.unix_nanos(), given.runs()), (5, 7, false));
        assert_eq!(given.deadline_in(Duration::from_nanos(2)).as_nanos(), 7);
        let before = now();
        assert!(system.runs() && system.now() >= before && system.now() <= now());
        assert!(system.unix_nanos() > 1_000_000_000_000_000_000, "after 2001");
    }
}
