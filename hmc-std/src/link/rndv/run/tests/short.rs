//! Messages that begin in one step, beside polls of the state.

use hmc_core::rndv::RndvId;

use super::{End, RndvActions, two};
use crate::link::rndv::host::NoteOutcome;
use crate::link::rndv::note::Note;

impl End {
    /// Whether the offer of its only message goes at once.
    fn offers(&mut self) -> bool {
        let mut after = RndvActions::default();
        let is_offered = self.state.offer_only(&mut self.host, &mut after);
        assert!(!after.has_any());
        is_offered
    }
}

fn eager(id: u32, bytes: &[u8]) -> Note {
    Note::Eager { id: RndvId(id), bytes: bytes.into() }
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
