//! The receiving end: a tag says that a slot is full; its bytes are summed where they lie, written to
//! the file, and the slot is given back.

use std::path::PathBuf;
use std::time::Duration;

use hmc_core::range::{ByteRange, Extent, Side};
use hmc_std::Peer;

use crate::crc::Sum;
use crate::fail::{Failure, Result};
use crate::transfer::meter::Meter;
use crate::transfer::ring::{Note, Ring};
use crate::transfer::talk::{self, Step, Why};
use crate::transfer::target::Target;

/// A file that arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    /// Where it is.
    pub(crate) path: PathBuf,
    /// Its CRC-32C, computed from the receiver's own region.
    pub(crate) crc: u32,
}

/// How a transfer ended early.
#[derive(Debug)]
enum Early {
    /// Here; the sender has not said its last word.
    Ours(Why),
    /// Here, after the sender's last word.
    OursAtEnd(Why),
    /// There.
    Theirs(Why),
    /// The link failed.
    Link(hmc_std::Error),
}

impl From<hmc_std::Error> for Early {
    fn from(e: hmc_std::Error) -> Self {
        Self::Link(e)
    }
}

/// Receives a file through `ring`, up to the sender's last word, and puts it in place. The sender
/// still waits for ours: call [`Done::say`] when everything else is tidied up.
pub(crate) fn receive(
    peer: &Peer,
    ring: Ring,
    target: Target<'_>,
    meter: &mut Meter,
    timeout: Duration,
) -> (Result<Received>, Done) {
    let early = match run(peer, &ring, &target, meter, timeout) {
        Ok(crc) => match target.commit() {
            Ok(path) => return (Ok(Received { path, crc }), Done(Some(Step::Done(crc)))),
            Err(why) => Early::OursAtEnd(why),
        },
        Err(early) => {
            drop(target);
            early
        }
    };
    let answer = match early {
        Early::Link(e) => (Err(e.into()), Done(None)),
        Early::Theirs(why) => {
            (Err(Failure::new(format!("the sender gave up: {why}"))), Done(Some(Step::Abort(why))))
        }
        Early::OursAtEnd(why) => (Err(gave_up(why)), Done(Some(Step::Abort(why)))),
        Early::Ours(why) => {
            // Its last word comes when it has heard ours.
            let heard = talk::say(peer, Step::Abort(why)).and_then(|()| last_word(peer, timeout));
            let failure = match heard {
                Ok(()) => gave_up(why),
                Err(e) => gave_up(why).during(Failure::from(e)),
            };
            (Err(failure), Done(None))
        }
    };
    // Only now: until its last word the sender may still put.
    drop(ring);
    answer
}

fn gave_up(why: Why) -> Failure {
    Failure::new(format!("gave up: {why}"))
}

/// The receiver's last word, not yet said.
#[derive(Debug)]
#[must_use = "the sender waits for it"]
pub(crate) struct Done(Option<Step>);

impl Done {
    /// Says it. From then on the sender may ask for something else.
    pub(crate) fn say(self, peer: &Peer) {
        if let Some(step) = self.0 {
            // A sender that is gone does not wait.
            let _ = talk::say(peer, step);
        }
    }
}

fn last_word(peer: &Peer, timeout: Duration) -> hmc_std::Result<()> {
    while !matches!(talk::hear(peer, timeout)?, Some(Step::End(_) | Step::Abort(_))) {}
    Ok(())
}

fn run(
    peer: &Peer,
    ring: &Ring,
    target: &Target<'_>,
    meter: &mut Meter,
    timeout: Duration,
) -> std::result::Result<u32, Early> {
    let mut sum = Sum::default();
    let mut at = 0;
    let mut next = 0;
    loop {
        match talk::hear(peer, timeout)? {
            Some(Step::Full(seq)) if seq == next => {
                let (note, place) = empty(ring, target, seq, at)?;
                sum.zeros(note.offset - at);
                sum.part(note.crc, note.len);
                at = place.end();
                next += 1;
                talk::say(peer, Step::Emptied(next))?;
                meter.reached(at);
            }
            Some(Step::End(crc)) => {
                sum.zeros(target.size() - at);
                if sum.get() != crc {
                    return Err(Early::OursAtEnd(Why::Checksum));
                }
                return Ok(crc);
            }
            Some(Step::Abort(why)) => return Err(Early::Theirs(why)),
            _ => return Err(Early::Ours(Why::Protocol)),
        }
    }
}

/// Checks and writes the bytes of a full slot.
fn empty(
    ring: &Ring,
    target: &Target<'_>,
    seq: u64,
    at: u64,
) -> std::result::Result<(Note, ByteRange), Early> {
    let layout = ring.layout();
    let window = ring.window();
    let mut bytes = [0; 20];
    window.read_at(layout.note_at(seq), &mut bytes)?;
    let note = Note::from_bytes(bytes);
    let place = Extent::new(target.size()).span(Side::Local, note.offset, note.len);
    let fits = note.len > 0 && note.len <= layout.data_bytes() && note.offset >= at;
    let Some(place) = place.ok().filter(|_| fits) else {
        return Err(Early::Ours(Why::Protocol));
    };
    let from = layout.data_at(seq);
    if window.crc32c(from, note.len)? != note.crc {
        return Err(Early::Ours(Why::Checksum));
    }
    target.write(window, from, note.len, note.offset).map_err(Early::Ours)?;
    Ok((note, place))
}
