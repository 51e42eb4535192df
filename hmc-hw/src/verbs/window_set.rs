//! The memory windows by which a peer reaches one exposed window: for each queue pair of the link one, of each part.

use std::sync::Arc;

use hmc_core::limits::MAX_ENDPOINT_BYTES;
use hmc_core::range::Side;
use hmc_core::region::WindowDesc;

use super::backlog::PIECE_BYTES;
use super::conn_info::{WINDOW_KEY_BYTES, WindowKey};
use super::error::VerbsError;
use super::fault::VerbsFault;
use super::lane::{Lane, LaneFailure};
use super::objects::{MemoryRegion, MemoryWindow, WindowRange};
use super::window_parts::{MAX_ACCESS_BYTES, part_at, part_count};

const _: () = assert!(PIECE_BYTES <= MAX_ACCESS_BYTES, "each piece lies within one part");

/// Keys that a note has space for.
const MAX_KEYS: usize = (MAX_ENDPOINT_BYTES - WINDOW_KEY_BYTES) / 4;

/// How far a bind is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BindState {
    /// It is to be posted.
    Due,
    /// It was posted with that number.
    Posted(u64),
    /// The peer is let in.
    Bound,
}

/// A memory window for one queue pair.
#[derive(Debug)]
struct LaneWindow {
    window: MemoryWindow,
    /// The index of the queue pair.
    lane: usize,
    range: WindowRange,
    state: BindState,
}

/// The memory windows of one exposed window.
#[derive(Debug)]
pub(super) struct WindowSet {
    desc: WindowDesc,
    /// The address of its first byte.
    base: u64,
    /// Of each part, in the order of the queue pairs.
    windows: Vec<LaneWindow>,
}

impl WindowSet {
    /// Makes the memory windows for queue pairs, of regions in the order of the NICs. `nics` has the index of each queue pair's NIC, and
    /// `base` is the address of the window's first byte. They let nobody in yet.
    ///
    /// # Errors
    /// [`VerbsFault::TooLarge`], [`VerbsFault::Call`].
    pub(super) fn new(
        regions: &[Arc<MemoryRegion>],
        desc: WindowDesc,
        base: u64,
        access: u32,
        nics: &[usize],
    ) -> Result<Self, VerbsFault> {
        let len = desc.extent.len();
        let parts = part_count(len);
        let max = MAX_KEYS.checked_div(nics.len()).unwrap_or(MAX_KEYS);
        if !usize::try_from(parts).is_ok_and(|parts| parts <= max) {
            return Err(VerbsFault::TooLarge { len, parts, max });
        }
        let mut windows = Vec::new();
        for part in 0..parts {
            let (begin, bytes) = part_at(len, part);
            // It lies within, as `part_at` says.
            let Ok(span) = desc.extent.span(Side::Local, begin, bytes) else { continue };
            let range = WindowRange { address: span.address(base), len: bytes, access };
            for (lane, nic) in nics.iter().enumerate() {
                let Some(region) = regions.get(*nic) else { continue };
                let window = MemoryWindow::new(region)?;
                windows.push(LaneWindow { window, lane, range, state: BindState::Due });
            }
        }
        Ok(Self { desc, base, windows })
    }

    /// Posts binds that are due, as far as there is space.
    ///
    /// # Errors
    /// [`LaneFailure`].
    pub(super) fn post(&mut self, lanes: &mut [Lane]) -> Result<(), Box<LaneFailure>> {
        for bound in self.windows.iter_mut().filter(|bound| bound.state == BindState::Due) {
            let Some(lane) = lanes.get_mut(bound.lane) else { continue };
            if let Some(number) = lane.bind(&mut bound.window, bound.range)? {
                bound.state = BindState::Posted(number);
            }
        }
        Ok(())
    }

    /// Takes note of binds that have completed.
    pub(super) fn settle(&mut self, lanes: &[Lane]) {
        for bound in &mut self.windows {
            if let BindState::Posted(number) = bound.state
                && lanes.get(bound.lane).is_some_and(|lane| lane.has_completed(number))
            {
                bound.state = BindState::Bound;
            }
        }
    }

    /// Returns `true` if the peer can be let in by all keys.
    pub(super) fn is_bound(&self) -> bool {
        self.windows.iter().all(|bound| bound.state == BindState::Bound)
    }

    /// Returns `true` if no bind is under way.
    pub(super) fn is_settled(&self) -> bool {
        !self.windows.iter().any(|bound| matches!(bound.state, BindState::Posted(_)))
    }

    /// The link has just the queue pairs that had these indices, in that order: takes the windows for others, none of which is bound.
    pub(super) fn keep_lanes(&mut self, kept: &[usize]) -> Vec<MemoryWindow> {
        let mut surplus = Vec::new();
        for mut bound in std::mem::take(&mut self.windows) {
            match kept.iter().position(|lane| *lane == bound.lane) {
                Some(lane) => {
                    bound.lane = lane;
                    self.windows.push(bound);
                }
                None => surplus.push(bound.window),
            }
        }
        surplus
    }

    /// Returns what the peer receives: with the keys once all are valid.
    pub(super) fn key(&self) -> WindowKey {
        let keys = self.windows.iter().filter(|_| self.is_bound());
        let keys = keys.map(|bound| bound.window.rkey()).collect();
        WindowKey { window: self.desc, base: self.base, keys }
    }

    /// Ends all windows, which is the fence.
    ///
    /// # Errors
    /// [`VerbsError`]: some window may still let its queue pair in.
    pub(super) fn end(self, regions: &mut Vec<Arc<MemoryRegion>>) -> Result<(), VerbsError> {
        end_windows(self.windows.into_iter().map(|bound| bound.window), regions)
    }

    /// Keeps all windows for ever, with their region: a bind may be carried out at any time.
    pub(super) fn keep(self) {
        self.windows.into_iter().for_each(std::mem::forget);
    }
}

/// Ends windows. Their regions are added to `regions`.
///
/// # Errors
/// [`VerbsError`], of one of them: the others have ended.
pub(super) fn end_windows(
    windows: impl IntoIterator<Item = MemoryWindow>,
    regions: &mut Vec<Arc<MemoryRegion>>,
) -> Result<(), VerbsError> {
    let mut result = Ok(());
    for window in windows {
        match window.deallocate() {
            Ok(region) => regions.push(region),
            Err(e) => result = result.and(Err(e)),
        }
    }
    result
}
