//! Requests of the peer: checked against local windows, executed, and answered.

use hmc_core::limits::MAX_CHUNK_BYTES;
use hmc_core::range::{ByteRange, Extent, Side};
use hmc_core::region::{Epoch, LocalSlice, WindowId};
use hmc_core::types::Access;
use hmc_core::window::{WindowFault, WindowState, WindowTransition};
use hmc_core::wire::data::{DataFlags, DataFrame, DataKind};
use hmc_core::work::Failure;
use hmc_mem::os::cma;

use super::requests::max_requests;
use super::rx::{Dest, Incoming};
use super::target::{BYTES_A_WAKE, CmaJob, GetReply, PutInProgress};
use super::{DataCloseReason, StreamDataPlane};
use crate::memory::Region;
use crate::node::inbox::Message;
use crate::transport::generation_tables::When;

/// Bytes copied under one hold of the link's lock: looks at the socket in between do not show, a revocation waits some ms.
const BYTES_A_TURN: u64 = 8 << 20;
/// Bytes that are copied between two looks at the peer's life.
const BYTES_A_LOOK: u64 = MAX_CHUNK_BYTES;
impl StreamDataPlane {
    /// Whether the inbox takes one more tag, and those that follow the queued copies.
    pub(super) fn inbox_has_space(&self) -> bool {
        let due = self.target.jobs.iter().filter(|j| j.frame.flags.contains(DataFlags::NOTIFY));
        let tags = due.count().saturating_add(1);
        self.inbox.lock().is_ok_and(|mut i| i.admits(tags, 0))
    }

    fn notify(&mut self, tag: u64) {
        if let Ok(mut inbox) = self.inbox.lock() {
            inbox.push(Message::Notify(tag));
            self.delivered = true;
        }
    }

    /// The memory that a peer's access means, or why it may not have it.
    fn check(
        &self,
        f: &DataFrame,
        offset: u64,
        len: u64,
        access: Access,
    ) -> Result<LocalSlice, Failure> {
        let slice = self.windows.check(f.window, f.epoch, offset, len, access);
        let slice = slice.map_err(Failure::Window)?;
        self.compare(When::Before, f, (offset, len))?;
        match self.regions.resolve(slice) {
            Some(_) => Ok(slice),
            None => Err(Failure::Window(WindowFault::Revoked)),
        }
    }

    /// Compares the generations of the blocks of a range with the one that a request names, if it does.
    fn compare(&self, when: When, f: &DataFrame, range: (u64, u64)) -> Result<(), Failure> {
        let Some(expected) = f.generation() else { return Ok(()) };
        self.tables.check(when, (f.window, f.epoch), range, expected)
    }

    /// Called before bytes of the frame in reception are stored: if a block has another generation than the frame names, the rest
    /// of the frame is discarded.
    pub(super) fn divert_stale(&mut self) {
        let Some(Incoming { frame, dest: Dest::Window { .. }, .. }) = &self.rx.body else { return };
        let Err(fault) = self.compare(When::Before, frame, (frame.offset, frame.len.into())) else {
            return;
        };
        let (id, epoch) = (frame.window, frame.epoch);
        self.rx.divert_window(id, epoch, fault);
        if let Some(w) = &mut self.target.writing {
            w.fault = Some(fault);
        }
    }

    /// A frame of a put. Gives the place of its payload, or `None` when it is to be discarded.
    pub(super) fn accept_write(
        &mut self,
        f: &DataFrame,
    ) -> Result<Option<(Region, ByteRange)>, DataCloseReason> {
        if !self.target.has_space(self.rx.gathered.len()) {
            return Err(DataCloseReason::Protocol("more puts than were agreed"));
        }
        let len = u64::from(f.len);
        let writing = match self.target.writing {
            Some(w) if w.seq == f.seq => {
                let goes_on = w.window == (f.window, f.epoch)
                    && f.offset.checked_sub(w.start) == Some(w.done);
                if !goes_on || len > w.left {
                    return Err(DataCloseReason::Protocol("a put that does not continue"));
                }
                w
            }
            Some(_) => return Err(DataCloseReason::Protocol("a put in the middle of another")),
            // The whole range is checked before its first byte is written.
            None => PutInProgress {
                seq: f.seq,
                window: (f.window, f.epoch),
                start: f.offset,
                done: 0,
                left: f.total,
                fault: self.check(f, f.offset, f.total, Access::WRITE).err(),
            },
        };
        let mut writing = PutInProgress {
            done: writing.done.saturating_add(len),
            left: writing.left.saturating_sub(len),
            ..writing
        };
        if f.flags.contains(DataFlags::LAST) && writing.left != 0 {
            return Err(DataCloseReason::Protocol("a put that ends early"));
        }
        let mut place = None;
        if writing.fault.is_none() {
            let offset = f.offset;
            match self.check(f, offset, len, Access::WRITE) {
                Ok(slice) => place = self.regions.resolve(slice).map(|r| (r.clone(), slice.span)),
                Err(fault) => writing.fault = Some(fault),
            }
        }
        self.target.writing = Some(writing);
        Ok(place)
    }

    /// The payload of a put's frame is in place (or was discarded).
    pub(super) fn end_write(&mut self, f: &DataFrame) {
        if !f.flags.contains(DataFlags::LAST) {
            return;
        }
        let whole = self.target.writing.take();
        let fault = whole.and_then(|w| {
            let written = || self.compare(When::Written, f, (w.start, w.done));
            w.fault.or_else(|| written().err())
        });
        if fault.is_none() {
            self.target.note_put(f.window, f.epoch, whole.map_or(0, |w| w.done));
        }
        match fault {
            Some(why) => self.target.refuse(f.seq, why),
            None => {
                let notify = f.flags.contains(DataFlags::NOTIFY);
                if notify {
                    self.notify(f.tag);
                }
                self.target.done(f.seq);
            }
        }
    }

    pub(super) fn accept_read(&mut self, f: &DataFrame) -> Result<(), DataCloseReason> {
        if self.target.replies.len() >= max_requests(self.gathers) || !self.target.has_space(0) {
            return Err(DataCloseReason::Protocol("more gets than were agreed"));
        }
        let offset = f.offset;
        match self.check(f, offset, f.total, Access::READ) {
            Ok(source) => self.target.push_reply(GetReply {
                seq: f.seq,
                window: f.window,
                epoch: f.epoch,
                source,
                total: f.total,
                request: f.generation().is_some().then_some(*f),
            }),
            Err(why) => self.target.refuse(f.seq, why),
        }
        Ok(())
    }

    /// Whether a reply may be continued, `when` some of its bytes were read or are about to be: else it is refused, and the peer
    /// takes none of them for an answer.
    pub(super) fn keeps_reply(&mut self, when: When, reply: &GetReply) -> bool {
        let Some(f) = &reply.request else { return true };
        let Err(fault) = self.compare(when, f, (f.offset, f.total)) else { return true };
        self.target.drop_reply(fault);
        false
    }

    pub(super) fn accept_by_ref(&mut self, f: &DataFrame) -> Result<(), DataCloseReason> {
        if self.target.jobs.len() >= max_requests(self.gathers) || !self.target.has_space(0) {
            return Err(DataCloseReason::Protocol("more copies than were agreed"));
        }
        let access = if f.kind == DataKind::ReadRef { Access::READ } else { Access::WRITE };
        let checked = self.target.cma_pid.ok_or(Failure::Unsupported);
        let checked = checked.and_then(|_| self.check(f, f.offset, f.total, access));
        let theirs = Extent::new(u64::MAX).span(Side::Remote, f.addr, f.total);
        match checked.and_then(|ours| Ok((ours, theirs.map_err(|_| Failure::Unsupported)?))) {
            Ok((ours, theirs)) => self.target.push_job(CmaJob { frame: *f, ours, theirs }),
            Err(why) => self.target.refuse(f.seq, why),
        }
        Ok(())
    }

    /// Reads and executes what the peer sent, does one slice of queued copies, answers. No copy is begun once the peer's
    /// process does not live, as far as `lives` knows: after arrivals were taken that is asked for each piece.
    /// Returns whether anything happened.
    pub(crate) fn poll_peer_while(&mut self, lives: &dyn Fn() -> bool) -> bool {
        if self.down.is_some() {
            return false;
        }
        let mut busy = self.receive();
        busy |= self.run_jobs(lives);
        self.send_queued();
        busy
    }

    /// Copies some bytes of the oldest jobs. Returns whether there was one.
    fn run_jobs(&mut self, lives: &dyn Fn() -> bool) -> bool {
        if !self.arrivals.is_empty() {
            // By which its end can be seen may be among them.
            return false;
        }
        let mut ran = false;
        let mut left = BYTES_A_TURN;
        let mut unsaid: u64 = 0;
        while left > 0
            && self.down.is_none()
            && let Some(job) = self.target.jobs.pop_front()
        {
            // Before each piece: whoever ended its stream, by execve(2) for one, or its process, has its memory back, and
            // the process's number may name another one. A child of it may hold the stream over the execve(2), but its own
            // threads end before its memory goes, and with the session's `lives`. What came before the end is still to be
            // received.
            let ended = self.life.has_ended() || !lives();
            if ended {
                self.target.jobs.clear();
                break;
            }
            ran = true;
            let copied = self.run_chunk(job);
            left = left.saturating_sub(copied);
            unsaid = unsaid.saturating_add(copied);
            // Acknowledgements go together: each wakes the peer. But not so late that it has nothing queued here
            // while it wakes.
            let due = unsaid >= BYTES_A_WAKE && self.target.run.is_some();
            if due && self.target.is_short_of_jobs() {
                self.receive();
                if self.target.is_short_of_jobs() {
                    self.send_queued();
                    unsaid = 0;
                }
            }
        }
        ran
    }

    /// Copies a piece of a job, or ends it. Returns how many bytes were copied.
    fn run_chunk(&mut self, job: CmaJob) -> u64 {
        let f = job.frame;
        let (before, mut left) = (job.ours.span.len(), 0);
        match self.run_job(job) {
            Ok(Some(rest)) => {
                left = rest.ours.span.len();
                self.target.jobs.push_front(rest);
            }
            Ok(None) => {
                if f.flags.contains(DataFlags::NOTIFY) {
                    self.notify(f.tag);
                }
                self.target.done(f.seq);
            }
            Err(why) => {
                left = before;
                self.target.refuse(f.seq, why);
            }
        }
        before.saturating_sub(left)
    }

    fn run_job(&mut self, job: CmaJob) -> Result<Option<CmaJob>, Failure> {
        let pid = self.target.cma_pid.ok_or(Failure::Unsupported)?;
        let f = &job.frame;
        // Revoked since the last chunk?
        let entry = self.windows.entry(f.window, f.epoch).map_err(Failure::Window)?;
        if entry.state() != WindowState::Exposed {
            return Err(Failure::Window(WindowFault::Revoked));
        }
        let (chunk, rest) = job.ours.span.split_at_most(BYTES_A_LOOK);
        let (there, rest_there) = job.theirs.split_at_most(BYTES_A_LOOK);
        let region = self.regions.resolve(job.ours).ok_or(Failure::UnknownRegion)?;
        let moved = if f.kind == DataKind::WriteRef {
            // SAFETY: the kernel named `pid` as the process at the other end of the stream. If it is
            // this very process, the address came from `compose_request` of another session here:
            // memory of a registered region, held by its operation and touched by copies only.
            unsafe { cma::read(pid, there.offset(), &region.bytes(), chunk) }
        } else {
            // SAFETY: as above.
            unsafe { cma::write(pid, there.offset(), &region.bytes(), chunk) }
        };
        if let Err(e) = moved {
            tracing::debug!(peer = self.peer.0, error = %e, "process_vm copy refused");
            self.target.cma_pid = None;
            return Err(Failure::Unsupported);
        }
        self.bytes_in = self.bytes_in.saturating_add(chunk.len());
        let ours = LocalSlice { span: rest, ..job.ours };
        Ok((!rest.is_empty()).then_some(CmaJob { ours, theirs: rest_there, ..job }))
    }

    /// Begins to revoke a window: from here on no byte of it is read or written by this stream.
    /// A frame under way continues into nothing and its operation fails with `Revoked`.
    pub(super) fn refuse_window(&mut self, id: WindowId, epoch: Epoch) -> Result<(), WindowFault> {
        self.windows.apply(id, epoch, WindowTransition::Revoke)?;
        let revoked = Failure::Window(WindowFault::Revoked);
        self.rx.divert_window(id, epoch, revoked);
        // Also between two of its frames: the window may be open again when the next one comes.
        if let Some(w) = self.target.writing.as_mut().filter(|w| w.window == (id, epoch)) {
            w.fault = Some(revoked);
        }
        self.tx.divert_window(id, epoch);
        let target = &mut self.target;
        target.stop_counting(id, epoch);
        let mut refused = Vec::new();
        target.replies.retain(|r| {
            let hit = r.window == id && r.epoch == epoch;
            if hit {
                refused.push(r.seq);
            }
            !hit
        });
        target.jobs.retain(|j| {
            let hit = j.frame.window == id && j.frame.epoch == epoch;
            if hit {
                refused.push(j.frame.seq);
            }
            !hit
        });
        for seq in refused {
            target.refuse(seq, revoked);
        }
        Ok(())
    }
}
