//! The checker's record of one region: rights of access, expected bytes, and events.

use std::collections::VecDeque;

use hmc_core::range::ByteRange;
use hmc_core::region::LocalSlice;
use hmc_core::types::Access;

use super::finding::AccessViolation;
use super::history::{Actor, Event, EventKind};

/// Events that are remembered of each region.
const REMEMBERED: usize = 4096;
/// Fenced windows that are remembered of each region, to distinguish "after its fence" from "no window".
const CLOSED: usize = 256;

/// An access of a NIC.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemAccess {
    /// The end whose memory is accessed.
    pub(crate) end: u16,
    pub(crate) range: LocalSlice,
    pub(crate) access: Access,
    /// The request's number.
    pub(crate) number: u64,
    pub(crate) by: Actor,
    /// `None` for the initiator's own memory, else the window of the target.
    pub(crate) through: Option<(u64, u32)>,
}

/// Rights of a request to its initiator's memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestRights {
    pub(super) end: u16,
    pub(super) range: LocalSlice,
    pub(super) access: Access,
}

impl RequestRights {
    pub(super) fn covers(&self, access: &MemAccess) -> bool {
        let (mine, theirs) = (self.range.span, access.range.span);
        self.end == access.end
            && self.range.key == access.range.key
            && self.access.contains(access.access)
            && mine.offset() <= theirs.offset()
            && theirs.end() <= mine.end()
    }
}

#[derive(Clone, Copy, Debug)]
struct WindowRecord {
    peer: u16,
    name: (u64, u32),
    span: ByteRange,
    access: Access,
    fenced: bool,
}

#[derive(Debug)]
pub(super) struct RegionRecord {
    /// The expected bytes.
    pub(super) shadow: Vec<u8>,
    pub(super) released: bool,
    pub(super) forgotten: u64,
    windows: VecDeque<WindowRecord>,
    log: VecDeque<Event>,
}

impl RegionRecord {
    pub(super) fn new(bytes: &[u8]) -> Self {
        Self {
            shadow: bytes.to_vec(),
            released: false,
            forgotten: 0,
            windows: VecDeque::new(),
            log: VecDeque::new(),
        }
    }

    /// Records an event; without a span it applies to the whole region.
    pub(super) fn note(
        &mut self,
        at_ns: u64,
        span: Option<ByteRange>,
        kind: EventKind,
        actor: Actor,
    ) {
        if self.log.len() >= REMEMBERED {
            self.log.pop_front();
            self.forgotten = self.forgotten.saturating_add(1);
        }
        let (from, to) = span.map_or((0, u64::MAX), |s| (s.offset(), s.end()));
        self.log.push_back(Event { at_ns, actor, kind, from, to });
    }

    /// Returns the events of the byte at `at`.
    pub(super) fn history(&self, at: u64) -> Vec<Event> {
        self.log.iter().filter(|e| e.from <= at && at < e.to).copied().collect()
    }

    pub(super) fn shade(&mut self, span: ByteRange, bytes: &[u8]) {
        let range = usize::try_from(span.offset()).ok().zip(usize::try_from(span.end()).ok());
        let side = range.and_then(|(from, to)| self.shadow.get_mut(from..to));
        if let Some(side) = side.filter(|p| p.len() == bytes.len()) {
            side.copy_from_slice(bytes);
        }
    }

    pub(super) fn release(&mut self, now_ns: u64) {
        self.released = true;
        self.note(now_ns, None, EventKind::Released, Actor::Owner);
    }

    pub(super) fn open(
        &mut self,
        now_ns: u64,
        peer: u16,
        span: ByteRange,
        name: (u64, u32),
        access: Access,
    ) {
        if self.windows.len() >= CLOSED
            && let Some(old) = self.windows.iter().position(|w| w.fenced)
        {
            self.windows.remove(old);
        }
        self.windows.push_back(WindowRecord { peer, name, span, access, fenced: false });
        let kind = EventKind::Opened { window: name.0, epoch: name.1 };
        self.note(now_ns, Some(span), kind, Actor::Owner);
    }

    pub(super) fn fence(&mut self, now_ns: u64, span: ByteRange, name: (u64, u32)) {
        for window in self.windows.iter_mut().filter(|w| w.name == name) {
            window.fenced = true;
        }
        let kind = EventKind::Fenced { window: name.0, epoch: name.1 };
        self.note(now_ns, Some(span), kind, Actor::Owner);
    }

    /// Returns why a peer may not access these bytes through the window of that name, and the first of them.
    pub(super) fn refuses(
        &self,
        peer: u16,
        name: (u64, u32),
        span: ByteRange,
        access: Access,
    ) -> Option<(AccessViolation, u64)> {
        let named = self.windows.iter().find(|w| w.peer == peer && w.name == name);
        let Some(window) = named else {
            return Some((AccessViolation::OutsideWindow, span.offset()));
        };
        if window.fenced {
            return Some((AccessViolation::AfterFence, span.offset()));
        }
        if span.offset() < window.span.offset() {
            return Some((AccessViolation::OutsideWindow, span.offset()));
        }
        if span.end() > window.span.end() {
            return Some((AccessViolation::OutsideWindow, span.offset().max(window.span.end())));
        }
        if !window.access.contains(access) {
            return Some((AccessViolation::WithoutRight, span.offset()));
        }
        None
    }
}
