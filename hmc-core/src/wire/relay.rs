//! The notes of a message between its sender and its receiver, as bytes.
//!
//! They travel as the body of [`crate::wire::message::Message::Relay`]. A parsed note is well-formed
//! by itself; whether it may come now is [`crate::relay`]'s to judge.

use crate::region::{Epoch, WindowId, WindowSlice};
use crate::relay::{Mode, Note, Place, RelayId, Role, Why};
use crate::span::{Extent, Side};
use crate::wire::cursor::{Reader, WireError, Writer};

/// The second payload byte of each note.
pub mod step {
    /// The sender has a message.
    pub const OFFER: u8 = 1;
    /// The receiver has a place.
    pub const READY: u8 = 2;
    /// A half can be read.
    pub const FILLED: u8 = 3;
    /// A half may be written.
    pub const CREDIT: u8 = 4;
    /// The last word of one end.
    pub const END: u8 = 5;
}

/// The numbers of [`Why`]; 0 stands for an end that went well.
mod code {
    pub(super) const WELL: u16 = 0;
    pub(super) const CANCELLED: u16 = 1;
    pub(super) const DEADLINE: u16 = 2;
    pub(super) const TOO_LONG: u16 = 3;
    pub(super) const FAILED: u16 = 4;
    pub(super) const CLOSING: u16 = 5;
}

const fn end_to_wire(how: Result<(), Why>) -> (u16, u64) {
    match how {
        Ok(()) => (code::WELL, 0),
        Err(Why::Cancelled) => (code::CANCELLED, 0),
        Err(Why::DeadlineExceeded) => (code::DEADLINE, 0),
        Err(Why::TooLong { room }) => (code::TOO_LONG, room),
        Err(Why::Failed) => (code::FAILED, 0),
        Err(Why::Closing) => (code::CLOSING, 0),
        Err(Why::Unknown { code, detail }) => (code, detail),
    }
}

const fn end_from_wire(code: u16, detail: u64) -> Result<(), Why> {
    Err(match (code, detail) {
        (code::WELL, 0) => return Ok(()),
        (code::CANCELLED, 0) => Why::Cancelled,
        (code::DEADLINE, 0) => Why::DeadlineExceeded,
        (code::TOO_LONG, room) => Why::TooLong { room },
        (code::FAILED, 0) => Why::Failed,
        (code::CLOSING, 0) => Why::Closing,
        // A detail that a code cannot have is a reason like any other, never a good end.
        (code, detail) => Why::Unknown { code, detail },
    })
}

/// Bytes of a note after the kind.
#[must_use]
pub const fn note_len(note: &Note) -> usize {
    match note {
        Note::Offer { .. } | Note::Filled { .. } | Note::Credit { .. } => 13,
        Note::Ready { .. } => 34,
        Note::End { .. } => 16,
    }
}

/// Reads a note, from the byte after the kind.
///
/// # Errors
/// What is wrong and where.
pub fn parse_note(r: &mut Reader<'_>) -> Result<Note, WireError> {
    let at = r.at();
    let kind = r.u8()?;
    let id = RelayId(r.u32_le()?);
    Ok(match kind {
        step::OFFER => Note::Offer { id, len: r.u64_le()? },
        step::READY => Note::Ready { id, place: parse_place(r)? },
        step::FILLED => Note::Filled { id, seq: r.u64_le()? },
        step::CREDIT => Note::Credit { id, seq: r.u64_le()? },
        step::END => {
            let at = r.at();
            let from = match r.u8()? {
                0 => Role::Sender,
                1 => Role::Receiver,
                n => return Err(WireError::value(at, "end", u64::from(n))),
            };
            let code = r.u16_le()?;
            Note::End { id, from, how: end_from_wire(code, r.u64_le()?) }
        }
        n => return Err(WireError::value(at, "step", u64::from(n))),
    })
}

fn parse_place(r: &mut Reader<'_>) -> Result<Place, WireError> {
    let mode_at = r.at();
    let mode = match r.u8()? {
        0 => Mode::Staged,
        1 => Mode::Direct,
        n => return Err(WireError::value(mode_at, "mode", u64::from(n))),
    };
    let window = WindowId(r.u64_le()?);
    let epoch = Epoch(r.u32_le()?);
    let offset = r.u64_le()?;
    let len_at = r.at();
    let len = r.u64_le()?;
    // A claim that does not wrap; the window's owner proves it against the window.
    let span = Extent::new(u64::MAX)
        .span(Side::Remote, offset, len)
        .map_err(|_| WireError::value(len_at, "area", len))?;
    let area = WindowSlice { window, epoch, span };
    match mode {
        Mode::Direct => Ok(Place::direct(area)),
        Mode::Staged => Place::staged(area).ok_or_else(|| WireError::value(len_at, "halves", len)),
    }
}

/// Writes a note, from the byte after the kind.
///
/// # Errors
/// `NoSpace` when it does not fit.
pub fn emit_note(note: &Note, out: &mut Writer<'_>) -> Result<(), WireError> {
    let start = |out: &mut Writer<'_>, step: u8| {
        out.u8(step)?;
        out.u32_le(note.id().0)
    };
    match *note {
        Note::Offer { len, .. } => {
            start(out, step::OFFER)?;
            out.u64_le(len)
        }
        Note::Ready { place, .. } => {
            start(out, step::READY)?;
            let area = place.area();
            out.u8(match place.mode() {
                Mode::Staged => 0,
                Mode::Direct => 1,
            })?;
            out.u64_le(area.window.0)?;
            out.u32_le(area.epoch.0)?;
            out.u64_le(area.span.offset())?;
            out.u64_le(area.span.len())
        }
        Note::Filled { seq, .. } => {
            start(out, step::FILLED)?;
            out.u64_le(seq)
        }
        Note::Credit { seq, .. } => {
            start(out, step::CREDIT)?;
            out.u64_le(seq)
        }
        Note::End { from, how, .. } => {
            start(out, step::END)?;
            out.u8(match from {
                Role::Sender => 0,
                Role::Receiver => 1,
            })?;
            let (code, detail) = end_to_wire(how);
            out.u16_le(code)?;
            out.u64_le(detail)
        }
    }
}
