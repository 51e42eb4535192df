//! Deadlines of a control connection: when it must send, and when it has expired.
//!
//! This is arithmetic on times that the caller passes in; [`crate::ctrl::conn`] acts on the result.

use crate::limits::{FRAME_DEADLINE_NS, HELLO_DEADLINE_NS, MIN_HEARTBEAT_NS, MISSED_HEARTBEATS};
use crate::time::{Duration, Instant};

use super::io::CloseReason;
use super::state::ControlState;

/// Timers that are due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// The connection is over.
    End(CloseReason),
    /// This end was silent for a period.
    Beat,
}

/// The times that the deadlines of one connection follow from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timers {
    /// How long this end is silent at most; zero when there are no heartbeats.
    pub(crate) period: Duration,
    /// Whether this end lets the other one beat first: it answers, and beats by itself only when a
    /// quarter of a period passed without anything to answer. So one beat and one answer keep a link
    /// alive, not two of each.
    pub(crate) yields: bool,
    /// After how many silent periods this end speaks: 1, unless it has many peers on one system.
    pub(crate) spread: u64,
    pub(crate) began: Instant,
    pub(crate) last_sent: Instant,
    pub(crate) last_received: Instant,
    /// When the frame that is not whole began.
    pub(crate) partial: Option<Instant>,
    /// By when the peer must have answered our BYE.
    pub(crate) drain_by: Instant,
}

impl Timers {
    pub(crate) const fn new(now: Instant) -> Self {
        Self {
            period: Duration::ZERO,
            yields: false,
            spread: 1,
            began: now,
            last_sent: now,
            last_received: now,
            partial: None,
            drain_by: Instant::NEVER,
        }
    }

    /// Time that does not count as the peer's. Deadlines are only put off.
    pub(crate) fn excuse(&mut self, late: Duration, now: Instant) {
        self.last_received = self.last_received.after(late).min(now);
        self.partial = self.partial.map(|began| began.after(late).min(now));
    }

    const fn beats(&self, state: ControlState) -> bool {
        matches!(state, ControlState::Ready | ControlState::Draining | ControlState::Leaving)
            && self.period.as_nanos() != 0
    }

    /// When this end must speak.
    const fn beat_at(&self, state: ControlState) -> Instant {
        if !self.beats(state) {
            return Instant::NEVER;
        }
        let (period, spread) = (self.period.as_nanos(), self.spread);
        let beat = self.last_sent.after(Duration::from_nanos(period.saturating_mul(spread)));
        let quarter = Duration::from_nanos(self.period.as_nanos() >> 2);
        if self.yields { beat.after(quarter) } else { beat }
    }

    /// The deadlines that end the connection, with their reasons.
    const fn ends(&self, state: ControlState) -> [(Instant, CloseReason); 4] {
        let hello = if state.is_pending() {
            self.began.after(Duration::from_nanos(HELLO_DEADLINE_NS))
        } else {
            Instant::NEVER
        };
        let frame = match self.partial {
            Some(began) => began.after(Duration::from_nanos(FRAME_DEADLINE_NS)),
            None => Instant::NEVER,
        };
        let dead = if self.beats(state) {
            let silence = self.period.as_nanos().saturating_mul(MISSED_HEARTBEATS);
            self.last_received.after(Duration::from_nanos(silence))
        } else {
            Instant::NEVER
        };
        [
            (hello, CloseReason::HelloDeadline),
            (frame, CloseReason::FrameDeadline),
            (dead, CloseReason::Silent),
            (self.drain_by, CloseReason::DrainDeadline),
        ]
    }

    /// Time at which the connection expires if nothing arrives before.
    pub(crate) fn ends_at(&self, state: ControlState) -> Instant {
        if matches!(state, ControlState::Closed | ControlState::Attached) {
            return Instant::NEVER;
        }
        self.ends(state).iter().fold(Instant::NEVER, |first, (at, _)| first.min(*at))
    }

    /// The next time at which something is due.
    pub(crate) fn next(&self, state: ControlState) -> Instant {
        if matches!(state, ControlState::Closed | ControlState::Attached) {
            return Instant::NEVER;
        }
        self.ends_at(state).min(self.beat_at(state))
    }

    /// Returns the timers that are due now.
    pub(crate) fn due(&self, state: ControlState, now: Instant) -> Option<Due> {
        if matches!(state, ControlState::Closed | ControlState::Attached) {
            return None;
        }
        let ends = self.ends(state);
        if let Some((_, why)) = ends.iter().find(|(at, _)| now >= *at) {
            return Some(Due::End(*why));
        }
        (now >= self.beat_at(state)).then_some(Due::Beat)
    }
}

/// The period that both ends arrive at: the shorter wish, so that neither can weaken the other's
/// guard, but not so short that beating becomes a load. None only when both want none.
pub(crate) const fn negotiated_period(a: Duration, b: Duration) -> Duration {
    let (a, b) = (a.as_nanos(), b.as_nanos());
    let shorter = if a == 0 || (b != 0 && b < a) { b } else { a };
    if shorter != 0 && shorter < MIN_HEARTBEAT_NS {
        return Duration::from_nanos(MIN_HEARTBEAT_NS);
    }
    Duration::from_nanos(shorter)
}

#[cfg(test)]
mod tests {
    use super::{Timers, negotiated_period};
    use crate::ctrl::state::ControlState;
    use crate::time::{Duration, Instant};

    #[test]
    fn the_end_that_yields_sends_a_quarter_of_a_period_later() {
        let now = Instant::from_nanos(1_000);
        let timers = Timers { period: Duration::from_nanos(400), ..Timers::new(now) };
        assert_eq!(timers.next(ControlState::Ready), Instant::from_nanos(1_400));
        let yields = Timers { yields: true, ..timers };
        assert_eq!(yields.next(ControlState::Ready), Instant::from_nanos(1_500));
    }

    #[test]
    fn both_ends_agree_on_the_shorter_period_within_reason() {
        let ms = Duration::from_millis;
        let cases = [
            (0, 0, 0),
            (500, 0, 500),
            (500, 500, 500),
            (500, 100, 100),
            (60_000, 500, 500),
            (1, 500, 10),
            (0, 1, 10),
        ];
        for (a, b, want) in cases {
            assert_eq!(negotiated_period(ms(a), ms(b)), ms(want));
            assert_eq!(negotiated_period(ms(b), ms(a)), ms(want));
        }
    }
}
