//! Taking back a window while its peer is inside, and an interrupt of that: the memory stays where it is and comes back when
//! the peer is out, not before; nobody gets in any more.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may panic"
)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hmc_core::region::WindowDesc;
use hmc_core::types::Access;
use hmc_mem::gate::GateError;
use hmc_mem::os::memfd::Mapping;
use hmc_std::{Error, ErrorKind, Peer, Rank, Region, Session, Status, Window};
use hmc_tests::env::{TempDir, until};
use hmc_tests::inside::Inside;

const LONG: Duration = Duration::from_secs(20);
const PAGE: u64 = 4096;
/// Whole pages, which could be replaced under the peer.
const LEN: u64 = 4 * PAGE;

/// What the hook of all sessions here says.
static STOP: AtomicBool = AtomicBool::new(true);

fn hook() -> bool {
    STOP.load(Ordering::Acquire)
}

/// A session with the hook, and a peer that goes in and out by hand.
struct Ends {
    session: Session,
    peer: Peer,
    inside: Inside,
    _dir: TempDir,
}

impl Ends {
    fn new() -> Self {
        let dir = TempDir::new();
        let session = Session::builder(0).uds(dir.path()).buffer(PAGE).interrupt(hook);
        let session = session.start().unwrap();
        let inside = Inside::join(1, &dir.address());
        // Not by a call that the hook ends.
        let peer = until("its link is open", LONG, || session.peer(1).ok());
        until("its link is open", LONG, || peer.is_connected().then_some(()));
        Self { session, peer, inside, _dir: dir }
    }

    fn expose(
        &mut self,
        region: &Region,
        at: u64,
        len: u64,
        label: u64,
    ) -> (Window<hmc_std::Span>, WindowDesc) {
        let span = region.take(at, len).unwrap();
        let window = self.peer.expose(span, Access::all(), label).map_err(|(e, _)| e).unwrap();
        (window, self.inside.find(label))
    }

    /// The pages of a region in the peer's hands.
    fn pages(&mut self, window: &WindowDesc) -> Mapping {
        let passed = until("its pages come", LONG, || self.inside.pages(window));
        Mapping::map_peer(passed.fd, passed.frame.total, 0, Access::all()).unwrap()
    }

    fn quarantined(&self) -> u64 {
        self.session.stats().quarantined_bytes
    }
}

fn write(pages: &Mapping, at: u64, byte: u8) {
    let span = pages.bytes().span(at, 1).unwrap();
    pages.bytes().fill(span, byte).unwrap();
}

fn assert_interrupted(e: &Error, len: u64) {
    assert_eq!(e.kind(), ErrorKind::Interrupted, "{e}");
    assert_eq!((e.status(), e.peer()), (Status::Error, Some(Rank(1))), "{e}");
    let text = e.to_string();
    assert!(text.contains(&format!("{len} bytes stay in quarantine")), "{text}");
}

#[test]
fn an_interrupted_revoke_of_a_private_window_holds_its_bytes_until_the_peer_is_out() {
    // A length that is no whole number of pages, too: for an interrupt both are alike.
    for len in [LEN, LEN - 8] {
        let mut e = Ends::new();
        let region = e.session.memory().allocate(2 * LEN).unwrap();
        let (window, remote) = e.expose(&region, 0, len, 7);
        let pages = e.pages(&remote);
        e.inside.enter(&remote).unwrap();
        let error = window.revoke().within(LONG).wait().expect_err("the peer is inside");
        assert_interrupted(&error, len);
        // Nobody gets in any more, and the place of the window is not used again.
        assert_eq!(e.inside.enter(&remote), Err(GateError::Closed));
        let (other, other_remote) = e.expose(&region, LEN, LEN, 8);
        assert_ne!(other_remote.window.index(), remote.window.index());
        // One that comes back although it was taken later: what was held has been looked at since.
        e.inside.enter(&other_remote).unwrap();
        assert_interrupted(
            &other.revoke().within(LONG).wait().expect_err("the peer is inside"),
            LEN,
        );
        assert_eq!(e.quarantined(), len + LEN);
        e.inside.leave(&other_remote);
        drop(until("the other one comes back", LONG, || region.take(LEN, LEN).ok()));
        assert_eq!(region.take(0, 1).expect_err("held").kind(), ErrorKind::Busy);
        assert_eq!(e.quarantined(), len);
        // They are the pages that the peer has: it may still write.
        write(&pages, 5, 0xEE);
        e.inside.leave(&remote);
        let span = until("the bytes come back", LONG, || region.take(0, len).ok());
        assert_eq!(e.quarantined(), 0);
        assert_eq!(span.as_slice()[5], 0xEE, "they are the same pages");
        // The range serves a new window, which can be taken back.
        drop(span);
        let (window, again) = e.expose(&region, 0, len, 9);
        assert!(again.window != remote.window || again.epoch != remote.epoch);
        e.inside.enter(&again).unwrap();
        e.inside.leave(&again);
        assert_eq!(window.revoke().within(LONG).wait().expect("nobody is inside").len(), len);
    }
}

#[test]
fn an_interrupted_revoke_of_a_shared_window_counts_its_bytes_until_the_peer_is_out() {
    let mut e = Ends::new();
    let buffer = e.session.memory().allocate(2 * LEN).unwrap().share().unwrap();
    let window = e.peer.expose(buffer.range(PAGE, LEN).unwrap(), Access::all(), 7).unwrap();
    let remote = e.inside.find(7);
    e.inside.enter(&remote).unwrap();
    assert_interrupted(&window.revoke().within(LONG).wait().expect_err("the peer is inside"), LEN);
    assert_eq!(e.inside.enter(&remote), Err(GateError::Closed));
    assert_eq!(e.quarantined(), LEN);
    e.inside.leave(&remote);
    until("they are counted no more", LONG, || (e.quarantined() == 0).then_some(()));
}

/// The deadline is another matter: whole pages come back at once, others under the peer's feet, and the peer keeps the old ones.
#[test]
fn a_revoke_whose_deadline_has_passed_gives_other_pages_back() {
    let mut e = Ends::new();
    let region = e.session.memory().allocate(LEN).unwrap();
    let (mut window, remote) = e.expose(&region, 0, LEN, 7);
    window.write_at(0, b"kept").unwrap();
    let pages = e.pages(&remote);
    e.inside.enter(&remote).unwrap();
    let span = window.revoke().within(Duration::ZERO).wait().expect("whole pages");
    assert_eq!(&span.as_slice()[..4], b"kept");
    write(&pages, 0, 0xEE);
    assert_eq!(&span.as_slice()[..4], b"kept", "the peer writes to pages of its own");
    assert_eq!(e.quarantined(), 0);
    e.inside.leave(&remote);
}

/// A window that was dropped under a peer inside is held in the same way.
#[test]
fn a_window_that_is_dropped_holds_its_bytes_until_the_peer_is_out() {
    let mut e = Ends::new();
    let region = e.session.memory().allocate(LEN).unwrap();
    let (window, remote) = e.expose(&region, 0, LEN, 7);
    e.inside.enter(&remote).unwrap();
    drop(window);
    assert_eq!(
        (e.quarantined(), region.take(0, 1).map_err(|e| e.kind()).err()),
        (LEN, Some(ErrorKind::Busy))
    );
    e.inside.leave(&remote);
    drop(until("they come back", LONG, || region.take_all().ok()));
    assert_eq!(e.quarantined(), 0);
}
