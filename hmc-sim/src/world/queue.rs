//! What happens next: events in virtual time, the earliest first, ties in the order of scheduling.
//!
//! Nothing else may order events, or the same seed would not give the same run.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// An event. Numbers are indices of the world's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// A step of the script is due.
    Step(u32),
    /// A rank's process starts.
    Start(u32),
    /// A node's wake-up time.
    Tick(u32),
    /// Bytes of a pipe arrive.
    Flow(u32),
    /// A pipe's sender learns that bytes left its buffer.
    SendSpace(u32),
    /// A connection attempt reaches its host.
    Syn(u32),
    /// The acceptor is notified of a connection.
    Accept(u32),
    /// The dialer is notified of it.
    Opened(u32),
    /// The dialer is notified that its attempt failed.
    Refused(u32),
    /// A path works again.
    Heal(u32, u32),
    /// A stopped process goes on.
    Resume(u32),
    /// A process outside of the cluster dials or closes.
    Outside(u32),
    /// The run enters its next phase.
    Phase(u8),
}

struct Entry {
    key: u128,
    what: What,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        other.key.cmp(&self.key) // the heap gives the greatest first
    }
}

/// The events to come.
#[derive(Default)]
pub(crate) struct Queue {
    heap: BinaryHeap<Entry>,
    count: u64,
}

impl Queue {
    /// Schedules `what` at `at_ns`.
    pub(crate) fn push(&mut self, at_ns: u64, what: What) {
        self.count += 1;
        self.heap.push(Entry { key: u128::from(at_ns) << 64 | u128::from(self.count), what });
    }

    /// The next event and its time.
    pub(crate) fn pop(&mut self) -> Option<(u64, What)> {
        self.heap.pop().map(|entry| ((entry.key >> 64) as u64, entry.what))
    }
}

#[cfg(test)]
mod tests {
    use super::{Queue, What};

    #[test]
    fn time_goes_first_then_the_order_of_scheduling() {
        let mut queue = Queue::default();
        queue.push(5, What::Tick(0));
        queue.push(3, What::Tick(1));
        queue.push(5, What::Tick(2));
        queue.push(3, What::Tick(3));
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        let want = [(3, 1), (3, 3), (5, 0), (5, 2)].map(|(at, rank)| (at, What::Tick(rank)));
        assert_eq!(order, want);
    }
}
