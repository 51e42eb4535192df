//! Time in the core: nanoseconds that the caller passes in. No clock is read here.

/// A point on the caller's monotonic clock, in nanoseconds since an origin of the caller's choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(u64);

/// A span of time in nanoseconds. `Duration::MAX` means "no limit".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Duration(u64);

impl Instant {
    /// The clock's origin.
    pub const ZERO: Self = Self(0);
    /// A point that is never reached.
    pub const NEVER: Self = Self(u64::MAX);

    /// The point `ns` nanoseconds after the origin.
    #[must_use]
    pub const fn from_nanos(ns: u64) -> Self {
        Self(ns)
    }

    /// Nanoseconds since the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The point `by` later; [`Instant::NEVER`] when that cannot be expressed.
    #[must_use]
    pub const fn after(self, by: Duration) -> Self {
        Self(self.0.saturating_add(by.0))
    }

    /// Time from `earlier` to `self`; zero when `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }
}

impl Duration {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// No limit.
    pub const MAX: Self = Self(u64::MAX);

    /// `ns` nanoseconds.
    #[must_use]
    pub const fn from_nanos(ns: u64) -> Self {
        Self(ns)
    }

    /// `ms` milliseconds, saturating.
    #[must_use]
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms.saturating_mul(1_000_000))
    }

    /// The length in nanoseconds.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::{Duration, Instant};

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Instant::from_nanos(5).since(Instant::from_nanos(9)), Duration::ZERO);
        assert_eq!(
            Instant::from_nanos(u64::MAX - 1).after(Duration::from_nanos(7)),
            Instant::NEVER
        );
        assert_eq!(Duration::from_millis(u64::MAX), Duration::MAX);
    }
}
