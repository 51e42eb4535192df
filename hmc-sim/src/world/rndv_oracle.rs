//! Oracle of `Send` and `Recv` between ranks: receives match sends in order, and the bytes that arrive are those that were sent.

use super::finding::{Kind, Verdict, found};
use super::shadow::pattern;

#[derive(Debug)]
struct SentData {
    number: u64,
    len: u64,
    /// The receive that has it, counted in the order of the requests.
    taken: Option<usize>,
    /// Its `Send` completed.
    done: bool,
}

impl SentData {
    /// Returns `true` if these are its bytes. Short messages may have the same bytes as others.
    fn is(&self, bytes: &[u8]) -> bool {
        let mut own = vec![0; bytes.len()];
        pattern(pattern_of(self.number, 0), &mut own);
        self.len == bytes.len() as u64 && own == bytes
    }
}

/// Returns `true` if the receive number `order` may have the message at `at`: no message overtakes another.
fn fits(sends: &[SentData], at: usize, order: Option<usize>) -> bool {
    let before = sends[..at].iter().rev().find_map(|p| p.taken);
    let after = sends[at + 1..].iter().find_map(|p| p.taken);
    order > before && after.is_none_or(|after| order < Some(after))
}

#[derive(Debug, Default)]
struct PairQueue {
    sends: Vec<SentData>,
    /// The receives, in the order of the requests.
    receives: Vec<u64>,
    /// A receive failed: it may have taken a message that its sender counts as delivered.
    missed: bool,
}

impl PairQueue {
    /// Reassigns a receive to the message at `at`: it was assigned to an earlier message with the same bytes, whose sender does
    /// not count it as delivered. Returns `true` if there is such a receive.
    fn retake(&mut self, at: usize) -> bool {
        let mut bytes = vec![0; usize::try_from(self.sends[at].len).unwrap_or(0)];
        pattern(pattern_of(self.sends[at].number, 0), &mut bytes);
        for other in 0..self.sends.len() {
            let p = &mut self.sends[other];
            if p.done || p.taken.is_none() || !p.is(&bytes) {
                continue;
            }
            let order = p.taken.take();
            if fits(&self.sends, at, order) {
                self.sends[at].taken = order;
                return true;
            }
            self.sends[other].taken = order;
        }
        false
    }
}

/// Checks all sends and receives.
pub(crate) struct RndvOracle {
    ranks: u32,
    queues: Vec<PairQueue>,
}

/// Returns the pattern of part `index` of a request.
pub(crate) const fn pattern_of(number: u64, index: usize) -> u64 {
    (number << 8 | index as u64) ^ 0x5055_5400_0000_0000
}

impl RndvOracle {
    pub(crate) fn new(ranks: u32) -> Self {
        Self { ranks, queues: (0..ranks * ranks).map(|_| PairQueue::default()).collect() }
    }

    fn queue(&mut self, from: u32, to: u32) -> Option<&mut PairQueue> {
        self.queues.get_mut((from * self.ranks + to) as usize)
    }

    /// A `Send` was submitted.
    pub(crate) fn submitted(&mut self, from: u32, to: u32, number: u64, len: u64) {
        if let Some(queue) = self.queue(from, to) {
            queue.sends.push(SentData { number, len, taken: None, done: false });
        }
    }

    /// A `Recv` was submitted.
    pub(crate) fn awaited(&mut self, from: u32, to: u32, number: u64) {
        if let Some(queue) = self.queue(from, to) {
            queue.receives.push(number);
        }
    }

    /// A `Send` completed: a receive has its bytes.
    pub(crate) fn sent(&mut self, from: u32, to: u32, number: u64) -> Verdict {
        let Some(queue) = self.queue(from, to) else { return Ok(()) };
        let Some(at) = queue.sends.iter().rposition(|p| p.number == number) else {
            return Ok(());
        };
        queue.sends[at].done = true;
        let SentData { len, taken, .. } = queue.sends[at];
        if queue.missed || len == 0 || taken.is_some() || queue.retake(at) {
            return Ok(());
        }
        let text = format!(
            "rank {from} completed request {number}, as received by rank {to}; nobody has it"
        );
        found(Kind::Lost, text)
    }

    /// A `Recv` failed.
    pub(crate) fn missed(&mut self, from: u32, to: u32) {
        if let Some(queue) = self.queue(from, to) {
            queue.missed = true;
        }
    }

    /// The `Recv` of that number completed with `Done`, and its buffer has the bytes `got`.
    pub(crate) fn received(&mut self, from: u32, to: u32, receive: u64, got: &[u8]) -> Verdict {
        let Some(queue) = self.queue(from, to) else { return Ok(()) };
        let order = queue.receives.iter().rposition(|r| *r == receive);
        // Empty messages are equal, so their order cannot be checked.
        if got.is_empty() && queue.sends.iter().any(|send| send.len == 0) {
            return Ok(());
        }
        let is_it = |p: &SentData| p.taken.is_none() && p.is(got);
        let alike: Vec<usize> =
            (0..queue.sends.len()).filter(|at| is_it(&queue.sends[*at])).collect();
        let Some(first) = alike.first() else {
            let text =
                format!("rank {to} received {} bytes that rank {from} did not send", got.len());
            return found(Kind::NotDone, text);
        };
        let Some(at) = alike.iter().copied().find(|at| fits(&queue.sends, *at, order)) else {
            let number = queue.sends[*first].number;
            let text = format!("rank {to} received request {number} of rank {from} out of order");
            return found(Kind::Messages, text);
        };
        queue.sends[at].taken = order;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{RndvOracle, pattern, pattern_of};

    #[test]
    fn messages_arrive_whole_in_order_and_none_is_lost() {
        let bytes = |number| {
            let mut out = vec![0; 16];
            pattern(pattern_of(number, 0), &mut out);
            out
        };
        let mut rndv = RndvOracle::new(2);
        for number in 1..=4 {
            rndv.submitted(0, 1, number, 16);
            rndv.awaited(0, 1, 10 + number);
        }
        // The second receive may be over before the first.
        rndv.received(0, 1, 12, &bytes(2)).expect("the second");
        rndv.sent(0, 1, 2).expect("received");
        rndv.received(0, 1, 11, &bytes(1)).expect("the first");
        assert!(rndv.received(0, 1, 13, &bytes(1)).is_err(), "twice");
        assert!(rndv.sent(0, 1, 3).is_err(), "nobody has it");
        rndv.received(0, 1, 13, &bytes(4)).expect("3 was not delivered for all that is known");
        assert!(rndv.received(0, 1, 14, &bytes(3)).is_err(), "it overtook");
        assert!(rndv.received(0, 1, 14, &[0; 16]).is_err(), "never sent");
        rndv.missed(0, 1);
        rndv.sent(0, 1, 3).expect("a receive that failed may have it");
    }

    /// Seed 42183 of `--full`, as scripts were drawn on 2026-11-22: the bytes of two messages of one byte were the
    /// same, the first was given up, the second received.
    #[test]
    fn equal_messages_are_distinguished_by_results_of_their_senders() {
        let byte = |number| {
            let mut out = [0];
            pattern(pattern_of(number, 0), &mut out);
            out
        };
        let alike: Vec<u64> = (1..).filter(|t| byte(*t) == byte(1)).take(2).collect();
        let [first, second] = alike[..] else { unreachable!("there are two") };
        let mut rndv = RndvOracle::new(2);
        rndv.submitted(0, 1, first, 1);
        rndv.submitted(0, 1, second, 1);
        rndv.awaited(0, 1, 900);
        rndv.received(0, 1, 900, &byte(1)).expect("one of them");
        rndv.sent(0, 1, second).expect("the second, then");
        assert!(rndv.sent(0, 1, first).is_err(), "not both");
    }
}
