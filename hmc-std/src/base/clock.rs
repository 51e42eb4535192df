//! The one clock: monotonic nanoseconds, as the core wants them.

use hmc_core::time::{Duration, Instant};

/// Now, on the system's monotonic clock (`CLOCK_MONOTONIC`, clock_gettime(2)).
#[must_use]
pub(crate) fn now() -> Instant {
    #[cfg(feature = "testing")]
    if let Some(now) = virtual_time::get() {
        return now;
    }
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let secs = u64::try_from(t.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(t.tv_nsec).unwrap_or(0);
    Instant::from_nanos(secs.saturating_mul(1_000_000_000).saturating_add(nanos))
}

/// Nanoseconds of the wall clock: later lives of a process have higher numbers. Never compared with
/// a deadline.
#[must_use]
pub(crate) fn unix_nanos() -> u64 {
    #[cfg(feature = "testing")]
    if let Some(unix) = virtual_time::unix_nanos() {
        return unix;
    }
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

/// The time of a simulated process, for the thread that runs it.
#[cfg(feature = "testing")]
pub(crate) mod virtual_time {
    use super::Instant;
    use std::cell::Cell;

    thread_local! {
        static NOW: Cell<Option<Instant>> = const { Cell::new(None) };
        static UNIX: Cell<u64> = const { Cell::new(0) };
    }

    pub(super) fn get() -> Option<Instant> {
        NOW.get()
    }

    /// Whether this thread's clock is a simulated one.
    pub(crate) fn is_on() -> bool {
        get().is_some()
    }

    /// The wall clock of the process: `unix` is its zero.
    pub(super) fn unix_nanos() -> Option<u64> {
        NOW.get().map(|now| UNIX.get().saturating_add(now.as_nanos()))
    }

    /// From now on this thread's clock shows `now`.
    pub(crate) fn enter(now: Instant, unix: u64) {
        NOW.set(Some(now));
        UNIX.set(unix);
    }

    /// The system's clock again.
    pub(crate) fn leave() {
        NOW.set(None);
    }
}
