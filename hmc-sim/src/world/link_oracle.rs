//! Oracle of links: the view of each rank of each peer, and whether a fault can have affected the two.

use super::finding::{Finding, Kind, Verdict, found};

/// The view of one rank of a peer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PeerView {
    /// Connected.
    pub(crate) up: bool,
    /// Counts the links, over all lives of the rank.
    pub(crate) link: u64,
    /// Of the peer's process on the newest link.
    incarnation: u64,
}

/// All views.
pub(crate) struct LinkOracle {
    ranks: u32,
    views: Vec<PeerView>,
    /// The last link closed by a fault, and no request to close it came since.
    lost: Vec<bool>,
    /// Until when a fault may explain what happens between two ranks.
    trouble_ns: Vec<u64>,
    /// From when until when somebody ends the link in order.
    ending_ns: Vec<(u64, u64)>,
    /// The lives that were started, by rank.
    is_running: Vec<u64>,
}

impl LinkOracle {
    pub(crate) fn new(ranks: u32) -> Self {
        let pairs = (ranks * ranks) as usize;
        Self {
            ranks,
            views: vec![PeerView::default(); pairs],
            lost: vec![false; pairs],
            trouble_ns: vec![0; pairs],
            ending_ns: vec![(0, 0); pairs],
            is_running: vec![0; ranks as usize],
        }
    }

    const fn at(&self, me: u32, peer: u32) -> usize {
        me as usize * self.ranks as usize + peer as usize
    }

    /// Returns the view of `me` of `peer`.
    pub(crate) fn view(&self, me: u32, peer: u32) -> PeerView {
        self.views.get(self.at(me, peer)).copied().unwrap_or_default()
    }

    /// Returns `true` if both report their link as up.
    pub(crate) fn joined(&self, a: u32, b: u32) -> bool {
        self.view(a, b).up && self.view(b, a).up
    }

    /// A process starts.
    pub(crate) fn start(&mut self, me: u32) {
        self.is_running[me as usize] += 1;
        self.remove(me);
    }

    /// A process ends: it has no views.
    pub(crate) fn remove(&mut self, me: u32) {
        for peer in 0..self.ranks {
            let at = self.at(me, peer);
            self.lost[at] = false;
            self.views[at].up = false;
            self.views[at].incarnation = 0;
        }
    }

    /// Something that excuses failures between two ranks, until then.
    pub(crate) fn trouble(&mut self, a: u32, b: u32, until_ns: u64) {
        for at in [self.at(a, b), self.at(b, a)] {
            self.trouble_ns[at] = self.trouble_ns[at].max(until_ns);
        }
    }

    /// The same between a rank and all others.
    pub(crate) fn trouble_all(&mut self, a: u32, until_ns: u64) {
        for b in 0..self.ranks {
            self.trouble(a, b, until_ns);
        }
    }

    /// One of two ranks ends their link in order, between these times.
    pub(crate) fn ending(&mut self, a: u32, b: u32, from_ns: u64, until_ns: u64) {
        for at in [self.at(a, b), self.at(b, a)] {
            self.lost[at] = false;
            let (from, until) = &mut self.ending_ns[at];
            if *until < from_ns {
                *from = from_ns;
            }
            *until = (*until).max(until_ns);
        }
    }

    /// The same for a rank and all others.
    pub(crate) fn ending_all(&mut self, a: u32, from_ns: u64, until_ns: u64) {
        for b in 0..self.ranks {
            self.ending(a, b, from_ns, until_ns);
        }
    }

    /// `me` lost its link to `peer`, and nobody wanted that.
    pub(crate) fn is_lost(&self, me: u32, peer: u32) -> bool {
        self.lost.get(self.at(me, peer)).copied().unwrap_or_default()
    }

    /// A fault or an end at or after `since` may explain it.
    pub(crate) fn excused(&self, a: u32, b: u32, since_ns: u64) -> bool {
        let at = self.at(a, b);
        self.trouble_ns.get(at).is_none_or(|until| *until >= since_ns)
            || self.ending_ns.get(at).is_some_and(|(_, until)| *until >= since_ns)
    }

    /// The same for bytes on their way since then: an end in order waits for those that were before it.
    pub(crate) fn excused_bytes(&self, a: u32, b: u32, since_ns: u64) -> bool {
        let at = self.at(a, b);
        let ending = |(from, until): &(u64, u64)| *from <= since_ns && since_ns <= *until;
        self.trouble_ns.get(at).is_none_or(|until| *until >= since_ns)
            || self.ending_ns.get(at).is_some_and(ending)
    }

    /// `me` reports that `peer` is up.
    pub(crate) fn up(&mut self, me: u32, peer: u32, incarnation: u64) -> Verdict {
        if peer >= self.ranks || peer == me {
            return found(Kind::Peers, format!("rank {me} says that rank {peer} is up"));
        }
        let at = self.at(me, peer);
        let view = &mut self.views[at];
        let fault = if view.up {
            "twice"
        } else if incarnation > self.is_running[peer as usize] || incarnation == 0 {
            "with an incarnation that never was"
        } else if incarnation < view.incarnation {
            "with an older incarnation than before"
        } else {
            *view = PeerView { up: true, link: view.link + 1, incarnation };
            self.lost[at] = false;
            return Ok(());
        };
        found(
            Kind::Peers,
            format!("rank {me} says that rank {peer}, incarnation {incarnation}, is up: {fault}"),
        )
    }

    /// `me` reports that `peer` is down. Returns the link that closed.
    pub(crate) fn down(&mut self, now: u64, me: u32, peer: u32) -> Result<u64, Finding> {
        let at = self.at(me, peer);
        match self.views.get_mut(at) {
            Some(view) if view.up => {
                view.up = false;
                self.lost[at] = self.ending_ns[at].1 < now;
                Ok(view.link)
            }
            _ => found(Kind::Peers, format!("rank {me}: rank {peer} is down, but was not up")),
        }
    }
}
