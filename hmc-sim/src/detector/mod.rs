//! Finds every access to memory that nobody was allowed to make, and tells the history of its bytes.
//!
//! The fabric reports what its NICs do; the detector keeps books of its own of regions, windows and
//! requests (it asks no table of the code under test) and a shadow of every region. An access without
//! a right is a [`Finding`]; so is a byte that differs from its shadow, because then it changed behind
//! everybody's back. It changes nothing and draws no chance: a run is the same with and without it.

mod finding;
pub mod history;
mod ledger;

use std::collections::HashMap;

use hmc_core::region::{LocalSlice, RegionKey};
use hmc_core::types::Access;

use crate::memory::{Damage, Memory, POISON};
pub use finding::{Breach, Finding};
use history::{What, Who};
pub(crate) use ledger::Touch;
use ledger::{Hold, Track};

/// Findings that are kept; others are only counted.
const KEPT: usize = 64;

/// The books.
#[derive(Debug, Default)]
pub(crate) struct Detector {
    tracks: HashMap<(u16, RegionKey), Track>,
    holds: HashMap<u64, Hold>,
    dead: Vec<u16>,
    findings: Vec<Finding>,
    count: u64,
}

impl Detector {
    /// What was found, and how many findings there were in all.
    pub(crate) fn findings(&self) -> (Vec<Finding>, u64) {
        (self.findings.clone(), self.count)
    }

    fn find(&mut self, now_ns: u64, breach: Breach, touch: (u16, RegionKey, u64, u64), by: Who) {
        self.count = self.count.saturating_add(1);
        if self.findings.len() >= KEPT {
            return;
        }
        let (end, key, at, len) = touch;
        let track = self.tracks.get(&(end, key));
        let history = track.map_or_else(Vec::new, |t| t.history(at));
        let forgotten = track.map_or(0, |t| t.forgotten);
        self.findings.push(Finding {
            breach,
            at_ns: now_ns,
            end,
            key,
            at,
            len,
            by,
            history,
            forgotten,
        });
    }

    /// A region came to be.
    pub(crate) fn registered(&mut self, now_ns: u64, end: u16, key: RegionKey, bytes: &[u8]) {
        let mut track = Track::new(bytes);
        track.note(now_ns, None, What::Registered, Who::Owner);
        self.tracks.insert((end, key), track);
    }

    /// A region is given back. Requests that hold it still are their poster's mistake, and show when
    /// they touch it.
    pub(crate) fn released(&mut self, now_ns: u64, end: u16, key: RegionKey) {
        if let Some(track) = self.tracks.get_mut(&(end, key)) {
            track.release(now_ns);
        }
    }

    /// A window was opened towards `peer`.
    pub(crate) fn opened(
        &mut self,
        now_ns: u64,
        end: u16,
        peer: u16,
        range: LocalSlice,
        name: (u64, u32),
        access: Access,
    ) {
        if let Some(track) = self.tracks.get_mut(&(end, range.key)) {
            track.open(now_ns, peer, range.span, name, access);
        }
    }

    /// Its revocation began.
    pub(crate) fn closing(&mut self, now_ns: u64, end: u16, range: LocalSlice, name: (u64, u32)) {
        if let Some(track) = self.tracks.get_mut(&(end, range.key)) {
            let what = What::Closing { window: name.0, epoch: name.1 };
            track.note(now_ns, Some(range.span), what, Who::Owner);
        }
    }

    /// Its fence passed: from now on nobody may use it.
    pub(crate) fn fenced(&mut self, now_ns: u64, end: u16, range: LocalSlice, name: (u64, u32)) {
        if let Some(track) = self.tracks.get_mut(&(end, range.key)) {
            track.fence(now_ns, range.span, name);
        }
    }

    /// A request was accepted: it may touch `range` of its initiator until it completes.
    pub(crate) fn posted(&mut self, now_ns: u64, touch: &Touch) {
        let hold = Hold { end: touch.end, range: touch.range, access: touch.access };
        self.holds.insert(touch.ticket, hold);
        if let Some(track) = self.tracks.get_mut(&(touch.end, touch.range.key)) {
            track.note(now_ns, Some(touch.range.span), What::Posted, touch.by);
        }
    }

    /// It completed, or was withdrawn.
    pub(crate) fn completed(&mut self, now_ns: u64, ticket: u64, by: Who) {
        let Some(hold) = self.holds.remove(&ticket) else {
            return;
        };
        if let Some(track) = self.tracks.get_mut(&(hold.end, hold.range.key)) {
            track.note(now_ns, Some(hold.range.span), What::Completed, by);
        }
    }

    /// The owner was told that the range is free: no request that was posted before may touch it.
    pub(crate) fn reclaimed(&mut self, now_ns: u64, end: u16, range: LocalSlice) {
        self.holds.retain(|_, hold| {
            hold.end != end || hold.range.key != range.key || !hold.range.span.overlaps(range.span)
        });
        if let Some(track) = self.tracks.get_mut(&(end, range.key)) {
            track.note(now_ns, Some(range.span), What::Reclaimed, Who::Owner);
        }
    }

    /// A process died.
    pub(crate) fn died(&mut self, end: u16) {
        self.dead.push(end);
    }

    /// The owner wrote.
    pub(crate) fn owner_wrote(&mut self, now_ns: u64, end: u16, range: LocalSlice, bytes: &[u8]) {
        if let Some(track) = self.tracks.get_mut(&(end, range.key)) {
            track.note(now_ns, Some(range.span), What::Wrote, Who::Owner);
            track.shade(range.span, bytes);
        }
    }

    /// A NIC is about to touch memory. Whether it may.
    pub(crate) fn judge(&mut self, now_ns: u64, touch: &Touch) -> bool {
        let breach = self.breach(touch);
        let (key, span) = (touch.range.key, touch.range.span);
        if let Some((breach, at)) = breach {
            self.find(now_ns, breach, (touch.end, key, at, span.len()), touch.by);
        }
        breach.is_none()
    }

    /// What a NIC wrote with every right.
    pub(crate) fn wrote(&mut self, now_ns: u64, touch: &Touch, bytes: &[u8]) {
        if let Some(track) = self.tracks.get_mut(&(touch.end, touch.range.key)) {
            track.note(now_ns, Some(touch.range.span), What::Wrote, touch.by);
            track.shade(touch.range.span, bytes);
        }
    }

    fn breach(&self, touch: &Touch) -> Option<(Breach, u64)> {
        let from = touch.range.span.offset();
        if self.dead.contains(&touch.end) {
            return Some((Breach::AfterDeath, from));
        }
        let track = self.tracks.get(&(touch.end, touch.range.key))?;
        if track.released {
            return Some((Breach::AfterRelease, from));
        }
        let Some(name) = touch.through else {
            let hold = self.holds.get(&touch.ticket);
            let held = hold.is_some_and(|h| h.covers(touch));
            return if held { None } else { Some((Breach::AfterCompletion, from)) };
        };
        let peer = match touch.by {
            Who::Request { from, .. } => from,
            Who::Owner | Who::Nobody => touch.end,
        };
        track.refuses(peer, name, touch.range.span, touch.access)
    }

    /// Compares an end's memory with its shadow, and looks at guards and poison.
    pub(crate) fn audit(&mut self, now_ns: u64, end: u16, memory: &Memory) {
        let mut wrong = Vec::new();
        for ((_, key), track) in self.tracks.iter().filter(|((e, _), _)| *e == end) {
            let Some(bytes) = memory.all(*key) else {
                continue;
            };
            let differs = |(at, b): (usize, &u8)| {
                let want = if track.released { Some(&POISON) } else { track.shadow.get(at) };
                (Some(b) != want).then_some(at)
            };
            let mut places = bytes.iter().enumerate().filter_map(differs);
            if let Some(first) = places.next() {
                let len = places.count().saturating_add(1);
                let breach =
                    if track.released { Breach::AfterRelease } else { Breach::Unaccounted };
                wrong.push((breach, *key, first, len));
            }
        }
        if let Err(Damage::Guard { key, at }) = memory.check() {
            wrong.push((Breach::Guard, key, at, 1));
        }
        // The table has no order of its own, and a run must repeat itself.
        wrong.sort_by_key(|(_, key, at, _)| (key.index, key.generation, *at));
        for (breach, key, at, len) in wrong {
            let number = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
            self.find(now_ns, breach, (end, key, number(at), number(len)), Who::Nobody);
        }
    }
}
