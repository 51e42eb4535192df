//! The script of a seed: requests with rank and time, and faults, as a plain list.
//!
//! Each step is independent: the script stays legal without any other step, so a failing script can be shrunk. The world
//! checks conditions of run time (a window exists, a range is in use).

use super::node::{Outsider, Request};
use super::swarm::{FaultRates, NetConditions};

/// Odd, so that numbers and tags map one to one.
const TAG_ODD: u64 = 0xD1B5_4A32_D192_ED03;

/// The number that a message of this number carries.
#[must_use]
pub const fn tag_of(number: u64) -> u64 {
    number.wrapping_mul(TAG_ODD)
}

/// The number behind a tag.
#[must_use]
pub(crate) const fn number_of(tag: u64) -> u64 {
    // Newton's iteration for the inverse of an odd number modulo 2^64.
    let mut inverse = TAG_ODD;
    let mut round = 0;
    while round < 6 {
        inverse = inverse.wrapping_mul(2u64.wrapping_sub(TAG_ODD.wrapping_mul(inverse)));
        round += 1;
    }
    tag.wrapping_mul(inverse)
}

/// Something that happens to the world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request of the application of a rank.
    Request {
        /// The number, unique in the script.
        number: u64,
        /// The rank.
        rank: u32,
        /// Not before this one completed with `Done`; not at all if it failed.
        after: Option<u64>,
        /// What.
        request: Request,
    },
    /// Connections between two ranks are reset, each direction at any byte.
    Cut {
        /// One end.
        a: u32,
        /// The other end.
        b: u32,
        /// All of them, or one.
        all: bool,
    },
    /// Nothing passes from `a` to `b`, for a while.
    Partition {
        /// One end.
        a: u32,
        /// The other end.
        b: u32,
        /// Also not from `b` to `a`.
        both: bool,
        /// How long.
        for_ns: u64,
    },
    /// A process ends.
    Crash {
        /// Whose.
        rank: u32,
        /// Without a word from its host.
        silent: bool,
        /// It starts again after this time.
        restart_ns: Option<u64>,
    },
    /// A process stands still, for a while; its kernel does not.
    Pause {
        /// Whose.
        rank: u32,
        /// How long.
        for_ns: u64,
    },
    /// Open streams from `a` to `b` stand still, for a while.
    Stall {
        /// The sender.
        a: u32,
        /// The receiver.
        b: u32,
        /// All of them, or one.
        all: bool,
        /// How long.
        for_ns: u64,
    },
    /// Processes outside of the cluster connect to a rank.
    Outside {
        /// The rank.
        to: u32,
        /// What they do.
        what: Outsider,
        /// How many connections.
        many: u32,
        /// They begin within this time.
        within_ns: u64,
        /// Each is closed after this time.
        for_ns: u64,
    },
}

/// An event and its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// When, in virtual nanoseconds.
    pub at_ns: u64,
    /// What.
    pub event: Event,
}

/// All that a run is made of, besides the nodes.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed of all random numbers.
    pub seed: u64,
    /// How many ranks.
    pub ranks: u32,
    /// Length of each rank's buffer.
    pub buffer_len: u64,
    /// Time between heartbeats.
    pub heartbeat_ns: u64,
    /// Time within which requests complete.
    pub deadline_ns: u64,
    /// When each rank starts.
    pub starts_ns: Vec<u64>,
    /// The network.
    pub conditions: NetConditions,
    /// The rates that the script was generated from.
    pub rates: FaultRates,
    /// Without any fault: there is no excuse for a failed request.
    pub clean: bool,
    /// The script, by time.
    pub steps: Vec<Step>,
}

impl Plan {
    /// The time of the last step, its own duration included.
    #[must_use]
    pub fn last_ns(&self) -> u64 {
        let last = |step: &Step| {
            step.at_ns
                + match step.event {
                    Event::Partition { for_ns, .. }
                    | Event::Pause { for_ns, .. }
                    | Event::Stall { for_ns, .. } => for_ns,
                    Event::Crash { restart_ns, .. } => restart_ns.unwrap_or(0),
                    Event::Outside { within_ns, for_ns, .. } => within_ns + for_ns,
                    _ => 0,
                }
        };
        let steps = self.steps.iter().map(last).max().unwrap_or(0);
        self.starts_ns.iter().copied().fold(steps, u64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::{Plan, number_of, tag_of};
    use crate::world::swarm::RunShape;

    #[test]
    fn tags_hold_their_numbers() {
        for number in (0..1_000).chain([u64::MAX]) {
            assert_eq!(number_of(tag_of(number)), number);
        }
    }

    #[test]
    fn a_seed_is_a_plan() {
        for seed in 0..50 {
            let shape = RunShape::default();
            let (one, two) = (Plan::generate(seed, &shape), Plan::generate(seed, &shape));
            assert_eq!(one.steps, two.steps);
            assert_eq!(one.conditions, two.conditions);
            assert!(one.steps.is_sorted_by_key(|step| step.at_ns));
            assert!(!one.clean || one.rates.faults() == 0);
        }
    }
}
