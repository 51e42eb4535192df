//! Requests as pieces: posted at once, queued, or never posted.

use hmc_core::range::Extent;
use hmc_core::region::{RegionKey, WindowId};
use hmc_core::transport::{CancelOutcome, PostErrorKind};
use hmc_core::types::Access;
use hmc_core::work::{CompleteWhen, Failure, Opcode, SlotId, WorkRequest};
use hmc_mem::registered::Registered;

use super::VerbsDataPlane;
use crate::verbs::backlog::{Unposted, pieces};
use crate::verbs::chain::RdmaAccess;
use crate::verbs::lane::{Lane, LaneFailure, SMALL_BYTES};
use crate::verbs::requests::{Carries, RequestParts, RequestTable};
use crate::verbs::send_queue::Piece;
use crate::verbs::tags::TagParts;

impl<M: Registered> VerbsDataPlane<M> {
    /// Posts a put of a link with one queue pair: a short one in line.
    #[inline(always)]
    pub(super) fn post_alone(&mut self, work: &WorkRequest) -> Result<(), PostErrorKind> {
        let needs_flush = work.when == CompleteWhen::Visible;
        if let Some(access) = self.short_access(work, false)
            && let Some(lane) = self.lanes.first_mut()
            && lane.has_short_chain()
            && self.requests.has_space()
            && lane.push_short(&access, work, needs_flush)
        {
            self.note_short();
            return Ok(());
        }
        self.post_any(work)
    }

    /// The access of a request of at most [`SMALL_BYTES`], by the next queue pair, if it is not refused and its memory is registered.
    #[inline(always)]
    fn short_access(&mut self, work: &WorkRequest, is_read: bool) -> Option<RdmaAccess> {
        let needed = if is_read { Access::READ } else { Access::WRITE };
        let here = self.locals.resolve(&work.local)?;
        let there = self.remotes.look_up(needed, &work.remote, self.next_lane)?;
        let bytes = work.local.span.len();
        if bytes > SMALL_BYTES {
            return None;
        }
        // It is at most `SMALL_BYTES`.
        Some(access_of(is_read, here, there, u32::try_from(bytes).unwrap_or(u32::MAX)))
    }

    /// Posts any request. A short one without a tag never waits for turns.
    #[inline(never)]
    pub(super) fn post_any(&mut self, work: &WorkRequest) -> Result<(), PostErrorKind> {
        if !self.is_serving {
            return Err(self.why_not_serving(work));
        }
        let is_read = work.opcode == Opcode::Get;
        let has_tag = matches!(work.opcode, Opcode::PutNotify { .. });
        match if has_tag { None } else { self.short_access(work, is_read) } {
            Some(access) => {
                let needs_flush = !is_read && work.when == CompleteWhen::Visible;
                self.post_in_turn(work, access, needs_flush)
            }
            None => self.post_other(work),
        }
    }

    /// A short request was pushed.
    #[inline(always)]
    fn note_short(&mut self) {
        self.requests.begin_short();
        self.worker.set_busy(true);
        (self.has_posted, self.is_put_off) = (true, true);
    }

    /// Gives the next queue pair a short request.
    fn post_in_turn(
        &mut self,
        work: &WorkRequest,
        mut access: RdmaAccess,
        needs_flush: bool,
    ) -> Result<(), PostErrorKind> {
        if self.nics.len() > 1 {
            access.lkey = self.key_here(work.local.key).unwrap_or(access.lkey);
        }
        let lane = self.lanes.get_mut(self.next_lane).filter(|lane| lane.has_space());
        let Some(lane) = lane.filter(|_| self.requests.has_space()) else {
            return Err(PostErrorKind::Busy);
        };
        if let Err(failure) = lane.make_space() {
            self.fail(failure);
            self.requests.insert_failed(work.op, Failure::PeerDead);
            return Ok(());
        }
        if lane.push_short(&access, work, needs_flush) {
            self.note_short();
            self.go_to_next_lane();
        }
        Ok(())
    }

    /// Posts a request that may be long or have a tag, whose memory is not registered yet, or that is refused.
    fn post_other(&mut self, work: &WorkRequest) -> Result<(), PostErrorKind> {
        let here = self.locals.resolve(&work.local);
        if here.is_none() && self.known.resolve(work.local).is_none() {
            return Err(PostErrorKind::UnknownRegion);
        }
        if matches!(work.opcode, Opcode::PutNotify { .. }) {
            // The queue pair that carries tags.
            self.next_lane = 0;
        }
        let there = match self.remotes.resolve(work.opcode, work.remote, self.next_lane) {
            Ok(Some(there)) => there,
            // The peer's windows are being bound.
            Ok(None) => return Err(PostErrorKind::Busy),
            Err(why) if self.requests.has_space() => {
                self.requests.insert_failed(work.op, why);
                return Ok(());
            }
            Err(_) => return Err(PostErrorKind::Busy),
        };
        let mut here = match here {
            Some(here) => here,
            None => self.register(work)?,
        };
        if self.nics.len() > 1 {
            here.1 = self.key_here(work.local.key).unwrap_or(here.1);
        }
        self.insert(work, here, there)
    }

    /// Inserts a request between those addresses and keys. One of a single piece is posted at once, unless others wait for their
    /// turns; small ones never wait for turns.
    fn insert(
        &mut self,
        work: &WorkRequest,
        here: (u64, u32),
        there: (u64, u32),
    ) -> Result<(), PostErrorKind> {
        if !self.requests.has_space()
            || !self.lanes.get(self.next_lane).is_some_and(Lane::has_space)
        {
            return Err(PostErrorKind::Busy);
        }
        let bytes = work.local.span.len();
        let (count, piece_bytes) = match u32::try_from(bytes) {
            Ok(small) if bytes <= SMALL_BYTES => (1, small),
            _ => pieces(bytes, self.lanes.len()),
        };
        let has_turn = bytes <= SMALL_BYTES || self.backlog.is_empty();
        let is_whole = count == 1 && has_turn && self.lane_admits(bytes);
        let along = if is_whole { TagParts::of(work.opcode) } else { None };
        let along = along.filter(|tag| self.can_send_now(*tag));
        let carries = match work.opcode {
            Opcode::PutNotify { tag } if along.is_none() => Carries::Bytes { tag },
            _ => Carries::All,
        };
        let Some(record) = self.requests.insert(work, carries, count) else {
            return Err(PostErrorKind::Busy);
        };
        // The receive of a tag that follows is behind the writes of its own queue pair only.
        let needs_flush = needs_flush(work) || carries != Carries::All;
        let immediate = along.map(|tag| tag.low);
        let is_read = work.opcode == Opcode::Get;
        let access = RdmaAccess { immediate, ..access_of(is_read, here, there, piece_bytes) };
        (self.has_posted, self.is_put_off) = (true, true);
        self.worker.set_busy(true);
        if bytes > SMALL_BYTES || matches!(work.opcode, Opcode::PutNotify { .. }) {
            // There is more to do once it completes, or it takes long.
            self.worker.set_awaited();
        }
        let lane = self.lanes.get_mut(self.next_lane);
        if let Some(lane) = lane.filter(|_| is_whole) {
            let piece = if needs_flush { Piece::NeedsFlush(record) } else { Piece::Plain(record) };
            let high = along.and_then(|tag| tag.high);
            let pushed = match high {
                Some(high) => lane.push_message(Some(high)),
                None => Ok(()),
            };
            let pushed = pushed.and_then(|()| lane.push(&access, piece));
            self.go_to_next_lane();
            if let Err(failure) = pushed {
                self.fail(failure);
            }
        } else {
            self.begin_turns(Unposted {
                record,
                first: access,
                pieces: count,
                left: Extent::new(bytes).whole(),
                needs_flush,
                is_begun: false,
            });
        }
        Ok(())
    }

    /// Whether the next queue pair takes an access of that length now.
    #[inline]
    fn lane_admits(&self, bytes: u64) -> bool {
        self.lanes.get(self.next_lane).is_some_and(|lane| lane.admits(bytes))
    }

    #[inline]
    fn go_to_next_lane(&mut self) {
        if self.lanes.len() > 1 {
            let next = self.next_lane.wrapping_add(1);
            self.next_lane = if next < self.lanes.len() { next } else { 0 };
        }
    }

    fn begin_turns(&mut self, request: Unposted) {
        self.backlog.push(request);
        if let Err(failure) = self.push_pieces() {
            self.fail(failure);
        }
    }

    /// Gives the queue pairs what they have space for, a piece of each request in turn.
    fn push_pieces(&mut self) -> Result<(), Box<LaneFailure>> {
        while let Some(bytes) = self.backlog.next_bytes() {
            let count = self.lanes.len();
            let mut looked: usize = 0;
            while !self.lanes.get(self.next_lane).is_some_and(|lane| lane.admits(bytes)) {
                looked = looked.saturating_add(1);
                if looked >= count {
                    return Ok(());
                }
                self.go_to_next_lane();
            }
            let Some((mut access, piece)) = self.backlog.take_piece() else { return Ok(()) };
            self.set_keys(&mut access, piece);
            let pushed = self.lanes.get_mut(self.next_lane).map(|lane| lane.push(&access, piece));
            self.go_to_next_lane();
            pushed.transpose()?;
            if let Piece::NeedsFlush(_) = piece {
                self.lanes.iter_mut().for_each(Lane::want_flush);
            }
        }
        Ok(())
    }

    /// Gives a piece the keys of the next queue pair, which gets it: each may have keys of its own.
    fn set_keys(&self, access: &mut RdmaAccess, piece: Piece) {
        let (Piece::Plain(record) | Piece::NeedsFlush(record) | Piece::Part(record)) = piece else {
            return;
        };
        let Some(parts) = self.requests.parts(record) else { return };
        let address = access.remote_address;
        if let Some(key) = self.remotes.key_at(parts.window, address, self.next_lane) {
            access.rkey = key;
        }
        if self.nics.len() > 1 {
            access.lkey = self.key_here(parts.memory).unwrap_or(access.lkey);
        }
    }

    /// Returns the key of memory of this end for the next queue pair, by its NIC.
    pub(super) fn key_here(&self, key: RegionKey) -> Option<u32> {
        self.locals.key_on(key, self.lanes.get(self.next_lane)?.nic())
    }

    /// Posts what waits. Returns whether anything was posted.
    pub(super) fn submit(&mut self) -> Result<bool, Box<LaneFailure>> {
        if !self.backlog.is_empty() {
            self.push_pieces()?;
        }
        if self.owes_messages() {
            self.push_messages()?;
        }
        let mut any = false;
        for lane in &mut self.lanes {
            any |= lane.submit()?;
        }
        Ok(any)
    }

    /// Posts requests that were put off; their flush follows with the next poll. If a caller polls or a notification is requested, or a
    /// queue is half full, everything is posted now.
    pub(super) fn submit_unattended(&mut self) {
        if !self.worker.is_unattended() || self.lanes.iter().any(Lane::is_half_full) {
            let _ = self.advance();
            return;
        }
        let posted = self.lanes.iter_mut().try_for_each(Lane::submit_unflushed);
        if let Err(failure) = posted {
            self.fail(failure);
            // Nobody has looked at it.
            self.worker.wake();
        }
    }

    /// Posts nothing more of requests that are `meant`: each fails for that reason once what was posted of it has ended.
    #[cold]
    pub(super) fn cut(&mut self, why: Failure, is_meant: impl Fn(&RequestParts) -> bool) {
        while let Some(rest) = self.take_unposted(&is_meant) {
            self.requests.cut(rest.record, rest.pieces, why);
        }
        self.lanes.iter_mut().for_each(Lane::want_flush);
    }

    /// Withdraws the requests of an operation of which nothing was posted, and cuts the others. The former are withdrawn only if there
    /// are no others: an operation that runs on gets a completion for each of its requests.
    #[cold]
    pub(super) fn withdraw(&mut self, op: SlotId) -> CancelOutcome {
        let mut withdrawn: usize = 0;
        while let Some(rest) = self.take_unposted(|parts| parts.op == op) {
            if rest.is_begun {
                self.requests.cut(rest.record, rest.pieces, Failure::Cancelled);
            } else {
                self.requests.withdraw(rest.record);
                withdrawn = withdrawn.saturating_add(1);
            }
        }
        self.lanes.iter_mut().for_each(Lane::want_flush);
        if !self.requests.has_op(op) && !shorts(&self.lanes).any(|parts| parts.op == op) {
            return CancelOutcome::Withdrawn;
        }
        for _ in 0..withdrawn {
            self.requests.insert_failed(op, Failure::Cancelled);
        }
        CancelOutcome::Running
    }

    fn take_unposted(&mut self, is_meant: impl Fn(&RequestParts) -> bool) -> Option<Unposted> {
        let requests = &self.requests;
        self.backlog.remove(|record| requests.parts(record).is_some_and(&is_meant))
    }
}

/// The short requests under way.
pub(super) fn shorts(lanes: &[Lane]) -> impl Iterator<Item = &RequestParts> {
    lanes.iter().flat_map(Lane::shorts)
}

/// Whether a request under way names that window of the peer.
pub(super) fn uses_window(requests: &RequestTable, lanes: &[Lane], id: WindowId) -> bool {
    requests.uses_window(id) || shorts(lanes).any(|parts| parts.window == id)
}

/// The access of a request between those addresses and keys, or its first piece.
#[inline]
fn access_of(is_read: bool, here: (u64, u32), there: (u64, u32), len: u32) -> RdmaAccess {
    RdmaAccess {
        is_read,
        address: here.0,
        lkey: here.1,
        len,
        remote_address: there.0,
        rkey: there.1,
        immediate: None,
    }
}

/// Whether a request is done with the flush behind it.
#[inline]
fn needs_flush(work: &WorkRequest) -> bool {
    work.opcode != Opcode::Get && work.when == CompleteWhen::Visible
}
