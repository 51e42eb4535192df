//! A thousand peers over RDMA verbs, of one session and one device.

#![allow(clippy::arithmetic_side_effects, clippy::unwrap_used, reason = "tests may panic")]

use std::sync::Arc;

use hmc_core::region::WindowDesc;
use hmc_core::transport::DataPlane as _;
use hmc_core::work::Failure;
use hmc_tests::fake_ibv::{self, FakeIbv, has_windows};
use hmc_tests::files::limit;
use hmc_tests::verbs_planes::{End, LEN, domain, meet, objects};

const PEERS: u32 = 1000;
/// Puts under way to each peer at a time.
const PUTS: u16 = 4;
/// In these all of them complete.
const TICKS: u64 = 8;

/// A link, and what it fills its memory with.
struct LinkTo {
    near: End,
    far: End,
    window: WindowDesc,
    byte: u8,
}

impl LinkTo {
    fn post_all(&mut self) {
        self.near.fill(self.byte);
        self.far.fill(0);
        (0..PUTS).for_each(|index| self.near.post(&self.near.put(index, &self.window, LEN)));
        assert!(self.near.poll().is_empty());
    }

    fn complete_all(&mut self) {
        let done = self.near.complete(usize::from(PUTS));
        assert!(done.iter().all(|(_, result)| *result == Ok(LEN)), "{}: {done:?}", self.byte);
        assert_eq!(u64::try_from(self.far.count_from(0, self.byte)).unwrap(), LEN);
    }
}

#[test]
fn without_windows() {
    fake_ibv::run_without_windows(&[]);
}

/// Each completion queue has a place for whatever its own link has under way: none overruns, however many links there are and though
/// nobody takes completions for long. The end of one link is nothing to the others.
#[test]
fn a_thousand_links_move_bytes_and_end_alone() {
    let fake = FakeIbv::take();
    // As devices have them: each link takes one of each.
    ["max_pd", "max_cq", "max_qp"].into_iter().for_each(|name| fake.set_device(0, name, 1 << 15));
    limit(u64::MAX);
    let [ours, theirs] = [(); 2].map(|()| domain(&Arc::default(), 1, true));
    let before = fake.count("live");
    let mut links: Vec<_> = (0..PEERS)
        .map(|n| {
            let ends = [&ours, &theirs].map(|domain| End::numbered(domain, n).unwrap());
            let [near, far] = ends;
            let (near, far, window) = meet(near, far);
            LinkTo { near, far, window, byte: u8::try_from(n % 250 + 1).unwrap() }
        })
        .collect();
    let windows = u64::from(PEERS);
    // The window is a registration, or a window of one.
    let objects = 2 * objects() + 1 + u64::from(has_windows());
    assert_eq!(fake.count("live") - before, windows * objects);
    fake.set("poll_progress", 0);
    links.iter_mut().for_each(LinkTo::post_all);
    fake.progress(TICKS);
    links.iter_mut().for_each(LinkTo::complete_all);
    links.iter_mut().for_each(LinkTo::post_all);
    assert_eq!(fake.kill(1), 1);
    fake.progress(TICKS);
    let [dead, others @ ..] = links.as_mut_slice() else { panic!("no links") };
    let done = dead.near.complete(usize::from(PUTS));
    assert!(done.iter().all(|(_, result)| *result == Err(Failure::PeerDead)), "{done:?}");
    assert!(dead.near.plane.close_reason().is_some());
    others.iter_mut().for_each(LinkTo::complete_all);
    assert!(others.iter().all(|link| link.near.plane.close_reason().is_none()));
    assert_eq!(fake.count("overruns"), 0);
    drop((links, ours, theirs));
    fake.assert_clean();
}
