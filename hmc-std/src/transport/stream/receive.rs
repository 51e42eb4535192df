//! Frames in: received, checked against the requests, and passed on.

use hmc_core::limits::MAX_GATHERED_FRAMES;
use hmc_core::transport::{DataCloseReason, DataPlane as _};
use hmc_core::wire::cursor::WireError;
use hmc_core::wire::data::{DATA_FRAME_BYTES, DataFlags, DataFrame, DataKind};
use hmc_core::work::{Failure, Opcode};
#[cfg(test)]
use hmc_mem::error::MemError;
use hmc_mem::os::io::{MAX_PARTS, RecvPart};
use rustix::io::Errno;

use super::requests::Phase;
use super::rx::{Dest, Incoming, Rx};
use super::{Arrival, StreamDataPlane};

/// What is wrong with a frame that is none; the rest is told beside it.
const MALFORMED: &str = "a malformed data frame";
/// Bytes that one call of `receive` takes before others get their turn.
const BUDGET_BYTES: usize = 4 << 20;
/// Bytes after which finished puts are acknowledged although more has come: of short ones the peer may have no more under way,
/// and wait.
const BYTES_AN_ACK: usize = 1 << 20;
/// Descriptors that may have arrived ahead of their frames.
const MAX_DESCRIPTORS: usize = 8;
/// Mappable windows, and tables of their generations, that may wait to be mapped.
const MAX_ARRIVALS: usize = 128;

impl StreamDataPlane {
    /// As if the kernel had dropped the descriptor of the next frame that says it has one.
    #[cfg(test)]
    pub(crate) fn lose_descriptor(&mut self) {
        self.rx.descriptors.push_back(Err(MemError::NoFds { limit: 8 }));
    }

    /// Reads until the socket is empty or the budget is spent. Returns whether bytes came.
    pub(super) fn receive(&mut self) -> bool {
        let (mut got, mut unsaid): (usize, usize) = (0, 0);
        self.rx.paused = false;
        while self.down.is_none() && got < BUDGET_BYTES {
            if let Err(down) = self.digest() {
                self.close(down);
                break;
            }
            if self.rx.paused {
                break;
            }
            if unsaid >= BYTES_AN_ACK && self.target.run.is_some() {
                self.send_queued();
                unsaid = 0;
                if self.down.is_some() {
                    break;
                }
            }
            match self.fill() {
                Ok((0, _)) => self.close(DataCloseReason::Eof),
                Ok((n, drained)) => {
                    got = got.saturating_add(n);
                    unsaid = unsaid.saturating_add(n);
                    if drained {
                        if let Err(down) = self.digest() {
                            self.close(down);
                        }
                        break;
                    }
                }
                Err(Errno::AGAIN) => break,
                Err(e) => self.fail(e),
            }
        }
        if self.rx.paused && self.down.is_none() && self.socket.has_ended() {
            // Nobody waits for an answer to what lies there.
            self.close(DataCloseReason::Eof);
        }
        got > 0
    }

    /// The peer sent a data frame that is none.
    fn note_malformed(&mut self, e: WireError) -> DataCloseReason {
        self.malformed = Some(e);
        DataCloseReason::Protocol(MALFORMED)
    }

    /// The stream cannot be used any more.
    pub(super) fn fail(&mut self, e: Errno) {
        self.life.note_error(e);
        self.close(match e {
            Errno::CONNRESET | Errno::PIPE => DataCloseReason::Eof,
            e => DataCloseReason::System(e.raw_os_error()),
        });
    }

    /// One receive call. The buffer holds less than what is needed next. Returns the bytes and
    /// whether the socket is now (very likely) empty.
    fn fill(&mut self) -> Result<(usize, bool), Errno> {
        self.divert_stale();
        let rx = &mut self.rx;
        if rx.start > 0 {
            if rx.start < rx.end {
                rx.buf.copy_within(rx.start..rx.end, 0);
            }
            rx.end = rx.end.saturating_sub(rx.start);
            rx.start = 0;
        }
        let tail = rx.buf.get_mut(rx.end..).unwrap_or_default();
        let (n, asked) = match &mut rx.body {
            Some(Incoming { dest: Dest::Discard { .. }, .. }) | None if self.local => {
                let (n, fd) = self.socket.recv_with_fd(tail)?;
                if let Some(fd) = fd
                    && rx.descriptors.len() < MAX_DESCRIPTORS
                {
                    rx.descriptors.push_back(fd);
                }
                (n, tail.len())
            }
            Some(Incoming { dest: Dest::Discard { .. }, .. }) | None => {
                (self.socket.recv(tail)?, tail.len())
            }
            Some(Incoming { dest: Dest::Window { .. } | Dest::Answer { .. }, .. }) => {
                return self.fill_bodies();
            }
        };
        rx.end = rx.end.saturating_add(n);
        Ok((n, n < asked))
    }

    /// One receive call, into the places of the payloads that come next, and then into the buffer.
    fn fill_bodies(&mut self) -> Result<(usize, bool), Errno> {
        let Rx { buf, end, body, gathered, .. } = &mut self.rx;
        let mut parts: heapless::Vec<RecvPart<'_>, MAX_PARTS> = heapless::Vec::new();
        let (mut asked, mut is_all) = (0_usize, true);
        for Incoming { dest, .. } in body.iter().chain(&*gathered) {
            let part = match dest {
                Dest::Window { region, range, .. } | Dest::Answer { region, range, .. } => {
                    RecvPart::Shared(region.bytes(), *range)
                }
                Dest::Discard { .. } => {
                    is_all = false;
                    break;
                }
            };
            let len = usize::try_from(dest.left()).unwrap_or(usize::MAX);
            is_all = parts.len() < self.socket.max_places() && parts.push(part).is_ok();
            if !is_all {
                break;
            }
            asked = asked.saturating_add(len);
        }
        // Over UDS the next frame may carry a descriptor, which only `recv_with_fd` keeps: take no byte beyond this frame.
        if is_all && !self.local {
            let tail = buf.get_mut(*end..).unwrap_or_default();
            let len = tail.len();
            if parts.push(RecvPart::Private(tail)).is_ok() {
                asked = asked.saturating_add(len);
            }
        }
        let n = self.socket.recv_parts(&mut parts)?;
        drop(parts);
        let mut left = u64::try_from(n).unwrap_or(0);
        for Incoming { dest, .. } in body.iter_mut().chain(gathered) {
            let taken = left.min(dest.left());
            dest.advance(taken);
            left = left.saturating_sub(taken);
            self.bytes_in = self.bytes_in.saturating_add(taken);
        }
        *end = end.saturating_add(usize::try_from(left).unwrap_or(0));
        Ok((n, n < asked))
    }

    /// Consumes what the buffer holds.
    fn digest(&mut self) -> Result<(), DataCloseReason> {
        loop {
            self.divert_stale();
            if let Some(mut incoming) = self.rx.body.take() {
                self.drain_into(&mut incoming.dest);
                if incoming.dest.left() > 0 {
                    self.rx.body = Some(incoming);
                    return Ok(());
                }
                let discarded = matches!(incoming.dest, Dest::Discard { .. });
                self.end_frame(&incoming.frame, discarded)?;
                self.begin_gathered();
                continue;
            }
            let rx = &self.rx;
            let held = rx.buf.get(rx.start..rx.end).unwrap_or_default();
            let Some(head) = held.first_chunk::<DATA_FRAME_BYTES>() else {
                return Ok(());
            };
            let parsed = DataFrame::parse(head);
            let frame = parsed.map_err(|e| self.note_malformed(e))?;
            if frame.flags.contains(DataFlags::NOTIFY)
                && frame.flags.contains(DataFlags::LAST)
                && !self.inbox_has_space()
            {
                self.rx.paused = true;
                return Ok(());
            }
            if frame.kind == DataKind::Gather && !self.has_heads(&frame) {
                return Ok(());
            }
            self.rx.start = self.rx.start.saturating_add(DATA_FRAME_BYTES);
            let dest = self.begin_frame(&frame)?;
            self.rx.body = Some(Incoming { frame, dest, writing: None });
        }
    }

    /// Whether the headers that a frame announces are in the buffer.
    fn has_heads(&self, gather: &DataFrame) -> bool {
        let heads = usize::try_from(gather.total).unwrap_or(usize::MAX).saturating_add(1);
        self.rx.available() >= heads.saturating_mul(DATA_FRAME_BYTES)
    }

    /// Decides where the payloads of gathered frames go, whose headers are in the buffer.
    fn accept_gather(&mut self, gather: &DataFrame) -> Result<(), DataCloseReason> {
        for _ in 0..gather.total {
            let held = self.rx.buf.get(self.rx.start..self.rx.end).unwrap_or_default();
            let head = held.first_chunk::<DATA_FRAME_BYTES>();
            let parsed = head.map(DataFrame::parse).transpose();
            let parsed = parsed.map_err(|e| self.note_malformed(e))?;
            let frame = parsed.filter(DataFrame::can_be_gathered);
            let frame =
                frame.ok_or(DataCloseReason::Protocol("a gathered frame of another kind"))?;
            self.rx.start = self.rx.start.saturating_add(DATA_FRAME_BYTES);
            let dest = self.begin_frame(&frame)?;
            let writing =
                if frame.kind == DataKind::Write { self.target.writing.take() } else { None };
            if self.rx.gathered.capacity() == 0 {
                self.rx.gathered.reserve_exact(MAX_GATHERED_FRAMES);
            }
            self.rx.gathered.push_back(Incoming { frame, dest, writing });
        }
        Ok(())
    }

    /// The payload of the next gathered frame follows, if there is one.
    fn begin_gathered(&mut self) {
        if let Some(next) = self.rx.gathered.pop_front() {
            self.target.writing = next.writing.or(self.target.writing);
            self.rx.body = Some(next);
        }
    }

    /// Moves payload bytes that are already in the buffer to where they belong.
    fn drain_into(&mut self, dest: &mut Dest) {
        let left = usize::try_from(dest.left()).unwrap_or(usize::MAX);
        let n = self.rx.available().min(left);
        if n == 0 {
            return;
        }
        let upto = self.rx.start.saturating_add(n);
        let bytes = self.rx.buf.get(self.rx.start..upto).unwrap_or_default();
        if let Dest::Window { region, range, .. } | Dest::Answer { region, range, .. } = dest {
            let (part, _) = range.split_at_most(u64::try_from(n).unwrap_or(0));
            // The range was resolved against this region, so it fits.
            let _ = region.bytes().write_at(part, bytes);
            self.bytes_in = self.bytes_in.saturating_add(part.len());
        }
        dest.advance(u64::try_from(n).unwrap_or(0));
        self.rx.start = upto;
    }

    /// Decides where the payload of a frame goes; executes frames without payload.
    fn begin_frame(&mut self, frame: &DataFrame) -> Result<Dest, DataCloseReason> {
        let nothing = Dest::Discard { left: u64::from(frame.len) };
        match frame.kind {
            DataKind::Write => Ok(match self.accept_write(frame)? {
                Some((region, range)) => {
                    Dest::Window { region, range, window: frame.window, epoch: frame.epoch }
                }
                None => nothing,
            }),
            DataKind::Read => self.accept_read(frame).map(|()| nothing),
            DataKind::WriteRef | DataKind::ReadRef => self.accept_by_ref(frame).map(|()| nothing),
            DataKind::ReadData => self.accept_answer(frame),
            DataKind::Gather => self.accept_gather(frame).map(|()| nothing),
            DataKind::Ack => self.accept_ack(frame).map(|()| nothing),
            DataKind::Nack => self.accept_nack(frame).map(|()| nothing),
            DataKind::Region => {
                let fd = self.rx.descriptors.pop_front();
                // One that was sent and could not be taken is no breach.
                let fd =
                    fd.ok_or(DataCloseReason::Protocol("a region frame without a descriptor"))?;
                if self.arrivals.len() >= MAX_ARRIVALS {
                    return Err(DataCloseReason::Protocol("too many regions at once"));
                }
                self.arrivals.push_back(Arrival {
                    window: frame.window,
                    epoch: frame.epoch,
                    offset: frame.offset,
                    len: frame.addr,
                    tag: frame.tag,
                    is_generations: frame.flags.contains(DataFlags::EXPECT),
                    total: frame.total,
                    fd,
                });
                Ok(nothing)
            }
        }
    }

    fn end_frame(&mut self, frame: &DataFrame, discarded: bool) -> Result<(), DataCloseReason> {
        match frame.kind {
            DataKind::Write => self.end_write(frame),
            DataKind::ReadData if !discarded || frame.len == 0 => self.end_answer(frame),
            DataKind::ReadData => {
                if frame.flags.contains(DataFlags::LAST) {
                    self.answer(frame.seq, Err(Failure::Cancelled));
                }
            }
            DataKind::Read
            | DataKind::WriteRef
            | DataKind::ReadRef
            | DataKind::Ack
            | DataKind::Nack
            | DataKind::Gather
            | DataKind::Region => {}
        }
        Ok(())
    }

    /// Payload of one of our gets: it must continue where the last frame ended.
    fn accept_answer(&mut self, frame: &DataFrame) -> Result<Dest, DataCloseReason> {
        let Some(r) = self.requests.get_mut(frame.seq) else {
            return Err(DataCloseReason::Protocol("an answer that nobody asked for"));
        };
        let len = u64::from(frame.len);
        let whole = r.work.local;
        let part = whole.span.sub(hmc_core::range::Side::Local, frame.offset, len);
        let (Opcode::Get, Phase::Sent, Ok(part)) = (r.work.opcode, r.phase, part) else {
            return Err(DataCloseReason::Protocol("an answer that does not fit its request"));
        };
        if frame.offset != r.moved {
            return Err(DataCloseReason::Protocol("an answer out of order"));
        }
        r.moved = r.moved.saturating_add(len);
        let early = frame.flags.contains(DataFlags::LAST) && r.moved != whole.span.len();
        if early {
            return Err(DataCloseReason::Protocol("an answer that ends early"));
        }
        if r.mute || len == 0 {
            return Ok(Dest::Discard { left: len });
        }
        match self.regions.resolve(whole) {
            Some(region) => {
                Ok(Dest::Answer { region: region.clone(), range: part, seq: frame.seq })
            }
            None => Ok(Dest::Discard { left: len }),
        }
    }

    fn end_answer(&mut self, frame: &DataFrame) {
        if !frame.flags.contains(DataFlags::LAST) {
            return;
        }
        let len = self.requests.get_mut(frame.seq).map(|r| r.moved);
        if let Some(len) = len {
            self.answer(frame.seq, Ok(len));
        }
    }

    /// A row of operations is done: puts are visible at the peer.
    fn accept_ack(&mut self, frame: &DataFrame) -> Result<(), DataCloseReason> {
        // The parser bounded the count.
        let count = u32::try_from(frame.total).unwrap_or(0);
        let first = frame.seq.wrapping_sub(count.saturating_sub(1));
        for i in 0..count {
            let seq = first.wrapping_add(i);
            if self.tx.body_of(seq) {
                return Err(DataCloseReason::Protocol("an acknowledgement of an unsent put"));
            }
            let Some(r) = self.requests.get_mut(seq) else {
                return Err(DataCloseReason::Protocol("an acknowledgement of nothing"));
            };
            if r.phase != Phase::Sent || (r.work.opcode == Opcode::Get && !r.by_ref) {
                return Err(DataCloseReason::Protocol("an acknowledgement out of turn"));
            }
            let len = r.report;
            if r.by_ref {
                self.bytes_out = self.bytes_out.saturating_add(len);
            }
            self.answer(seq, Ok(len));
        }
        Ok(())
    }

    fn accept_nack(&mut self, frame: &DataFrame) -> Result<(), DataCloseReason> {
        let failure = frame.why().unwrap_or(Failure::Unsupported);
        if self.tx.body_of(frame.seq) {
            return Err(DataCloseReason::Protocol("a refusal of an unsent put"));
        }
        let Some(r) = self.requests.get_mut(frame.seq) else {
            return Err(DataCloseReason::Protocol("a refusal of nothing"));
        };
        if r.phase != Phase::Sent {
            return Err(DataCloseReason::Protocol("a refusal out of turn"));
        }
        if r.by_ref && failure == Failure::Unsupported {
            // The peer may not reach our memory by itself: send the bytes instead.
            self.by_ref_refused = true;
            return self.resend(frame.seq);
        }
        self.answer(frame.seq, Err(failure));
        Ok(())
    }

    /// Posts a refused by-reference request again, under a new number, with inline payload.
    fn resend(&mut self, seq: u32) -> Result<(), DataCloseReason> {
        let Some(r) = self.requests.get_mut(seq) else {
            return Ok(());
        };
        let (work, mute) = (r.work, r.mute);
        r.mute = true;
        self.answer(seq, Err(Failure::Cancelled));
        if mute {
            return Ok(());
        }
        if self.submit(&work, false, work.local.span.len()).is_err() {
            self.done.push_back(hmc_core::work::Completion {
                op: work.op,
                result: Err(Failure::Transport(Errno::NOBUFS.raw_os_error())),
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
