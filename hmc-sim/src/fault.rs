//! What goes wrong, and how often.
//!
//! *Weather* (delay, reordering, refusals for lack of room) is legal: a correct caller must not
//! notice it. *Faults* (lost, doubled and failed completions, death) break the promises of a
//! transport, to show that a caller survives that too.

use crate::rng::Rng;

/// A probability in parts per million.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Rate(u32);

impl Rate {
    /// Never.
    pub const NEVER: Self = Self(0);
    /// Always.
    pub const ALWAYS: Self = Self(1_000_000);

    /// `n` in a million; more than a million is always.
    #[must_use]
    pub const fn per_million(n: u32) -> Self {
        Self(n)
    }

    /// `n` in a hundred; more than a hundred is always.
    #[must_use]
    pub const fn percent(n: u32) -> Self {
        Self(n.saturating_mul(10_000))
    }

    /// Throws the dice. [`Rate::NEVER`] takes nothing from the generator.
    #[must_use]
    pub fn hits(self, rng: &mut Rng) -> bool {
        self.0 != 0 && rng.below(1_000_000) < u64::from(self.0)
    }
}

/// What the fabric does to requests and completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults {
    /// Longest time that each step of a request takes, in virtual nanoseconds. With more than zero,
    /// requests overtake each other and move their bytes in pieces.
    pub delay_max_ns: u64,
    /// Weather: `post` answers `Busy` though there is room.
    pub busy: Rate,
    /// Fault: the bytes move, the completion never comes (until the peer dies).
    pub lost: Rate,
    /// Fault: the completion comes twice.
    pub doubled: Rate,
    /// Fault: the request fails with `Failure::Transport` after some of its bytes moved.
    pub failed: Rate,
    /// Fault: the far end dies when this many requests were accepted.
    pub death_after: Option<u64>,
}

impl Faults {
    /// Nothing goes wrong and nothing takes time.
    pub const NONE: Self = Self {
        delay_max_ns: 0,
        busy: Rate::NEVER,
        lost: Rate::NEVER,
        doubled: Rate::NEVER,
        failed: Rate::NEVER,
        death_after: None,
    };

    /// Delays, reordering, pieces and refusals, but no broken promise.
    pub const WEATHER: Self = Self { delay_max_ns: 20_000, busy: Rate::percent(5), ..Self::NONE };

    /// Weather, and one completion in twenty each is lost, doubled or failed.
    pub const STORM: Self = Self {
        lost: Rate::percent(5),
        doubled: Rate::percent(5),
        failed: Rate::percent(5),
        ..Self::WEATHER
    };

    /// The name of the failure that [`Faults::failed`] reports: `EIO`, errno(3).
    pub const EIO: i32 = 5;
}

#[cfg(test)]
mod tests {
    use super::Rate;
    use crate::rng::Rng;

    #[test]
    fn rates_hit_about_as_often_as_they_say() {
        let mut rng = Rng::new(3);
        let hits = (0..10_000).filter(|_| Rate::percent(25).hits(&mut rng)).count();
        assert!((2_200..2_800).contains(&hits), "{hits}");
        assert!(!Rate::NEVER.hits(&mut rng));
        assert!((0..1000).all(|_| Rate::ALWAYS.hits(&mut rng)));
    }
}
