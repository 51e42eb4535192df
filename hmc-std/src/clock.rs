//! The one clock: monotonic nanoseconds, as the core wants them.

use hmc_core::time::{Duration, Instant};

/// Now, on the system's monotonic clock (`CLOCK_MONOTONIC`, clock_gettime(2)).
#[must_use]
pub(crate) fn now() -> Instant {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let secs = u64::try_from(t.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(t.tv_nsec).unwrap_or(0);
    Instant::from_nanos(secs.saturating_mul(1_000_000_000).saturating_add(nanos))
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
