//! Windows over whole regions, which serve one message after the other.

use std::sync::Arc;

use hmc_core::rndv::{AbortReason, RndvError};
use hmc_core::work::Failure;
use hmc_mem::registered::{CachedHandle, Registered as _};

use super::{End, LATER, NOW, bytes_of, pattern, result, run_until_idle, two};
use crate::base::error::ErrorKind;
use crate::link::rndv::handle::MessageHandle;
use crate::link::rndv::kept_window::KeptWindow;
use crate::link::rndv::reuse::MAX_KEPT;
use crate::link::rndv::state::{MessageBuffer, PostedRecv};
use crate::memory::Region;

const LEN: u64 = 30_000;
/// Where messages come in the region.
const AT: u64 = 10_000;
const SPACE: u64 = 10_000;

impl End {
    /// Waits for a message in the middle of the region, through the window that is kept or a new one.
    fn receive_kept(&mut self, region: &Region) -> Arc<MessageHandle> {
        let window = self.state.take_kept(region.key());
        let window = window.unwrap_or_else(|| KeptWindow::new(region, self.expose(region)));
        let range = region.slice(AT, SPACE).expect("in it").span;
        let bytes = MessageBuffer::Registered { region: region.clone(), range, span: None };
        self.state.receive(PostedRecv::in_kept(bytes, SPACE, (window, AT), LATER))
    }

    fn kept(&self) -> (usize, usize, usize) {
        (self.state.kept.len(), self.host.open.len(), self.exposed.borrow().len())
    }
}

fn zeros(end: &End) -> Region {
    end.region(&vec![0; usize::try_from(LEN).expect("small")])
}

#[test]
fn one_window_serves_messages_one_after_the_other_and_is_open_only_meanwhile() {
    let (mut near, mut far) = two();
    let region = zeros(&far);
    for len in [9000, 10_000, 5000] {
        let message = pattern(len);
        let sent = near.send(&message);
        let received = far.receive_kept(&region);
        assert!(far.host.open.is_empty(), "no message was answered");
        near.host.end = None;
        run_until_idle(&mut near, &mut far);
        assert_eq!((far.host.open.len(), near.host.puts.len()), (1, 1), "it comes");
        near.host.end = Some(Ok(()));
        run_until_idle(&mut near, &mut far);
        let want = Some(Ok(u64::try_from(len).expect("small")));
        assert_eq!((result(&sent), result(&received)), (want, want));
        assert_eq!(far.kept(), (1, 0, 1));
        let at = usize::try_from(AT).expect("small");
        assert!(bytes_of(&region).split_at(at).1.starts_with(&message), "{len} bytes");
    }
    assert!(far.state.is_empty() && near.state.is_empty());
}

#[test]
fn two_receives_have_a_window_each() {
    let (mut near, mut far) = two();
    let region = zeros(&far);
    let [first, second] = [(); 2].map(|()| far.receive_kept(&region));
    near.send(&pattern(5000));
    run_until_idle(&mut near, &mut far);
    assert!(result(&first).is_some() && result(&second).is_none());
    assert_eq!(far.kept(), (1, 0, 2));
}

/// Puts of a message that failed may still run, or what the peer reported was wrong: it is inside.
#[test]
fn the_window_of_a_message_that_failed_or_that_the_peer_does_not_leave_is_taken_back() {
    for fails in [true, false] {
        let (mut near, mut far) = two();
        let region = zeros(&far);
        let received = far.receive_kept(&region);
        near.host.end = fails.then_some(Err(Failure::Unsupported)).or(Some(Ok(())));
        near.send(&pattern(9000));
        far.host.inside = true;
        run_until_idle(&mut near, &mut far);
        assert_eq!(far.kept(), (0, usize::from(fails), 1));
        assert!(far.state.holds() && !received.is_free(), "its memory is not back");
        far.host.inside = false;
        far.poll();
        assert!(received.is_free() && far.state.is_empty());
        assert_eq!(result(&received).map(|r| r.is_err()), Some(fails));
    }
}

#[test]
fn a_window_that_no_message_named_serves_the_next() {
    let (mut near, mut far) = two();
    let region = zeros(&far);
    let late = far.receive_kept(&region);
    let after = far.poll_at(LATER, false);
    assert_eq!(result(&late), Some(Err(ErrorKind::DeadlineExceeded)));
    assert!(late.is_free() && after.revoked.is_empty());
    let too_long = far.receive_kept(&region);
    let sent = near.send(&pattern(10_001));
    run_until_idle(&mut near, &mut far);
    let failed = Some(Err(ErrorKind::Length));
    assert_eq!((result(&sent), result(&too_long)), (failed, failed));
    let short = far.receive_kept(&region);
    near.state
        .send_eager(MessageBuffer::Borrowed(None), pattern(10).into(), LATER)
        .map_err(|_| ())
        .expect("space");
    run_until_idle(&mut near, &mut far);
    assert_eq!(result(&short), Some(Ok(10)));
    assert_eq!(far.kept(), (1, 0, 1));
    // Withdrawn before it is answered.
    let withdrawn = far.receive_kept(&region);
    far.state.end(&withdrawn, RndvError::Here(AbortReason::Cancelled));
    far.poll();
    assert_eq!(result(&withdrawn), Some(Err(ErrorKind::Cancelled)));
    assert_eq!(far.kept(), (1, 0, 1));
}

#[test]
fn a_window_that_cannot_be_opened_fails_its_message_and_is_taken_back() {
    let (mut near, mut far) = two();
    let region = zeros(&far);
    far.host.is_stuck = true;
    let received = far.receive_kept(&region);
    let sent = near.send(&pattern(9000));
    run_until_idle(&mut near, &mut far);
    assert!([&sent, &received].iter().all(|h| result(h).is_some_and(|r| r.is_err())));
    assert_eq!(far.state.kept.len(), 0);
    assert!(near.host.puts.is_empty() && far.state.is_empty());
}

#[test]
fn windows_that_are_useless_or_too_many_are_taken_back() {
    let (mut near, mut far) = two();
    let regions: Vec<_> = (0..=MAX_KEPT).map(|_| zeros(&far)).collect();
    for region in &regions {
        far.receive_kept(region);
        near.send(&pattern(5000));
        run_until_idle(&mut near, &mut far);
    }
    assert_eq!(far.state.kept.len(), MAX_KEPT);
    let first = regions.first().expect("some").key();
    assert!(far.state.take_kept(first).is_none(), "the oldest is gone");
    // Of memory that nobody has but those who keep its window.
    far.exposed.borrow_mut().clear();
    assert!(!far.state.has_useless_windows());
    let last = regions.into_iter().next_back().expect("some");
    assert!(far.state.has_useless_windows());
    assert!(far.poll().revoked.is_empty(), "no message waits for that");
    far.state.evict_windows();
    assert_eq!((far.poll().revoked.len(), far.state.kept.len()), (MAX_KEPT - 1, 1));
    // A part of its pages is not what the peer has.
    let span = last.take_all().expect("all of it");
    assert!(span.renew_pages());
    drop(span);
    assert!(far.state.take_kept(last.key()).is_none());
    far.state.evict_windows();
    assert_eq!((far.poll().revoked.len(), far.state.kept.len()), (1, 0));
}

/// To unmap a large region takes long: whoever drops it holds no lock.
#[test]
fn memory_that_nobody_else_has_outlives_the_poll_that_lets_go_of_it() {
    // Of a link that ends in the middle of a message or after it, and of a window that is evicted.
    for (ends, dies) in [(false, true), (true, true), (true, false)] {
        let (mut near, mut far) = two();
        let region = zeros(&far);
        far.receive_kept(&region);
        if ends {
            near.send(&pattern(5000));
            run_until_idle(&mut near, &mut far);
            assert_eq!(far.state.kept.len(), 1);
        }
        drop(region);
        far.exposed.borrow_mut().clear();
        far.state.evict_windows();
        let mut after = far.poll_at(NOW, dies);
        assert!(far.state.is_empty() && far.state.kept.is_empty());
        after.over.2.clear();
        let watch = CachedHandle::new(after.regions.first().expect("its region"));
        assert_eq!((after.regions.len(), watch.is_only_cached()), (1, false));
        after.regions.clear();
        assert!(watch.is_only_cached(), "the state has no handle");
    }
}
