//! Second half of the oracle: rules for results, links and the end of a run.
//!
//! See [`super::oracle`] for its state. Each rule here is a sentence of the documents of the node interface.

use super::finding::{Finding, Kind, Verdict, found};
use super::node::{MemoryArea, Request, RequestError, RequestResult};
use super::nodes::{Memory, look};
use super::ops::{Direction, Op, State, TransferShape, moves, peer, total};
use super::oracle::{MIN_CONCURRENT, Oracle, WindowStage};
use super::shadow::pattern;

impl Oracle {
    /// A request of `rank` completed. Returns `true` if with `Done`.
    pub(crate) fn completed(
        &mut self,
        now: u64,
        memory: &mut dyn Memory,
        rank: u32,
        number: u64,
        result: &RequestResult,
    ) -> Result<bool, Finding> {
        let Some(op) = self.op(number).cloned() else {
            return found(
                Kind::Results,
                format!("rank {rank} completes request {number}, which it never got"),
            );
        };
        if op.rank != rank || op.state != State::Running {
            let text = format!(
                "rank {rank} completes request {number} with {result:?}; it is of rank {}, which is {:?}",
                op.rank, op.state
            );
            return found(Kind::Results, text);
        }
        let done = matches!(result, RequestResult::Done { .. });
        if let Some(op) = self.op(number) {
            op.state = if done { State::Done } else { State::Failed };
        }
        let model = self.model(rank);
        let crowd = model.running.len() as u32;
        model.running.retain(|running| *running != number);
        let left = model.left;
        let resumed_ns = model.resumed_ns;
        self.in_time(now, number, &op, resumed_ns, result)?;
        match result {
            RequestResult::Done { bytes } => self.done(now, memory, number, &op, *bytes)?,
            RequestResult::Failed(fault) => {
                self.failed(memory, number, &op, fault)?;
                let excuse = !op.sound
                    || op.cancelled
                    || left
                    || self.rough
                    || (*fault == RequestError::Full && crowd > MIN_CONCURRENT)
                    || peer(&op.request).is_some_and(|p| match moves(&op.request) {
                        Some(moves) if !moves.rndv && self.drains => {
                            self.links.excused_bytes(rank, p, op.submitted_ns)
                        }
                        _ => self.links.excused(rank, p, op.submitted_ns),
                    })
                    || self.window_went(&op);
                if !excuse {
                    let text = format!(
                        "rank {rank}: request {number}, {}, failed: {fault:?}",
                        brief(&op.request)
                    );
                    return found(Kind::Unexplained, text);
                }
            }
        }
        if let Some(peer) = peer(&op.request) {
            self.messages.answered(rank, peer, number, done);
        }
        self.model(rank).held.retain(|(held, ..)| *held != number);
        self.use_again(memory, number, &op)?;
        Ok(done)
    }

    /// The sources of a completed request are the application's again, and it overwrites them at once: a node that still sends
    /// from there sends wrong bytes.
    fn use_again(&mut self, memory: &mut dyn Memory, number: u64, op: &Op) -> Verdict {
        let Some(moves) = moves(&op.request).filter(|moves| moves.direction == Direction::Out)
        else {
            return Ok(());
        };
        for piece in moves.pieces.iter().filter(|piece| piece.len > 0) {
            let (offset, len) = (piece.local as usize, piece.len as usize);
            let id = number << 8 ^ 0x4147_4149_4E00_0000;
            self.scratch.resize(len, 0);
            pattern(id, &mut self.scratch);
            let Some(shadow) = &mut self.models[op.rank as usize].buffer else { return Ok(()) };
            shadow.own_write(offset, &self.scratch, id);
            if !memory.write(op.rank, MemoryArea::Buffer, piece.local, &self.scratch) {
                return found(Kind::Interface, format!("rank {} cannot write its buffer", op.rank));
            }
        }
        Ok(())
    }

    fn in_time(
        &self,
        now: u64,
        number: u64,
        op: &Op,
        resumed_ns: u64,
        result: &RequestResult,
    ) -> Verdict {
        let limit_ns = match &op.request {
            Request::Revoke { patience_ns, .. } => *patience_ns,
            _ => self.deadline_ns,
        };
        let took_ns = now - op.submitted_ns.max(resumed_ns).min(now);
        // Memory that a stalled connection still reads or writes comes back when the connection ends, not before.
        let held = matches!(result, RequestResult::Failed(_))
            && moves(&op.request).is_some_and(|m| {
                self.rough || self.links.excused(op.rank, m.peer, op.submitted_ns)
            });
        if !held && took_ns > limit_ns + 2 * self.heartbeat_ns {
            let text = format!(
                "rank {}: request {number}, {}, took {took_ns} ns of {limit_ns}: {result:?}",
                op.rank,
                brief(&op.request)
            );
            return found(Kind::Late, text);
        }
        // The failure of either end of a rendezvous ends both.
        let shared = moves(&op.request).is_some_and(|m| m.rndv);
        let early = *result == RequestResult::Failed(RequestError::Deadline)
            && now - op.submitted_ns < limit_ns / 2
            && !shared;
        if early {
            let text =
                format!("rank {}: request {number} ended by deadline after {took_ns} ns", op.rank);
            return found(Kind::Unexplained, text);
        }
        if *result == RequestResult::Failed(RequestError::Cancelled) && !op.cancelled && !shared {
            let text = format!("rank {}: nobody cancelled request {number}", op.rank);
            return found(Kind::Unexplained, text);
        }
        Ok(())
    }

    /// The window of this request was revoked or exposed again since.
    fn window_went(&self, op: &Op) -> bool {
        let Some(TransferShape { peer, label: Some(label), .. }) = moves(&op.request) else {
            return false;
        };
        let window = self.models.get(peer as usize).and_then(|p| p.windows.get(&label));
        window.is_none_or(|w| w.stage != WindowStage::Exposed || w.exposure != op.exposure)
    }

    fn done(
        &mut self,
        now: u64,
        memory: &mut dyn Memory,
        number: u64,
        op: &Op,
        bytes: u64,
    ) -> Verdict {
        let rank = op.rank;
        if let Some(moves) = moves(&op.request) {
            let want = total(&moves.pieces);
            let any = moves.rndv && moves.direction == Direction::In && bytes <= want;
            if bytes != want && !any {
                let text = format!("rank {rank}: request {number} moved {bytes} of {want} bytes");
                return found(Kind::NotDone, text);
            }
            if moves.rndv {
                return self.rndv_done(memory, number, op, &moves, bytes);
            }
            return self.moved(memory, number, op, &moves);
        }
        match &op.request {
            Request::Connect { rank: peer } => self.claims.push((rank, *peer, true)),
            Request::Disconnect { peer } => {
                self.claims.push((rank, *peer, false));
                let until = now + self.settle_ns();
                self.links.ending(rank, *peer, now, until);
            }
            Request::Leave => self.claims.extend((0..self.ranks).map(|peer| (rank, peer, false))),
            Request::Expose { label, .. } => {
                let window = self.model(rank).windows.get_mut(label);
                match window.filter(|w| w.stage == WindowStage::Asked && w.exposure == op.exposure)
                {
                    Some(window) => {
                        (window.stage, window.since_ns) = (WindowStage::Exposed, now);
                        window.made = true;
                    }
                    None => {
                        let text = format!("rank {rank} exposed window {label:#x} twice");
                        return found(Kind::Results, text);
                    }
                }
            }
            Request::Revoke { label, .. } => return self.revoked(memory, rank, *label, number, op),
            _ => {}
        }
        Ok(())
    }

    /// A transfer completed: checks its bytes.
    fn moved(
        &mut self,
        memory: &mut dyn Memory,
        number: u64,
        op: &Op,
        moves: &TransferShape<'_>,
    ) -> Verdict {
        let rank = op.rank;
        let wrong = |text: String| {
            found(
                Kind::NotDone,
                format!("rank {rank}: request {number}, {}: {text}", brief(&op.request)),
            )
        };
        let Some((target, area)) = op.shadow else {
            if total(&moves.pieces) == 0 {
                return Ok(());
            }
            return wrong("done, though it may not or cannot be".into());
        };
        if moves.direction == Direction::Out {
            if let Some(Err(text)) = &op.fenced {
                return wrong(format!("not there when its target was fenced: {text}"));
            }
            let places = match self.models[target as usize].shadow(area) {
                Some(shadow) => shadow.places(number),
                None => return Ok(()),
            };
            for (offset, len) in places {
                look(memory, target, area, offset as u64, len, &mut self.scratch)?;
                let Some(shadow) = self.models[target as usize].shadow(area) else { return Ok(()) };
                if let Err(text) = shadow.visible(number, offset, &self.scratch) {
                    return wrong(text);
                }
                shadow.confirm(number, offset, &self.scratch);
            }
            return Ok(());
        }
        for piece in moves.pieces.iter().filter(|piece| piece.len > 0) {
            let len = piece.len as usize;
            look(memory, rank, MemoryArea::Buffer, piece.local, len, &mut self.scratch)?;
            let shadow = self.models[target as usize].shadow(area);
            if let Some(Err(text)) = shadow.map(|g| g.read_ends(number, Some(&self.scratch))) {
                return wrong(text);
            }
        }
        self.land(memory, number, rank, moves)
    }

    /// A `Send` or `Recv` completed.
    fn rndv_done(
        &mut self,
        memory: &dyn Memory,
        number: u64,
        op: &Op,
        moves: &TransferShape<'_>,
        bytes: u64,
    ) -> Verdict {
        if moves.direction == Direction::Out {
            self.rndv.sent(op.rank, moves.peer, number)?;
            return Ok(());
        }
        let local = moves.pieces.first().map_or(0, |piece| piece.local);
        look(memory, op.rank, MemoryArea::Buffer, local, bytes as usize, &mut self.scratch)?;
        self.rndv.received(moves.peer, op.rank, number, &self.scratch)?;
        self.land(memory, number, op.rank, moves)
    }

    /// A get completed: its destination is the application's again, with its present bytes.
    fn land(
        &mut self,
        memory: &dyn Memory,
        number: u64,
        rank: u32,
        moves: &TransferShape<'_>,
    ) -> Verdict {
        for piece in moves.pieces.iter().filter(|piece| piece.len > 0) {
            let len = piece.len as usize;
            look(memory, rank, MemoryArea::Buffer, piece.local, len, &mut self.scratch)?;
            if let Some(shadow) = &mut self.models[rank as usize].buffer {
                shadow.confirm(number, piece.local as usize, &self.scratch);
            }
        }
        Ok(())
    }

    /// A window is private again: no writer may write it any more.
    fn revoked(
        &mut self,
        memory: &mut dyn Memory,
        rank: u32,
        label: u64,
        number: u64,
        op: &Op,
    ) -> Verdict {
        let exposure = op.exposure;
        let current = |w: &&mut super::oracle::Window| {
            w.stage == WindowStage::Revoking && w.exposure == exposure && exposure != 0
        };
        if self.model(rank).windows.get_mut(&label).filter(current).is_none() {
            // A second revoke of the same exposure may succeed with the first.
            return Ok(());
        }
        let area = MemoryArea::Window(label);
        self.fence(memory, rank, area, |_| true)?;
        let Some(window) = self.model(rank).windows.get_mut(&label) else { return Ok(()) };
        window.stage = WindowStage::Private;
        let mut fill = vec![0; window.shadow.len()];
        let id = number << 8 | 0xF1;
        pattern(id, &mut fill);
        window.shadow.own_write(0, &fill, id);
        if !memory.write(rank, area, 0, &fill) {
            let text = format!("rank {rank} cannot write window {label:#x} after its revoke");
            return found(Kind::Interface, text);
        }
        Ok(())
    }

    fn failed(
        &mut self,
        memory: &dyn Memory,
        number: u64,
        op: &Op,
        fault: &RequestError,
    ) -> Verdict {
        let rank = op.rank;
        if let Some(moves) = moves(&op.request) {
            if let Some((target, area)) = op.shadow
                && let Some(shadow) = self.models[target as usize].shadow(area)
            {
                shadow.loosen(number);
                if moves.direction == Direction::In {
                    // It reports no bytes, so there is nothing to check.
                    let _nothing_read = shadow.read_ends(number, None);
                }
            }
            if moves.rndv && moves.direction == Direction::In {
                self.rndv.missed(moves.peer, rank);
            }
            if moves.direction == Direction::In {
                self.land(memory, number, rank, &moves)?;
            }
        }
        match &op.request {
            Request::Expose { label, .. } if op.exposure != 0 => {
                let label = *label;
                self.fence(memory, rank, MemoryArea::Window(label), |_| true)?;
                let windows = &mut self.model(rank).windows;
                if windows.get(&label).is_some_and(|window| !window.made) {
                    windows.remove(&label);
                } else if let Some(window) = windows.get_mut(&label) {
                    window.stage = WindowStage::Private;
                }
            }
            Request::Revoke { label, .. } if op.exposure != 0 => {
                let left = self.model(rank).left;
                let Some(window) = self.model(rank).windows.get_mut(label) else {
                    return Ok(());
                };
                if *fault == RequestError::Quarantined {
                    window.stage = WindowStage::Quarantined;
                } else if window.stage == WindowStage::Revoking
                    && !(left && *fault == RequestError::Closed)
                {
                    let text = format!(
                        "rank {rank}: request {number}, revoke of {label:#x}, ended with {fault:?}"
                    );
                    return found(Kind::Unexplained, text);
                }
            }
            Request::Disconnect { .. } | Request::Leave if !self.model(rank).left => {
                let text =
                    format!("rank {rank}: request {number}, {:?}, failed: {fault:?}", op.request);
                return found(Kind::Unexplained, text);
            }
            _ => {}
        }
        Ok(())
    }

    /// `rank` is about to be killed, and its kernel sends all that it has taken: what is under way to peers whose link to it
    /// is whole has to arrive. How many messages that are.
    pub(crate) fn killed(&mut self, now: u64, rank: u32) -> u64 {
        let mut many = 0;
        for peer in (0..self.ranks).filter(|peer| *peer != rank) {
            let whole = self.links.joined(rank, peer) && !self.links.excused(rank, peer, now);
            if whole && !self.rough {
                let link = self.links.view(rank, peer).link;
                let numbers = self.messages.under_way(rank, peer, link);
                many += numbers.len() as u64;
                self.undelivered.add(rank, peer, &numbers);
            }
        }
        many
    }

    /// A fault between two ranks, which may explain failures until then.
    pub(crate) fn trouble(&mut self, a: u32, b: u32, until_ns: u64) {
        self.links.trouble(a, b, until_ns);
        self.undelivered.excuse(a, b);
    }

    /// `rank` reports that a peer is up.
    pub(crate) fn up(&mut self, rank: u32, peer: u32, incarnation: u64) -> Verdict {
        self.links.up(rank, peer, incarnation)
    }

    /// `rank` reports that a peer is down: no bytes of that link arrive from now on.
    pub(crate) fn down(&mut self, now: u64, memory: &dyn Memory, rank: u32, peer: u32) -> Verdict {
        let link = self.links.down(now, rank, peer)?;
        self.undelivered.down(peer, rank)?;
        self.undelivered.excuse(peer, rank);
        let old = |mark: &super::shadow::WriteRange| mark.from == peer && mark.link <= link;
        self.fence(memory, rank, MemoryArea::Buffer, old)?;
        let model = self.model(rank);
        let of = |(label, w): (&u64, &mut super::oracle::Window)| {
            (w.peer == peer).then(|| {
                w.ended = true;
                *label
            })
        };
        let labels: Vec<u64> = model.windows.iter_mut().filter_map(of).collect();
        for label in labels {
            self.fence(memory, rank, MemoryArea::Window(label), |mark| mark.from == peer)?;
        }
        if !self.rough && !self.links.excused(rank, peer, now) {
            let text = format!("rank {rank} says that rank {peer} is down, without any fault");
            return found(Kind::Unexplained, text);
        }
        Ok(())
    }

    /// After the last output to one input: what was claimed in it is true.
    pub(crate) fn batch_ends(&mut self) -> Verdict {
        while let Some((rank, peer, up)) = self.claims.pop() {
            if self.links.view(rank, peer).up != up {
                let text =
                    format!("rank {rank} reports that rank {peer} is up: {up}; it is not so");
                return found(Kind::Peers, text);
            }
        }
        Ok(())
    }

    /// Finds requests that never completed.
    pub(crate) fn check_unfinished(&self) -> Verdict {
        for model in &self.models {
            if let Some(number) = model.running.first() {
                let op = self.ops.get(*number as usize).and_then(Option::as_ref);
                let what = op.map(|op| brief(&op.request)).unwrap_or_default();
                let rank = op.map_or(0, |op| op.rank);
                let text = format!("rank {rank}: request {number}, {what}, never completed");
                return found(Kind::Hang, text);
            }
        }
        Ok(())
    }

    /// All is quiet: every byte and every message is where it belongs.
    pub(crate) fn finish(&mut self, memory: &dyn Memory) -> Verdict {
        for rank in 0..self.ranks {
            if !self.alive(rank) {
                continue;
            }
            let labels = self.models[rank as usize].windows.keys().map(|l| MemoryArea::Window(*l));
            for area in std::iter::once(MemoryArea::Buffer).chain(labels.collect::<Vec<_>>()) {
                let Some(shadow) = self.models[rank as usize].shadow(area) else { continue };
                let len = shadow.len();
                look(memory, rank, area, 0, len, &mut self.scratch)?;
                let Some(shadow) = self.models[rank as usize].shadow(area) else { continue };
                if let Err(text) = shadow.range(0, &self.scratch) {
                    return found(Kind::StrayBytes, format!("rank {rank}, {area:?}: {text}"));
                }
            }
            for peer in 0..self.ranks {
                let (view, back) = (self.links.view(rank, peer), self.links.view(peer, rank));
                if view.up && !back.up {
                    let text = format!(
                        "rank {rank} still believes in its link to rank {peer}, long after its end"
                    );
                    return found(Kind::Peers, text);
                }
                if view.up && back.up {
                    self.messages.all_arrived(rank, peer, view.link)?;
                }
            }
        }
        Ok(())
    }
}

/// Describes a request briefly.
pub(crate) fn brief(request: &Request) -> String {
    match request {
        Request::Struct { peer, bytes } => {
            format!("Struct {{ peer: {peer}, {} bytes }}", bytes.len())
        }
        request => format!("{request:?}"),
    }
}
