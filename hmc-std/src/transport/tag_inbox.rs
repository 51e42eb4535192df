//! Where an external transport delivers the tags of a peer.

use crate::node::inbox::{Message, SharedInbox};

/// The inbox of a link, for tags that follow their bytes ([`Opcode::PutNotify`](hmc_core::work::Opcode::PutNotify)).
#[derive(Clone, Debug)]
pub struct TagInbox(SharedInbox);

impl TagInbox {
    pub(crate) const fn new(inbox: SharedInbox) -> Self {
        Self(inbox)
    }

    /// Whether the inbox takes a tag. If not, the data plane reads no more, says so
    /// ([`Progress::is_paused`](hmc_core::transport::Progress::is_paused)), and is called again once there is space.
    #[must_use]
    pub fn has_space(&self) -> bool {
        self.0.lock().is_ok_and(|mut inbox| inbox.admits(1, 0))
    }

    /// Delivers a tag. The data plane says so
    /// ([`Progress::take_delivered`](hmc_core::transport::Progress::take_delivered)).
    pub fn push(&self, tag: u64) {
        if let Ok(mut inbox) = self.0.lock() {
            inbox.push(Message::Notify(tag));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::TagInbox;
    use crate::node::inbox::{Inbox, Message, Wanted};

    #[test]
    fn tags_are_delivered_while_there_is_space() {
        let inbox = Arc::new(Mutex::new(Inbox::new(1, 64)));
        let tags = TagInbox::new(Arc::clone(&inbox));
        assert!(tags.has_space());
        tags.push(7);
        assert!(!tags.has_space());
        let mut inbox = inbox.lock().expect("nobody panics");
        assert!(inbox.is_awaited(), "whoever takes a message has the link go on");
        assert_eq!(inbox.take(Wanted::Any), Some(Message::Notify(7)));
    }
}
