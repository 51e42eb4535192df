//! Tags of puts, which the NICs of the two ends carry: how many each may send, and what has come.
//!
//! A put and its tag are one work request where they can be, a write with an immediate: its receive completes once the bytes are in
//! the target's memory (InfiniBand specification, volume 1, 9.4.4 and 9.6). An immediate has 32 bits. The high half of a longer tag goes
//! before it, as a message without bytes. So no memory of the target is exposed for tags.
//!
//! Each of them takes a receive of the target. An end sends as many as the other one has announced receives for, and gets the half of
//! them back at a time, by a message without an immediate: the target always has a receive for what honest peers send.

use std::collections::VecDeque;

use hmc_core::work::Opcode;

use super::sys::{
    IBV_WC_RECV, IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_SUCCESS, IBV_WC_WITH_IMM, IBV_WC_WR_FLUSH_ERR,
    ibv_wc, ibv_wc_status,
};
use crate::host::TagSink;

/// What the peer may send of tags before this end has taken some.
pub(super) const MAX_RECEIVED: u8 = 64;
/// Tags that have come and were not taken: each has taken a receive at least.
const MAX_TAGS: usize = 64;
/// The fewest that an end announces: with half of them it can send a tag of two messages.
pub(super) const MIN_RECEIVED: u8 = 4;
/// Messages that give the peer receives back may be under way: each gives back half.
const MAX_RETURNS: u32 = 2;
/// Receives that are posted for the peer: for tags, and for what gives some back.
pub(super) const RECEIVES: u32 = 64 + MAX_RETURNS;

/// Receives that are given back at a time, of so many that were announced.
fn returned_of(announced: u8) -> u32 {
    u32::from(announced / 2)
}

/// A tag as it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TagParts {
    /// What goes before it, if it is longer than an immediate.
    pub(super) high: Option<u32>,
    /// The immediate.
    pub(super) low: u32,
}

impl TagParts {
    /// Of the tag of a put; `None` if it has none.
    #[inline]
    pub(super) fn of(opcode: Opcode) -> Option<Self> {
        let Opcode::PutNotify { tag } = opcode else { return None };
        Some(Self::of_tag(tag))
    }

    pub(super) fn of_tag(tag: u64) -> Self {
        let [low, high] = [tag, tag >> 32].map(|half| {
            // The half is one of 32 bits.
            u32::try_from(half & u64::from(u32::MAX)).unwrap_or(0)
        });
        Self { high: (high != 0).then_some(high), low }
    }

    /// Receives of the peer that it takes.
    #[inline]
    pub(super) fn receives(self) -> u32 {
        if self.high.is_some() { 2 } else { 1 }
    }
}

/// Why a completion of a receive ends the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReceiveError {
    /// The peer broke the protocol.
    Peer(&'static str),
    /// The receive has failed.
    Status(ibv_wc_status),
}

/// Tags of one link, of both directions.
pub(super) struct Tags {
    sink: Box<dyn TagSink>,
    /// Receives of the peer that this end may use.
    sendable: u32,
    /// What the peer gives back at a time.
    returned: u32,
    /// The high half of the tag that comes next.
    high: Option<u32>,
    /// Tags that have come, at most [`MAX_TAGS`], the oldest first, with the receives that each has taken.
    received: VecDeque<(u64, u32)>,
    /// Receives of tags that were delivered, which the peer may use again.
    used: u32,
    /// Receives that were taken by what gives some back: they are to be posted again.
    spent: u32,
    /// Tags were delivered.
    was_delivered: bool,
    /// See [`Self::has_work`].
    has_work: bool,
}

impl std::fmt::Debug for Tags {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut s = f.debug_struct("Tags");
        s.field("sendable", &self.sendable).field("received", &self.received.len());
        s.finish_non_exhaustive()
    }
}

impl Tags {
    /// None can be sent before the peer has announced receives.
    pub(super) fn new(sink: Box<dyn TagSink>) -> Self {
        Self {
            sink,
            sendable: 0,
            returned: 0,
            high: None,
            received: VecDeque::with_capacity(MAX_TAGS),
            used: 0,
            spent: 0,
            was_delivered: false,
            has_work: false,
        }
    }

    /// The peer has announced that many receives.
    pub(super) fn set_announced(&mut self, count: u8) {
        (self.sendable, self.returned) = (u32::from(count), returned_of(count));
    }

    /// Takes as many of the peer's receives. Returns `false`, and takes none, if there are fewer.
    #[inline]
    pub(super) fn try_take(&mut self, count: u32) -> bool {
        let Some(left) = self.sendable.checked_sub(count) else { return false };
        self.sendable = left;
        true
    }

    /// Whether as many of the peer's receives are left.
    #[inline]
    pub(super) fn has_left(&self, count: u32) -> bool {
        self.sendable >= count
    }

    /// A receive has completed.
    ///
    /// # Errors
    /// [`ReceiveError`]. One that was flushed says nothing: what has failed is told by something else.
    pub(super) fn receive(&mut self, wc: &ibv_wc) -> Result<(), ReceiveError> {
        let received = self.take(wc);
        self.recount();
        received
    }

    /// Looks again at what is to be done, after a change.
    fn recount(&mut self) {
        self.has_work = self.is_paused() || self.spent != 0 || self.owes_return();
    }

    fn take(&mut self, wc: &ibv_wc) -> Result<(), ReceiveError> {
        match wc.status {
            IBV_WC_SUCCESS => {}
            IBV_WC_WR_FLUSH_ERR => return Ok(()),
            status => return Err(ReceiveError::Status(status)),
        }
        let (has_immediate, immediate) =
            (wc.wc_flags & IBV_WC_WITH_IMM != 0, u32::from_be(wc.imm_data));
        match (wc.opcode, has_immediate) {
            (IBV_WC_RECV_RDMA_WITH_IMM, _) => {
                let high = self.high.take();
                let tag = u64::from(high.unwrap_or(0)) << 32 | u64::from(immediate);
                let taken = if high.is_some() { 2 } else { 1 };
                if self.received.len() >= MAX_TAGS {
                    return Err(ReceiveError::Peer("more tags than there are receives for"));
                }
                self.received.push_back((tag, taken));
                Ok(())
            }
            (IBV_WC_RECV, true) if self.high.is_none() => {
                self.high = Some(immediate);
                Ok(())
            }
            (IBV_WC_RECV, false) => {
                self.sendable = self.sendable.saturating_add(self.returned);
                self.spent = self.spent.saturating_add(1);
                Ok(())
            }
            _ => Err(ReceiveError::Peer("a message that is none of a tag")),
        }
    }

    /// Delivers what there is space for; all of it, if the link is over.
    pub(super) fn deliver(&mut self, is_over: bool) {
        while !self.received.is_empty() && (is_over || self.sink.has_space()) {
            let Some((tag, taken)) = self.received.pop_front() else { break };
            self.sink.push(tag);
            self.used = self.used.saturating_add(taken);
            self.was_delivered = true;
        }
        self.recount();
    }

    /// Returns `true` if a tag waits for space, or receives are to be posted.
    #[inline]
    pub(super) fn has_work(&self) -> bool {
        self.has_work
    }

    /// Returns `true` if a tag waits for space.
    #[inline]
    pub(super) fn is_paused(&self) -> bool {
        !self.received.is_empty()
    }

    /// Returns whether tags were delivered since the last call.
    pub(super) fn take_delivered(&mut self) -> bool {
        std::mem::take(&mut self.was_delivered)
    }

    /// Takes the number of receives that are to be posted without a word to the peer.
    pub(super) fn take_spent(&mut self) -> u32 {
        let spent = std::mem::take(&mut self.spent);
        self.recount();
        spent
    }

    /// Returns `true` if the peer is to be given receives back.
    pub(super) fn owes_return(&self) -> bool {
        self.used >= returned_of(MAX_RECEIVED)
    }

    /// Takes the number of receives that are to be posted, and given back by one message. The caller has asked
    /// [`Self::owes_return`].
    pub(super) fn take_return(&mut self) -> u32 {
        let count = returned_of(MAX_RECEIVED);
        self.used = self.used.saturating_sub(count);
        self.recount();
        count
    }
}

#[cfg(test)]
mod tests {
    use hmc_core::work::Opcode;

    use super::*;

    struct All;

    impl TagSink for All {
        fn has_space(&self) -> bool {
            true
        }

        fn push(&self, _: u64) {}
    }

    fn wc(opcode: u32, immediate: Option<u32>) -> ibv_wc {
        let wc_flags = if immediate.is_some() { IBV_WC_WITH_IMM } else { 0 };
        let imm_data = immediate.unwrap_or(0).to_be();
        ibv_wc { opcode, wc_flags, imm_data, ..ibv_wc::default() }
    }

    #[test]
    fn a_tag_comes_back_from_its_parts() {
        for tag in [0, 1, 0xffff_ffff, 1 << 32, 0x0102_0304_0506_0708, u64::MAX] {
            let parts = TagParts::of(Opcode::PutNotify { tag }).unwrap();
            assert_eq!(parts.receives(), if tag >> 32 == 0 { 1 } else { 2 });
            let mut tags = Tags::new(Box::new(All));
            if let Some(high) = parts.high {
                assert_eq!(tags.receive(&wc(IBV_WC_RECV, Some(high))), Ok(()));
            }
            let low = wc(IBV_WC_RECV_RDMA_WITH_IMM, Some(parts.low));
            assert_eq!((tags.receive(&low), tags.high), (Ok(()), None));
            assert_eq!(tags.received.pop_front(), Some((tag, parts.receives())));
        }
        assert_eq!(TagParts::of(Opcode::Put), None);
    }

    /// What an end gives back is what the other one has used, and never more than there are receives for.
    #[test]
    fn receives_come_back_by_halves() {
        assert_eq!(RECEIVES, u32::from(MAX_RECEIVED) + MAX_RETURNS);
        assert_eq!(usize::from(MAX_RECEIVED), MAX_TAGS);
        let [mut sender, mut target] = [(); 2].map(|()| Tags::new(Box::new(All)));
        assert!(!sender.try_take(1), "nothing is announced");
        sender.set_announced(MAX_RECEIVED);
        let mut posted = u32::from(MAX_RECEIVED);
        for tag in 0..1000_u32 {
            assert!(sender.try_take(1));
            posted = posted.checked_sub(1).expect("a receive");
            assert_eq!(target.receive(&wc(IBV_WC_RECV_RDMA_WITH_IMM, Some(tag))), Ok(()));
            assert!(target.has_work(), "it is to be delivered");
            target.deliver(false);
            assert_eq!(target.has_work(), target.owes_return());
            if target.owes_return() {
                let count = target.take_return();
                assert_eq!((count, target.has_work()), (32, false));
                posted += count;
                assert_eq!(sender.receive(&wc(IBV_WC_RECV, None)), Ok(()));
                assert!(sender.has_work(), "a receive is to be posted");
                assert_eq!((sender.take_spent(), sender.has_work()), (1, false));
            }
            assert!(sender.has_left(1) && sender.sendable <= posted);
        }
    }

    #[test]
    fn what_no_honest_peer_sends_ends_the_link() {
        let mut tags = Tags::new(Box::new(All));
        assert_eq!(tags.receive(&wc(IBV_WC_RECV, Some(1))), Ok(()));
        let again = tags.receive(&wc(IBV_WC_RECV, Some(1)));
        assert!(matches!(again, Err(ReceiveError::Peer(_))), "two high halves");
        let mut tags = Tags::new(Box::new(All));
        let low = wc(IBV_WC_RECV_RDMA_WITH_IMM, Some(1));
        (0..MAX_TAGS).for_each(|_| assert_eq!(tags.receive(&low), Ok(())));
        assert!(matches!(tags.receive(&low), Err(ReceiveError::Peer(_))), "one too many");
        let failed = |status| ibv_wc { status, ..wc(IBV_WC_RECV, None) };
        assert_eq!(tags.receive(&failed(IBV_WC_WR_FLUSH_ERR)), Ok(()));
        assert_eq!(tags.receive(&failed(1)), Err(ReceiveError::Status(1)));
    }
}
