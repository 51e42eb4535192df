//! The links of a session, by rank and by serial number. Readers take no lock: a change publishes a new table, and
//! the old one is freed after its last reader. Changes are rare (a peer connects or disconnects) and copy the
//! table.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use arc_swap::ArcSwap;
use hmc_core::types::Rank;

use crate::link::{Link, LinkState};

type Table<K> = ArcSwap<BTreeMap<K, Arc<Link>>>;

/// The links of one session.
#[derive(Debug, Default)]
pub(crate) struct Links {
    /// The newest link of each rank, alive or dead.
    by_rank: Table<Rank>,
    /// The links that are not over.
    by_serial: Table<u32>,
    /// The rank at which the next [`Links::find_round_robin`] begins.
    next_rank: AtomicU32,
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
        let is_left = |l: &&Arc<Link>| {
            matches!(l.state(), LinkState::Opening | LinkState::Ready) || l.inbox().len() > 0
        };
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
    pub(crate) fn find_round_robin<T>(&self, take: impl Fn(&Arc<Link>) -> Option<T>) -> Option<T> {
        let links = self.newest();
        let first = self.next_rank.load(Ordering::Relaxed);
        let (earlier, later) = links.split_at(links.partition_point(|l| l.peer.0 < first));
        later.iter().chain(earlier).find_map(|link| {
            let found = take(link)?;
            self.next_rank.store(link.peer.0.wrapping_add(1), Ordering::Relaxed);
            Some(found)
        })
    }

    /// Whether a peer has gone, or leaves, whose link is known.
    pub(crate) fn has_ended(&self) -> bool {
        let ended = |l: &Arc<Link>| matches!(l.state(), LinkState::Leaving | LinkState::Dead);
        self.by_rank.load().values().any(ended) || self.by_serial.load().values().any(ended)
    }

    /// Whether there is none: not even one that is over and was not reaped.
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
    pub(crate) fn remove_closed(&self, is_done: impl Fn(&Link) -> bool) -> Vec<Arc<Link>> {
        let done: Vec<Arc<Link>> =
            self.by_rank.load().values().filter(|l| is_done(l)).cloned().collect();
        if !done.is_empty() {
            // A newer incarnation of the rank may have come in between: it stays.
            let is_one = |l: &Arc<Link>| done.iter().any(|d| Arc::ptr_eq(d, l));
            update(&self.by_rank, |t| t.retain(|_, l| !is_one(l)));
        }
        done
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing, reason = "tests may panic")]

    use std::sync::Arc;

    use hmc_core::types::Rank;

    use super::Links;
    use crate::link::ends::{End, alone};
    use crate::link::{Link, LinkState};
    use crate::node::inbox::Message;

    /// Links to these ranks, made known in this order under the serial numbers 1, 2, ...
    fn known(ranks: &[u32]) -> (Links, Vec<End>) {
        let links = Links::default();
        let ends: Vec<End> = ranks.iter().zip(1..).map(|(rank, n)| alone(*rank, n)).collect();
        ends.iter().for_each(|end| links.insert(&end.link));
        (links, ends)
    }

    fn serial(link: Option<Arc<Link>>) -> Option<u32> {
        link.map(|l| l.serial)
    }

    fn serials(links: Vec<Arc<Link>>) -> Vec<u32> {
        links.iter().map(|l| l.serial).collect()
    }

    #[test]
    fn a_link_is_found_by_its_rank_and_by_its_number() {
        let (links, _ends) = known(&[7, 3, 7]);
        assert!(!links.is_empty());
        assert_eq!(serial(links.of_rank(Rank(7))), Some(3), "the newest");
        assert_eq!(serial(links.of_rank(Rank(3))), Some(2));
        assert_eq!(serial(links.of_rank(Rank(4))), None);
        assert_eq!(
            [1, 2, 3, 4].map(|n| serial(links.of_serial(n))),
            [Some(1), Some(2), Some(3), None]
        );
        assert_eq!((serials(links.open()), serials(links.newest())), (vec![1, 2, 3], vec![2, 3]));
        // Over, but not retired: by its rank alone.
        links.close(3);
        assert_eq!(serial(links.of_serial(3)), None);
        assert_eq!(serial(links.of_rank(Rank(7))), Some(3));
        let mut out = links.newest();
        links.open_into(&mut out);
        assert_eq!(serials(out), [1, 2]);
    }

    #[test]
    fn there_are_links_until_the_last_is_closed_and_retired() {
        let (links, _ends) = known(&[7]);
        links.close(1);
        assert!(!links.is_empty());
        let (links, _ends) = known(&[7]);
        assert_eq!(serials(links.remove_closed(|l| l.serial == 1)), [1]);
        assert!(!links.is_empty());
        links.close(1);
        assert!(links.is_empty());
    }

    #[test]
    fn the_last_link_goes_on_or_has_left_something() {
        let (links, ends) = known(&[1, 2, 3, 4]);
        let last = |first| serial(links.last_from(Rank(first)));
        assert_eq!((last(0), last(4), last(5)), (Some(4), Some(4), None));
        assert!(ends[3].link.advance(LinkState::Leaving) && ends[2].link.advance(LinkState::Dead));
        assert_eq!((last(0), last(3)), (Some(2), None));
        ends[1].link.check_ready();
        assert_eq!(last(0), Some(2));
        ends[2].link.deliver(Message::Tag(1));
        assert_eq!((last(0), last(3), last(4)), (Some(3), Some(3), None));
    }

    #[test]
    fn whoever_had_something_last_comes_last() {
        let (links, _ends) = known(&[5, 2, 6]);
        let seen = |wanted: &[u32]| {
            let asked = std::cell::RefCell::new(Vec::new());
            let found = links.find_round_robin(|link| {
                asked.borrow_mut().push(link.peer.0);
                wanted.contains(&link.peer.0).then_some(link.peer.0)
            });
            (found, asked.into_inner())
        };
        assert_eq!(seen(&[]), (None, vec![2, 5, 6]));
        assert_eq!(seen(&[2, 5, 6]), (Some(2), vec![2]));
        assert_eq!(seen(&[2, 5, 6]), (Some(5), vec![5]));
        assert_eq!(seen(&[2]), (Some(2), vec![6, 2]));
        assert_eq!(seen(&[]), (None, vec![5, 6, 2]), "who finds nothing moves nobody");
        assert_eq!(seen(&[6]), (Some(6), vec![5, 6]));
        assert_eq!(seen(&[]), (None, vec![2, 5, 6]));
    }

    #[test]
    fn it_is_known_whether_a_link_has_ended() {
        for state in [LinkState::Leaving, LinkState::Dead] {
            let (links, ends) = known(&[1, 2, 1]);
            assert!(!links.has_ended());
            ends[1].link.check_ready();
            assert!(!links.has_ended(), "two go on");
            // One that has lost its rank to a newer incarnation.
            assert!(ends[0].link.advance(state));
            assert!(links.has_ended(), "{state:?}");
            links.close(1);
            assert!(!links.has_ended());
            assert!(ends[2].link.advance(state));
            links.close(3);
            assert!(links.has_ended(), "{state:?} and found by its rank alone");
        }
    }

    #[test]
    fn a_newer_life_of_a_rank_stays_when_an_older_one_is_replaced_or_retired() {
        let (links, ends) = known(&[1, 2, 1]);
        let with = alone(1, 9);
        links.replace(&ends[0].link, &with.link);
        assert_eq!(serials(links.newest()), [3, 2], "the older one is not there");
        links.replace(&ends[2].link, &with.link);
        assert_eq!(serials(links.newest()), [9, 2]);
        assert_eq!(serials(links.remove_closed(|_| false)), [0; 0]);
        assert_eq!(serials(links.remove_closed(|l| l.serial == 9)), [9]);
        assert_eq!(serials(links.newest()), [2]);
        assert_eq!(serial(links.of_rank(Rank(1))), None);
    }
}
