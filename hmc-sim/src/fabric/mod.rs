//! The worlds between simulated NICs: one without time, one with all of it.
//!
//! Nothing here sleeps, reads a clock or draws entropy.

mod fence;
pub(crate) mod flight;
pub(crate) mod instant;
pub(crate) mod net;
pub(crate) mod port;
mod rogue;
mod touch;

use hmc_core::region::LocalSlice;
use hmc_core::slots::SlotId;
use hmc_core::types::Access;
use hmc_core::window::{WindowEntry, WindowTable};
use hmc_core::work::{Completion, Failure, Opcode, WorkRequest};

/// Tags that wait at a target until it takes them. Requests behind a full inbox wait.
const INBOX: usize = 1024;

/// What value fills unused places of a completion ring.
const NO_COMPLETION: Completion =
    Completion { op: SlotId { index: 0, generation: 0 }, result: Ok(0) };

/// Whether requests move bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bytes {
    /// They do.
    Move,
    /// They are checked and counted only: what remains is the cost of everything but the copy.
    Skip,
}

/// Asks the target's windows what range a request means.
#[inline]
fn check(
    windows: &WindowTable<Box<[WindowEntry]>>,
    work: &WorkRequest,
) -> Result<LocalSlice, Failure> {
    let access = match work.opcode {
        Opcode::Put | Opcode::PutNotify { .. } => Access::WRITE,
        Opcode::Get => Access::READ,
    };
    let (offset, len) = (work.remote.span.offset(), work.remote.span.len());
    windows
        .check(work.remote.window, work.remote.epoch, offset, len, access)
        .map_err(Failure::Window)
}

/// The number of an end as reports show it.
fn end_number(host: usize) -> u16 {
    u16::try_from(host).unwrap_or(u16::MAX)
}
