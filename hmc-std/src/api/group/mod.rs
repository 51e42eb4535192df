//! Collectives: what an ordered set of ranks does together.
//!
//! [`Session::group`](crate::Session::group) makes a [`Group`]; every member makes its own, of the same ranks in the same order, and then
//! finishes the same collectives in the same order, each with lengths that fit the others'. A collective is a
//! [`Request`](crate::Request): it does nothing before it is waited for or polled. It is done when this
//! member's part is done: its memory is its own again, and what it was to get is there. Bytes are copied in the caller's own
//! calls and polls, and never later.
//!
//! A group has no connections of its own. Its bytes travel as messages ([`crate::peer::Peer::send_data`]) on the members'
//! links and share one order with them: while a collective runs, neither send or receive messages with a member nor run
//! one of another group that has two members in common with this one. Puts, gets and tags are not concerned.
//!
//! Members of one host (shared memory, groups of up to 16) use channels instead. Before the first message that two of them exchange
//! in a group, each exposes a window of 256 KiB to the other. If both have the other's mapped, they put bytes straight into them from
//! then on; otherwise they use messages. As long as the group lives, that costs each of the two one of its
//! [windows](crate::SessionBuilder::windows) towards the other, two file descriptors and 260 KiB. A window is exposed only if half of all
//! stay free for messages and the application. A waiting thread looks for a short time, then sleeps, and a frame on the link wakes it. A
//! send is done when all its bytes are in the other member's memory and that member has announced a receive of the same length.
//!
//! If a thread waits for the collective, the other member is another process, and both sessions allow it
//! ([`SessionBuilder::cma`](crate::SessionBuilder::cma)), the receiver of more than 256 KiB reads the bytes where they lie in the
//! sender's memory. If the system refuses that, they go through the window. That
//! system call has no deadline: a sender whose memory does not answer (userfaultfd, a stopped file system) delays the receiver.
//!
//! **Failures.** When a member dies, the collective fails on all others as `PeerDead`, as soon as they know, whomever they wait
//! for; a member that has a channel to one that knows learns it from that one. A member that leaves before its part is done, since it disconnects or its session ends, fails those that wait for it as `Closed`; so does
//! one that drops its group, if they have a channel to it. A member that fails for reasons of its own (lengths that do not fit, no memory) stays up to a second to tell the partners
//! of its round, which then fail as `Cancelled` and tell theirs; a member that would exchange with it later ends by its own
//! deadline. So does a partner that was only to receive, and has received a message of at most 4 KiB: it is sent whole with its
//! offer; of a channel, one of at most 256 KiB, which lies whole in the ring. Members that have a channel to the failed one learn
//! of it in their next wait for it. A member whose deadline passed ends its partners as `DeadlineExceeded`, also those whose own deadlines
//! are later; these tell others as above. A member that writes wrong counts into a
//! window fails the collective as `Protocol`. A group in which a collective failed is broken: members may stand at different
//! places. It answers every call with the reason at once. Bytes that were to be received are old, new or mixed then, or, of up to 1 MiB that
//! were read in a sender's memory, what that has there after its call. Once all
//! members have seen the failure, nothing of it is left on their links: make a new group.
//!
//! A future that is dropped after its first poll breaks the group: messages of its round are withdrawn, their partners fail as
//! `Cancelled`, and members that exchange with it later end by their own deadlines.
//!
//! Inside: `collectives` and `request` are what a caller asks for, `moves` what carries bytes, `reduce` what reckons with them,
//! `round` one round of messages, `flight` a message on a link, `channel` a pair of mapped windows, `meeting` how two members agree on
//! one, `call` a collective that runs, `numbers` where reductions are done, `element` and `float16` what numbers are.

mod call;
mod channel;
mod collectives;
mod element;
mod flight;
mod float16;
pub(crate) mod join;
mod meeting;
mod moves;
mod numbers;
mod reduce;
pub(crate) mod request;
mod round;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use hmc_core::types::ConnType;

use crate::api::peer::Peer;
use crate::base::error::{Error, Result};
use crate::link::park_waker::ParkWaker;
use crate::link::spin_policy::SpinPolicy;
use crate::state::inner::SessionInner;
use channel::{Channel, Reason};
use flight::Message;

pub use element::{Element, Reduce};

/// The order in which members exchange the blocks that they have for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Exchange {
    /// [`Exchange::Direct`] for up to 8 members or blocks of up to 64 KiB, else [`Exchange::Ring`].
    #[default]
    Auto,
    /// With all others at the same time; each member begins with another one. The fastest exchange, but it uses up to 4 MiB of buffers
    /// for each member.
    Direct,
    /// With one after the other: step `s` sends to the member `s` positions after this one, and receives from the member `s` positions
    /// before.
    Ring,
}

/// Members up to which they exchange all at once.
const MAX_DIRECT_MEMBERS: usize = 8;

/// Members up to which those of one host have channels. Each takes 256 KiB.
const MAX_CHANNEL_MEMBERS: usize = 16;

/// Bytes of a block up to which any number of members exchange all at once.
const MAX_DIRECT_BLOCK_BYTES: usize = 64 << 10;

impl Exchange {
    /// With how many others at once, of `len` members with blocks of `block` bytes.
    fn partners(self, len: usize, block: usize) -> usize {
        let direct = match self {
            Self::Auto => len <= MAX_DIRECT_MEMBERS || block <= MAX_DIRECT_BLOCK_BYTES,
            Self::Direct => true,
            Self::Ring => false,
        };
        if direct { len.max(2).saturating_sub(1) } else { 1 }
    }
}

/// What one collective leaves to the next.
#[derive(Debug, Default)]
struct State {
    /// A collective runs.
    is_running: bool,
    /// Why an earlier one failed.
    broken: Option<Error>,
    /// Into which others' numbers are received. As long as it has ever been needed.
    scratch: Vec<u8>,
}

/// What all handles of a group share.
#[derive(Debug)]
struct Members {
    shared: Arc<SessionInner>,
    ranks: Vec<u32>,
    /// Our own position.
    position: usize,
    /// By position; `None` at our own.
    peers: Vec<Option<Peer>>,
    /// By position: what this member and that one have agreed on, `None` for messages of their link.
    channels: Vec<OnceLock<Option<Channel>>>,
    /// What the members with a channel know: this one sleeps, or is about to.
    is_parked: AtomicBool,
    /// Hangs at every member's link.
    waker: Arc<ParkWaker>,
    state: Mutex<State>,
    /// The system has a processor for each member.
    has_processors: bool,
    /// Whether its waits spin.
    spin_policy: SpinPolicy,
}

impl Members {
    /// The member at a position that is not ours.
    fn peer(&self, position: usize) -> Result<&Peer> {
        let found = self.peers.get(position).and_then(Option::as_ref);
        found.ok_or_else(|| Error::config(format!("position {position} is none of another member")))
    }

    /// Whether a channel to that member is worth its memory.
    fn may_have_channel(&self, peer: &Peer) -> bool {
        self.ranks.len() <= MAX_CHANNEL_MEMBERS
            && peer.conn() == Some(ConnType::Shm)
            && peer.link.has_group_windows
    }

    fn channels(&self) -> impl Iterator<Item = (&Peer, &Channel)> {
        let found = self.peers.iter().zip(&self.channels);
        found.filter_map(|(peer, channel)| peer.as_ref().zip(channel.get()?.as_ref()))
    }

    /// Keeps what this member and the one that those messages are for have agreed on. Returns the channel, if there is one.
    fn keep_channel(&self, messages: &[Message<'_>], agreed: Option<Channel>) -> Option<&Channel> {
        let place = self.channels.get(messages.first()?.position())?;
        let channel = place.get_or_init(|| agreed).as_ref()?;
        // The caller looks at it once more before it sleeps.
        channel.set_parked(self.is_parked.load(Ordering::Relaxed));
        Some(channel)
    }

    /// This member is about to sleep, or is awake: members with a channel to it wake it, or need not.
    fn set_parked(&self, parked: bool) {
        // In a child, no window is there.
        if self.is_parked.swap(parked, Ordering::Relaxed) != parked
            && !self.shared.origin.is_child()
        {
            self.channels().for_each(|(_, channel)| channel.set_parked(parked));
        }
    }

    /// A collective failed here: members with a channel to this one fail too.
    fn report_failure(&self, why: Reason) {
        if !self.shared.origin.is_child() {
            self.channels().for_each(|(peer, channel)| channel.report_failure(peer, why));
        }
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        if self.shared.origin.is_child() {
            return;
        }
        for peer in self.peers.iter().flatten() {
            peer.link.park_wakers.deregister(&self.waker);
        }
    }
}

/// An ordered set of ranks that performs collectives: see [the module](self).
///
/// Clones are handles of the same group and can be sent to other threads. One collective runs at a time; another one fails with
/// `Busy`. Each ends within the session's deadline (default 30 s), or that of [`Request::within`](crate::Request::within). Positions
/// count from 0 in the order of the ranks with which the group was made. A peer that died and reconnected is not a member of the
/// group: make a new group.
#[derive(Clone, Debug)]
pub struct Group {
    members: Arc<Members>,
}

impl Group {
    /// Returns the number of members, including this one: at least 1.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "no group is empty")]
    pub fn len(&self) -> usize {
        self.members.ranks.len()
    }

    /// Returns the ranks of the members, by position.
    #[must_use]
    pub fn ranks(&self) -> &[u32] {
        &self.members.ranks
    }

    /// Returns this member's position: 0 to [`Group::len`] - 1.
    #[must_use]
    pub fn position(&self) -> usize {
        self.members.position
    }
}

#[cfg(test)]
mod tests {
    use super::{Exchange, MAX_DIRECT_BLOCK_BYTES, MAX_DIRECT_MEMBERS};

    #[test]
    fn few_members_and_small_blocks_are_exchanged_all_at_once() {
        let (few, many) = (MAX_DIRECT_MEMBERS, MAX_DIRECT_MEMBERS + 1);
        let (small, large) = (MAX_DIRECT_BLOCK_BYTES, MAX_DIRECT_BLOCK_BYTES + 1);
        assert_eq!(Exchange::Auto.partners(few, large), few - 1);
        assert_eq!(Exchange::Auto.partners(many, small), many - 1);
        assert_eq!(Exchange::Auto.partners(many, large), 1);
        assert_eq!(Exchange::Direct.partners(many, large), many - 1);
        assert_eq!(Exchange::Ring.partners(few, small), 1);
        assert_eq!(Exchange::Auto.partners(1, small), 1, "nobody else: still a number");
    }
}
