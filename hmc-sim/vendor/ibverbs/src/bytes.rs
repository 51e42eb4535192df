//! Bytes: between the pieces of a request and the memory of a target, and those of writes that are not visible yet.

use crate::abi::IBV_ACCESS_LOCAL_WRITE;
use crate::queue::Piece;
use crate::queue_pair::{Qp, Staged};
use crate::state::FakeIbv;
use crate::table::Id;

impl FakeIbv {
    /// Returns the address of a piece, if its region is alive, of that domain, and has the range and the right.
    fn piece(&self, pd: Id, piece: &Piece, writes: bool) -> Option<*mut u8> {
        let mr = self.mrs.get(piece.mr)?;
        let allowed = !writes || mr.access & IBV_ACCESS_LOCAL_WRITE != 0;
        let offset = mr.offset(piece.sge.addr, piece.sge.length.into())?;
        (allowed && mr.lkey == piece.sge.lkey && mr.pd == pd).then(|| mr.at(offset))
    }

    /// Returns `true` if a request in that domain may use these pieces. An empty piece needs no region.
    pub(crate) fn may_use(&self, pd: Id, pieces: &[Piece], writes: bool) -> bool {
        pieces.iter().all(|p| p.sge.length == 0 || self.piece(pd, p, writes).is_some())
    }

    /// Appends the bytes of checked pieces, `limit` at most.
    pub(crate) fn gather(&self, pd: Id, pieces: &[Piece], limit: usize, to: &mut Vec<u8>) {
        for piece in pieces.iter().filter(|p| p.sge.length != 0) {
            let Some(from) = self.piece(pd, piece, false) else { return };
            let len = (piece.sge.length as usize).min(limit - to.len());
            // SAFETY: the region has that many bytes there; its owner vouches that they are mapped.
            to.extend_from_slice(unsafe { core::slice::from_raw_parts(from, len) });
        }
    }

    /// Writes bytes to checked pieces, as many as they have space for.
    ///
    /// # Safety
    /// `from` may be read for `len` bytes.
    pub(crate) unsafe fn scatter(
        &self,
        pd: Id,
        pieces: &[Piece],
        mut from: *const u8,
        mut len: usize,
    ) {
        for piece in pieces.iter().filter(|p| p.sge.length != 0) {
            let Some(to) = self.piece(pd, piece, true) else { return };
            let part = (piece.sge.length as usize).min(len);
            // SAFETY: the caller vouched for the source, the owner of the region for the target; they may overlap.
            unsafe { core::ptr::copy(from, to, part) };
            from = from.wrapping_add(part);
            len -= part;
        }
    }

    /// Writes bytes to the memory of a target, or keeps them until they have to be visible.
    pub(crate) fn land(&mut self, id: Id, mr: Id, to: *mut u8, bytes: Vec<u8>, is_staged: bool) {
        let due = self.tick.saturating_add(self.script.knobs.landing);
        let staged = Staged { due, to, mr, bytes };
        match self.qps.get_mut(id) {
            Some(qp) if is_staged => qp.staged.push_back(staged),
            _ => self.write(staged),
        }
    }

    fn write(&mut self, staged: Staged) {
        // A region that is gone took its bytes along when it went.
        if self.mrs.get(staged.mr).is_some() {
            let len = staged.bytes.len();
            // SAFETY: the range was checked against the region, which is alive; its owner vouches that it is mapped.
            unsafe { core::ptr::copy(staged.bytes.as_ptr(), staged.to, len) };
        }
        self.pool.push(staged.bytes);
    }

    /// Makes the bytes of all writes of a queue pair visible.
    pub(crate) fn deliver_of(&mut self, id: Id) {
        while let Some(staged) = self.qps.get_mut(id).and_then(|q| q.staged.pop_front()) {
            self.write(staged);
        }
    }

    /// Makes the bytes of writes visible that waited long enough; a later one never overtakes.
    pub(crate) fn deliver_due(&mut self) {
        let tick = self.tick;
        let next = |q: &mut Qp| {
            let due = q.staged.front().is_some_and(|s| s.due <= tick);
            due.then(|| q.staged.pop_front()).flatten()
        };
        loop {
            let Some(staged) = self.qps.values_mut().find_map(next) else { return };
            self.write(staged);
        }
    }

    /// Makes the bytes of all writes to a region visible.
    pub(crate) fn deliver_to(&mut self, mr: Id) {
        let next = |q: &mut Qp| {
            let at = q.staged.iter().position(|s| s.mr == mr)?;
            q.staged.remove(at)
        };
        loop {
            let Some(staged) = self.qps.values_mut().find_map(next) else { return };
            self.write(staged);
        }
    }
}
