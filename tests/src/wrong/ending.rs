//! What has to follow when a peer has broken the protocol.

use hmc_std::ErrorKind;
use hmc_testkit::buffers::BufferTransfers as _;

use super::losses;
use super::rig::{Rig, moved};
use super::target::LONG;
use crate::env::until;
use crate::raw_frames::is_closed_after;

impl Rig<'_> {
    /// The link has ended for that reason and nothing else has changed.
    ///
    /// # Panics
    /// When not.
    pub fn assert_ended(self, what: &str, check: &str) {
        self.assert_lost(what, &format!("it broke the protocol: {check}"));
    }

    /// The link has ended with those words and nothing else has changed.
    ///
    /// # Panics
    /// When not.
    pub fn assert_lost(self, what: &str, reason: &str) {
        let Self { target, mut rogue, peer, exposed, ops, memory, .. } = self;
        let (via, rank) = (target.via, peer.rank().0);
        let why = losses::wait_for(rank, LONG);
        assert_eq!(why.as_deref(), Some(reason), "{via:?} {what}: the log");
        let e = peer.put_at(0, 0, 8).expect_err("the link is over");
        assert_eq!(e.kind(), ErrorKind::PeerDead, "{via:?} {what}: {e}");
        assert!(e.to_string().contains(reason), "{via:?} {what}: {e}");
        until("its control connection ends", LONG, || rogue.is_over().then_some(()));
        assert!(is_closed_after(&mut rogue.data), "{via:?} {what}: the data connection is open");
        // What it might copy by itself ends with it.
        drop(rogue);
        for op in ops {
            let e = moved(&op).expect_err("nobody has answered");
            assert_eq!(e.kind(), ErrorKind::PeerDead, "{via:?} {what}: {e}");
            assert!(e.to_string().contains(reason), "{via:?} {what}: {e}");
        }
        drop((exposed, memory));
        target.assert_unharmed(what);
        until("nothing is held for it", LONG, || {
            let held = target.session.stats();
            (held.quarantined_bytes == 0 && held.quarantined_links == 0).then_some(())
        });
    }
}
