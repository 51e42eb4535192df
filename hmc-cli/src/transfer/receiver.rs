//! The receiving end: a tag says that a slot is full; its bytes are summed where they lie, written to
//! the file, and the slot is given back.

use std::path::PathBuf;
use std::time::Duration;

use hmc_core::range::{ByteRange, Extent, Side};
use hmc_std::Peer;

use crate::crc::Crc32c;
use crate::failure::{Failure, Result};
use crate::transfer::meter::Meter;
use crate::transfer::protocol::{self, AbortCode, TransferStep};
use crate::transfer::ring::{Ring, SlotHeader};
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
enum EarlyEnd {
    /// Here; the sender has not sent its last step.
    Ours(AbortCode),
    /// Here, after the sender's last step.
    OursAtEnd(AbortCode),
    /// There.
    Theirs(AbortCode),
    /// The link failed.
    Link(hmc_std::Error),
}

impl From<hmc_std::Error> for EarlyEnd {
    fn from(e: hmc_std::Error) -> Self {
        Self::Link(e)
    }
}

/// Receives a file through `ring`, up to the sender's last step, and puts it in place. The sender
/// still waits for ours: call [`FinalStep::send`] when everything else is tidied up.
pub(crate) fn receive(
    peer: &Peer,
    ring: Ring,
    target: Target<'_>,
    meter: &mut Meter,
    timeout: Duration,
) -> (Result<Received>, FinalStep) {
    let early = match run(peer, &ring, &target, meter, timeout) {
        Ok(crc) => match target.commit() {
            Ok(path) => {
                return (Ok(Received { path, crc }), FinalStep(Some(TransferStep::Done(crc))));
            }
            Err(why) => EarlyEnd::OursAtEnd(why),
        },
        Err(early) => {
            drop(target);
            early
        }
    };
    let answer = match early {
        EarlyEnd::Link(e) => (Err(e.into()), FinalStep(None)),
        EarlyEnd::Theirs(why) => (
            Err(Failure::new(format!("the sender gave up: {why}"))),
            FinalStep(Some(TransferStep::Abort(why))),
        ),
        EarlyEnd::OursAtEnd(why) => (Err(gave_up(why)), FinalStep(Some(TransferStep::Abort(why)))),
        EarlyEnd::Ours(why) => {
            // Its last step comes when it has received ours.
            let ended = protocol::send_step(peer, TransferStep::Abort(why))
                .and_then(|()| wait_final_step(peer, timeout));
            let failure = match ended {
                Ok(()) => gave_up(why),
                Err(e) => gave_up(why).during(Failure::from(e)),
            };
            (Err(failure), FinalStep(None))
        }
    };
    // Only now: until its last step the sender may still put.
    drop(ring);
    answer
}

fn gave_up(why: AbortCode) -> Failure {
    Failure::new(format!("gave up: {why}"))
}

/// The receiver's last step, not yet sent.
#[derive(Debug)]
#[must_use = "the sender waits for it"]
pub(crate) struct FinalStep(Option<TransferStep>);

impl FinalStep {
    /// Sends it. From then on the sender may ask for something else.
    pub(crate) fn send(self, peer: &Peer) {
        if let Some(step) = self.0 {
            // A sender that is gone does not wait.
            let _ = protocol::send_step(peer, step);
        }
    }
}

fn wait_final_step(peer: &Peer, timeout: Duration) -> hmc_std::Result<()> {
    while !matches!(
        protocol::recv_step(peer, timeout)?,
        Some(TransferStep::End(_) | TransferStep::Abort(_))
    ) {}
    Ok(())
}

fn run(
    peer: &Peer,
    ring: &Ring,
    target: &Target<'_>,
    meter: &mut Meter,
    timeout: Duration,
) -> std::result::Result<u32, EarlyEnd> {
    let mut sum = Crc32c::default();
    let mut at = 0;
    let mut next = 0;
    loop {
        match protocol::recv_step(peer, timeout)? {
            Some(TransferStep::Full(seq)) if seq == next => {
                let (note, place) = empty(ring, target, seq, at)?;
                sum.zeros(note.offset - at);
                sum.append(note.crc, note.len);
                at = place.end();
                next += 1;
                protocol::send_step(peer, TransferStep::Emptied(next))?;
                meter.reached(at);
            }
            Some(TransferStep::End(crc)) => {
                sum.zeros(target.size() - at);
                if sum.get() != crc {
                    return Err(EarlyEnd::OursAtEnd(AbortCode::Checksum));
                }
                return Ok(crc);
            }
            Some(TransferStep::Abort(why)) => return Err(EarlyEnd::Theirs(why)),
            _ => return Err(EarlyEnd::Ours(AbortCode::Protocol)),
        }
    }
}

/// Checks and writes the bytes of a full slot.
fn empty(
    ring: &Ring,
    target: &Target<'_>,
    seq: u64,
    at: u64,
) -> std::result::Result<(SlotHeader, ByteRange), EarlyEnd> {
    let layout = ring.layout();
    let window = ring.window();
    let mut bytes = [0; 20];
    window.read_at(layout.note_at(seq), &mut bytes)?;
    let note = SlotHeader::from_bytes(bytes);
    let place = Extent::new(target.size()).span(Side::Local, note.offset, note.len);
    let fits = note.len > 0 && note.len <= layout.data_bytes() && note.offset >= at;
    let Some(place) = place.ok().filter(|_| fits) else {
        return Err(EarlyEnd::Ours(AbortCode::Protocol));
    };
    let from = layout.data_at(seq);
    if window.crc32c(from, note.len)? != note.crc {
        return Err(EarlyEnd::Ours(AbortCode::Checksum));
    }
    target.write(window, from, note.len, note.offset).map_err(EarlyEnd::Ours)?;
    Ok((note, place))
}
