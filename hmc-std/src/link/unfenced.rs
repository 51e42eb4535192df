//! A closed link whose peer may still access local memory: the process quarantines the memory.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hmc_core::types::Rank;

use super::Link;
use super::deferred::Deferred;
use crate::callbacks::wakers::Wakers;
use crate::quarantine::{self, Tally, Unfenced};
use crate::transport::stream::PeerLife;

/// A link that is over, of which operations have not passed their fence.
struct UnfencedLink {
    link: Arc<Link>,
    tally: Arc<Tally>,
}

impl Unfenced for UnfencedLink {
    fn peer(&self) -> Rank {
        self.link.peer
    }

    fn life(&self) -> PeerLife {
        self.link.data().plane().peer_life()
    }

    fn may_end_before(&self) -> bool {
        // A worker gives requests back, and the peer gets out of the halves of messages.
        self.link.has_worker() || self.link.has_rndvs()
    }

    fn is_fenced(&self) -> bool {
        // Messages wait for their puts, which end once the peer is out of the data plane's memory.
        let mut after = Deferred::default();
        {
            let mut data = self.link.data();
            if data.is_out_of_reach() {
                data.fenced(&mut after);
            }
        }
        self.link.run_deferred(&mut after);
        self.link.is_out_of_reach()
    }

    fn release(&self) {
        self.link.drop_unused();
        self.tally.links.fetch_sub(1, Ordering::AcqRel);
    }

    fn warn(&self) {
        // A peer may take its time to leave windows that nothing uses.
        if !self.link.data().is_harmless() || self.link.has_rndvs() {
            tracing::warn!(
                peer = self.link.peer.0,
                "memory is held: the link is over, and the peer may still read or write it"
            );
        }
    }

    fn wakers(&self) -> &Arc<Wakers> {
        &self.link.wakers
    }

    fn pieces(&self, each: &mut dyn FnMut(u64, &'static str)) {
        self.link.data().unfenced_bytes(each);
        self.link.rndv_bytes(each);
    }
}

impl Link {
    /// Moves the link into the process's quarantine if the peer may still use memory of ours.
    pub(super) fn quarantine_unfenced(&self) {
        let Some(link) = self.me.upgrade().filter(|me| !me.is_out_of_reach()) else { return };
        // As a rule the peer that receives the end sends at once that it is out.
        tracing::debug!(peer = self.peer.0, "memory is held until the peer is out of it");
        let tally = self.owner.upgrade().map(|o| o.tally()).unwrap_or_default();
        tally.links.fetch_add(1, Ordering::AcqRel);
        quarantine::keep(Arc::new(UnfencedLink { link, tally }));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    use hmc_core::rndv::{RndvId, RndvMsg};
    use hmc_core::types::{ConnType, Rank};

    use super::UnfencedLink;
    use crate::link::ends::{End, alone, pair};
    use crate::quarantine::Unfenced as _;

    fn unfenced(end: &End) -> UnfencedLink {
        let tally = end.link.owner.upgrade().expect("its owner lives").tally();
        tally.links.store(3, Ordering::Relaxed);
        UnfencedLink { link: Arc::clone(&end.link), tally }
    }

    #[test]
    fn only_links_whose_fence_may_precede_the_peers_end_are_polled() {
        for has_worker in [false, true] {
            let end = alone(5, 1);
            end.link.has_worker.store(has_worker, Ordering::Relaxed);
            assert_eq!(unfenced(&end).may_end_before(), has_worker);
            // A message under way ends when its puts do.
            assert!(end.link.rndv_receive(RndvMsg::Offer { id: RndvId(0), len: 1 }.into()));
            assert!(unfenced(&end).may_end_before(), "{has_worker}");
        }
    }

    #[test]
    fn an_unfenced_link_reports_its_peer_and_counts_until_it_is_released() {
        let (near, far) = pair(ConnType::Shm);
        let link = unfenced(&near);
        assert_eq!(link.peer(), Rank(1));
        assert!(Arc::ptr_eq(link.wakers(), &near.link.wakers));
        assert!(!link.life().has_ended());
        drop(far);
        assert!(link.life().has_ended(), "its stream reports the peer's end");
        link.release();
        assert_eq!(link.tally.links.load(Ordering::Relaxed), 2);
    }
}
