//! Who holds which rank, for how long, and who dials after a death.
//!
//! The first holder of a rank keeps it while it lives. After its death only the same identity with a higher incarnation takes
//! the rank again, for a while: then any process that proved as much does, so that no host or incarnation that was once named
//! locks a rank for good. Whoever dials again raises its own incarnation first.

use crate::limits::{MAX_PEERS, RANK_KEPT_NS, RECONNECT_BACKOFF_NS};
#[cfg(hmc_mutants)]
use crate::mutant::{self, Mutant};
use crate::time::{Duration, Instant};
use crate::types::{Incarnation, Rank};
use crate::wire::cursor::to_usize;

/// Who a peer is beyond its rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Identity {
    /// Its host, as it says.
    pub host: [u8; 16],
    /// Whether it proved, or the kernel says, that it is of the same user.
    pub proven: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    /// Nobody held the rank yet.
    Vacant,
    /// A live process holds it.
    Live,
    /// Its holder died.
    Dead,
}

/// The place of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    life: Life,
    /// Whether this end is dialing that rank now.
    dialing: bool,
    incarnation: Incarnation,
    identity: Identity,
    /// When its holder died.
    died: Instant,
}

impl Place {
    /// The place of a rank that nobody held yet.
    pub const VACANT: Self = Self {
        life: Life::Vacant,
        dialing: false,
        incarnation: Incarnation(0),
        identity: Identity { host: [0; 16], proven: false },
        died: Instant::ZERO,
    };
}

/// What to do with a stranger that claims a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Nobody held the rank: accept.
    Accept,
    /// Its holder died and this is its next life: accept.
    Replace,
    /// Refuse: someone else holds the rank and lives.
    Duplicate,
    /// Refuse for now: this end dials that rank itself, and its dial has precedence.
    Crossing,
    /// Refuse: this life is over.
    Stale {
        /// The last life seen.
        seen: Incarnation,
    },
    /// Refuse: whoever held the rank has ended, and it is kept for it.
    Kept,
    /// Refuse: no peer of this session may have this rank.
    BadRank {
        /// Ranks are below this number, and not our own.
        limit: u32,
    },
}

impl Verdict {
    /// Whether the stranger holds the rank now.
    #[must_use]
    pub const fn accepted(self) -> bool {
        matches!(self, Self::Accept | Self::Replace)
    }
}

/// Where the places of a session's ranks are kept. No rank beyond [`MAX_PEERS`] is asked for.
pub trait Places {
    /// Only ranks below this number have a place.
    fn limit(&self) -> u32;

    /// The place of `rank`, if it has one and that was asked for by [`Self::at_mut`] before; it may answer with
    /// [`Place::VACANT`] instead of `None`.
    fn at(&self, rank: Rank) -> Option<&Place>;

    /// The place of `rank`, [`Place::VACANT`] at first; `None` if it has none.
    fn at_mut(&mut self, rank: Rank) -> Option<&mut Place>;
}

/// A slice, or what holds one: the place of rank `r` is the `r`-th.
impl<S: AsRef<[Place]> + AsMut<[Place]>> Places for S {
    fn limit(&self) -> u32 {
        u32::try_from(self.as_ref().len()).unwrap_or(u32::MAX)
    }

    fn at(&self, rank: Rank) -> Option<&Place> {
        self.as_ref().get(to_usize(rank.0))
    }

    fn at_mut(&mut self, rank: Rank) -> Option<&mut Place> {
        self.as_mut().get_mut(to_usize(rank.0))
    }
}

/// The ranks of one session, on storage of the caller's.
#[derive(Clone, Debug)]
pub struct Roster<P> {
    own: Rank,
    places: P,
}

impl<P: Places> Roster<P> {
    /// A roster of the rank `own` on `places`. What they say of a rank holds here from the start: nobody holds one whose
    /// place is [`Place::VACANT`].
    pub const fn new(own: Rank, places: P) -> Self {
        Self { own, places }
    }

    /// The places as they are now.
    pub const fn places(&self) -> &P {
        &self.places
    }

    fn limit(&self) -> u32 {
        self.places.limit().min(MAX_PEERS)
    }

    /// The place of a rank that a peer may have.
    fn place(&mut self, rank: Rank) -> Option<&mut Place> {
        if rank == self.own || rank.0 >= self.limit() {
            return None;
        }
        self.places.at_mut(rank)
    }

    /// Judges a HELLO; an accepted one holds the rank from now on.
    pub fn admit(
        &mut self,
        rank: Rank,
        incarnation: Incarnation,
        who: Identity,
        now: Instant,
    ) -> Verdict {
        let (limit, wins) = (self.limit(), self.redials(rank));
        let Some(place) = self.place(rank) else {
            return Verdict::BadRank { limit };
        };
        // Two ends that dial each other at once both apply this rule: the lower rank's dial wins.
        if place.dialing && wins {
            return Verdict::Crossing;
        }
        place.hold(incarnation, who, incarnation > place.incarnation, now)
    }

    /// Judges a WELCOME: the answer to our own dial. The peer need not have been born again: it is
    /// the link that died, and it was we who dialed.
    pub fn greet(
        &mut self,
        rank: Rank,
        incarnation: Incarnation,
        who: Identity,
        now: Instant,
    ) -> Verdict {
        let limit = self.limit();
        let Some(place) = self.place(rank) else {
            return Verdict::BadRank { limit };
        };
        place.hold(incarnation, who, incarnation >= place.incarnation, now)
    }

    /// This end dials `rank` now. `false`: it must not (own rank, out of range, alive, or being
    /// dialed already).
    pub fn dial(&mut self, rank: Rank) -> bool {
        match self.place(rank) {
            Some(p) if p.life != Life::Live && !p.dialing => {
                p.dialing = true;
                true
            }
            _ => false,
        }
    }

    /// The dial of `rank` failed.
    pub fn dial_failed(&mut self, rank: Rank) {
        if self.is_dialed(rank)
            && let Some(p) = self.place(rank)
        {
            p.dialing = false;
        }
    }

    /// The holder of `rank` in that life died or left. `false` when another life holds it already
    /// (news of an old link's end must not kill its successor).
    pub fn died(&mut self, rank: Rank, incarnation: Incarnation, now: Instant) -> bool {
        if !self.is_live(rank) {
            return false;
        }
        match self.place(rank) {
            Some(p) if p.incarnation == incarnation => {
                p.life = Life::Dead;
                p.died = now;
                true
            }
            _ => false,
        }
    }

    /// Whether a live process holds the rank.
    #[must_use]
    pub fn is_live(&self, rank: Rank) -> bool {
        self.places.at(rank).is_some_and(|p| p.life == Life::Live)
    }

    /// Whether a live process holds the rank, or this end dials it now.
    #[must_use]
    pub fn is_taken(&self, rank: Rank) -> bool {
        self.is_live(rank) || self.is_dialed(rank)
    }

    fn is_dialed(&self, rank: Rank) -> bool {
        self.places.at(rank).is_some_and(|p| p.dialing)
    }

    /// Whether this end is the one to dial `rank` again after a death: the lower rank is.
    #[must_use]
    pub fn redials(&self, rank: Rank) -> bool {
        self.own < rank
    }
}

impl Place {
    fn hold(
        &mut self,
        incarnation: Incarnation,
        who: Identity,
        newer: bool,
        now: Instant,
    ) -> Verdict {
        let older = Verdict::Stale { seen: self.incarnation };
        let verdict = match self.life {
            Life::Vacant => Verdict::Accept,
            #[cfg(hmc_mutants)]
            _ if mutant::is(Mutant::AcceptStaleLife) && incarnation < self.incarnation => {
                Verdict::Replace
            }
            #[cfg(hmc_mutants)]
            Life::Live if mutant::is(Mutant::EvictOnDuplicate) => Verdict::Replace,
            Life::Live if self.identity == who && incarnation < self.incarnation => older,
            Life::Live => Verdict::Duplicate,
            Life::Dead if self.yields_to(who, now) => Verdict::Replace,
            Life::Dead if self.identity != who => Verdict::Kept,
            Life::Dead if newer => Verdict::Replace,
            Life::Dead => older,
        };
        if verdict.accepted() {
            let died = self.died;
            *self = Self { life: Life::Live, dialing: false, incarnation, identity: who, died };
        }
        verdict
    }

    /// Whether a dead holder's rank is free for `who`, whatever host and life either of them claims. A proof counts at once
    /// against what was only claimed, and never the other way; among equals the dead one is waited for a while.
    fn yields_to(&self, who: Identity, now: Instant) -> bool {
        #[cfg(hmc_mutants)]
        if mutant::is(Mutant::ClaimLocksRank) {
            return false;
        }
        if who.proven == self.identity.proven { now >= self.kept_until() } else { who.proven }
    }

    fn kept_until(&self) -> Instant {
        self.died.after(Duration::from_nanos(RANK_KEPT_NS))
    }
}

/// The pauses between attempts to dial a lost peer again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Backoff {
    attempts: usize,
}

impl Backoff {
    /// No attempt was made yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { attempts: 0 }
    }

    /// How long to wait before the next attempt: 50 ms, then twice as long each time, up to 5 s.
    pub fn pause(&mut self) -> Duration {
        let last = RECONNECT_BACKOFF_NS.last().copied().unwrap_or(0);
        let ns = RECONNECT_BACKOFF_NS.get(self.attempts).copied().unwrap_or(last);
        self.attempts = self.attempts.saturating_add(1);
        Duration::from_nanos(ns)
    }
}

#[cfg(test)]
mod tests {
    use super::{Backoff, Identity, Place, Roster, Verdict};
    use crate::limits::RANK_KEPT_NS;
    use crate::time::Instant;
    use crate::types::{Incarnation, Rank};
    use std::vec::Vec;

    const A: Identity = Identity { host: [1; 16], proven: true };
    const B: Identity = Identity { host: [2; 16], proven: true };
    const T: Instant = Instant::ZERO;
    const R: Rank = Rank(3);

    fn roster(own: u32) -> Roster<[Place; 8]> {
        Roster::new(Rank(own), [Place::VACANT; 8])
    }

    fn inc(n: u64) -> Incarnation {
        Incarnation(n)
    }

    #[test]
    fn the_first_holder_keeps_a_rank_while_it_lives() {
        let mut r = roster(0);
        assert_eq!(r.admit(R, inc(5), A, T), Verdict::Accept);
        assert_eq!(r.admit(R, inc(5), A, T), Verdict::Duplicate);
        assert_eq!(r.admit(R, inc(9), A, T), Verdict::Duplicate);
        assert_eq!(r.admit(R, inc(9), B, T), Verdict::Duplicate);
        assert_eq!(r.admit(R, inc(4), A, T), Verdict::Stale { seen: inc(5) });
        assert!(r.is_live(R));
    }

    #[test]
    fn only_the_same_identity_comes_back_and_only_in_a_later_life() {
        let mut r = roster(0);
        r.admit(R, inc(5), A, T);
        assert!(!r.died(R, inc(4), T), "news of another life");
        assert!(r.died(R, inc(5), T));
        assert!(!r.died(R, inc(5), T), "dies once");
        assert_eq!(r.admit(R, inc(9), B, T), Verdict::Kept);
        assert_eq!(r.admit(R, inc(5), A, T), Verdict::Stale { seen: inc(5) });
        assert_eq!(r.admit(R, inc(6), A, T), Verdict::Replace);
        assert!(!r.died(R, inc(5), T), "the old link's end does not kill the new life");
        assert!(r.is_live(R));
    }

    #[test]
    fn what_was_not_proved_binds_nobody_for_long() {
        let c = Identity { host: [3; 16], proven: false };
        let d = Identity { host: [4; 16], proven: false };
        let kept = Instant::from_nanos(RANK_KEPT_NS);
        let just = Instant::from_nanos(RANK_KEPT_NS - 1);
        let claimed = || {
            let mut r = roster(0);
            assert_eq!(r.admit(R, inc(u64::MAX), c, T), Verdict::Accept);
            assert!(r.died(R, inc(u64::MAX), T));
            r
        };
        let mut r = claimed();
        assert_eq!(r.admit(R, inc(1), d, just), Verdict::Kept);
        assert_eq!(r.admit(R, inc(1), c, just), Verdict::Stale { seen: inc(u64::MAX) });
        assert_eq!(r.admit(R, inc(1), c, kept), Verdict::Replace);
        assert_eq!(claimed().admit(R, inc(1), d, kept), Verdict::Replace);
        assert_eq!(claimed().greet(R, inc(1), d, kept), Verdict::Replace);
        // A proof counts at once, and is not followed by a claim.
        let mut r = claimed();
        assert_eq!(r.admit(R, inc(1), A, T), Verdict::Replace);
        assert!(r.died(R, inc(1), T));
        // And what was proven is not taken by a claim, ever.
        let (late, a) = (Instant::from_nanos(u64::MAX - 1), Identity { proven: false, ..A });
        assert_eq!(r.admit(R, inc(9), a, late), Verdict::Kept);
        assert_eq!(r.greet(R, inc(9), a, late), Verdict::Kept);
        assert_eq!(r.admit(R, inc(2), A, late), Verdict::Replace);
    }

    #[test]
    fn what_was_proved_binds_equals_for_a_while_only() {
        let kept = Instant::from_nanos(RANK_KEPT_NS);
        let just = Instant::from_nanos(RANK_KEPT_NS - 1);
        let dead = || {
            let mut r = roster(0);
            assert_eq!(r.admit(R, inc(u64::MAX), A, T), Verdict::Accept);
            assert!(r.died(R, inc(u64::MAX), T));
            r
        };
        for (who, early) in [(A, Verdict::Stale { seen: inc(u64::MAX) }), (B, Verdict::Kept)] {
            assert_eq!(dead().admit(R, inc(1), who, just), early);
            assert_eq!(dead().admit(R, inc(1), who, kept), Verdict::Replace);
            assert_eq!(dead().greet(R, inc(1), who, kept), Verdict::Replace);
        }
        let mut r = roster(0);
        assert_eq!(r.admit(R, inc(5), A, T), Verdict::Accept);
        assert_eq!(r.admit(R, inc(9), B, kept), Verdict::Duplicate, "it lives");
    }

    #[test]
    fn a_dialer_may_meet_the_same_life_again() {
        let mut r = roster(0);
        assert!(r.dial(R));
        assert_eq!(r.greet(R, inc(5), A, T), Verdict::Accept);
        assert!(!r.dial(R), "it is alive");
        r.died(R, inc(5), T);
        assert!(r.dial(R));
        assert_eq!(r.greet(R, inc(4), A, T), Verdict::Stale { seen: inc(5) });
        assert_eq!(r.greet(R, inc(5), B, T), Verdict::Kept);
        assert_eq!(r.greet(R, inc(5), A, T), Verdict::Replace);
    }

    #[test]
    fn crossing_dials_leave_one_link() {
        for (low, high) in [(1u32, 2u32), (0, 7)] {
            let (mut l, mut h) = (roster(low), roster(high));
            assert!(l.dial(Rank(high)) && h.dial(Rank(low)));
            assert_eq!(l.admit(Rank(high), inc(1), B, T), Verdict::Crossing);
            assert_eq!(h.admit(Rank(low), inc(1), A, T), Verdict::Accept);
            assert_eq!(l.greet(Rank(high), inc(1), B, T), Verdict::Accept);
            assert!(!h.dial(Rank(low)));
        }
        let mut l = roster(1);
        assert!(l.dial(Rank(2)) && !l.dial(Rank(2)));
        l.dial_failed(Rank(2));
        assert_eq!(l.admit(Rank(2), inc(1), B, T), Verdict::Accept);
    }

    #[test]
    fn a_rank_is_taken_while_it_lives_or_is_dialed() {
        let mut r = roster(0);
        assert!(!r.is_taken(R));
        assert!(r.dial(R) && r.is_taken(R) && !r.is_live(R));
        r.dial_failed(R);
        assert!(!r.is_taken(R));
        r.admit(R, inc(5), A, T);
        assert!(r.is_taken(R));
        r.died(R, inc(5), T);
        assert!(!r.is_taken(R));
        assert!(!r.is_taken(Rank(8)) && !r.is_taken(Rank(u32::MAX)));
    }

    #[test]
    fn impossible_ranks_are_refused() {
        let mut r = roster(2);
        let bad = Verdict::BadRank { limit: 8 };
        for n in [2, 8, 4095, 4096, u32::MAX] {
            assert_eq!(r.admit(Rank(n), inc(1), A, T), bad);
            assert_eq!(r.greet(Rank(n), inc(1), A, T), bad);
            assert!(!r.dial(Rank(n)) && !r.died(Rank(n), inc(1), T) && !r.is_live(Rank(n)));
        }
    }

    #[test]
    fn the_lower_rank_redials_with_longer_and_longer_pauses() {
        assert!(roster(2).redials(Rank(3)));
        assert!(!roster(3).redials(Rank(2)));
        assert!(!roster(3).redials(Rank(3)));
        let mut b = Backoff::new();
        let ms: Vec<u64> = (0..10).map(|_| b.pause().as_nanos() / 1_000_000).collect();
        assert_eq!(ms, [50, 100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000]);
    }
}
