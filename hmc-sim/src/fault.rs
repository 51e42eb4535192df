//! Network conditions and faults, and their rates.
//!
//! Three kinds, strictly separate:
//! - *Network conditions* (delay, rate, reordering, refusals for lack of space, fences that take time) are legal:
//!   a correct caller must tolerate them.
//! - *Faults* (lost, doubled, stale and failed completions, flushed queues, death) break the rules of a transport
//!   as real NICs do. A caller survives them, and its memory stays safe.
//! - A [`Rogue`] NIC accesses memory without a right. No caller can survive that; the
//!   [access checker](crate::access_checker) has to report it.

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

    /// Samples the rate. [`Rate::NEVER`] takes nothing from the generator.
    #[must_use]
    pub fn hits(self, rng: &mut Rng) -> bool {
        self.0 != 0 && rng.below(1_000_000) < u64::from(self.0)
    }
}

/// What the fabric does to requests and completions. All of it is off in [`Faults::NONE`].
///
/// Write literals with `..Faults::NONE` or another preset, so that a new knob stays off in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults {
    /// Condition: longest time that each step of a request takes, in virtual nanoseconds. With more
    /// than zero, requests overtake each other and move their bytes in pieces. Rows 12 (delay,
    /// reordering) and 20 (completions out of order).
    pub delay_max_ns: u64,
    /// Condition: how long everything takes at least, one way. A path of its own may differ:
    /// [`SimNic::set_path`](crate::nic::SimNic::set_path). Row 12.
    pub latency_ns: u64,
    /// Condition: bytes that a sender's wire carries in a virtual microsecond; 0 is no limit. Row 12.
    pub bytes_per_us: u64,
    /// Condition: `post` returns `Busy` though the queue is not full. Row 23 (a full queue is told, never a
    /// loss).
    pub busy: Rate,
    /// Condition: the pieces of a request land in any order, so that one which is cut short leaves
    /// scattered lines instead of a prefix. Row 25 (partial writes).
    pub scattered: Rate,
    /// Condition: longest time between a revocation and its acknowledgement. Writes land until then.
    /// Row 30 (memory taken back with requests in flight), and the RDMA row of the table of fences.
    pub fence_max_ns: u64,
    /// Fault: the bytes move, the completion never comes (until the peer dies or the queue is
    /// destroyed). Row 21.
    pub lost: Rate,
    /// Fault: the completion comes twice. Row 22.
    pub doubled: Rate,
    /// Fault: with a completion that is polled, one that was polled earlier comes once more: its
    /// operation is long over and its slot may serve another generation. Row 22.
    pub stale: Rate,
    /// Fault: the request fails with `Failure::Transport` after some of its bytes moved. Row 19.
    pub failed: Rate,
    /// Fault: any failed request moves its queue to the error state. What is behind it completes as
    /// [`Faults::FLUSHED`] and moves no more; `post` answers `Disconnected`. Row 19.
    pub flush_on_error: bool,
    /// Fault: soon after this request was accepted its queue dies by itself, and all of it is
    /// flushed. Row 24.
    pub queue_death: Rate,
    /// Fault: the completion queue has this many places of its own, and nobody counts what is in
    /// flight against it. One completion too many kills the request queue, and completions that do
    /// not fit are lost. Row 23.
    pub completion_depth: Option<usize>,
    /// Fault: the far end dies when this many requests were accepted. Row 8.
    pub death_after: Option<u64>,
    /// Behaviour that no NIC may have.
    pub rogue: Rogue,
}

/// Faults of a broken NIC. Each of these must lead to a finding of the access checker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rogue {
    /// After the completion of a request its bytes move once more, whoever owns the memory by then.
    /// Rows 22 and 30.
    pub late_write: Rate,
    /// The acknowledgement of a revocation does not stop a request that has begun. Row 30.
    pub after_fence: Rate,
    /// One byte behind the window is written too. Row 17.
    pub outside_window: Rate,
    /// The completion comes before the bytes move. Row 30.
    pub early_completion: Rate,
    /// One bit of what lands is wrong. Row 13.
    pub flipped: Rate,
}

impl Rogue {
    /// A NIC that keeps the rules.
    pub const NONE: Self = Self {
        late_write: Rate::NEVER,
        after_fence: Rate::NEVER,
        outside_window: Rate::NEVER,
        early_completion: Rate::NEVER,
        flipped: Rate::NEVER,
    };
}

impl Faults {
    /// No faults and no latency.
    pub const NONE: Self = Self {
        delay_max_ns: 0,
        latency_ns: 0,
        bytes_per_us: 0,
        busy: Rate::NEVER,
        scattered: Rate::NEVER,
        fence_max_ns: 0,
        lost: Rate::NEVER,
        doubled: Rate::NEVER,
        stale: Rate::NEVER,
        failed: Rate::NEVER,
        flush_on_error: false,
        queue_death: Rate::NEVER,
        completion_depth: None,
        death_after: None,
        rogue: Rogue::NONE,
    };

    /// Delays, reordering, pieces and refusals, but no broken promise.
    pub const CONDITIONS: Self =
        Self { delay_max_ns: 20_000, busy: Rate::percent(5), ..Self::NONE };

    /// Network conditions, and one completion in twenty each is lost, doubled or failed.
    pub const STORM: Self = Self {
        lost: Rate::percent(5),
        doubled: Rate::percent(5),
        failed: Rate::percent(5),
        ..Self::CONDITIONS
    };

    /// The code of the failure that [`Faults::failed`] reports: `EIO`, errno(3).
    pub const EIO: i32 = 5;
    /// The code of a request that was flushed out of a queue in error: `ECANCELED`, errno(3).
    pub const FLUSHED: i32 = 125;

    /// Everything that a legal NIC and its peer may do wrong, drawn from chance: each fault is off
    /// in about half of the draws, so that they are seen alone and in company.
    #[must_use]
    pub fn legal(rng: &mut Rng) -> Self {
        let mut on = |limit: u64| if rng.below(2) == 0 { 0 } else { rng.below(limit) };
        let percent = |n: u64| Rate::percent(u32::try_from(n).unwrap_or(0));
        Self {
            delay_max_ns: on(40_000),
            latency_ns: on(5_000),
            bytes_per_us: on(200),
            busy: percent(on(30)),
            scattered: percent(on(101)),
            fence_max_ns: on(50_000),
            lost: percent(on(20)),
            doubled: percent(on(20)),
            stale: percent(on(20)),
            failed: percent(on(10)),
            flush_on_error: on(2) == 1,
            queue_death: percent(on(4)),
            completion_depth: usize::try_from(on(17)).ok().filter(|n| *n != 0),
            death_after: Some(on(400)).filter(|n| *n > 1),
            rogue: Rogue::NONE,
        }
    }
}

/// How often each thing happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct FaultCounts {
    /// Requests that were accepted.
    pub accepted: u64,
    /// Pieces that moved.
    pub pieces: u64,
    /// Completions that were queued, of whatever kind.
    pub completions: u64,
    /// Posts refused by network conditions.
    pub busy: u64,
    /// Requests dealt a completion that never comes.
    pub lost: u64,
    /// Requests dealt a second completion.
    pub doubled: u64,
    /// Old completions told once more.
    pub stale: u64,
    /// Requests dealt a failure.
    pub failed: u64,
    /// Requests flushed.
    pub flushed: u64,
    /// Queues that died by themselves.
    pub queue_deaths: u64,
    /// Completions without a place.
    pub overruns: u64,
    /// Ends that died.
    pub deaths: u64,
    /// Revocations whose fence took time.
    pub slow_fences: u64,
    /// Times that a rogue NIC did what it must not do.
    pub rogue: u64,
}

impl FaultCounts {
    /// Everything that went wrong.
    #[must_use]
    pub fn faults(&self) -> u64 {
        [
            self.busy,
            self.lost,
            self.doubled,
            self.stale,
            self.failed,
            self.flushed,
            self.queue_deaths,
            self.overruns,
            self.deaths,
            self.slow_fences,
            self.rogue,
        ]
        .iter()
        .fold(0, |sum, n| sum.saturating_add(*n))
    }
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
