//! The table of ranks: which process has which rank, for how long, and which end reconnects after a death.
//!
//! The first holder of a rank keeps it while its process runs. After its death the rank is reserved for 10 s
//! ([`crate::limits::RANK_KEPT_NS`]): only the same identity with a higher incarnation can take it. After that, any
//! process with the same level of proof can, so no host or incarnation locks a rank permanently. An end increases
//! its own incarnation before it reconnects.

use crate::limits::{MAX_PEERS, RANK_KEPT_NS, RECONNECT_BACKOFF_NS};
use crate::time::{Duration, Instant};
use crate::types::{Incarnation, Rank};
use crate::wire::cursor::to_usize;

/// Identity of a peer in addition to its rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Identity {
    /// Its host, as it says.
    pub host: [u8; 16],
    /// Whether it proved, or the kernel says, that it is of the same user.
    pub proven: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RankState {
    /// Nobody held the rank yet.
    Vacant,
    /// A live process holds it.
    Live,
    /// Its holder died.
    Dead,
}

/// The entry of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankEntry {
    state: RankState,
    /// Whether this end is dialing that rank now.
    dialing: bool,
    incarnation: Incarnation,
    identity: Identity,
    /// When its holder died.
    died: Instant,
}

impl RankEntry {
    /// The entry of a rank that no process had yet.
    pub const EMPTY: Self = Self {
        state: RankState::Vacant,
        dialing: false,
        incarnation: Incarnation(0),
        identity: Identity { host: [0; 16], proven: false },
        died: Instant::ZERO,
    };
}

/// The decision about a pending connection that claims a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Admission {
    /// No process had the rank: accept.
    Accept,
    /// Its holder died and this is its next incarnation: accept.
    Replace,
    /// Reject: another process has the rank and lives.
    Duplicate,
    /// Reject for now: this end dials that rank itself, and its dial has precedence.
    Crossing,
    /// Reject: this incarnation has ended.
    Stale {
        /// The last incarnation seen.
        seen: Incarnation,
    },
    /// Reject: the process that had the rank has ended, and the rank is kept for it.
    Kept,
    /// Reject: no peer of this session may have this rank.
    BadRank {
        /// Ranks are below this number, and not our own.
        limit: u32,
    },
}

impl Admission {
    /// Returns `true` if the peer has the rank now.
    #[must_use]
    pub const fn accepted(self) -> bool {
        matches!(self, Self::Accept | Self::Replace)
    }
}

/// The storage of the entries of a session's ranks. No rank beyond [`MAX_PEERS`] is asked for.
pub trait RankStorage {
    /// Only ranks below this number have an entry.
    fn limit(&self) -> u32;

    /// Returns the entry of `rank`, if it has one and [`Self::at_mut`] was called for it before. It may return
    /// [`RankEntry::EMPTY`] instead of `None`.
    fn at(&self, rank: Rank) -> Option<&RankEntry>;

    /// Returns the entry of `rank`, [`RankEntry::EMPTY`] at first; `None` if it has none.
    fn at_mut(&mut self, rank: Rank) -> Option<&mut RankEntry>;
}

/// A slice, or an owner of one: the entry of rank `r` is the `r`-th.
impl<S: AsRef<[RankEntry]> + AsMut<[RankEntry]>> RankStorage for S {
    fn limit(&self) -> u32 {
        u32::try_from(self.as_ref().len()).unwrap_or(u32::MAX)
    }

    fn at(&self, rank: Rank) -> Option<&RankEntry> {
        self.as_ref().get(to_usize(rank.0))
    }

    fn at_mut(&mut self, rank: Rank) -> Option<&mut RankEntry> {
        self.as_mut().get_mut(to_usize(rank.0))
    }
}

/// The ranks of one session, on storage of the caller.
#[derive(Clone, Debug)]
pub struct RankTable<P> {
    own: Rank,
    entries: P,
}

impl<P: RankStorage> RankTable<P> {
    /// Returns the table of the rank `own` on `entries`. Their contents are valid from the start: no process has a rank whose
    /// entry is [`RankEntry::EMPTY`].
    pub const fn new(own: Rank, entries: P) -> Self {
        Self { own, entries }
    }

    /// Returns the entries as they are now.
    pub const fn entries(&self) -> &P {
        &self.entries
    }

    fn limit(&self) -> u32 {
        self.entries.limit().min(MAX_PEERS)
    }

    /// Returns the entry of a rank that a peer may have.
    fn entry(&mut self, rank: Rank) -> Option<&mut RankEntry> {
        if rank == self.own || rank.0 >= self.limit() {
            return None;
        }
        self.entries.at_mut(rank)
    }

    /// Decides about a HELLO; an accepted peer has the rank from now on.
    pub fn admit(
        &mut self,
        rank: Rank,
        incarnation: Incarnation,
        who: Identity,
        now: Instant,
    ) -> Admission {
        let (limit, wins) = (self.limit(), self.should_redial(rank));
        let Some(entry) = self.entry(rank) else {
            return Admission::BadRank { limit };
        };
        // Two ends that dial each other at once both apply this rule: the lower rank's dial wins.
        if entry.dialing && wins {
            return Admission::Crossing;
        }
        entry.hold(incarnation, who, incarnation > entry.incarnation, now)
    }

    /// Decides about a WELCOME: the answer to our own dial. The incarnation need not be higher: the
    /// link was lost, and this end dialed.
    pub fn admit_welcome(
        &mut self,
        rank: Rank,
        incarnation: Incarnation,
        who: Identity,
        now: Instant,
    ) -> Admission {
        let limit = self.limit();
        let Some(entry) = self.entry(rank) else {
            return Admission::BadRank { limit };
        };
        entry.hold(incarnation, who, incarnation >= entry.incarnation, now)
    }

    /// This end dials `rank` now. `false`: it must not (own rank, out of range, alive, or being
    /// dialed already).
    pub fn dial(&mut self, rank: Rank) -> bool {
        match self.entry(rank) {
            Some(p) if p.state != RankState::Live && !p.dialing => {
                p.dialing = true;
                true
            }
            _ => false,
        }
    }

    /// The dial of `rank` failed.
    pub fn dial_failed(&mut self, rank: Rank) {
        if self.is_dialed(rank)
            && let Some(p) = self.entry(rank)
        {
            p.dialing = false;
        }
    }

    /// The holder of `rank` in that life died or left. `false` when another life holds it already
    /// (the end of an old link must not end its successor).
    pub fn mark_dead(&mut self, rank: Rank, incarnation: Incarnation, now: Instant) -> bool {
        if !self.is_live(rank) {
            return false;
        }
        match self.entry(rank) {
            Some(p) if p.incarnation == incarnation => {
                p.state = RankState::Dead;
                p.died = now;
                true
            }
            _ => false,
        }
    }

    /// Whether a live process holds the rank.
    #[must_use]
    pub fn is_live(&self, rank: Rank) -> bool {
        self.entries.at(rank).is_some_and(|p| p.state == RankState::Live)
    }

    /// Whether a live process holds the rank, or this end dials it now.
    #[must_use]
    pub fn is_taken(&self, rank: Rank) -> bool {
        self.is_live(rank) || self.is_dialed(rank)
    }

    fn is_dialed(&self, rank: Rank) -> bool {
        self.entries.at(rank).is_some_and(|p| p.dialing)
    }

    /// Whether this end is the one to dial `rank` again after a death: the lower rank is.
    #[must_use]
    pub fn should_redial(&self, rank: Rank) -> bool {
        self.own < rank
    }
}

impl RankEntry {
    fn hold(
        &mut self,
        incarnation: Incarnation,
        who: Identity,
        newer: bool,
        now: Instant,
    ) -> Admission {
        let older = Admission::Stale { seen: self.incarnation };
        let admission = match self.state {
            RankState::Vacant => Admission::Accept,
            RankState::Live if self.identity == who && incarnation < self.incarnation => older,
            RankState::Live => Admission::Duplicate,
            RankState::Dead if self.yields_to(who, now) => Admission::Replace,
            RankState::Dead if self.identity != who => Admission::Kept,
            RankState::Dead if newer => Admission::Replace,
            RankState::Dead => older,
        };
        if admission.accepted() {
            let died = self.died;
            *self =
                Self { state: RankState::Live, dialing: false, incarnation, identity: who, died };
        }
        admission
    }

    /// Whether a dead holder's rank is free for `who`, whatever host and life either of them claims. A proof counts at once
    /// against what was only claimed, and never the other way; among equals the dead one is waited for a while.
    fn yields_to(&self, who: Identity, now: Instant) -> bool {
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
    use super::{Admission, Backoff, Identity, RankEntry, RankTable};
    use crate::limits::RANK_KEPT_NS;
    use crate::time::Instant;
    use crate::types::{Incarnation, Rank};
    use std::vec::Vec;

    const A: Identity = Identity { host: [1; 16], proven: true };
    const B: Identity = Identity { host: [2; 16], proven: true };
    const T: Instant = Instant::ZERO;
    const R: Rank = Rank(3);

    fn table(own: u32) -> RankTable<[RankEntry; 8]> {
        RankTable::new(Rank(own), [RankEntry::EMPTY; 8])
    }

    fn inc(n: u64) -> Incarnation {
        Incarnation(n)
    }

    #[test]
    fn the_first_holder_keeps_a_rank_while_it_lives() {
        let mut r = table(0);
        assert_eq!(r.admit(R, inc(5), A, T), Admission::Accept);
        assert_eq!(r.admit(R, inc(5), A, T), Admission::Duplicate);
        assert_eq!(r.admit(R, inc(9), A, T), Admission::Duplicate);
        assert_eq!(r.admit(R, inc(9), B, T), Admission::Duplicate);
        assert_eq!(r.admit(R, inc(4), A, T), Admission::Stale { seen: inc(5) });
        assert!(r.is_live(R));
    }

    #[test]
    fn only_the_same_identity_comes_back_and_only_in_a_later_life() {
        let mut r = table(0);
        r.admit(R, inc(5), A, T);
        assert!(!r.mark_dead(R, inc(4), T), "another incarnation");
        assert!(r.mark_dead(R, inc(5), T));
        assert!(!r.mark_dead(R, inc(5), T), "dies once");
        assert_eq!(r.admit(R, inc(9), B, T), Admission::Kept);
        assert_eq!(r.admit(R, inc(5), A, T), Admission::Stale { seen: inc(5) });
        assert_eq!(r.admit(R, inc(6), A, T), Admission::Replace);
        assert!(!r.mark_dead(R, inc(5), T), "the old link's end does not kill the new life");
        assert!(r.is_live(R));
    }

    #[test]
    fn what_was_not_proved_binds_nobody_for_long() {
        let c = Identity { host: [3; 16], proven: false };
        let d = Identity { host: [4; 16], proven: false };
        let kept = Instant::from_nanos(RANK_KEPT_NS);
        let just = Instant::from_nanos(RANK_KEPT_NS - 1);
        let claimed = || {
            let mut r = table(0);
            assert_eq!(r.admit(R, inc(u64::MAX), c, T), Admission::Accept);
            assert!(r.mark_dead(R, inc(u64::MAX), T));
            r
        };
        let mut r = claimed();
        assert_eq!(r.admit(R, inc(1), d, just), Admission::Kept);
        assert_eq!(r.admit(R, inc(1), c, just), Admission::Stale { seen: inc(u64::MAX) });
        assert_eq!(r.admit(R, inc(1), c, kept), Admission::Replace);
        assert_eq!(claimed().admit(R, inc(1), d, kept), Admission::Replace);
        assert_eq!(claimed().admit_welcome(R, inc(1), d, kept), Admission::Replace);
        // A proof counts at once, and is not followed by a claim.
        let mut r = claimed();
        assert_eq!(r.admit(R, inc(1), A, T), Admission::Replace);
        assert!(r.mark_dead(R, inc(1), T));
        // And what was proven is not taken by a claim, ever.
        let (late, a) = (Instant::from_nanos(u64::MAX - 1), Identity { proven: false, ..A });
        assert_eq!(r.admit(R, inc(9), a, late), Admission::Kept);
        assert_eq!(r.admit_welcome(R, inc(9), a, late), Admission::Kept);
        assert_eq!(r.admit(R, inc(2), A, late), Admission::Replace);
    }

    #[test]
    fn what_was_proved_binds_equals_for_a_while_only() {
        let kept = Instant::from_nanos(RANK_KEPT_NS);
        let just = Instant::from_nanos(RANK_KEPT_NS - 1);
        let dead = || {
            let mut r = table(0);
            assert_eq!(r.admit(R, inc(u64::MAX), A, T), Admission::Accept);
            assert!(r.mark_dead(R, inc(u64::MAX), T));
            r
        };
        for (who, early) in [(A, Admission::Stale { seen: inc(u64::MAX) }), (B, Admission::Kept)] {
            assert_eq!(dead().admit(R, inc(1), who, just), early);
            assert_eq!(dead().admit(R, inc(1), who, kept), Admission::Replace);
            assert_eq!(dead().admit_welcome(R, inc(1), who, kept), Admission::Replace);
        }
        let mut r = table(0);
        assert_eq!(r.admit(R, inc(5), A, T), Admission::Accept);
        assert_eq!(r.admit(R, inc(9), B, kept), Admission::Duplicate, "it lives");
    }

    #[test]
    fn a_dialer_may_connect_to_the_same_incarnation_again() {
        let mut r = table(0);
        assert!(r.dial(R));
        assert_eq!(r.admit_welcome(R, inc(5), A, T), Admission::Accept);
        assert!(!r.dial(R), "it is alive");
        r.mark_dead(R, inc(5), T);
        assert!(r.dial(R));
        assert_eq!(r.admit_welcome(R, inc(4), A, T), Admission::Stale { seen: inc(5) });
        assert_eq!(r.admit_welcome(R, inc(5), B, T), Admission::Kept);
        assert_eq!(r.admit_welcome(R, inc(5), A, T), Admission::Replace);
    }

    #[test]
    fn crossing_dials_leave_one_link() {
        for (low, high) in [(1u32, 2u32), (0, 7)] {
            let (mut l, mut h) = (table(low), table(high));
            assert!(l.dial(Rank(high)) && h.dial(Rank(low)));
            assert_eq!(l.admit(Rank(high), inc(1), B, T), Admission::Crossing);
            assert_eq!(h.admit(Rank(low), inc(1), A, T), Admission::Accept);
            assert_eq!(l.admit_welcome(Rank(high), inc(1), B, T), Admission::Accept);
            assert!(!h.dial(Rank(low)));
        }
        let mut l = table(1);
        assert!(l.dial(Rank(2)) && !l.dial(Rank(2)));
        l.dial_failed(Rank(2));
        assert_eq!(l.admit(Rank(2), inc(1), B, T), Admission::Accept);
    }

    #[test]
    fn a_rank_is_taken_while_it_lives_or_is_dialed() {
        let mut r = table(0);
        assert!(!r.is_taken(R));
        assert!(r.dial(R) && r.is_taken(R) && !r.is_live(R));
        r.dial_failed(R);
        assert!(!r.is_taken(R));
        r.admit(R, inc(5), A, T);
        assert!(r.is_taken(R));
        r.mark_dead(R, inc(5), T);
        assert!(!r.is_taken(R));
        assert!(!r.is_taken(Rank(8)) && !r.is_taken(Rank(u32::MAX)));
    }

    #[test]
    fn impossible_ranks_are_refused() {
        let mut r = table(2);
        let bad = Admission::BadRank { limit: 8 };
        for n in [2, 8, 4095, 4096, u32::MAX] {
            assert_eq!(r.admit(Rank(n), inc(1), A, T), bad);
            assert_eq!(r.admit_welcome(Rank(n), inc(1), A, T), bad);
            assert!(!r.dial(Rank(n)) && !r.mark_dead(Rank(n), inc(1), T) && !r.is_live(Rank(n)));
        }
    }

    #[test]
    fn the_lower_rank_redials_with_longer_and_longer_pauses() {
        assert!(table(2).should_redial(Rank(3)));
        assert!(!table(3).should_redial(Rank(2)));
        assert!(!table(3).should_redial(Rank(3)));
        let mut b = Backoff::new();
        let ms: Vec<u64> = (0..10).map(|_| b.pause().as_nanos() / 1_000_000).collect();
        assert_eq!(ms, [50, 100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000]);
    }
}
