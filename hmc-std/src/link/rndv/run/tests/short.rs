//! Messages that begin and end in one step, beside polls of the state.

use std::sync::Arc;

use hmc_core::limits::MAX_RNDV;
use hmc_core::rndv::{AbortReason, RndvError, RndvId, RndvMsg, RndvRole};
use hmc_core::time::Instant;

use super::{End, LATER, NOW, RndvActions, bytes_of, pattern, result, run_until_idle, two};
use crate::base::error::ErrorKind;
use crate::link::rndv::handle::MessageHandle;
use crate::link::rndv::host::NoteOutcome;
use crate::link::rndv::note::Note;
use crate::link::rndv::short::EndedMessage;
use crate::link::rndv::state::{BounceBuffers, MessageBuffer, PostedRecv};

type Posted = Arc<MessageHandle>;

impl End {
    /// Whether the offer of its only message goes at once.
    fn offers(&mut self) -> bool {
        let mut after = RndvActions::default();
        let is_offered = self.state.offer_only(&mut self.host, &mut after);
        assert!(!after.has_any());
        is_offered
    }

    fn take(&mut self, note: Note, now: Instant) -> Result<EndedMessage, Note> {
        self.state.take_last_note(&mut self.host, note, now)
    }
}

fn eager(id: u32, bytes: &[u8]) -> Note {
    Note::Eager { id: RndvId(id), bytes: bytes.into() }
}

fn end(id: u32, from: RndvRole, how: Result<(), AbortReason>) -> Note {
    RndvMsg::End { id: RndvId(id), from, how }.into()
}

#[test]
fn a_short_message_begins_and_ends_in_one_step_at_each_end() {
    let (mut near, mut far) = two();
    let halves = |end: &End| end.state.spare.len();
    // More than may be under way at a time.
    for (id, len) in (0..MAX_RNDV + 2).zip([0, 1, 4096].into_iter().cycle()) {
        let message = pattern(len);
        let (received, region) = far.receive(4096, true);
        let sent = near.send_eager(&message);
        assert!(near.offers());
        assert_eq!(near.host.sent, [eager(id, &message)]);
        let before = halves(&far);
        let ended = far.take(near.host.sent.remove(0), NOW).expect("the last of it");
        assert!(!ended.has_space && ended.notice.is_none());
        assert_eq!(far.host.sent, [end(id, RndvRole::Receiver, Ok(()))]);
        let len = u64::try_from(message.len()).expect("small");
        assert_eq!((result(&received), result(&sent)), (Some(Ok(len)), None));
        assert!(bytes_of(&region).starts_with(&message));
        assert_eq!(halves(&far), before + 1, "they serve the next one");
        let ended = near.take(far.host.sent.remove(0), NOW).expect("the last of it");
        assert!(ended.has_space && ended.notice.is_none());
        assert_eq!(result(&sent), Some(Ok(len)));
        assert!(near.state.is_idle() && near.state.is_empty() && far.state.is_empty());
    }
    // What is too many is left to a poll.
    assert!(far.state.has_surplus());
}

/// What a receiver is before an eager message of 8 bytes comes, which is the first unless it is told.
type Case = (&'static str, fn(&mut End) -> Posted, u32, Instant);

#[test]
fn what_is_more_than_the_end_of_a_message_is_left_to_a_poll() {
    fn receives(end: &mut End) -> Posted {
        end.receive(8, true).0
    }
    let cases: [Case; 9] = [
        ("nobody receives", |_| Arc::default(), 0, NOW),
        ("too short", |end| end.receive(7, true).0, 0, NOW),
        ("late", receives, 0, LATER),
        ("not the next", receives, 1, NOW),
        ("a window of its own", |end| end.receive(8, false).0, 0, NOW),
        (
            "withdrawn",
            |end| {
                let posted = receives(end);
                end.state.end(&posted, RndvError::Here(AbortReason::Cancelled));
                posted
            },
            0,
            NOW,
        ),
        (
            "lent",
            |end| {
                let region = end.region(&[0; 8192]);
                let place = Ok(BounceBuffers { remote: end.expose(&region), region });
                end.state.receive(PostedRecv::new(MessageBuffer::Borrowed(None), 8, place, LATER))
            },
            0,
            NOW,
        ),
        (
            "behind another",
            |end| {
                end.state.received.push(eager(0, &[1]));
                end.poll();
                receives(end)
            },
            1,
            NOW,
        ),
        (
            "behind notes of this end",
            |end| {
                end.host.outgoing = Some(NoteOutcome::Later);
                end.send_eager(&[1]);
                end.poll();
                receives(end)
            },
            0,
            NOW,
        ),
    ];
    for (what, prepare, id, now) in cases {
        let mut far = two().1;
        let posted = prepare(&mut far);
        let note = far.take(eager(id, &[7; 8]), now).expect_err(what);
        assert_eq!(note, eager(id, &[7; 8]), "{what}");
        assert!(result(&posted).is_none() && far.host.sent.is_empty(), "{what}");
        // It changed nothing: a poll takes it as it takes any.
        far.state.received.push(note);
        assert_eq!(far.poll_at(now, false).broken.is_some(), what == "not the next", "{what}");
    }
}

#[test]
fn a_message_that_is_to_fail_or_was_not_offered_does_not_end_with_a_note() {
    let (mut near, mut far) = two();
    let [first, second] = [(); 2].map(|()| near.send_eager(&pattern(3)));
    let good = |id| end(id, RndvRole::Receiver, Ok(()));
    assert!(near.take(good(0), NOW).is_err(), "it was not offered");
    run_until_idle(&mut near, &mut far);
    let long = near.send(&pattern(5));
    near.poll();
    near.state.end(&first, RndvError::Here(AbortReason::Cancelled));
    let bad = end(1, RndvRole::Receiver, Err(AbortReason::Cancelled));
    for note in [good(0), good(2), good(3), bad, end(1, RndvRole::Sender, Ok(()))] {
        assert!(near.take(note, NOW).is_err());
    }
    assert!([&first, &second, &long].iter().all(|m| result(m).is_none()));
    assert!(near.take(good(1), NOW).expect("the last of it").has_space);
    assert_eq!(result(&second), Some(Ok(3)));
    near.poll();
    assert_eq!(result(&first), Some(Err(ErrorKind::Cancelled)));
}

#[test]
fn an_offer_waits_behind_other_messages_and_notes_of_this_end() {
    let (mut near, _far) = two();
    assert!(!near.offers(), "there is none");
    near.host.outgoing = Some(NoteOutcome::Later);
    near.send_eager(&[1]);
    assert!(near.offers() && near.host.sent.is_empty(), "it waits for space");
    assert!(!near.offers(), "behind that one");
    near.host.outgoing = None;
    near.send_eager(&[2]);
    assert!(!near.offers() && near.host.sent.is_empty(), "another is under way");
    near.poll();
    assert_eq!(near.host.sent, [eager(0, &[1]), eager(1, &[2])]);
}
