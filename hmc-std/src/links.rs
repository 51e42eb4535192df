//! The links of a session, by rank and by serial number. Readers take no lock: a change publishes a new table, and the
//! old one lives until its last reader is done. Changes are rare (a peer comes or goes) and cost a copy of the table.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use arc_swap::ArcSwap;
use hmc_core::types::Rank;

use crate::link::{Life, Link};

type Table<K> = ArcSwap<BTreeMap<K, Arc<Link>>>;

/// The links of one session.
#[derive(Debug, Default)]
pub(crate) struct Links {
    /// The newest link of each rank, alive or dead.
    by_rank: Table<Rank>,
    /// The links that are not over.
    by_serial: Table<u32>,
    /// The rank at which the next [`Links::find_in_turn`] begins.
    turn: AtomicU32,
}

/// Publishes what `change` makes of the table. It may run several times, if others change the table too.
fn update<K: Ord + Clone>(table: &Table<K>, change: impl Fn(&mut BTreeMap<K, Arc<Link>>)) {
    // The old tables drop here, outside every lock: the last handle of a link may go with one.
    table.rcu(|old| {
        let mut new = BTreeMap::clone(old);
        change(&mut new);
        new
    });
}

impl Links {
    /// The newest link of a rank.
    pub(crate) fn of_rank(&self, rank: Rank) -> Option<Arc<Link>> {
        self.by_rank.load().get(&rank).cloned()
    }

    /// The newest link of a rank that is `first` or more, of those that go on or have messages that nobody has received.
    pub(crate) fn last_from(&self, first: Rank) -> Option<Arc<Link>> {
        let is_left =
            |l: &&Arc<Link>| matches!(l.life(), Life::Opening | Life::Ready) || l.inbox().len() > 0;
        self.by_rank.load().range(first..).rev().map(|(_, l)| l).find(is_left).cloned()
    }

    /// The link of a serial number, unless it is over.
    pub(crate) fn of_serial(&self, serial: u32) -> Option<Arc<Link>> {
        self.by_serial.load().get(&serial).cloned()
    }

    /// The links that are not over.
    pub(crate) fn open(&self) -> Vec<Arc<Link>> {
        self.by_serial.load().values().cloned().collect()
    }

    /// As [`Links::open`], into storage that is used again and again.
    pub(crate) fn open_into(&self, out: &mut Vec<Arc<Link>>) {
        out.clear();
        out.extend(self.by_serial.load().values().cloned());
    }

    /// The newest link of each rank: not over, or over with messages that nobody has received.
    pub(crate) fn newest(&self) -> Vec<Arc<Link>> {
        self.by_rank.load().values().cloned().collect()
    }

    /// What `take` finds at one of the newest links. The ranks behind the one that had something last come first: one that
    /// always has something keeps nobody else waiting.
    pub(crate) fn find_in_turn<T>(&self, take: impl Fn(&Arc<Link>) -> Option<T>) -> Option<T> {
        let links = self.newest();
        let first = self.turn.load(Ordering::Relaxed);
        let (earlier, later) = links.split_at(links.partition_point(|l| l.peer.0 < first));
        later.iter().chain(earlier).find_map(|link| {
            let found = take(link)?;
            self.turn.store(link.peer.0.wrapping_add(1), Ordering::Relaxed);
            Some(found)
        })
    }

    /// Whether a peer has gone, or leaves, whose link is known.
    pub(crate) fn has_ended(&self) -> bool {
        let ended = |l: &Arc<Link>| matches!(l.life(), Life::Leaving | Life::Dead);
        self.by_rank.load().values().any(ended) || self.by_serial.load().values().any(ended)
    }

    /// Whether there is none: not even one that is over and was not retired.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_serial.load().is_empty() && self.by_rank.load().is_empty()
    }

    /// Makes a link known. An older one of the same rank is replaced.
    pub(crate) fn insert(&self, link: &Arc<Link>) {
        update(&self.by_serial, |t| {
            t.insert(link.serial, Arc::clone(link));
        });
        update(&self.by_rank, |t| {
            t.insert(link.peer, Arc::clone(link));
        });
    }

    /// The link is over: its serial number finds it no more.
    pub(crate) fn close(&self, serial: u32) {
        update(&self.by_serial, |t| {
            t.remove(&serial);
        });
    }

    /// Puts another in the place of the newest link of its rank, unless that is a newer one now.
    pub(crate) fn replace(&self, old: &Arc<Link>, with: &Arc<Link>) {
        update(&self.by_rank, |t| {
            if let Some(link) = t.get_mut(&old.peer).filter(|l| Arc::ptr_eq(l, old)) {
                *link = Arc::clone(with);
            }
        });
    }

    /// Takes the links off their ranks for which `is_done`, and gives them.
    pub(crate) fn retire(&self, is_done: impl Fn(&Link) -> bool) -> Vec<Arc<Link>> {
        let done: Vec<Arc<Link>> =
            self.by_rank.load().values().filter(|l| is_done(l)).cloned().collect();
        if !done.is_empty() {
            // A newer life of the rank may have come in between: it stays.
            let is_one = |l: &Arc<Link>| done.iter().any(|d| Arc::ptr_eq(d, l));
            update(&self.by_rank, |t| t.retain(|_, l| !is_one(l)));
        }
        done
    }
}
