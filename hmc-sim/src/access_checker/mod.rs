//! Finds each access to memory without a right, and reports the history of its bytes.
//!
//! The fabric reports the accesses of its NICs; the checker has its own records of regions, windows and requests (it uses no
//! table of the code under test) and a shadow of each region. An access without a right is a [`Finding`]; so is a byte that
//! differs from its shadow, because it changed by no reported access. The checker changes nothing and uses no random numbers:
//! a run is the same with and without it.

mod finding;
pub mod history;
mod records;

use std::collections::HashMap;

use hmc_core::region::{LocalSlice, RegionKey};
use hmc_core::types::Access;

use crate::memory::{Corruption, Memory, POISON};
pub use finding::{AccessViolation, Finding};
use history::{Actor, EventKind};
pub(crate) use records::MemAccess;
use records::{RegionRecord, RequestRights};

/// Findings that are kept; others are only counted.
const KEPT: usize = 64;

/// The records of regions, rights and findings.
#[derive(Debug, Default)]
pub(crate) struct AccessChecker {
    records: HashMap<(u16, RegionKey), RegionRecord>,
    rights: HashMap<u64, RequestRights>,
    dead: Vec<u16>,
    findings: Vec<Finding>,
    count: u64,
}

impl AccessChecker {
    /// Returns the kept findings and the number of all.
    pub(crate) fn findings(&self) -> (Vec<Finding>, u64) {
        (self.findings.clone(), self.count)
    }

    fn find(
        &mut self,
        now_ns: u64,
        violation: AccessViolation,
        access: (u16, RegionKey, u64, u64),
        by: Actor,
    ) {
        self.count = self.count.saturating_add(1);
        if self.findings.len() >= KEPT {
            return;
        }
        let (end, key, at, len) = access;
        let record = self.records.get(&(end, key));
        let history = record.map_or_else(Vec::new, |t| t.history(at));
        let forgotten = record.map_or(0, |t| t.forgotten);
        self.findings.push(Finding {
            violation,
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

    /// A region was registered.
    pub(crate) fn registered(&mut self, now_ns: u64, end: u16, key: RegionKey, bytes: &[u8]) {
        let mut record = RegionRecord::new(bytes);
        record.note(now_ns, None, EventKind::Registered, Actor::Owner);
        self.records.insert((end, key), record);
    }

    /// A region is deregistered. Requests that still use it are a mistake of their poster, and are found when they access it.
    pub(crate) fn released(&mut self, now_ns: u64, end: u16, key: RegionKey) {
        if let Some(record) = self.records.get_mut(&(end, key)) {
            record.release(now_ns);
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
        if let Some(record) = self.records.get_mut(&(end, range.key)) {
            record.open(now_ns, peer, range.span, name, access);
        }
    }

    /// Its revocation began.
    pub(crate) fn closing(&mut self, now_ns: u64, end: u16, range: LocalSlice, name: (u64, u32)) {
        if let Some(record) = self.records.get_mut(&(end, range.key)) {
            let kind = EventKind::PendingRevoke { window: name.0, epoch: name.1 };
            record.note(now_ns, Some(range.span), kind, Actor::Owner);
        }
    }

    /// Its fence passed: from now on no access to it is allowed.
    pub(crate) fn fenced(&mut self, now_ns: u64, end: u16, range: LocalSlice, name: (u64, u32)) {
        if let Some(record) = self.records.get_mut(&(end, range.key)) {
            record.fence(now_ns, range.span, name);
        }
    }

    /// A request was accepted: it may access `range` of its initiator until it completes.
    pub(crate) fn posted(&mut self, now_ns: u64, access: &MemAccess) {
        let right = RequestRights { end: access.end, range: access.range, access: access.access };
        self.rights.insert(access.number, right);
        if let Some(record) = self.records.get_mut(&(access.end, access.range.key)) {
            record.note(now_ns, Some(access.range.span), EventKind::Posted, access.by);
        }
    }

    /// It completed, or was withdrawn.
    pub(crate) fn completed(&mut self, now_ns: u64, number: u64, by: Actor) {
        let Some(right) = self.rights.remove(&number) else {
            return;
        };
        if let Some(record) = self.records.get_mut(&(right.end, right.range.key)) {
            record.note(now_ns, Some(right.range.span), EventKind::Completed, by);
        }
    }

    /// The range was reported as free to the owner: no request that was posted before may access it.
    pub(crate) fn reclaimed(&mut self, now_ns: u64, end: u16, range: LocalSlice) {
        self.rights.retain(|_, right| {
            right.end != end
                || right.range.key != range.key
                || !right.range.span.overlaps(range.span)
        });
        if let Some(record) = self.records.get_mut(&(end, range.key)) {
            record.note(now_ns, Some(range.span), EventKind::Reclaimed, Actor::Owner);
        }
    }

    /// A process exited.
    pub(crate) fn process_exited(&mut self, end: u16) {
        self.dead.push(end);
    }

    /// The owner wrote.
    pub(crate) fn owner_wrote(&mut self, now_ns: u64, end: u16, range: LocalSlice, bytes: &[u8]) {
        if let Some(record) = self.records.get_mut(&(end, range.key)) {
            record.note(now_ns, Some(range.span), EventKind::Wrote, Actor::Owner);
            record.shade(range.span, bytes);
        }
    }

    /// A NIC is about to access memory. Returns `true` if it may.
    pub(crate) fn check(&mut self, now_ns: u64, access: &MemAccess) -> bool {
        let violation = self.violation(access);
        let (key, span) = (access.range.key, access.range.span);
        if let Some((violation, at)) = violation {
            self.find(now_ns, violation, (access.end, key, at, span.len()), access.by);
        }
        violation.is_none()
    }

    /// A NIC wrote with the necessary rights.
    pub(crate) fn wrote(&mut self, now_ns: u64, access: &MemAccess, bytes: &[u8]) {
        if let Some(record) = self.records.get_mut(&(access.end, access.range.key)) {
            record.note(now_ns, Some(access.range.span), EventKind::Wrote, access.by);
            record.shade(access.range.span, bytes);
        }
    }

    fn violation(&self, access: &MemAccess) -> Option<(AccessViolation, u64)> {
        let from = access.range.span.offset();
        if self.dead.contains(&access.end) {
            return Some((AccessViolation::AfterDeath, from));
        }
        let record = self.records.get(&(access.end, access.range.key))?;
        if record.released {
            return Some((AccessViolation::AfterRelease, from));
        }
        let Some(name) = access.through else {
            let right = self.rights.get(&access.number);
            let held = right.is_some_and(|h| h.covers(access));
            return if held { None } else { Some((AccessViolation::AfterCompletion, from)) };
        };
        let peer = match access.by {
            Actor::Request { from, .. } => from,
            Actor::Owner | Actor::Nobody => access.end,
        };
        record.refuses(peer, name, access.range.span, access.access)
    }

    /// Compares an end's memory with its shadow, and checks guards and poison.
    pub(crate) fn audit(&mut self, now_ns: u64, end: u16, memory: &Memory) {
        let mut wrong = Vec::new();
        for ((_, key), record) in self.records.iter().filter(|((e, _), _)| *e == end) {
            let Some(bytes) = memory.all(*key) else {
                continue;
            };
            let differs = |(at, b): (usize, &u8)| {
                let want = if record.released { Some(&POISON) } else { record.shadow.get(at) };
                (Some(b) != want).then_some(at)
            };
            let mut places = bytes.iter().enumerate().filter_map(differs);
            if let Some(first) = places.next() {
                let len = places.count().saturating_add(1);
                let violation = if record.released {
                    AccessViolation::AfterRelease
                } else {
                    AccessViolation::Unaccounted
                };
                wrong.push((violation, *key, first, len));
            }
        }
        if let Err(Corruption::Guard { key, at }) = memory.check() {
            wrong.push((AccessViolation::Guard, key, at, 1));
        }
        // The table has no order, and a run must be reproducible.
        wrong.sort_by_key(|(_, key, at, _)| (key.index, key.generation, *at));
        for (violation, key, at, len) in wrong {
            let number = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
            self.find(now_ns, violation, (end, key, number(at), number(len)), Actor::Nobody);
        }
    }
}
