//! Received messages that no caller has taken: bounded, in order, matched by kind or tag.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

/// Bytes that a message takes beside its own.
pub(crate) const MESSAGE_BYTES: usize = 64;

/// A small message between two sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// A 64-bit tag.
    Tag(u64),
    /// A 32-bit number.
    Int(i32),
    /// Opaque bytes, at most 1 MiB.
    Bytes(Cow<'a, [u8]>),
    /// The tag of a put with [`notify`](crate::Request::notify): the bytes of that put can be read. It is received only.
    Notify(u64),
}

impl<'a> Message<'a> {
    /// A message of these bytes, which are not copied.
    pub fn bytes(bytes: impl Into<Cow<'a, [u8]>>) -> Self {
        Self::Bytes(bytes.into())
    }
}

/// Which message a receiver takes. Others stay in the inbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The oldest message of any kind.
    Any,
    /// The oldest tag.
    Tag,
    /// The oldest message with exactly this tag, sent or notified.
    ThisTag(u64),
    /// The oldest 32-bit number.
    Int,
    /// The oldest opaque bytes.
    Bytes,
    /// The oldest notification.
    Notify,
}

impl Wanted {
    fn matches(self, m: &Message<'_>) -> bool {
        match (self, m) {
            (Self::Any, _)
            | (Self::Tag, Message::Tag(_))
            | (Self::Int, Message::Int(_))
            | (Self::Bytes, Message::Bytes(_))
            | (Self::Notify, Message::Notify(_)) => true,
            (Self::ThisTag(want), Message::Tag(tag) | Message::Notify(tag)) => want == *tag,
            (
                Self::Tag | Self::Int | Self::Bytes | Self::Notify | Self::ThisTag(_),
                Message::Tag(_) | Message::Int(_) | Message::Bytes(_) | Message::Notify(_),
            ) => false,
        }
    }
}

/// One inbox, shared by a link and the transports that deliver tags.
pub(crate) type SharedInbox = Arc<Mutex<Inbox>>;

/// The messages of one peer.
#[derive(Debug)]
pub(crate) struct Inbox {
    queue: VecDeque<Message<'static>>,
    bytes: usize,
    max_messages: usize,
    max_bytes: usize,
    dropped: usize,
    /// All that came.
    received: u64,
    /// A connection stopped reading until there is space.
    awaited: bool,
}

impl Inbox {
    pub(crate) fn new(max_messages: usize, max_bytes: usize) -> Self {
        let queue = VecDeque::with_capacity(8);
        let (dropped, received, awaited) = (0, 0, false);
        Self { queue, bytes: 0, max_messages, max_bytes, dropped, received, awaited }
    }

    /// Whether so many more messages, with `bytes` of payload in all, fit. One fits into an empty inbox however long it is:
    /// else a limit below its length would stop the connection for ever.
    pub(crate) fn has_space(&self, messages: usize, bytes: usize) -> bool {
        let count = self.queue.len().saturating_add(messages);
        let fits = count <= self.max_messages && self.bytes.saturating_add(bytes) <= self.max_bytes;
        fits || count <= 1
    }

    /// As [`Self::has_space`], for a connection: if there is none it stops reading, and whoever takes a message lets it go on
    /// ([`Self::stop_awaiting`]).
    pub(crate) fn admits(&mut self, messages: usize, bytes: usize) -> bool {
        let fits = self.has_space(messages, bytes);
        self.awaited |= !fits;
        fits
    }

    /// Whether a connection waits for space.
    pub(crate) fn is_awaited(&self) -> bool {
        self.awaited
    }

    /// Whether a connection has waited for space, which is to be looked for again.
    pub(crate) fn stop_awaiting(&mut self) -> bool {
        std::mem::take(&mut self.awaited)
    }

    pub(crate) fn push(&mut self, m: Message<'static>) {
        self.received = self.received.saturating_add(1);
        self.bytes = self.bytes.saturating_add(Self::weight(&m));
        self.queue.push_back(m);
    }

    pub(crate) fn take(&mut self, want: Wanted) -> Option<Message<'static>> {
        let at = self.queue.iter().position(|m| want.matches(m))?;
        let m = self.queue.remove(at)?;
        self.bytes = self.bytes.saturating_sub(Self::weight(&m));
        Some(m)
    }

    /// How many came.
    pub(crate) fn received(&self) -> u64 {
        self.received
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Bytes that it takes.
    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes.saturating_add(self.queue.len().saturating_mul(MESSAGE_BYTES))
    }

    /// Takes everything out, to be dropped.
    pub(crate) fn drop_all(&mut self) -> Vec<Message<'static>> {
        self.bytes = 0;
        self.dropped = self.dropped.saturating_add(self.queue.len());
        std::mem::take(&mut self.queue).into()
    }

    /// How many were dropped.
    pub(crate) fn dropped(&self) -> usize {
        self.dropped
    }

    fn weight(m: &Message<'_>) -> usize {
        match m {
            Message::Bytes(b) => b.len(),
            Message::Tag(_) | Message::Int(_) | Message::Notify(_) => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Inbox, Message, Wanted};

    #[test]
    fn a_receiver_takes_what_it_wants_and_leaves_the_rest_in_order() {
        let mut inbox = Inbox::new(8, 16);
        for m in [Message::Int(1), Message::Tag(5), Message::bytes(vec![1, 2]), Message::Notify(9)]
        {
            inbox.push(m);
        }
        assert_eq!(inbox.take(Wanted::ThisTag(9)), Some(Message::Notify(9)));
        assert_eq!(inbox.take(Wanted::Tag), Some(Message::Tag(5)));
        assert_eq!(inbox.take(Wanted::Tag), None);
        assert_eq!(inbox.take(Wanted::Any), Some(Message::Int(1)));
        assert_eq!(inbox.take(Wanted::Bytes), Some(Message::bytes(vec![1, 2])));
        assert_eq!(inbox.len(), 0);
    }

    #[test]
    fn the_bound_is_on_messages_and_on_bytes() {
        let mut inbox = Inbox::new(2, 10);
        inbox.push(Message::bytes(vec![0; 8]));
        assert!(!inbox.has_space(1, 3));
        assert!(inbox.has_space(1, 2));
        assert!(!inbox.has_space(2, 2));
        inbox.push(Message::Tag(0));
        assert!(!inbox.has_space(1, 0));
        inbox.take(Wanted::Bytes);
        assert!(inbox.has_space(1, 10));
    }

    #[test]
    fn one_message_fits_into_an_empty_inbox_however_long_it_is() {
        let mut inbox = Inbox::new(2, 10);
        assert!(inbox.has_space(1, 11) && !inbox.has_space(2, 11));
        inbox.push(Message::bytes(vec![0; 11]));
        assert!(!inbox.has_space(1, 0));
    }

    #[test]
    fn a_taker_is_notified_once_that_a_connection_waits() {
        let mut inbox = Inbox::new(1, 10);
        assert!(inbox.admits(1, 0) && !inbox.is_awaited());
        inbox.push(Message::Tag(0));
        assert!(!inbox.admits(1, 0) && inbox.is_awaited());
        assert!(inbox.stop_awaiting());
        assert!(!inbox.stop_awaiting());
    }
}
