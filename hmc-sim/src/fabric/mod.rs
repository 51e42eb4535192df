//! The fabrics between simulated NICs: one with zero latency, one with virtual time.
//!
//! Nothing here sleeps, reads a clock or uses entropy.

mod access;
mod connection;
mod fence;
pub(crate) mod in_flight;
pub(crate) mod port;
mod rogue;
pub(crate) mod timed;
pub(crate) mod zero_latency;

use hmc_core::region::{LocalSlice, WindowDesc};
use hmc_core::slots::SlotId;
use hmc_core::types::Access;
use hmc_core::window::{WindowEntry, WindowTable, WindowTransition};
use hmc_core::work::{Completion, Failure, Opcode, WorkRequest};

/// Tags that wait at a target until it takes them. Requests behind a full inbox wait.
const INBOX: usize = 1024;

/// Fills unused entries of a completion ring.
const NO_COMPLETION: Completion =
    Completion { op: SlotId { index: 0, generation: 0 }, result: Ok(0) };

/// Selects whether requests move bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bytes {
    /// Requests move bytes.
    Move,
    /// Requests are checked and counted only, to measure the cost without the copy.
    Skip,
}

/// Enters a window that the host named in the table of the NIC. Returns `false` if the name is taken.
fn open(
    windows: &mut WindowTable<Box<[WindowEntry]>>,
    range: LocalSlice,
    window: &WindowDesc,
) -> bool {
    // The two tables open and free their entries in the same order, so they choose the same name.
    match windows.expose(range, window.kind, window.access, window.window.0) {
        Ok(opened) if opened == *window => true,
        Ok(other) => {
            // It was exposed a moment ago.
            let _ = windows.apply(other.window, other.epoch, WindowTransition::Fence);
            false
        }
        Err(_) => false,
    }
}

/// Returns the range of a request by the target's windows.
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

/// Returns the number of an end in reports.
fn end_number(host: usize) -> u16 {
    u16::try_from(host).unwrap_or(u16::MAX)
}
