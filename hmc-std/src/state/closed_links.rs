//! Closed links: unread messages are kept up to a limit of the session; all else is released.
//!
//! A closed link with unread messages is replaced by its rest, which has no descriptors and no buffers. If unread
//! messages of closed peers exceed [`MAX_LEFT_BYTES`], the largest inboxes are dropped first, and of equal ones the
//! oldest. A process that reconnects repeatedly under other ranks therefore uses no more than that, and displaces
//! no small inbox.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use hmc_core::limits::MAX_LEFT_BYTES;

use crate::base::lock::lock;
use crate::base::private_ranks::is_private;
use crate::link::{Link, LinkState};
use crate::node::inbox::MESSAGE_BYTES;
use crate::state::inner::SessionInner;

impl SessionInner {
    /// Removes links that are over: of those without unread messages only why they ended is kept, of the others
    /// their messages, within the limit.
    pub(crate) fn reap_closed_links(&self) {
        if !self.links.has_ended() {
            return;
        }
        self.limit_left();
        // First the reason: who finds no link of the rank any more looks for that.
        let is_done = |l: &Link| {
            let done = l.state() == LinkState::Dead && l.inbox().len() == 0;
            if done && !is_private(l.peer) {
                lock(&self.departed).insert(l.peer, l.closing_reason());
            }
            done
        };
        for link in self.links.remove_closed(is_done) {
            link.drop_unused();
        }
        self.replace_by_rests();
    }

    /// Reaps links that are over since the last call.
    pub(crate) fn reap_ended_links(&self) {
        if self.ended.load(Ordering::Relaxed) && self.ended.swap(false, Ordering::AcqRel) {
            self.reap_closed_links();
        }
    }

    /// Drops unread messages of peers that are gone until the others are within the limit.
    fn limit_left(&self) {
        let inbox = self.config.inbox_messages.saturating_mul(MESSAGE_BYTES);
        let most =
            inbox.saturating_add(self.config.inbox_bytes).saturating_mul(2).max(MAX_LEFT_BYTES);
        // A link that is not over may have lost its rank to a new incarnation already.
        let mut left = BTreeMap::new();
        let mut sum = 0_usize;
        for link in self.links.newest().into_iter().chain(self.links.open()) {
            let bytes = link.left_bytes();
            if bytes > 0 && left.insert((Reverse(bytes), link.serial), link).is_none() {
                sum = sum.saturating_add(bytes);
            }
        }
        for ((Reverse(bytes), _), link) in left {
            if sum <= most {
                break;
            }
            sum = sum.saturating_sub(bytes);
            link.drop_left();
        }
    }

    fn replace_by_rests(&self) {
        let mut socket = None;
        for link in self.links.newest() {
            if link.state() != LinkState::Dead {
                continue;
            }
            let Some(socket) = socket.get_or_insert_with(|| self.rest_socket.get()) else { return };
            if !link.is_rest(socket) {
                link.drop_unused();
                self.links.replace(&link, &link.rest(socket, self.next_serial()));
            }
        }
    }
}
