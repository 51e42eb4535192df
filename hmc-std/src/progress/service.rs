//! Reactions of a session to ready sockets and to time. No thread, no waiting, no descriptors: the driver of the
//! session ([`crate::progress::thread`], a simulated world) calls it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hmc_core::limits::{MAX_SPREAD, PEERS_A_SPREAD};
use hmc_core::time::{Duration, Instant};
use hmc_core::types::ConnType;

use crate::io::reactor::Token;
use crate::link::{Link, Tick};
use crate::state::inner::SessionInner;

/// The shortest time between two looks at all deadlines, and so how late the end of a silent peer is noticed.
const SHORTEST_TICK_NS: u64 = 10_000_000;

/// After how many silent periods peers of this system are told that we live, by messages: when all on it are each other's
/// peers, that is most of what an idle system does.
fn spread(links: &[Arc<Link>]) -> u64 {
    let many = links.iter().filter(|l| l.near && l.conn() != Some(ConnType::Shm)).count();
    let spread = (many / PEERS_A_SPREAD).saturating_add(1);
    u64::try_from(spread).map_or(MAX_SPREAD, |n| n.min(MAX_SPREAD))
}

impl SessionInner {
    /// A connection is ready. Returns whether anything came that somebody may be waiting for.
    pub(crate) fn serve(&self, token: Token) -> bool {
        match token {
            Token::Link(serial, channel) => {
                self.link_by_serial(serial).is_some_and(|link| link.poll(channel))
            }
            Token::Pending(id) => {
                self.poll_pending(id);
                // Whoever dials waits for the answer, and answers that at once.
                true
            }
            Token::Worker(n) => self.poll_worker(n),
            // Listeners and wakers belong to the reactor.
            Token::Listener(_) | Token::Wake => false,
        }
    }

    /// Runs the links that asked for it, each once: those that ask again wait until others had their turn.
    /// Returns whether anything happened. `queued` is storage that is used again and again.
    pub(crate) fn run_scheduled(&self, queued: &mut VecDeque<u32>) -> bool {
        let mut busy = false;
        self.reactor.take_queued(queued);
        for serial in queued.drain(..) {
            if let Some(link) = self.link_by_serial(serial) {
                link.unschedule();
                busy |= link.poll_data(false);
            }
        }
        busy
    }

    /// Polls control connections that left bytes behind. Returns whether anything came. `links` is storage that is used again and
    /// again.
    pub(crate) fn poll_unread(&self, links: &mut Vec<Arc<Link>>) -> bool {
        self.links_into(links);
        links.drain(..).fold(false, |busy, link| link.poll_unread() | busy)
    }

    /// Looks at everything that has a time, and says when to do that again: after a tick, or earlier where the time of a
    /// silent peer or pending connection runs out before. It is `late` after this was due. `links` is storage that is used again and
    /// again.
    pub(crate) fn on_timer(
        &self,
        now: Instant,
        late: Duration,
        links: &mut Vec<Arc<Link>>,
    ) -> Instant {
        let mut ends = self.expire_pending(now);
        // What a transport's library does by the clock.
        self.tick_workers();
        self.links_into(links);
        let spread = spread(links);
        for link in links.drain(..) {
            link.tick(Tick { now, late, spread });
            ends = ends.min(link.ends_at());
        }
        self.reap_closed_links();
        let tick = Duration::from_nanos(self.tick_ns.load(Ordering::Relaxed));
        let soonest = now.after(Duration::from_nanos(SHORTEST_TICK_NS));
        ends.max(soonest).min(now.after(tick))
    }
}

#[cfg(test)]
mod tests {
    use hmc_core::limits::{MAX_SPREAD, PEERS_A_SPREAD};

    use super::spread;
    use crate::link::ends::{near_alone, pair};
    use hmc_core::types::ConnType;

    #[test]
    fn heartbeats_are_rarer_where_many_peers_of_this_system_want_them() {
        let near = near_alone(1, 1);
        let (far, _end) = pair(ConnType::Tcp);
        for (many, want) in [(0, 1), (1, 2), (2, 3), (3, MAX_SPREAD), (9, MAX_SPREAD)] {
            let count = |less: usize| (many * PEERS_A_SPREAD).saturating_sub(less);
            let links = |less| vec![near.link.clone(); count(less)];
            assert_eq!(spread(&links(0)), want);
            assert_eq!(spread(&links(1)), want.min(many.max(1).try_into().expect("small")));
            assert_eq!(spread(&vec![far.link.clone(); count(0)]), 1, "of other systems");
        }
    }
}
