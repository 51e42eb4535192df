//! Messages under way when their sender's process is killed.
//!
//! If the kernel of a killed process sends all that it has taken, then each message whose sending had returned arrives
//! before the receiver reports the end of the sender. A fault between the two, or an end in order, excuses the rest.

use super::finding::{Kind, Verdict, found};

#[derive(Clone, Copy, Debug)]
struct Sent {
    from: u32,
    to: u32,
    number: u64,
}

/// All such messages that have not arrived.
#[derive(Debug, Default)]
pub(crate) struct Undelivered {
    messages: Vec<Sent>,
}

impl Undelivered {
    /// `from` is killed while these messages to `to` are under way.
    pub(crate) fn add(&mut self, from: u32, to: u32, numbers: &[u64]) {
        self.messages.extend(numbers.iter().map(|number| Sent { from, to, number: *number }));
    }

    /// The message of that request arrived.
    pub(crate) fn arrived(&mut self, number: u64) {
        self.messages.retain(|sent| sent.number != number);
    }

    /// Something else happens between two ranks.
    pub(crate) fn excuse(&mut self, a: u32, b: u32) {
        self.messages.retain(|s| (s.from, s.to) != (a, b) && (s.from, s.to) != (b, a));
    }

    /// Something else happens between a rank and all others.
    pub(crate) fn excuse_all(&mut self, rank: u32) {
        self.messages.retain(|sent| sent.from != rank && sent.to != rank);
    }

    /// `to` reports the end of `from`.
    pub(crate) fn down(&self, from: u32, to: u32) -> Verdict {
        match self.messages.iter().find(|sent| (sent.from, sent.to) == (from, to)) {
            None => Ok(()),
            Some(sent) => {
                let text = format!(
                    "rank {to} says that rank {from} is down; the message of request {}, sent before rank {from} was killed, \
                     has not come",
                    sent.number
                );
                found(Kind::Lost, text)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Undelivered;

    #[test]
    fn a_message_arrives_before_the_end_or_is_excused() {
        let mut all = Undelivered::default();
        all.add(0, 1, &[7, 8]);
        all.add(0, 2, &[9]);
        all.arrived(7);
        assert!(all.down(0, 1).is_err(), "8 has not come");
        all.down(1, 0).expect("nothing was sent that way");
        all.arrived(8);
        all.down(0, 1).expect("all came");
        all.excuse(2, 1);
        assert!(all.down(0, 2).is_err());
        all.excuse(2, 0);
        all.down(0, 2).expect("excused");
        all.add(3, 4, &[10]);
        all.excuse_all(4);
        all.down(3, 4).expect("excused");
    }
}
