//! The oracle: it models the applications' memory by shadow memory and checks each result against it.
//!
//! It reads the ranks' memory, but no bytes in transit. Requests begin here; [`super::oracle_results`] completes them.

use std::collections::BTreeMap;

use super::finding::{Finding, Kind, Verdict, found};
use super::link_oracle::LinkOracle;
use super::message_oracle::MessageOracle;
use super::node::{MemoryArea, NodeMessage, Request};
use super::nodes::{Memory, look};
use super::ops::{Direction, Op, State, fits, moves, peer, total};
use super::rndv_oracle::{RndvOracle, pattern_of};
use super::script::Plan;
use super::shadow::{ShadowMemory, WriteRange, pattern};
use super::undelivered::Undelivered;

/// Requests that a rank must be able to run at a time, before `Full` is an excuse.
pub(crate) const MIN_CONCURRENT: u32 = 8;
/// Time that an advert may take, in heartbeats.
const ADVERT_BEATS: u64 = 1;

/// The stage of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WindowStage {
    /// With its owner.
    Private,
    /// The owner requested to expose it.
    Asked,
    /// Exposed.
    Exposed,
    /// The owner requested to revoke it.
    Revoking,
    /// Lost.
    Quarantined,
}

/// A labelled region of a rank.
#[derive(Debug)]
pub(crate) struct Window {
    pub(crate) shadow: ShadowMemory,
    pub(crate) peer: u32,
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) stage: WindowStage,
    /// Its link ended: nobody reaches it any more.
    pub(crate) ended: bool,
    /// Counts the exposures.
    pub(crate) exposure: u64,
    /// When the last one completed.
    pub(crate) since_ns: u64,
    /// Its region exists: an exposure completed with `Done`.
    pub(crate) made: bool,
}

/// The oracle's model of a rank.
#[derive(Default)]
pub(crate) struct RankModel {
    pub(crate) buffer: Option<ShadowMemory>,
    pub(crate) windows: BTreeMap<u64, Window>,
    /// Local ranges of running requests.
    pub(crate) held: Vec<(u64, u64, u64)>,
    pub(crate) running: Vec<u64>,
    /// It got a request to leave.
    pub(crate) left: bool,
    pub(crate) resumed_ns: u64,
    incarnation: u64,
}

impl RankModel {
    pub(crate) fn shadow(&mut self, area: MemoryArea) -> Option<&mut ShadowMemory> {
        match area {
            MemoryArea::Buffer => self.buffer.as_mut(),
            MemoryArea::Window(label) => {
                self.windows.get_mut(&label).map(|window| &mut window.shadow)
            }
        }
    }
}

/// The oracle.
pub(crate) struct Oracle {
    pub(crate) ranks: u32,
    pub(crate) buffer_len: u64,
    pub(crate) deadline_ns: u64,
    pub(crate) heartbeat_ns: u64,
    /// The network alone may break links.
    pub(crate) rough: bool,
    /// An end in order excuses no bytes that were on their way before it.
    pub(crate) drains: bool,
    pub(crate) ops: Vec<Option<Op>>,
    pub(crate) models: Vec<RankModel>,
    pub(crate) links: LinkOracle,
    pub(crate) messages: MessageOracle,
    pub(crate) rndv: RndvOracle,
    pub(crate) undelivered: Undelivered,
    pub(crate) scratch: Vec<u8>,
    /// Connects and disconnects that completed in this batch of outputs.
    pub(crate) claims: Vec<(u32, u32, bool)>,
}

impl Oracle {
    pub(crate) fn new(plan: &Plan) -> Self {
        Self {
            ranks: plan.ranks,
            buffer_len: plan.buffer_len,
            deadline_ns: plan.deadline_ns,
            heartbeat_ns: plan.heartbeat_ns,
            rough: plan.conditions.rough,
            drains: false,
            ops: Vec::new(),
            models: (0..plan.ranks).map(|_| RankModel::default()).collect(),
            links: LinkOracle::new(plan.ranks),
            messages: MessageOracle::new(plan.ranks),
            rndv: RndvOracle::new(plan.ranks),
            undelivered: Undelivered::default(),
            scratch: Vec::new(),
            claims: Vec::new(),
        }
    }

    /// Returns how long after a fault it may still explain a failure.
    pub(crate) const fn settle_ns(&self) -> u64 {
        self.deadline_ns + 8 * self.heartbeat_ns
    }

    pub(crate) fn op(&mut self, number: u64) -> Option<&mut Op> {
        self.ops.get_mut(usize::try_from(number).ok()?)?.as_mut()
    }

    pub(crate) fn model(&mut self, rank: u32) -> &mut RankModel {
        &mut self.models[rank as usize]
    }

    /// A process starts: its application marks all of its memory.
    pub(crate) fn start(&mut self, memory: &mut dyn Memory, rank: u32) -> Verdict {
        self.links.start(rank);
        let len = usize::try_from(self.buffer_len).unwrap_or(0);
        let incarnation = self.models[rank as usize].incarnation + 1;
        let mut base = vec![0; len];
        pattern(u64::from(rank) << 40 | incarnation << 20 | 0xB007, &mut base);
        if !memory.write(rank, MemoryArea::Buffer, 0, &base) {
            return found(Kind::Interface, format!("rank {rank} cannot write its own buffer"));
        }
        let buffer = Some(ShadowMemory::new(base));
        self.models[rank as usize] = RankModel { buffer, incarnation, ..RankModel::default() };
        Ok(())
    }

    /// A process is about to exit: accesses of its memory are checked against its present bytes.
    pub(crate) fn end(&mut self, memory: &dyn Memory, rank: u32) -> Verdict {
        self.fence(memory, rank, MemoryArea::Buffer, |_| true)?;
        let labels: Vec<u64> = self.models[rank as usize].windows.keys().copied().collect();
        for label in labels {
            self.fence(memory, rank, MemoryArea::Window(label), |_| true)?;
        }
        for number in std::mem::take(&mut self.model(rank).running) {
            if let Some(op) = self.op(number) {
                op.state = State::Gone;
                if let (Some((target, area)), request) = (op.shadow, op.request.clone()) {
                    let shadow = self.models[target as usize].shadow(area);
                    if let Some(shadow) = shadow {
                        shadow.loosen(number);
                        if moves(&request).is_some_and(|moves| moves.direction == Direction::In) {
                            // Its reader will not report the bytes.
                            let _nothing_read = shadow.read_ends(number, None);
                        }
                    }
                }
            }
        }
        self.messages.sender_gone(rank);
        self.links.remove(rank);
        let incarnation = self.models[rank as usize].incarnation;
        self.models[rank as usize] = RankModel { incarnation, ..RankModel::default() };
        Ok(())
    }

    /// From now on no writer that `pick` selects may write this memory: its bytes are settled.
    pub(crate) fn fence(
        &mut self,
        memory: &dyn Memory,
        rank: u32,
        area: MemoryArea,
        pick: impl Fn(&WriteRange) -> bool,
    ) -> Verdict {
        let Some(shadow) = self.models[rank as usize].shadow(area) else { return Ok(()) };
        for number in shadow.numbers(pick) {
            let Some(shadow) = self.models[rank as usize].shadow(area) else { return Ok(()) };
            let mut landed = Ok(());
            let places = shadow.places(number);
            for (offset, len) in &places {
                look(memory, rank, area, *offset as u64, *len, &mut self.scratch)?;
                let Some(shadow) = self.models[rank as usize].shadow(area) else { return Ok(()) };
                if landed.is_ok() {
                    landed = shadow.visible(number, *offset, &self.scratch);
                }
                if let Err(text) = shadow.range(*offset, &self.scratch) {
                    return found(Kind::StrayBytes, format!("rank {rank}, {area:?}: {text}"));
                }
            }
            for (offset, len) in places {
                look(memory, rank, area, offset as u64, len, &mut self.scratch)?;
                let Some(shadow) = self.models[rank as usize].shadow(area) else { return Ok(()) };
                shadow.confirm(number, offset, &self.scratch);
            }
            if let Some(op) = self.op(number).filter(|op| op.fenced.is_none()) {
                op.fenced = Some(landed);
            }
        }
        Ok(())
    }

    /// The application of `rank` submits a request. Returns `false` if it cannot now, and does not.
    pub(crate) fn begin(
        &mut self,
        now: u64,
        memory: &mut dyn Memory,
        number: u64,
        rank: u32,
        request: &Request,
    ) -> Result<bool, Finding> {
        if !self.prepare(memory, number, rank, request)? {
            return Ok(false);
        }
        let few = self.models[rank as usize].running.len() < MIN_CONCURRENT as usize;
        let peer = peer(request);
        let left = |model: Option<&RankModel>| model.is_none_or(|model| model.left);
        let whole = !left(self.models.get(rank as usize))
            && peer.is_none_or(|peer| !left(self.models.get(peer as usize)));
        let joined = match (request, peer) {
            (Request::Connect { rank: to }, _) => self.alive(*to),
            (_, Some(peer)) => self.links.joined(rank, peer),
            _ => true,
        };
        let view = peer.map(|peer| self.links.view(rank, peer)).unwrap_or_default();
        let op = Op {
            rank,
            request: request.clone(),
            submitted_ns: now,
            state: State::Running,
            cancelled: false,
            sound: few && whole && joined,
            link: if view.up { view.link } else { 0 },
            shadow: None,
            fenced: None,
            exposure: 0,
        };
        let index = usize::try_from(number).unwrap_or(usize::MAX);
        if self.ops.len() <= index {
            self.ops.resize_with(index + 1, || None);
        }
        let link = op.link;
        self.ops[index] = Some(op);
        self.model(rank).running.push(number);
        self.enter(now, number, rank, request);
        match request {
            Request::Tag { peer, .. }
            | Request::Int { peer, .. }
            | Request::Struct { peer, .. } => {
                self.messages.submitted(rank, *peer, number, link, false);
            }
            Request::PutNotify { peer, .. } => {
                self.messages.submitted(rank, *peer, number, link, true)
            }
            Request::Cancel { number } => {
                if let Some(op) = self.op(*number).filter(|op| op.rank == rank) {
                    op.cancelled = true;
                }
            }
            Request::Disconnect { peer } => {
                let until = now + self.deadline_ns + self.settle_ns();
                self.links.ending(rank, *peer, now, until);
                self.undelivered.excuse(rank, *peer);
            }
            Request::Leave => {
                self.model(rank).left = true;
                self.undelivered.excuse_all(rank);
                self.links.ending_all(rank, now, u64::MAX);
            }
            Request::Expose { peer, label, len, read, write } => {
                self.expose(number, rank, *label, *peer, *len, (*read, *write));
            }
            Request::Revoke { label, .. } => {
                let window = self.model(rank).windows.get_mut(label);
                let mut exposure = 0;
                if let Some(window) = window.filter(|w| w.stage == WindowStage::Exposed) {
                    window.stage = WindowStage::Revoking;
                    exposure = window.exposure;
                }
                if let Some(op) = self.op(number) {
                    op.exposure = exposure;
                    op.sound &= exposure != 0;
                }
            }
            _ => {}
        }
        Ok(true)
    }

    pub(crate) fn alive(&self, rank: u32) -> bool {
        self.models.get(rank as usize).is_some_and(|model| model.buffer.is_some())
    }

    /// Fills the sources with the request's own pattern. Returns `false` if a local range is in use.
    fn prepare(
        &mut self,
        memory: &mut dyn Memory,
        number: u64,
        rank: u32,
        request: &Request,
    ) -> Result<bool, Finding> {
        let Some(moves) = moves(request) else { return Ok(true) };
        let model = &self.models[rank as usize];
        let meet = |a: (u64, u64), b: (u64, u64)| a.0 < b.0 + b.1 && b.0 < a.0 + a.1;
        for (index, piece) in moves.pieces.iter().enumerate() {
            let own = (piece.local, piece.len);
            let used = model.held.iter().any(|(_, from, len)| meet(own, (*from, *len)));
            let twice = moves.pieces[..index].iter().any(|p| meet(own, (p.local, p.len)));
            if used || twice || own.0 + own.1 > self.buffer_len {
                return Ok(false);
            }
        }
        for (index, piece) in moves.pieces.iter().enumerate().filter(|(_, piece)| piece.len > 0) {
            let (offset, len) = (piece.local as usize, piece.len as usize);
            look(memory, rank, MemoryArea::Buffer, piece.local, len, &mut self.scratch)?;
            let model = &mut self.models[rank as usize];
            let Some(shadow) = model.buffer.as_mut() else { return Ok(false) };
            if let Err(text) = shadow.range(offset, &self.scratch) {
                let text = format!("rank {rank}, a local range given back earlier: {text}");
                return found(Kind::StrayBytes, text);
            }
            model.held.push((number, piece.local, piece.len));
            if moves.direction == Direction::Out {
                let id = pattern_of(number, index);
                pattern(id, &mut self.scratch);
                shadow.own_write(offset, &self.scratch, id);
                if !memory.write(rank, MemoryArea::Buffer, piece.local, &self.scratch) {
                    return found(Kind::Interface, format!("rank {rank} cannot write its buffer"));
                }
            } else {
                let mark =
                    WriteRange { number, pattern: None, offset, len, from: rank, link: u64::MAX };
                shadow.write_starts(mark);
            }
        }
        Ok(true)
    }

    /// Records the request as a writer or reader of the memory that it may access.
    fn enter(&mut self, now: u64, number: u64, rank: u32, request: &Request) {
        let Some(moves) = moves(request) else { return };
        if moves.rndv {
            if let Some(op) = self.op(number) {
                op.sound = false; // it needs its counterpart
            }
            match moves.direction {
                Direction::Out => {
                    self.rndv.submitted(rank, moves.peer, number, total(&moves.pieces))
                }
                Direction::In => self.rndv.awaited(moves.peer, rank, number),
            }
            return;
        }
        let view = self.links.view(moves.peer, rank);
        let link = if view.up { view.link } else { view.link + 1 };
        let advert_ns = ADVERT_BEATS * self.heartbeat_ns;
        let Some(model) = self.models.get_mut(moves.peer as usize) else { return };
        let mut sound = true;
        let mut exposure = 0;
        let area = match moves.label {
            None => MemoryArea::Buffer,
            Some(label) => MemoryArea::Window(label),
        };
        let allowed = match moves.label.map(|label| model.windows.get(&label)) {
            None => model.buffer.is_some(),
            Some(None) => false,
            Some(Some(window)) => {
                sound = window.stage == WindowStage::Exposed && now >= window.since_ns + advert_ns;
                exposure = window.exposure;
                let right =
                    if moves.direction == Direction::Out { window.write } else { window.read };
                let reach = matches!(
                    window.stage,
                    WindowStage::Asked
                        | WindowStage::Exposed
                        | WindowStage::Revoking
                        | WindowStage::Quarantined
                );
                right && reach && !window.ended && window.peer == rank
            }
        };
        let len = model.shadow(area).map_or(0, |shadow| shadow.len() as u64);
        let good = allowed && moves.pieces.iter().all(|piece| fits(piece, len));
        if good && let Some(shadow) = model.shadow(area) {
            for (index, piece) in moves.pieces.iter().enumerate().filter(|(_, p)| p.len > 0) {
                let (offset, len) = (piece.remote as usize, piece.len as usize);
                if moves.direction == Direction::Out {
                    let pattern = Some(pattern_of(number, index));
                    let range = WriteRange { number, pattern, offset, len, from: rank, link };
                    shadow.write_starts(range);
                } else {
                    shadow.read_starts(number, offset, len);
                }
            }
        }
        if let Some(op) = self.op(number) {
            op.sound &= sound && good;
            op.exposure = exposure;
            op.shadow = good.then_some((moves.peer, area));
        }
    }

    fn expose(
        &mut self,
        number: u64,
        rank: u32,
        label: u64,
        peer: u32,
        len: u64,
        (read, write): (bool, bool),
    ) {
        let window = self.model(rank).windows.entry(label).or_insert_with(|| Window {
            shadow: ShadowMemory::new(vec![0; len as usize]),
            peer,
            read,
            write,
            stage: WindowStage::Private,
            ended: false,
            exposure: 0,
            since_ns: 0,
            made: false,
        });
        let free = window.stage == WindowStage::Private;
        if free {
            (window.peer, window.read, window.write) = (peer, read, write);
            window.stage = WindowStage::Asked;
            window.ended = false;
            window.exposure += 1;
        }
        let exposure = if free { window.exposure } else { 0 };
        if let Some(op) = self.op(number) {
            op.exposure = exposure;
            op.sound &= free;
        }
    }

    /// A message reached the application of `rank`.
    pub(crate) fn message(
        &mut self,
        memory: &dyn Memory,
        rank: u32,
        from: u32,
        message: &NodeMessage,
    ) -> Verdict {
        if from >= self.ranks || !self.links.view(rank, from).up {
            let text = format!("rank {rank} got {message:?} of rank {from}, which is not up");
            return found(Kind::Peers, text);
        }
        let ops = &self.ops;
        let requested = |number: u64| {
            let op = ops.get(usize::try_from(number).ok()?)?.as_ref()?;
            (op.rank == from).then_some(&op.request)
        };
        let number = self.messages.arrived(from, rank, message, requested)?;
        self.undelivered.arrived(number);
        if !matches!(message, NodeMessage::Notify(_)) {
            return Ok(());
        }
        let Some(shadow) = self.models[rank as usize].buffer.as_ref() else { return Ok(()) };
        for (offset, len) in shadow.places(number) {
            look(memory, rank, MemoryArea::Buffer, offset as u64, len, &mut self.scratch)?;
            if let Err(text) = shadow.visible(number, offset, &self.scratch) {
                let text = format!(
                    "rank {rank} was notified by request {number} before its bytes: {text}"
                );
                return found(Kind::NotDone, text);
            }
        }
        Ok(())
    }
}
