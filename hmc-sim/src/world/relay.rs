//! `Send` and `Recv` between ranks: first to first, and what arrives is what was sent.

use super::finding::{Finding, Kind, Verdict, found};
use super::ground::pattern;

#[derive(Debug)]
struct Parcel {
    ticket: u64,
    len: u64,
    /// Answered `Done`: somebody has it.
    done: bool,
}

#[derive(Debug, Default)]
struct Line {
    parcels: Vec<Parcel>,
    /// Those before it were received, or never will be.
    next: usize,
}

/// All parcels.
pub(crate) struct Relay {
    ranks: u32,
    lines: Vec<Line>,
}

/// The pattern of piece `index` of an ask.
pub(crate) const fn pattern_of(ticket: u64, index: usize) -> u64 {
    (ticket << 8 | index as u64) ^ 0x5055_5400_0000_0000
}

impl Relay {
    pub(crate) fn new(ranks: u32) -> Self {
        Self { ranks, lines: (0..ranks * ranks).map(|_| Line::default()).collect() }
    }

    fn line(&mut self, from: u32, to: u32) -> Option<&mut Line> {
        self.lines.get_mut((from * self.ranks + to) as usize)
    }

    /// A `Send` was asked.
    pub(crate) fn asked(&mut self, from: u32, to: u32, ticket: u64, len: u64) {
        if let Some(line) = self.line(from, to) {
            line.parcels.push(Parcel { ticket, len, done: false });
        }
    }

    /// A `Send` was answered `Done`.
    pub(crate) fn sent(&mut self, from: u32, to: u32, ticket: u64) {
        let parcels = self.line(from, to).into_iter().flat_map(|line| &mut line.parcels);
        if let Some(parcel) = parcels.rev().find(|parcel| parcel.ticket == ticket) {
            parcel.done = true;
        }
    }

    /// A `Recv` failed: it may have taken what its sender believes to be delivered.
    pub(crate) fn missed(&mut self, from: u32, to: u32) {
        for parcel in self.line(from, to).into_iter().flat_map(|line| &mut line.parcels) {
            parcel.done = false;
        }
    }

    /// A `Recv` was answered `Done`, and `got` is what lies there.
    pub(crate) fn received(&mut self, from: u32, to: u32, got: &[u8]) -> Verdict {
        let Some(line) = self.line(from, to) else { return Ok(()) };
        let mut want = vec![0; got.len()];
        let mut left_out: Option<u64> = None;
        for (index, parcel) in line.parcels.iter().enumerate().skip(line.next) {
            if parcel.len == got.len() as u64 {
                pattern(pattern_of(parcel.ticket, 0), &mut want);
                if want == got {
                    line.next = index + 1;
                    return match left_out {
                        None => Ok(()),
                        Some(ticket) => lost(from, to, ticket),
                    };
                }
            }
            left_out = left_out.or(parcel.done.then_some(parcel.ticket));
        }
        let text = format!("rank {to} received {} bytes that rank {from} did not send", got.len());
        found(Kind::NotDone, text)
    }
}

fn lost(from: u32, to: u32, ticket: u64) -> Result<(), Finding> {
    let text = format!(
        "rank {from} was told that ask {ticket} was received, but rank {to} got a later one"
    );
    found(Kind::Lost, text)
}

#[cfg(test)]
mod tests {
    use super::{Relay, pattern, pattern_of};

    #[test]
    fn parcels_come_whole_in_order_and_none_is_left_out() {
        let bytes = |ticket| {
            let mut out = vec![0; 16];
            pattern(pattern_of(ticket, 0), &mut out);
            out
        };
        let mut relay = Relay::new(2);
        for ticket in 1..=4 {
            relay.asked(0, 1, ticket, 16);
        }
        relay.received(0, 1, &bytes(1)).expect("the first");
        assert!(relay.received(0, 1, &bytes(1)).is_err(), "twice");
        relay.received(0, 1, &bytes(3)).expect("2 was not delivered for all that is known");
        relay.sent(0, 1, 4);
        relay.asked(0, 1, 5, 16);
        assert!(relay.received(0, 1, &bytes(5)).is_err(), "4 was said to be received");
        assert!(relay.received(0, 1, &[0; 16]).is_err(), "never sent");
    }
}
