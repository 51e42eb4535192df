//! Oracle of control messages between ranks: each arrives at most once, in order, and none is lost while its link is up.

use super::finding::{Finding, Kind, Verdict, found};
use super::node::{NodeMessage, Request};
use super::script::{number_of, tag_of};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running,
    Sent,
    Failed,
}

#[derive(Debug)]
struct SentMessage {
    number: u64,
    link: u64,
    state: State,
    arrived: bool,
}

#[derive(Debug, Default)]
struct PairQueue {
    /// Tags, ints and structs, in the order of their requests.
    messages: Vec<SentMessage>,
    /// Those before it arrived, or never will.
    next: usize,
    /// Notifications, in no order among each other.
    notes: Vec<SentMessage>,
}

/// Checks all control messages.
pub(crate) struct MessageOracle {
    ranks: u32,
    queues: Vec<PairQueue>,
}

impl MessageOracle {
    pub(crate) fn new(ranks: u32) -> Self {
        let queues = (0..ranks * ranks).map(|_| PairQueue::default()).collect();
        Self { ranks, queues }
    }

    fn queue(&mut self, from: u32, to: u32) -> Option<&mut PairQueue> {
        self.queues.get_mut((from * self.ranks + to) as usize)
    }

    /// A message was requested, on that link of the sender.
    pub(crate) fn submitted(&mut self, from: u32, to: u32, number: u64, link: u64, note: bool) {
        let letter = SentMessage { number, link, state: State::Running, arrived: false };
        if let Some(queue) = self.queue(from, to) {
            if note { queue.notes.push(letter) } else { queue.messages.push(letter) }
        }
    }

    /// The request completed.
    pub(crate) fn answered(&mut self, from: u32, to: u32, number: u64, done: bool) {
        let Some(queue) = self.queue(from, to) else { return };
        // Newest first: the result comes soon after the request.
        let mut all = queue.messages.iter_mut().rev().chain(queue.notes.iter_mut().rev());
        if let Some(letter) = all.find(|letter| letter.number == number) {
            letter.state = if done { State::Sent } else { State::Failed };
        }
    }

    /// The sender has exited: none of its messages may arrive.
    pub(crate) fn sender_gone(&mut self, from: u32) {
        for to in 0..self.ranks {
            for letter in self.queue(from, to).into_iter().flat_map(|queue| {
                queue.messages.iter_mut().skip(queue.next).chain(queue.notes.iter_mut())
            }) {
                letter.state = State::Failed;
            }
        }
    }

    /// Returns the requests of messages that were sent on that link of the sender and have not arrived.
    pub(crate) fn under_way(&self, from: u32, to: u32, link: u64) -> Vec<u64> {
        let Some(queue) = self.queues.get((from * self.ranks + to) as usize) else {
            return Vec::new();
        };
        let sent =
            |one: &&SentMessage| one.link == link && one.state == State::Sent && !one.arrived;
        queue.messages.iter().skip(queue.next).filter(sent).map(|one| one.number).collect()
    }

    /// A message arrived; `asked` finds its request. Returns its number.
    pub(crate) fn arrived<'a>(
        &mut self,
        from: u32,
        to: u32,
        message: &NodeMessage,
        requested: impl FnOnce(u64) -> Option<&'a Request>,
    ) -> Result<u64, Finding> {
        let number = match message {
            NodeMessage::Tag(tag) | NodeMessage::Notify(tag) => number_of(*tag),
            NodeMessage::Int(value) => u64::from(value.cast_unsigned()),
            NodeMessage::Struct(bytes) => match bytes.first_chunk::<8>() {
                Some(head) => u64::from_le_bytes(*head),
                None => u64::MAX,
            },
        };
        let who = Route { from, to };
        let same = match (requested(number), message) {
            (Some(Request::Tag { peer, tag }), NodeMessage::Tag(got)) => *peer == to && tag == got,
            (Some(Request::Int { peer, value }), NodeMessage::Int(got)) => {
                *peer == to && value == got
            }
            (Some(Request::Struct { peer, bytes }), NodeMessage::Struct(got)) => {
                *peer == to && bytes == got
            }
            (Some(Request::PutNotify { peer, tag, .. }), NodeMessage::Notify(got)) => {
                *peer == to && tag == got
            }
            _ => false,
        };
        if !same {
            return found(Kind::Messages, format!("nobody sent {message:?} {who}"));
        }
        debug_assert!(!matches!(message, NodeMessage::Notify(tag) if *tag != tag_of(number)));
        let note = matches!(message, NodeMessage::Notify(_));
        let Some(queue) = self.queue(from, to) else { return Ok(number) };
        if note {
            let Some(note) = queue.notes.iter_mut().rev().find(|note| note.number == number) else {
                return found(Kind::Messages, format!("{message:?} {who} was never sent"));
            };
            if std::mem::replace(&mut note.arrived, true) {
                return found(Kind::Messages, format!("{message:?} {who} came twice"));
            }
            return Ok(number);
        }
        let later = queue.messages.iter().skip(queue.next).position(|one| one.number == number);
        let Some(skipped) = later else {
            let text = format!("{message:?} {who} (request {number}) came twice or too late");
            return found(Kind::Messages, text);
        };
        let (before, rest) = queue.messages.split_at_mut(queue.next + skipped);
        let Some(letter) = rest.first_mut() else { return Ok(number) };
        letter.arrived = true;
        // Lost on an older link is lost; on the same link nothing may be left out.
        let link = letter.link;
        let left_out =
            |old: &&SentMessage| old.link == link && old.state == State::Sent && !old.arrived;
        if let Some(old) = before.iter().skip(queue.next).find(left_out) {
            let text =
                format!("{message:?} (request {number}) {who} came before request {}", old.number);
            return found(Kind::Lost, text);
        }
        queue.next += skipped + 1;
        Ok(number)
    }

    /// At the end of a run: all messages that were sent on a link that is up have arrived.
    pub(crate) fn all_arrived(&mut self, from: u32, to: u32, link: u64) -> Verdict {
        let Some(queue) = self.queue(from, to) else { return Ok(()) };
        let missing = |letter: &&SentMessage| {
            letter.link == link && letter.state == State::Sent && !letter.arrived
        };
        let messages = queue.messages.iter().skip(queue.next);
        match messages.chain(queue.notes.iter()).find(missing) {
            None => Ok(()),
            Some(letter) => found(
                Kind::Lost,
                format!(
                    "the message of request {}, rank {from} to rank {to}, never came",
                    letter.number
                ),
            ),
        }
    }
}
/// From whom to whom, in words.
struct Route {
    from: u32,
    to: u32,
}

impl std::fmt::Display for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "from rank {} to rank {}", self.from, self.to)
    }
}
