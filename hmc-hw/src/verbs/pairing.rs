//! The pairs of queue pairs of the two ends of a link, also if the ends have different numbers of queue pairs or
//! NICs.

use super::conn_info::{MAX_LANES, MAX_NICS};

/// NICs of an end, and its queue pairs, which are on the NICs in turn: the one of index i on that of index i mod n.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spread {
    pub(super) nics: usize,
    pub(super) lanes: usize,
}

impl Spread {
    /// So many queue pairs on so many NICs: one on each at least.
    pub(super) fn new(nics: usize, lanes: usize) -> Self {
        let nics = nics.clamp(1, MAX_NICS);
        Self { nics, lanes: lanes.clamp(nics, MAX_LANES) }
    }

    /// The NIC of the queue pair of that index.
    pub(super) fn nic_of(self, lane: usize) -> usize {
        lane.checked_rem(self.nics).unwrap_or(0)
    }

    /// How many queue pairs the NIC of that index has.
    pub(super) fn lanes_of(self, nic: usize) -> usize {
        (0..self.lanes).filter(|lane| self.nic_of(*lane) == nic).count()
    }
}

/// The queue pairs of one end that stay, and with which of the other one's each is connected: NIC i with NIC i, and the queue pairs of
/// these in their order. They are on the NICs in turn as before.
pub(super) fn pairs(ours: Spread, theirs: Spread) -> Vec<(usize, usize)> {
    let nics = ours.nics.min(theirs.nics);
    let round = |end: Spread, lane: usize| lane.checked_div(end.nics).unwrap_or(0);
    let of_peer = |lane: usize| {
        let (nic, round) = (ours.nic_of(lane), round(ours, lane));
        let there = round.saturating_mul(theirs.nics).saturating_add(nic);
        (nic < nics && there < theirs.lanes).then_some((lane, there))
    };
    (0..ours.lanes).filter_map(of_peer).collect()
}

#[cfg(test)]
mod tests {
    use super::{MAX_LANES, MAX_NICS, Spread, pairs};

    fn all() -> impl Iterator<Item = Spread> {
        let lanes = |nics| (nics..=MAX_LANES).map(move |lanes| Spread { nics, lanes });
        (1..=MAX_NICS).flat_map(lanes)
    }

    #[test]
    fn both_ends_pair_the_same_queue_pairs_on_nics_of_the_same_index() {
        for (ours, theirs) in all().flat_map(|ours| all().map(move |theirs| (ours, theirs))) {
            let (here, there) = (pairs(ours, theirs), pairs(theirs, ours));
            let turned: Vec<_> = there.iter().map(|(theirs, ours)| (*ours, *theirs)).collect();
            assert_eq!(here, turned, "{ours:?} {theirs:?}");
            let nics = ours.nics.min(theirs.nics);
            for (index, (our, their)) in here.iter().enumerate() {
                let on = [ours.nic_of(*our), theirs.nic_of(*their), index % nics];
                assert_eq!(on, [index % nics; 3], "{ours:?} {theirs:?}: {index}");
            }
            for nic in 0..nics {
                let both = ours.lanes_of(nic).min(theirs.lanes_of(nic));
                let used = here.iter().filter(|(our, _)| ours.nic_of(*our) == nic).count();
                assert!(used == both && both != 0, "{ours:?} {theirs:?}: {nic}");
            }
        }
    }

    #[test]
    fn each_nic_has_a_queue_pair() {
        for (nics, lanes, made) in
            [(0, 0, (1, 1)), (2, 1, (2, 2)), (2, 5, (2, 5)), (9, 99, (8, 16))]
        {
            let spread = Spread::new(nics, lanes);
            assert_eq!((spread.nics, spread.lanes), made, "{nics} {lanes}");
        }
        let spread = Spread::new(2, 5);
        assert_eq!([0, 1, 2].map(|nic| spread.lanes_of(nic)), [3, 2, 0]);
    }
}
