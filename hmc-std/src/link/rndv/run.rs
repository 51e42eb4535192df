//! One poll of the rendezvous state: received messages, deadlines and completed puts, then the outputs of each
//! machine.

use hmc_core::region::WindowDesc;
use hmc_core::rndv::receiver::{CopyOut, Receiver, ReceiverOutput};
use hmc_core::rndv::sender::SenderOutput;
use hmc_core::rndv::{AbortReason, RndvError, RndvId, RndvMsg, RndvRole, Violation};
use hmc_core::time::Instant;
use hmc_core::work::Failure;

use super::actions::RndvActions;
use super::host::{Host, NoteOutcome};
use super::note::Note;
use super::state::{
    BounceBuffers, ChunkedPut, MAX_SPARE, MessageBuffer, PostedRecv, RecvOp, RndvState, SendOp,
    keep_spare, local,
};
use crate::base::error::{Error, ErrorKind, Limit};
use crate::memory::Span;
use crate::transport::data_plane::Fence;

/// Notes for which storage is kept.
const KEPT_NOTES: usize = 64;

impl RndvState {
    pub(super) fn poll(
        &mut self,
        host: &mut impl Host,
        now: Instant,
        is_dead: bool,
        after: &mut RndvActions,
    ) {
        if !self.received.is_empty() {
            self.receive_notes(after);
        }
        if is_dead {
            self.lose_peer(host);
        }
        self.expire(host, now, after);
        self.match_recvs();
        for i in 0..self.outbound.len() {
            self.run_outbound(host, i, after);
        }
        for i in 0..self.inbound.len() {
            self.run_inbound(host, i, after);
        }
        // Before the notes that say so are sent: the peer may offer another at once.
        self.inbound.iter_mut().for_each(|m| m.count_end(&mut self.incoming));
        if !self.fencing_recvs.is_empty() {
            self.close_unmatched(host, after);
        }
        if is_dead {
            self.release_idle(after);
        }
        self.trim(host, after);
        self.send_notes(host);
        self.take_over(after);
    }

    fn receive_notes(&mut self, after: &mut RndvActions) {
        let mut received = std::mem::take(&mut self.received);
        let result = received.drain(..).try_for_each(|note| self.receive_note(note));
        if let Err(v) = result {
            after.broken = Some(v.to_string());
        }
        received.shrink_to(KEPT_NOTES);
        self.received = received;
    }

    /// Lets go of what is over. Memory of owners goes without the rendezvous state's lock; what was borrowed has none.
    fn take_over(&mut self, after: &mut RndvActions) {
        let finished = self.outbound.iter().filter(|m| m.machine.is_finished()).count();
        if finished != 0 {
            after.has_space = true;
            let owned = |m: &SendOp| m.machine.is_finished() && !m.bytes.is_borrowed();
            // To grow by doubling takes space for four of them.
            after.over.0.reserve_exact(finished);
            after.over.0.extend(self.outbound.extract_if(.., |m| owned(m)));
            self.outbound.retain(|m| !m.machine.is_finished());
        }
        let finished = self.inbound.iter().filter(|m| m.machine.is_finished()).count();
        if finished != 0 {
            after.over.1.reserve_exact(finished);
            let borrowed = |m: &RecvOp| m.want.as_ref().is_none_or(|w| w.bytes.is_borrowed());
            let owned = |m: &RecvOp| m.machine.is_finished() && !borrowed(m);
            after.over.1.extend(self.inbound.extract_if(.., |m| owned(m)));
            self.inbound.retain(|m| !m.machine.is_finished());
        }
    }

    fn receive_note(&mut self, note: Note) -> Result<(), Violation> {
        match note {
            Note::Step(RndvMsg::Offer { id, len }) => {
                self.receive_offer(id, Receiver::new(id, len), Box::default())
            }
            Note::Eager { id, bytes } => {
                let len = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
                self.receive_offer(id, Receiver::eager(id, len), bytes)
            }
            Note::Step(note) => self.receive_step(&note),
        }
    }

    fn receive_offer(
        &mut self,
        id: RndvId,
        machine: Receiver,
        eager: Box<[u8]>,
    ) -> Result<(), Violation> {
        self.incoming.offer(id)?;
        self.inbound.push(RecvOp { machine, want: None, has_ended: false, eager });
        Ok(())
    }

    fn receive_step(&mut self, note: &RndvMsg) -> Result<(), Violation> {
        let id = note.id();
        let unknown = Violation::Unknown { id };
        match note.from() {
            RndvRole::Sender => match self.inbound.iter_mut().find(|m| m.machine.id() == id) {
                Some(m) => {
                    m.machine.receive(note)?;
                    m.count_end(&mut self.incoming);
                    Ok(())
                }
                None if self.incoming.is_late(note) => Ok(()),
                None => Err(unknown),
            },
            RndvRole::Receiver => {
                let m = self.outbound.iter_mut().find(|m| m.machine.id() == id).ok_or(unknown)?;
                m.machine.receive(note)
            }
        }
    }

    fn lose_peer(&mut self, host: &impl Host) {
        self.outbound.iter_mut().for_each(|m| m.machine.end(RndvError::PeerDead));
        self.inbound.iter_mut().for_each(|m| m.machine.end(RndvError::PeerDead));
        for w in &mut self.posted_recvs {
            w.deadline = Instant::ZERO;
            w.early = w.early.take().or_else(|| Some(host.gone()));
        }
        self.outgoing.clear();
    }

    fn expire(&mut self, host: &mut impl Host, now: Instant, after: &mut RndvActions) {
        let late = RndvError::Here(AbortReason::DeadlineExceeded);
        for m in self.outbound.iter_mut().filter(|m| m.deadline <= now) {
            m.machine.end(late);
        }
        for m in &mut self.inbound {
            if m.want.as_ref().is_some_and(|w| w.deadline <= now) {
                m.machine.end(late);
            }
        }
        let mut i = 0;
        while let Some(want) = self.posted_recvs.get(i) {
            if want.deadline > now {
                i = i.saturating_add(1);
                continue;
            }
            if let Some(mut want) = self.posted_recvs.remove(i) {
                let full = host.full_inbox();
                let late = || Error::deadline(format_args!("receiving a message{full}"));
                let e = want.early.take().unwrap_or_else(late);
                let e = e.with_peer(host.peer());
                after.notices.extend(want.handle.ended(Err(e)));
                after.events = true;
                // No message named its place to the peer.
                let has_own_window = want.has_own_window();
                want.give_back(&mut self.spare, &mut self.kept);
                if has_own_window {
                    want.fence = revoke(host, &want.window, after);
                    self.fencing_recvs.push(want);
                } else {
                    after.notices.extend(want.handle.released(span_of(&mut want.bytes)));
                    after.over.2.push(want);
                }
            }
        }
    }

    fn close_unmatched(&mut self, host: &mut impl Host, after: &mut RndvActions) {
        for mut w in
            self.fencing_recvs.extract_if(.., |w| has_passed(host, &mut w.fence, &w.window))
        {
            after.notices.extend(w.handle.released(span_of(&mut w.bytes)));
            after.events = true;
            after.over.2.push(w);
        }
    }

    /// Lets go of half-buffers and windows that are too many: windows are few, and messages may have been many at a time.
    fn trim(&mut self, host: &mut impl Host, after: &mut RndvActions) {
        if !self.has_surplus() {
            return;
        }
        for window in self.surplus_windows() {
            let fence = revoke(host, &window.remote, after);
            self.fencing_buffers.push((window, fence));
        }
        while self.spare.len() > MAX_SPARE {
            // The shortest helps least.
            let lens = self.spare.iter().map(|s| s.region.len()).enumerate();
            let Some((at, _)) = lens.min_by_key(|(_, len)| *len) else { return };
            let staging = self.spare.swap_remove(at);
            let fence = revoke(host, &staging.remote, after);
            self.fencing_buffers.push((staging, fence));
        }
        let left = |(s, fence): &mut (BounceBuffers, _)| has_passed(host, fence, &s.remote);
        after.regions.extend(self.fencing_buffers.extract_if(.., left).map(|(s, _)| s.region));
    }

    /// Sends the notes of the machines, in their order: with the rendezvous state's lock held.
    pub(super) fn send_notes(&mut self, host: &mut impl Host) {
        while !self.outgoing.is_empty() {
            match host.send(&mut self.outgoing) {
                NoteOutcome::Sent => {}
                // The poll that finds space sends it.
                NoteOutcome::Later => return,
                NoteOutcome::Over => self.outgoing.clear(),
            }
        }
    }

    pub(super) fn run_outbound(&mut self, host: &mut impl Host, i: usize, after: &mut RndvActions) {
        let Some(m) = self.outbound.get_mut(i) else {
            return;
        };
        loop {
            collect(host, m);
            let Some(output) = m.machine.poll() else {
                return;
            };
            match output {
                SenderOutput::Send(note) => {
                    if matches!(note, RndvMsg::Offer { .. }) && host.counts_puts() {
                        m.machine = m.machine.counted();
                    }
                    self.outgoing.push_back(note.into());
                }
                SenderOutput::SendEager => {
                    let (id, bytes) = (m.machine.id(), std::mem::take(&mut m.eager));
                    self.outgoing.push_back(Note::Eager { id, bytes });
                }
                SenderOutput::Put(put) => {
                    m.runs.push(ChunkedPut::new(&put));
                    // The caller has to copy its borrowed memory.
                    after.events |= matches!(m.bytes, MessageBuffer::Borrowed(_));
                }
                SenderOutput::Withdraw => {
                    for run in &mut m.runs {
                        run.failed = run.failed.or(Some(Failure::Cancelled));
                    }
                    host.cancel(m.runs.iter().flat_map(|r| &r.in_flight).map(|(op, _)| *op));
                }
                SenderOutput::Ended(how) => {
                    let len = m.len;
                    let how = how.map_err(|e| error(host, e, len, RndvRole::Sender));
                    after.notices.extend(m.handle.ended(how));
                    after.events = true;
                }
                SenderOutput::Free => {
                    after.notices.extend(m.handle.released(span_of(&mut m.bytes)));
                    after.events = true;
                    if let MessageBuffer::Borrowed(bounce) = &mut m.bytes
                        && let Some(bounce) = bounce.take()
                    {
                        keep_spare(&mut self.bounces, bounce);
                    }
                }
            }
        }
    }

    fn run_inbound(&mut self, host: &mut impl Host, i: usize, after: &mut RndvActions) {
        let Some(RecvOp { machine, want, eager, .. }) = self.inbound.get_mut(i) else {
            return;
        };
        loop {
            if let Some(w) = want.as_mut().filter(|w| w.fence.is_some())
                && has_passed(host, &mut w.fence, &w.window)
            {
                machine.fenced();
            }
            if let Some(w) = want
                && machine.is_counted()
                && host.are_all_put(&w.window)
            {
                machine.all_put();
            }
            // A caller whose wait ended copies no more.
            if let Some(w) = want.as_mut()
                && machine.is_failed()
                && matches!(w.bytes, MessageBuffer::Borrowed(_))
                && w.copy.take().is_some()
            {
                machine.copied(Err(Failure::Cancelled));
            }
            let Some(output) = machine.poll() else {
                return;
            };
            let Some(w) = want.as_mut() else {
                if let ReceiverOutput::Send(note) = output {
                    self.outgoing.push_back(note.into());
                }
                continue;
            };
            match output {
                ReceiverOutput::Send(note) => {
                    let opens = matches!(note, RndvMsg::Ready { .. });
                    let part = w.part(machine.len());
                    if opens && w.kept.is_some() && !host.reopen(&w.window, part) {
                        machine.end(RndvError::Failed(Failure::Unsupported));
                        continue;
                    }
                    if opens && host.counts_puts() {
                        *machine = machine.counted();
                        if machine.is_counted() {
                            host.count_puts(&w.window, machine.len());
                        }
                    }
                    self.outgoing.push_back(note.into());
                }
                ReceiverOutput::Copy(copy) => match &w.bytes {
                    MessageBuffer::Registered { .. } => machine.copied(copy_out(w, eager, &copy)),
                    MessageBuffer::Borrowed(_) => {
                        w.copy = Some(copy);
                        after.events = true;
                    }
                },
                ReceiverOutput::Revoke => {
                    // After all puts into it have ended, it serves the next message.
                    let stays = w.kept.is_some() && !machine.is_failed();
                    w.fence = if stays { host.close(&w.window) } else { None };
                    if !stays || w.fence.is_some() {
                        w.kept = None;
                        w.fence = revoke(host, &w.window, after);
                    }
                    if w.fence.is_none() {
                        machine.fenced();
                    }
                }
                ReceiverOutput::Ended(how) => {
                    let len = machine.len();
                    let well = how.is_ok();
                    let how = how.map_err(|e| error(host, e, len, RndvRole::Receiver));
                    after.notices.extend(w.handle.ended(how));
                    after.events = true;
                    // What went well was not revoked: its halves or its window serve again. So does a window that was not opened.
                    if well || w.kept.is_some() {
                        w.give_back(&mut self.spare, &mut self.kept);
                    }
                }
                ReceiverOutput::Free if w.untold => {
                    // The machine knows of no window to take back.
                    w.fence = revoke(host, &w.window, after);
                    self.fencing_recvs.extend(want.take());
                }
                ReceiverOutput::Free => {
                    after.notices.extend(w.handle.released(span_of(&mut w.bytes)));
                    after.events = true;
                }
            }
        }
    }
}

/// The span that a message's owner gave, to be given back.
pub(super) fn span_of(bytes: &mut MessageBuffer) -> Option<Span> {
    match bytes {
        MessageBuffer::Registered { span, .. } => span.take(),
        MessageBuffer::Borrowed(_) => None,
    }
}

/// Takes the ends of puts that have passed their fence, and posts what can be posted.
pub(super) fn collect(host: &mut impl Host, m: &mut SendOp) {
    let SendOp { machine, bytes, runs, .. } = m;
    for run in runs.iter_mut() {
        let failed = &mut run.failed;
        run.in_flight.retain(|(op, _)| {
            let end = host.take_end(*op);
            *failed = failed.or(end.and_then(Result::err));
            end.is_none()
        });
        if let MessageBuffer::Registered { region, range, .. } = bytes
            && run.has_more()
        {
            let before = (run.source, run.target);
            let (source, target) = run.cut(u64::MAX);
            match local(region, *range, source).map(|l| host.post(region, l, target)) {
                Some(Ok(Some(op))) => run.in_flight.push((op, 0)),
                Some(Ok(None)) => (run.source, run.target) = before,
                Some(Err(failure)) => run.failed = Some(failure),
                None => run.failed = Some(Failure::UnknownRegion),
            }
        }
    }
    runs.retain(|run| {
        let over = run.in_flight.is_empty() && !run.has_more();
        if over {
            machine.put_done(run.seq, run.failed.map_or(Ok(()), Err));
        }
        !over
    });
}

/// Takes a window back, which the peer learns later. `None` when its fence has passed.
fn revoke(host: &mut impl Host, window: &WindowDesc, after: &mut RndvActions) -> Option<Fence> {
    after.revoked.push((window.window, window.epoch));
    host.revoke(window)
}

/// Whether the peer is out of a window that was taken back.
fn has_passed(host: &mut impl Host, fence: &mut Option<Fence>, window: &WindowDesc) -> bool {
    if fence.as_ref().is_some_and(|f| !host.has_passed(f, window)) {
        return false;
    }
    *fence = None;
    true
}

pub(super) fn copy_out(w: &PostedRecv, eager: &[u8], copy: &CopyOut) -> Result<(), Failure> {
    let MessageBuffer::Registered { region, range, .. } = &w.bytes else {
        return Err(Failure::Unsupported);
    };
    let to = local(region, *range, copy.to).ok_or(Failure::UnknownRegion)?;
    if !eager.is_empty() {
        return region.bytes().write_at(to.span, eager).map_err(|_| Failure::UnknownRegion);
    }
    let (half, from) = w.half(copy).ok_or(Failure::UnknownRegion)?;
    half.bytes().copy_to(from, &region.bytes(), to.span).map_err(|_| Failure::UnknownRegion)
}

/// How a message ended, for its owner.
fn error(host: &impl Host, ending: RndvError, len: u64, role: RndvRole) -> Error {
    let what = if role == RndvRole::Sender { "sending a message" } else { "receiving a message" };
    let e = match ending {
        RndvError::PeerDead => return host.gone(),
        RndvError::Failed(failure) => failure.into(),
        RndvError::Here(AbortReason::DeadlineExceeded) => {
            let full = if role == RndvRole::Sender { host.full_outcomes() } else { "" };
            Error::deadline(format_args!("{what}{full}"))
        }
        RndvError::Here(AbortReason::TooLong { capacity: space })
        | RndvError::There(AbortReason::TooLong { capacity: space }) => Error::new(
            ErrorKind::Length,
            format!(
                "the message has {len} bytes and the receiver {} {space}; nothing was written",
                if len > space { "space for" } else { "wants just" }
            ),
        )
        .with_limit(Limit::new("bytes of the message", len, space)),
        RndvError::Here(why) | RndvError::There(why) => {
            let kind = match why {
                AbortReason::Cancelled => ErrorKind::Cancelled,
                AbortReason::DeadlineExceeded => ErrorKind::DeadlineExceeded,
                AbortReason::Closing => ErrorKind::Closed,
                AbortReason::TooLong { .. } => ErrorKind::Length,
                AbortReason::Failed | AbortReason::Unknown { .. } => ErrorKind::Io,
            };
            Error::new(kind, format!("{what}: {ending}"))
        }
    };
    e.with_peer(host.peer())
}

#[cfg(test)]
mod tests;
