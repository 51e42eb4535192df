//! Codec of the messages of a rendezvous.
//!
//! They travel as the body of [`crate::wire::message::ControlMessage::Rndv`]. A parsed message is well-formed
//! by itself; [`crate::rndv`] checks whether it is allowed in the current state.

use crate::range::{Extent, Side};
use crate::region::{Epoch, WindowId, WindowSlice};
use crate::rndv::{AbortReason, RecvTarget, RndvId, RndvMode, RndvMsg, RndvRole};
use crate::wire::cursor::{Reader, WireError, Writer};

/// The second payload byte of each message.
pub mod kind {
    /// The sender has a message.
    pub const OFFER: u8 = 1;
    /// The receiver has a target.
    pub const READY: u8 = 2;
    /// A half can be read.
    pub const FILLED: u8 = 3;
    /// A half may be written.
    pub const CREDIT: u8 = 4;
    /// The last message of one end.
    pub const END: u8 = 5;
}

/// The numbers of [`AbortReason`]; 0 stands for `Ok`.
mod code {
    pub(super) const OK: u16 = 0;
    pub(super) const CANCELLED: u16 = 1;
    pub(super) const DEADLINE: u16 = 2;
    pub(super) const TOO_LONG: u16 = 3;
    pub(super) const FAILED: u16 = 4;
    pub(super) const CLOSING: u16 = 5;
}

const fn end_to_wire(how: Result<(), AbortReason>) -> (u16, u64) {
    match how {
        Ok(()) => (code::OK, 0),
        Err(AbortReason::Cancelled) => (code::CANCELLED, 0),
        Err(AbortReason::DeadlineExceeded) => (code::DEADLINE, 0),
        Err(AbortReason::TooLong { capacity }) => (code::TOO_LONG, capacity),
        Err(AbortReason::Failed) => (code::FAILED, 0),
        Err(AbortReason::Closing) => (code::CLOSING, 0),
        Err(AbortReason::Unknown { code, detail }) => (code, detail),
    }
}

const fn end_from_wire(code: u16, detail: u64) -> Result<(), AbortReason> {
    Err(match (code, detail) {
        (code::OK, 0) => return Ok(()),
        (code::CANCELLED, 0) => AbortReason::Cancelled,
        (code::DEADLINE, 0) => AbortReason::DeadlineExceeded,
        (code::TOO_LONG, capacity) => AbortReason::TooLong { capacity },
        (code::FAILED, 0) => AbortReason::Failed,
        (code::CLOSING, 0) => AbortReason::Closing,
        // A detail that a code cannot have is a reason like any other, never a good end.
        (code, detail) => AbortReason::Unknown { code, detail },
    })
}

/// Returns the length of a message after the kind, in bytes.
#[must_use]
pub const fn rndv_len(note: &RndvMsg) -> usize {
    match note {
        RndvMsg::Offer { .. } | RndvMsg::Filled { .. } | RndvMsg::Credit { .. } => 13,
        RndvMsg::Ready { .. } => 34,
        RndvMsg::End { .. } => 16,
    }
}

/// Reads a message, from the byte after the kind.
///
/// # Errors
/// The error and its offset.
pub fn parse_rndv(r: &mut Reader<'_>) -> Result<RndvMsg, WireError> {
    let at = r.at();
    let kind = r.u8()?;
    let id = RndvId(r.u32_le()?);
    Ok(match kind {
        kind::OFFER => RndvMsg::Offer { id, len: r.u64_le()? },
        kind::READY => RndvMsg::Ready { id, target: parse_target(r)? },
        kind::FILLED => RndvMsg::Filled { id, seq: r.u64_le()? },
        kind::CREDIT => RndvMsg::Credit { id, seq: r.u64_le()? },
        kind::END => {
            let at = r.at();
            let from = match r.u8()? {
                0 => RndvRole::Sender,
                1 => RndvRole::Receiver,
                n => return Err(WireError::value(at, "end", u64::from(n))),
            };
            let code = r.u16_le()?;
            RndvMsg::End { id, from, how: end_from_wire(code, r.u64_le()?) }
        }
        n => return Err(WireError::value(at, "step", u64::from(n))),
    })
}

fn parse_target(r: &mut Reader<'_>) -> Result<RecvTarget, WireError> {
    let mode_at = r.at();
    let mode = match r.u8()? {
        0 => RndvMode::Staged,
        1 => RndvMode::Direct,
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
    let area = WindowSlice { window, epoch, span, expected: None };
    match mode {
        RndvMode::Direct => Ok(RecvTarget::direct(area)),
        RndvMode::Staged => {
            RecvTarget::staged(area).ok_or_else(|| WireError::value(len_at, "halves", len))
        }
    }
}

/// Writes a message, from the byte after the kind.
///
/// # Errors
/// `NoSpace` when it does not fit.
pub fn emit_rndv(note: &RndvMsg, out: &mut Writer<'_>) -> Result<(), WireError> {
    let start = |out: &mut Writer<'_>, kind: u8| {
        out.u8(kind)?;
        out.u32_le(note.id().0)
    };
    match *note {
        RndvMsg::Offer { len, .. } => {
            start(out, kind::OFFER)?;
            out.u64_le(len)
        }
        RndvMsg::Ready { target, .. } => {
            start(out, kind::READY)?;
            let area = target.area();
            out.u8(match target.mode() {
                RndvMode::Staged => 0,
                RndvMode::Direct => 1,
            })?;
            out.u64_le(area.window.0)?;
            out.u32_le(area.epoch.0)?;
            out.u64_le(area.span.offset())?;
            out.u64_le(area.span.len())
        }
        RndvMsg::Filled { seq, .. } => {
            start(out, kind::FILLED)?;
            out.u64_le(seq)
        }
        RndvMsg::Credit { seq, .. } => {
            start(out, kind::CREDIT)?;
            out.u64_le(seq)
        }
        RndvMsg::End { from, how, .. } => {
            start(out, kind::END)?;
            out.u8(match from {
                RndvRole::Sender => 0,
                RndvRole::Receiver => 1,
            })?;
            let (code, detail) = end_to_wire(how);
            out.u16_le(code)?;
            out.u64_le(detail)
        }
    }
}
