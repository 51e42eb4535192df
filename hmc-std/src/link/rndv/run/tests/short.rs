//! Messages that begin and end in one step, beside polls of the state.

use hmc_core::limits::MAX_RNDV;
use hmc_core::rndv::{AbortReason, RndvError, RndvId, RndvMsg, RndvRole};
use hmc_core::time::Instant;

use super::{End, NOW, RndvActions, bytes_of, pattern, result, run_until_idle, two};
use crate::base::error::ErrorKind;
use crate::link::rndv::host::NoteOutcome;
use crate::link::rndv::note::Note;
use crate::link::rndv::short::EndedMessage;

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
