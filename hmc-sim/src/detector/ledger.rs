//! The detector's books of one region: who may touch which bytes, what they should hold, and what
//! happened to them.

use std::collections::VecDeque;

use hmc_core::range::ByteRange;
use hmc_core::region::LocalSlice;
use hmc_core::types::Access;

use super::finding::Breach;
use super::history::{Event, What, Who};

/// Events that are remembered of each region.
const REMEMBERED: usize = 4096;
/// Fenced windows that are remembered of each region, to tell "after its fence" from "never had one".
const CLOSED: usize = 256;

/// An access of a NIC.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Touch {
    /// Whose memory.
    pub(crate) end: u16,
    pub(crate) range: LocalSlice,
    pub(crate) access: Access,
    /// The request's number.
    pub(crate) ticket: u64,
    pub(crate) by: Who,
    /// The initiator's own memory, or through which window of the target.
    pub(crate) through: Option<(u64, u32)>,
}

/// What a request may touch of its initiator's memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hold {
    pub(super) end: u16,
    pub(super) range: LocalSlice,
    pub(super) access: Access,
}

impl Hold {
    pub(super) fn covers(&self, touch: &Touch) -> bool {
        let (mine, theirs) = (self.range.span, touch.range.span);
        self.end == touch.end
            && self.range.key == touch.range.key
            && self.access.contains(touch.access)
            && mine.offset() <= theirs.offset()
            && theirs.end() <= mine.end()
    }
}

#[derive(Clone, Copy, Debug)]
struct Opening {
    peer: u16,
    name: (u64, u32),
    span: ByteRange,
    access: Access,
    fenced: bool,
}

#[derive(Debug)]
pub(super) struct Track {
    /// What the bytes should be.
    pub(super) shadow: Vec<u8>,
    pub(super) released: bool,
    pub(super) forgotten: u64,
    windows: VecDeque<Opening>,
    log: VecDeque<Event>,
}

impl Track {
    pub(super) fn new(bytes: &[u8]) -> Self {
        Self {
            shadow: bytes.to_vec(),
            released: false,
            forgotten: 0,
            windows: VecDeque::new(),
            log: VecDeque::new(),
        }
    }

    /// Writes an event down; without a span it concerns the whole region.
    pub(super) fn note(&mut self, at_ns: u64, span: Option<ByteRange>, what: What, who: Who) {
        if self.log.len() >= REMEMBERED {
            self.log.pop_front();
            self.forgotten = self.forgotten.saturating_add(1);
        }
        let (from, to) = span.map_or((0, u64::MAX), |s| (s.offset(), s.end()));
        self.log.push_back(Event { at_ns, who, what, from, to });
    }

    /// Everything that concerns the byte at `at`.
    pub(super) fn history(&self, at: u64) -> Vec<Event> {
        self.log.iter().filter(|e| e.from <= at && at < e.to).copied().collect()
    }

    pub(super) fn shade(&mut self, span: ByteRange, bytes: &[u8]) {
        let range = usize::try_from(span.offset()).ok().zip(usize::try_from(span.end()).ok());
        let place = range.and_then(|(from, to)| self.shadow.get_mut(from..to));
        if let Some(place) = place.filter(|p| p.len() == bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }

    pub(super) fn release(&mut self, now_ns: u64) {
        self.released = true;
        self.note(now_ns, None, What::Released, Who::Owner);
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
        self.windows.push_back(Opening { peer, name, span, access, fenced: false });
        let what = What::Opened { window: name.0, epoch: name.1 };
        self.note(now_ns, Some(span), what, Who::Owner);
    }

    pub(super) fn fence(&mut self, now_ns: u64, span: ByteRange, name: (u64, u32)) {
        for window in self.windows.iter_mut().filter(|w| w.name == name) {
            window.fenced = true;
        }
        let what = What::Fenced { window: name.0, epoch: name.1 };
        self.note(now_ns, Some(span), what, Who::Owner);
    }

    /// Why a peer may not touch these bytes through the window of that name, and the first of them.
    pub(super) fn refuses(
        &self,
        peer: u16,
        name: (u64, u32),
        span: ByteRange,
        access: Access,
    ) -> Option<(Breach, u64)> {
        let named = self.windows.iter().find(|w| w.peer == peer && w.name == name);
        let Some(window) = named else {
            return Some((Breach::OutsideWindow, span.offset()));
        };
        if window.fenced {
            return Some((Breach::AfterFence, span.offset()));
        }
        if span.offset() < window.span.offset() {
            return Some((Breach::OutsideWindow, span.offset()));
        }
        if span.end() > window.span.end() {
            return Some((Breach::OutsideWindow, span.offset().max(window.span.end())));
        }
        if !window.access.contains(access) {
            return Some((Breach::WithoutRight, span.offset()));
        }
        None
    }
}
