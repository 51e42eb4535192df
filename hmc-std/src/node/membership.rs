//! Membership: which pending connections are admitted, which links are alive, and which end reconnects when.
//!
//! Sans-IO: the I/O layer passes in events ([`Input`]) and executes the results ([`Output`]).

use hmc_core::ctrl::ranks::{Admission, Backoff, Identity, RankEntry, RankStorage, RankTable};
use hmc_core::time::Instant;
use hmc_core::types::{Incarnation, Rank};
use std::collections::BTreeMap;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// A pending connection sent HELLO.
    Hello { rank: Rank, incarnation: Incarnation, who: Identity },
    /// The application, or a timer, wants to dial.
    Dial { rank: Rank },
    /// A dial came to nothing.
    DialFailed { rank: Rank },
    /// The peer that was dialed accepted. The dial goes on until `Linked` or `DialFailed`.
    Welcome { rank: Rank, incarnation: Incarnation, who: Identity },
    /// The dial made a link.
    Linked { rank: Rank },
    /// A link is over. `redial` says whether this end can and may dial that peer again.
    Over { rank: Rank, incarnation: Incarnation, redial: bool },
    /// Time passed.
    Tick,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// Nothing.
    Nothing,
    /// The admission on a HELLO or WELCOME.
    Admission(Admission),
    /// The dial may begin.
    Go,
    /// The dial must not begin: the rank is connected, or being dialed.
    No,
    /// Dial this rank again now.
    Reconnect(Rank),
}

#[derive(Clone, Copy, Debug)]
struct Reconnect {
    rank: Rank,
    at: Instant,
    backoff: Backoff,
}

/// Places of ranks below a limit, made when they are first asked for: most sessions know few of the ranks that they admit.
#[derive(Debug)]
struct KnownRanks {
    limit: u32,
    places: BTreeMap<Rank, RankEntry>,
}

impl RankStorage for KnownRanks {
    fn limit(&self) -> u32 {
        self.limit
    }

    fn at(&self, rank: Rank) -> Option<&RankEntry> {
        self.places.get(&rank)
    }

    fn at_mut(&mut self, rank: Rank) -> Option<&mut RankEntry> {
        (rank.0 < self.limit).then(|| self.places.entry(rank).or_insert(RankEntry::EMPTY))
    }
}

/// The ranks of one session.
#[derive(Debug)]
pub(crate) struct Membership {
    roster: RankTable<KnownRanks>,
    redials: Vec<Reconnect>,
}

impl Membership {
    /// For ranks below `limit`.
    pub(crate) fn new(own: Rank, limit: u32) -> Self {
        let known = KnownRanks { limit, places: BTreeMap::new() };
        Self { roster: RankTable::new(own, known), redials: Vec::new() }
    }

    pub(crate) fn handle(&mut self, input: Input, now: Instant) -> Output {
        match input {
            Input::Hello { rank, incarnation, who } => {
                let admission = match self.roster.admit(rank, incarnation, who, now) {
                    // Born earlier, but late: what the pending connection has to know is that the rank is held.
                    Admission::Stale { .. } if self.roster.is_live(rank) => Admission::Duplicate,
                    admission => admission,
                };
                self.admitted(rank, admission)
            }
            Input::Welcome { rank, incarnation, who } => {
                Output::Admission(self.roster.admit_welcome(rank, incarnation, who, now))
            }
            Input::Linked { rank } => {
                self.redials.retain(|r| r.rank != rank);
                Output::Nothing
            }
            Input::Dial { rank } => {
                if self.roster.dial(rank) {
                    Output::Go
                } else {
                    Output::No
                }
            }
            Input::DialFailed { rank } => {
                self.roster.dial_failed(rank);
                if let Some(r) = self.redials.iter_mut().find(|r| r.rank == rank) {
                    r.at = now.after(r.backoff.pause());
                }
                Output::Nothing
            }
            Input::Over { rank, incarnation, redial } => {
                let ours = self.roster.mark_dead(rank, incarnation, now);
                if ours && redial && !self.redials.iter().any(|r| r.rank == rank) {
                    let mut backoff = Backoff::new();
                    let at = now.after(backoff.pause());
                    self.redials.push(Reconnect { rank, at, backoff });
                }
                Output::Nothing
            }
            Input::Tick => {
                let due = self.redials.iter_mut().find(|r| r.at <= now);
                match due {
                    Some(r) => {
                        // Until that dial ends; `DialFailed` sets the next time.
                        r.at = Instant::NEVER;
                        Output::Reconnect(r.rank)
                    }
                    None => Output::Nothing,
                }
            }
        }
    }

    fn admitted(&mut self, rank: Rank, admission: Admission) -> Output {
        if admission.accepted() {
            self.redials.retain(|r| r.rank != rank);
        }
        Output::Admission(admission)
    }

    /// Whether this end is the one that dials again after a death of a link to `rank`.
    /// The lower rank does, if the higher one can be dialed at all.
    pub(crate) fn redials(&self, rank: Rank, peer_listens: bool, we_listen: bool) -> bool {
        match (peer_listens, we_listen) {
            (true, true) => self.roster.should_redial(rank),
            (listens, _) => listens,
        }
    }

    /// Whether that rank is connected, or being dialed by this end.
    pub(crate) fn is_taken(&self, rank: Rank) -> bool {
        self.roster.is_taken(rank)
    }

    /// When `Input::Tick` is due.
    pub(crate) fn next_deadline(&self) -> Instant {
        self.redials.iter().map(|r| r.at).min().unwrap_or(Instant::NEVER)
    }
}

#[cfg(test)]
mod tests {
    use super::{Input, Membership, Output};
    use hmc_core::ctrl::ranks::{Admission, Identity};
    use hmc_core::time::{Duration, Instant};
    use hmc_core::types::{Incarnation, Rank};

    const WHO: Identity = Identity { host: [1; 16], proven: true };

    fn at(ms: u64) -> Instant {
        Instant::ZERO.after(Duration::from_millis(ms))
    }

    fn hello(n: u64) -> Input {
        Input::Hello { rank: Rank(3), incarnation: Incarnation(n), who: WHO }
    }

    #[test]
    fn a_lost_peer_is_dialed_again_with_growing_pauses_until_it_is_back() {
        let mut r = Membership::new(Rank(0), 16);
        assert_eq!(r.handle(hello(1), at(0)), Output::Admission(Admission::Accept));
        let over = Input::Over { rank: Rank(3), incarnation: Incarnation(1), redial: true };
        r.handle(over, at(0));
        assert_eq!(r.handle(Input::Tick, at(49)), Output::Nothing);
        assert_eq!(r.handle(Input::Tick, at(50)), Output::Reconnect(Rank(3)));
        assert_eq!(r.handle(Input::Tick, at(60)), Output::Nothing, "one dial at a time");
        r.handle(Input::DialFailed { rank: Rank(3) }, at(60));
        assert_eq!(r.handle(Input::Tick, at(159)), Output::Nothing, "twice the pause");
        assert_eq!(r.handle(Input::Tick, at(160)), Output::Reconnect(Rank(3)));
        assert_eq!(r.handle(hello(2), at(161)), Output::Admission(Admission::Replace));
        assert_eq!(r.next_deadline(), Instant::NEVER);
    }

    #[test]
    fn a_redial_that_is_given_up_after_its_welcome_is_repeated() {
        let (rank, incarnation, who) = (Rank(3), Incarnation(1), WHO);
        let mut r = Membership::new(Rank(0), 16);
        r.handle(hello(1), at(0));
        r.handle(Input::Over { rank, incarnation, redial: true }, at(0));
        assert_eq!(r.handle(Input::Tick, at(50)), Output::Reconnect(rank));
        let welcome = Input::Welcome { rank, incarnation, who };
        assert_eq!(r.handle(Input::Dial { rank }, at(50)), Output::Go);
        assert_eq!(r.handle(welcome, at(60)), Output::Admission(Admission::Replace));
        // Its data connection never came.
        r.handle(Input::Over { rank, incarnation, redial: false }, at(60));
        r.handle(Input::DialFailed { rank }, at(60));
        assert_eq!(
            r.handle(Input::Tick, at(160)),
            Output::Reconnect(rank),
            "the peer is still lost"
        );
        assert_eq!(r.handle(Input::Dial { rank }, at(160)), Output::Go);
        r.handle(welcome, at(170));
        r.handle(Input::Linked { rank }, at(171));
        assert_eq!(r.next_deadline(), Instant::NEVER, "it is back");
        r.handle(Input::Over { rank, incarnation, redial: true }, at(200));
        assert_eq!(r.next_deadline(), at(250), "and lost again");
    }

    #[test]
    fn only_ranks_that_were_dialed_or_admitted_take_space() {
        let mut r = Membership::new(Rank(0), 16);
        let spaces = |r: &Membership| r.roster.entries().places.len();
        let over = Input::Over { rank: Rank(5), incarnation: Incarnation(1), redial: true };
        for input in [over, Input::DialFailed { rank: Rank(6) }, Input::Tick] {
            assert_eq!(r.handle(input, at(0)), Output::Nothing);
        }
        assert!(!r.is_taken(Rank(7)));
        for rank in [0, 16, u32::MAX].map(Rank) {
            let hello = Input::Hello { rank, incarnation: Incarnation(1), who: WHO };
            let refused = Output::Admission(Admission::BadRank { limit: 16 });
            assert_eq!(r.handle(hello, at(0)), refused);
            assert_eq!(r.handle(Input::Dial { rank }, at(0)), Output::No);
        }
        assert_eq!(spaces(&r), 0);
        assert_eq!(r.handle(hello(1), at(0)), Output::Admission(Admission::Accept));
        assert_eq!(r.handle(Input::Dial { rank: Rank(15) }, at(0)), Output::Go);
        assert_eq!(spaces(&r), 2);
    }

    #[test]
    fn one_of_two_listeners_dials_again_and_a_listener_is_needed() {
        for (low, high) in [(Rank(0), Rank(1)), (Rank(4), Rank(9))] {
            let (l, h) = (Membership::new(low, 16), Membership::new(high, 16));
            assert!(l.redials(high, true, true) && !h.redials(low, true, true));
            assert!(!l.redials(high, false, true) && h.redials(low, true, false));
        }
    }
}
