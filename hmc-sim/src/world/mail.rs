//! Messages between ranks: each at most once, in order, and none lost while its link lives.

use super::finding::{Finding, Kind, Verdict, found};
use super::node::{Ask, Message};
use super::script::{tag_of, ticket_of};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running,
    Sent,
    Failed,
}

#[derive(Debug)]
struct Letter {
    ticket: u64,
    link: u64,
    state: State,
    arrived: bool,
}

#[derive(Debug, Default)]
struct Line {
    /// Tags, ints and structs, in the order of their asks.
    letters: Vec<Letter>,
    /// Those before it arrived, or never will.
    next: usize,
    /// Notifications, in no order among each other.
    notes: Vec<Letter>,
}

/// All mail.
pub(crate) struct Mail {
    ranks: u32,
    lines: Vec<Line>,
}

impl Mail {
    pub(crate) fn new(ranks: u32) -> Self {
        let lines = (0..ranks * ranks).map(|_| Line::default()).collect();
        Self { ranks, lines }
    }

    fn line(&mut self, from: u32, to: u32) -> Option<&mut Line> {
        self.lines.get_mut((from * self.ranks + to) as usize)
    }

    /// A message was asked for, on that link of the sender.
    pub(crate) fn asked(&mut self, from: u32, to: u32, ticket: u64, link: u64, note: bool) {
        let letter = Letter { ticket, link, state: State::Running, arrived: false };
        if let Some(line) = self.line(from, to) {
            if note { line.notes.push(letter) } else { line.letters.push(letter) }
        }
    }

    /// The ask was answered.
    pub(crate) fn answered(&mut self, from: u32, to: u32, ticket: u64, done: bool) {
        let Some(line) = self.line(from, to) else { return };
        // Newest first: the answer comes soon after the ask.
        let mut all = line.letters.iter_mut().rev().chain(line.notes.iter_mut().rev());
        if let Some(letter) = all.find(|letter| letter.ticket == ticket) {
            letter.state = if done { State::Sent } else { State::Failed };
        }
    }

    /// The sender is no more: nothing of it must arrive.
    pub(crate) fn sender_gone(&mut self, from: u32) {
        for to in 0..self.ranks {
            for letter in self.line(from, to).into_iter().flat_map(|line| {
                line.letters.iter_mut().skip(line.next).chain(line.notes.iter_mut())
            }) {
                letter.state = State::Failed;
            }
        }
    }

    /// The asks of messages that were sent on that link of the sender and have not arrived.
    pub(crate) fn under_way(&self, from: u32, to: u32, link: u64) -> Vec<u64> {
        let Some(line) = self.lines.get((from * self.ranks + to) as usize) else {
            return Vec::new();
        };
        let sent = |one: &&Letter| one.link == link && one.state == State::Sent && !one.arrived;
        line.letters.iter().skip(line.next).filter(sent).map(|one| one.ticket).collect()
    }

    /// A message arrived; `asked` finds its ask. The ticket behind it.
    pub(crate) fn arrived<'a>(
        &mut self,
        from: u32,
        to: u32,
        message: &Message,
        asked: impl FnOnce(u64) -> Option<&'a Ask>,
    ) -> Result<u64, Finding> {
        let ticket = match message {
            Message::Tag(tag) | Message::Notify(tag) => ticket_of(*tag),
            Message::Int(value) => u64::from(value.cast_unsigned()),
            Message::Struct(bytes) => match bytes.first_chunk::<8>() {
                Some(head) => u64::from_le_bytes(*head),
                None => u64::MAX,
            },
        };
        let who = Way { from, to };
        let same = match (asked(ticket), message) {
            (Some(Ask::Tag { peer, tag }), Message::Tag(got)) => *peer == to && tag == got,
            (Some(Ask::Int { peer, value }), Message::Int(got)) => *peer == to && value == got,
            (Some(Ask::Struct { peer, bytes }), Message::Struct(got)) => {
                *peer == to && bytes == got
            }
            (Some(Ask::PutNotify { peer, tag, .. }), Message::Notify(got)) => {
                *peer == to && tag == got
            }
            _ => false,
        };
        if !same {
            return found(Kind::Messages, format!("nobody sent {message:?} {who}"));
        }
        debug_assert!(!matches!(message, Message::Notify(tag) if *tag != tag_of(ticket)));
        let note = matches!(message, Message::Notify(_));
        let Some(line) = self.line(from, to) else { return Ok(ticket) };
        if note {
            let Some(note) = line.notes.iter_mut().rev().find(|note| note.ticket == ticket) else {
                return found(Kind::Messages, format!("{message:?} {who} was never sent"));
            };
            if std::mem::replace(&mut note.arrived, true) {
                return found(Kind::Messages, format!("{message:?} {who} came twice"));
            }
            return Ok(ticket);
        }
        let later = line.letters.iter().skip(line.next).position(|one| one.ticket == ticket);
        let Some(skipped) = later else {
            let text = format!("{message:?} {who} (ask {ticket}) came twice or too late");
            return found(Kind::Messages, text);
        };
        let (before, rest) = line.letters.split_at_mut(line.next + skipped);
        let Some(letter) = rest.first_mut() else { return Ok(ticket) };
        letter.arrived = true;
        // Lost on an older link is lost; on the same link nothing may be left out.
        let link = letter.link;
        let left_out = |old: &&Letter| old.link == link && old.state == State::Sent && !old.arrived;
        if let Some(old) = before.iter().skip(line.next).find(left_out) {
            let text = format!("{message:?} (ask {ticket}) {who} came before ask {}", old.ticket);
            return found(Kind::Lost, text);
        }
        line.next += skipped + 1;
        Ok(ticket)
    }

    /// At the end, all quiet: what was sent on the link that still lives has arrived.
    pub(crate) fn all_arrived(&mut self, from: u32, to: u32, link: u64) -> Verdict {
        let Some(line) = self.line(from, to) else { return Ok(()) };
        let missing = |letter: &&Letter| {
            letter.link == link && letter.state == State::Sent && !letter.arrived
        };
        let letters = line.letters.iter().skip(line.next);
        match letters.chain(line.notes.iter()).find(missing) {
            None => Ok(()),
            Some(letter) => found(
                Kind::Lost,
                format!(
                    "the message of ask {}, rank {from} to rank {to}, never came",
                    letter.ticket
                ),
            ),
        }
    }
}
/// From whom to whom, in words.
struct Way {
    from: u32,
    to: u32,
}

impl std::fmt::Display for Way {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "from rank {} to rank {}", self.from, self.to)
    }
}
