//! The target's half: windows that are lent and taken back, and tags whose bytes must be there.

use std::time::Duration;

use hmc_core::types::Access;
use hmc_sim::rng::Rng;
use hmc_std::{ErrorKind, Message, Peer, Span, Window, want::Wanted};

use super::end::{End, Of as _, Step};
use super::party::{NOTES, PUTS, Party, WINDOW};
use super::range::{at, range};
use super::settings::LONG;
use super::totals::Totals;

/// Windows that a peer has at once.
pub(super) const SLOTS: usize = 3;
/// How long a tag is waited for.
const TURN: Duration = Duration::from_millis(5);
/// What is in memory that was taken back.
const OWN: u8 = 0x5A;

/// A notified put, all of it told by its tag: where, how long, and from which seed its bytes are.
pub(super) struct Note {
    pub(super) offset: u64,
    pub(super) len: u64,
    salt: u64,
}

impl Note {
    pub(super) fn draw(rng: &mut Rng) -> Self {
        let (offset, len) = range(rng, NOTES);
        Self { offset, len, salt: rng.below(1 << 24) }
    }

    pub(super) fn tag(&self) -> u64 {
        self.offset | self.len << 20 | self.salt << 40
    }

    fn of(tag: u64) -> Self {
        Self { offset: tag & 0xF_FFFF, len: tag >> 20 & 0xF_FFFF, salt: tag >> 40 }
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        Rng::new(self.salt).bytes(at(self.len))
    }
}

/// One life of a link.
pub(super) fn host(party: &Party, peer: &Peer, rng: &mut Rng) -> Step {
    let mut windows = [const { None }; SLOTS];
    let mut labels = [0u64; SLOTS];
    while party.hosts() {
        let slot = rng.index(SLOTS);
        let window: &mut Option<Window<hmc_std::Span>> = &mut windows[slot];
        if window.is_none() {
            let label = labels[slot] * SLOTS as u64 + slot as u64;
            labels[slot] += 1;
            *window = Some(expose_memory(party, peer, rng, label)?);
        } else if rng.below(3) == 0
            && let Some(window) = window.take()
        {
            take_back(party, peer, window)?;
        }
        listen(party, peer)?;
    }
    Ok(())
}

/// A window full of zeros, over memory of either kind.
fn expose_memory(
    party: &Party,
    peer: &Peer,
    rng: &mut Rng,
    label: u64,
) -> Step<Window<hmc_std::Span>> {
    let (_, len) = range(rng, WINDOW);
    let region = if rng.below(2) == 0 {
        party.session.memory().allocate(len)?
    } else {
        party.session.memory().register(hmc_std::memory::HeapBytes::from(vec![0; at(len)]))?
    };
    peer.expose(region.take_all()?, Access::all(), label).map_err(|(e, _)| e).of("lending")
}

/// Nobody writes into memory that its owner has back.
fn take_back(party: &Party, peer: &Peer, window: Window<hmc_std::Span>) -> Step {
    let mut span: Span = match window.revoke().within(LONG).wait() {
        Ok(span) => span,
        // A peer that was killed meanwhile gives it back as it ends.
        Err(e) if e.kind() == ErrorKind::Quarantined && !peer.is_connected() => {
            return Err(End::Over);
        }
        Err(e) => return Err(e).of("taking back"),
    };
    span.fill(OWN);
    let heard = listen(party, peer);
    if span.as_slice().iter().any(|b| *b != OWN) {
        return Err(End::Wrong("a byte came into memory that had been taken back".to_owned()));
    }
    Totals::count(&party.totals.windows);
    heard
}

/// Takes a tag if one comes: its bytes are there.
fn listen(party: &Party, peer: &Peer) -> Step {
    let tag = match peer.recv(Wanted::Notify).within(TURN).wait() {
        Ok(Message::Notify(tag)) => tag,
        Ok(other) => return Err(End::Wrong(format!("a notification was {other:?}"))),
        Err(e) if e.kind() == ErrorKind::DeadlineExceeded => return Ok(()),
        Err(e) => return Err(e).of("a notification"),
    };
    let note = Note::of(tag);
    let mut got = vec![0; at(note.len)];
    party.session.buffer().read_at(party.here() + PUTS + note.offset, &mut got)?;
    if got != note.bytes() {
        return Err(End::Wrong(format!("the tag {tag:x} came before its bytes")));
    }
    peer.send(Message::Tag(tag)).wait().of("an answer")
}
