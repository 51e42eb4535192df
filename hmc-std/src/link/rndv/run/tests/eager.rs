//! Messages whose bytes go with their offer.

use std::sync::Arc;

use hmc_core::limits::MAX_RNDV;
use hmc_core::rndv::{AbortReason, RndvError, RndvId, RndvMsg, RndvRole};
use hmc_mem::shared::SharedBytes;

use super::{End, LATER, bytes_of, pattern, result, run_until_idle, two, whole};
use crate::base::error::ErrorKind;
use crate::link::rndv::handle::MessageHandle;
use crate::link::rndv::host::NoteOutcome;
use crate::link::rndv::note::Note;
use crate::link::rndv::state::{BounceBuffers, MessageBuffer, PostedRecv};

impl End {
    pub(super) fn send_eager(&mut self, bytes: &[u8]) -> Arc<MessageHandle> {
        let owned = whole(&self.region(bytes));
        self.state.send_eager(owned, bytes.into(), LATER).map_err(|_| ()).expect("space")
    }
}

fn withdrawn(id: u32) -> Note {
    let how = Err(AbortReason::Cancelled);
    RndvMsg::End { id: RndvId(id), from: RndvRole::Sender, how }.into()
}

#[test]
fn an_eager_message_comes_with_one_note_whoever_is_first() {
    for (len, staged, sender_first) in [
        (0, true, true),
        (1, true, false),
        (4096, true, true),
        (4096, false, false),
        (3, false, true),
    ] {
        let (mut near, mut far) = two();
        let message = pattern(len);
        let (mut received, mut sent) = (None, None);
        for step in [sender_first, !sender_first] {
            if step {
                sent = Some(near.send_eager(&message));
                near.poll();
                let offer = Note::Eager { id: RndvId(0), bytes: message.clone().into() };
                assert_eq!(near.host.sent, [offer]);
            } else {
                received = Some(far.receive(4096, staged));
            }
            run_until_idle(&mut near, &mut far);
        }
        let ((received, region), sent) = received.zip(sent).expect("both");
        let len = u64::try_from(len).expect("small");
        assert_eq!((result(&sent), result(&received)), (Some(Ok(len)), Some(Ok(len))));
        assert!(bytes_of(&region).starts_with(&message), "{len} bytes, staged {staged}");
        assert!(near.host.puts.is_empty());
        assert!(near.state.is_empty() && far.state.is_empty());
        // Halves that no note named serve again.
        assert_eq!(far.state.spare.len(), usize::from(staged));
    }
}

/// No note named its window to the peer, which may still have guessed it: it is taken back as any.
#[test]
fn the_window_of_a_receive_is_taken_back_also_behind_an_eager_message() {
    let (mut near, mut far) = two();
    let (received, _region) = far.receive(5000, false);
    far.host.inside = true;
    let sent = near.send_eager(&pattern(10));
    run_until_idle(&mut near, &mut far);
    assert_eq!(result(&sent), Some(Ok(10)));
    assert!(result(&received).is_none() && far.state.holds(), "its memory is not back");
    far.host.inside = false;
    far.poll();
    assert_eq!(result(&received), Some(Ok(10)));
    assert!(far.state.is_empty());
}

#[test]
fn an_eager_message_that_does_not_fit_fails_at_both_ends_and_the_next_is_received() {
    for staged in [true, false] {
        let (mut near, mut far) = two();
        let (received, region) = far.receive(9, staged);
        let sent = near.send_eager(&pattern(10));
        let (next, _) = far.receive(10, true);
        let small = near.send_eager(&pattern(4));
        run_until_idle(&mut near, &mut far);
        for handle in [&sent, &received] {
            assert_eq!(result(handle), Some(Err(ErrorKind::Length)));
        }
        assert_eq!(bytes_of(&region), [0; 9], "nothing was written");
        assert_eq!((result(&small), result(&next)), (Some(Ok(4)), Some(Ok(4))));
        assert!(near.state.is_empty() && far.state.is_empty());
    }
}

#[test]
fn an_eager_message_that_was_withdrawn_is_not_received() {
    let (mut near, mut far) = two();
    let first = near.send_eager(&pattern(3));
    run_until_idle(&mut near, &mut far);
    assert!(near.state.is_unmatched(&first));
    near.state.end(&first, RndvError::Here(AbortReason::Cancelled));
    let second = near.send_eager(&pattern(5));
    run_until_idle(&mut near, &mut far);
    let (received, _region) = far.receive(8, true);
    run_until_idle(&mut near, &mut far);
    assert_eq!(result(&first), Some(Err(ErrorKind::Cancelled)));
    assert_eq!((result(&second), result(&received)), (Some(Ok(5)), Some(Ok(5))));
    assert!(near.state.is_empty() && far.state.is_empty());
}

#[test]
fn a_withdrawal_that_crosses_with_the_end_of_an_eager_message_changes_nothing() {
    let (mut near, mut far) = two();
    let (received, _region) = far.receive(8, true);
    let sent = near.send_eager(&pattern(3));
    near.poll();
    far.state.received.append(&mut near.host.sent);
    far.poll();
    // Its END is on its way.
    near.state.end(&sent, RndvError::Here(AbortReason::Cancelled));
    run_until_idle(&mut near, &mut far);
    assert_eq!(result(&sent), Some(Err(ErrorKind::Cancelled)));
    assert_eq!(result(&received), Some(Ok(3)));
    assert!(near.state.is_empty() && far.state.is_empty());
    // One of a message that was never offered breaks the protocol.
    for id in [0, 1, MAX_RNDV] {
        let mut far = two().1;
        far.state.received.push(withdrawn(id));
        assert!(far.poll().broken.is_some(), "{id}");
    }
}

/// While it waits others are offered and withdrawn, more than may be under way at a time.
#[test]
fn a_withdrawal_may_cross_long_after_its_offer() {
    let (mut near, mut far) = two();
    let sent = near.send_eager(&pattern(3));
    for _ in 0..2 * MAX_RNDV {
        let other = near.send_eager(&pattern(1));
        run_until_idle(&mut near, &mut far);
        near.state.end(&other, RndvError::Here(AbortReason::Cancelled));
        run_until_idle(&mut near, &mut far);
        assert_eq!(result(&other), Some(Err(ErrorKind::Cancelled)));
    }
    let (received, _region) = far.receive(8, true);
    far.poll();
    near.state.end(&sent, RndvError::Here(AbortReason::Cancelled));
    run_until_idle(&mut near, &mut far);
    assert_eq!(result(&sent), Some(Err(ErrorKind::Cancelled)));
    assert_eq!(result(&received), Some(Ok(3)));
    assert!(near.state.is_empty() && far.state.is_empty());
}

/// Its sender knows that it is over, and offers one more at once; both notes are read by one poll.
#[test]
fn a_message_that_is_over_makes_place_for_the_next_of_as_many_as_may_be_under_way() {
    let (mut near, mut far) = two();
    let sent: Vec<_> = (0..MAX_RNDV).map(|_| near.send_eager(&pattern(8))).collect();
    run_until_idle(&mut near, &mut far);
    let (short, _region) = far.receive(7, true);
    far.poll();
    near.state.received.append(&mut far.host.sent);
    near.poll();
    near.send_eager(&pattern(8));
    near.poll();
    assert_eq!(near.host.sent.len(), 2, "its END, and an offer");
    run_until_idle(&mut near, &mut far);
    for handle in [sent.first().expect("many"), &short] {
        assert_eq!(result(handle), Some(Err(ErrorKind::Length)));
    }
    assert_eq!(far.state.inbound.len(), sent.len());
}

/// Its sender may offer another before the window of the last one has been given up.
#[test]
fn a_message_whose_memory_waits_for_a_fence_makes_place_for_the_next() {
    let (mut near, mut far) = two();
    let sent: Vec<_> = (0..MAX_RNDV).map(|_| near.send(&pattern(10))).collect();
    far.host.inside = true;
    let (received, _region) = far.receive(10, false);
    run_until_idle(&mut near, &mut far);
    assert_eq!((result(sent.first().expect("many")), result(&received)), (Some(Ok(10)), None));
    near.send(&pattern(10));
    run_until_idle(&mut near, &mut far);
    assert_eq!(far.state.inbound.len(), sent.len() + 1);
}

#[test]
fn borrowed_memory_gets_the_bytes_of_an_eager_message_from_its_caller() {
    let (mut near, mut far) = two();
    let lent = MessageBuffer::Borrowed(None);
    let sent = near.state.send_eager(lent, pattern(10).into(), LATER);
    let sent = sent.map_err(|_| ()).expect("space");
    let halves = far.region(&[0; 8192]);
    let place = Ok(BounceBuffers { remote: far.expose(&halves), region: halves });
    let want = PostedRecv::new(MessageBuffer::Borrowed(None), 16, place, LATER);
    let received = far.state.receive(want);
    run_until_idle(&mut near, &mut far);
    assert!(far.state.needs_borrowed_copy() && result(&received).is_none());
    let mut got = [0; 16];
    far.state.copy_to_borrowed(&received, &SharedBytes::of_mut(&mut got)).expect("copied");
    run_until_idle(&mut near, &mut far);
    assert_eq!((result(&sent), result(&received)), (Some(Ok(10)), Some(Ok(10))));
    assert_eq!(got[..10], pattern(10));
    assert!(near.state.is_empty() && far.state.is_empty());
}

#[test]
fn an_eager_message_waits_for_space_on_the_control_connection() {
    let (mut near, mut far) = two();
    near.host.outgoing = Some(NoteOutcome::Later);
    let sent = near.send_eager(&pattern(3));
    let (received, _region) = far.receive(8, true);
    run_until_idle(&mut near, &mut far);
    assert!(far.state.inbound.is_empty() && !near.state.is_idle());
    near.host.outgoing = None;
    run_until_idle(&mut near, &mut far);
    assert_eq!((result(&sent), result(&received)), (Some(Ok(3)), Some(Ok(3))));
}
