//! The direct way: memory of the peer that a lane of shared memory maps here is copied to and from in the call itself,
//! without the worker, a request or a flush.

use std::sync::atomic::{Ordering, fence};

use hmc_core::lane::Transfer;
use hmc_core::region::{Epoch, LocalSlice, RegionKey, RemoteSlice, WindowId};
use hmc_core::span::Extent;
use hmc_core::work::Opcode;
use hmc_mem::copy;

use super::known::Known;
use super::mapped::MappedWindow;
use super::state::State;

/// Copies between two places of this process.
#[inline(always)]
fn copy_at(opcode: Opcode, here: *mut u8, there: *mut u8, len: usize) {
    let (to, from) = if opcode == Opcode::Get { (here, there) } else { (there, here) };
    // SAFETY: the callers proved the local range against registered memory, which `locals` holds. The other lies in the
    // mapping of the peer's memory, which lives as long as the key, if the peer told the truth of its window (see the module
    // `ucx` on trust). Neither is reached through references.
    unsafe { copy::copy_overlapping(to, from, len) };
}

impl State {
    /// Does a transfer here and now, if its window is mapped. `false`: the long way finds out why.
    #[inline(always)]
    pub(in crate::ucx) fn copy_mapped(
        &self,
        opcode: Opcode,
        local: LocalSlice,
        remote: RemoteSlice,
    ) -> bool {
        let window = self.known.remote(remote.window);
        let Some((window, there)) = window.and_then(|w| Some((w, w.mapped?))) else { return false };
        let judged = window.judged(opcode, remote).ok().map(|span| there.at(span));
        // Memory that is not known yet is registered on the long way.
        let known = self.known.local(local.key).filter(|l| l.is_host());
        let here = known.and_then(|l| l.at(local.span));
        let len = usize::try_from(local.span.len());
        let (Some(there), Some(here), Ok(len)) = (judged, here, len) else { return false };
        copy_at(opcode, here, there, len);
        // What the peer is told after this comes after the bytes.
        fence(Ordering::Release);
        true
    }

    /// Does all transfers of a list here and now, if their windows are mapped. `false`: some may have been done, and
    /// may be done again.
    pub(in crate::ucx) fn copy_list_mapped(&mut self, list: &[Transfer]) -> bool {
        let (mut course, mut bytes): (Option<Course>, u64) = (None, 0);
        if self.down {
            return false;
        }
        for t in list {
            if !course.as_ref().is_some_and(|c| c.serves(t)) {
                course = self.known.course_of(t);
            }
            let Some(course) = &course else { return false };
            if course.copy(t).is_none() {
                return false;
            }
            bytes = bytes.saturating_add(t.local.span.len());
        }
        fence(Ordering::Release);
        self.requests.count_bytes(bytes);
        true
    }
}

/// Both ends of the transfers of a list that lie in the same memory and the same window.
struct Course {
    key: RegionKey,
    window: WindowId,
    epoch: Epoch,
    get: bool,
    here: *mut u8,
    here_bytes: u64,
    there: MappedWindow,
    extent: Extent,
}

impl Course {
    #[inline]
    fn serves(&self, t: &Transfer) -> bool {
        let same = self.key == t.local.key && self.window == t.remote.window;
        same && self.epoch == t.remote.epoch && self.get == (t.opcode == Opcode::Get)
    }

    /// Copies, if both ranges lie within.
    #[inline]
    fn copy(&self, t: &Transfer) -> Option<()> {
        let (here, there) = (t.local.span, t.remote.span);
        if here.end() > self.here_bytes || !self.extent.contains(there) || here.len() != there.len()
        {
            return None;
        }
        let at = here.pointer(self.here);
        copy_at(t.opcode, at, self.there.at(there), usize::try_from(here.len()).ok()?);
        Some(())
    }
}

impl Known {
    /// Where the two ends of a transfer lie, if it may be done and the window is mapped.
    fn course_of(&self, t: &Transfer) -> Option<Course> {
        let remote = self.remote(t.remote.window)?;
        let there = remote.mapped?;
        remote.judged(t.opcode, t.remote).ok()?;
        let local = self.local(t.local.key)?;
        if !local.is_host() || matches!(t.opcode, Opcode::PutNotify { .. }) {
            return None;
        }
        Some(Course {
            key: t.local.key,
            window: t.remote.window,
            epoch: t.remote.epoch,
            get: t.opcode == Opcode::Get,
            here: local.start.as_ptr(),
            here_bytes: local.bytes,
            there,
            extent: remote.region.extent,
        })
    }
}
