//! A broken NIC. Each function here accesses memory without a right, after a report to the access checker as for any other
//! access.

use hmc_core::range::{Extent, Side};
use hmc_core::region::LocalSlice;
use hmc_core::types::Access;

use super::access::{accesses, cut};
use super::end_number;
use super::in_flight::{Chunk, InFlight, Replay};
use super::timed::Fabric;
use crate::access_checker::MemAccess;
use crate::fault::Rate;

impl Fabric {
    fn rogue(&mut self, rate: Rate) -> bool {
        let hit = rate.hits(&mut self.rng);
        self.counts.rogue = self.counts.rogue.saturating_add(u64::from(hit));
        hit
    }

    /// Copies, even if the two regions were deregistered.
    fn copy_unchecked(
        &mut self,
        request: &InFlight,
        port: usize,
        local: LocalSlice,
        target: LocalSlice,
    ) {
        let (here, there) = (self.port(port).host, self.port(port).peer_host);
        let ends = if request.is_put() { [here, there] } else { [there, here] };
        let (source, sink) = if request.is_put() { (local, target) } else { (target, local) };
        self.check(&accesses(request, (here, there), local, target));
        if let Ok([from, to]) = self.hosts.get_disjoint_mut(ends)
            && let Some(from) = from.memory.raw(source)
            && let Some(to) = to.memory.raw(sink)
            && from.len() == to.len()
        {
            to.copy_from_slice(from);
        }
    }

    /// Continues a request although its window was fenced.
    pub(super) fn rogue_after_fence(
        &mut self,
        port: usize,
        request: &InFlight,
        chunk: Chunk,
    ) -> Option<()> {
        let target = request.target?;
        if !self.rogue(self.faults.rogue.after_fence) {
            return None;
        }
        let (local, target) = (cut(request.work.local, chunk).ok()?, cut(target, chunk).ok()?);
        self.copy_unchecked(request, port, local, target);
        Some(())
    }

    /// Writes the byte behind the window.
    pub(super) fn rogue_beyond(&mut self, port: usize, request: &InFlight) {
        let (rate, peer) = (self.faults.rogue.outside_window, self.port(port).peer);
        let remote = request.work.remote;
        let entry = self.port(peer).windows.entry(remote.window, remote.epoch);
        let Some(window) = entry.ok().map(|entry| entry.local()) else {
            return;
        };
        if !request.is_put() || !self.rogue(rate) {
            return;
        }
        let at = window.span.end();
        let Ok(span) = Extent::new(u64::MAX).span(Side::Remote, at, 1) else {
            return;
        };
        let there = self.port(port).peer_host;
        let access = MemAccess {
            end: end_number(there),
            range: LocalSlice { key: window.key, span },
            access: Access::WRITE,
            number: request.number,
            by: request.actor,
            through: Some(request.through()),
        };
        let now_ns = self.now_ns;
        if let Some(checker) = &mut self.checker {
            checker.check(now_ns, &access);
        }
        if let Some(byte) = self.host(there).memory.raw_byte(window.key, at) {
            *byte = !*byte;
        }
    }

    /// Flips one bit that a chunk wrote, without a report.
    pub(super) fn rogue_flip(&mut self, [_, written]: &[MemAccess; 2]) {
        if written.range.span.is_empty() || !self.rogue(self.faults.rogue.flipped) {
            return;
        }
        let pick = self.rng.next_u64();
        let host = self.host(usize::from(written.end));
        let at = written.range.span.offset();
        let within = pick.checked_rem(written.range.span.len()).unwrap_or(0);
        let byte = host.memory.raw_byte(written.range.key, at.saturating_add(within));
        if let Some(byte) = byte {
            *byte ^= 1 << (pick >> 61);
        }
    }

    /// A request is finished: it may be scheduled for a replay.
    pub(super) fn finished(&mut self, port: usize, request: &InFlight) {
        let Some(target) = request.target else {
            return;
        };
        if self.rogue(self.faults.rogue.late_write) {
            let due_ns = self.later().saturating_add(self.faults.delay_max_ns);
            self.port(port).replays.push(Replay { request: *request, target, due_ns });
        }
    }

    pub(super) fn run_replays(&mut self, port: usize) {
        let now_ns = self.now_ns;
        while let Some(at) = self.port(port).replays.iter().position(|g| g.due_ns <= now_ns) {
            let replay = self.port(port).replays.swap_remove(at);
            self.copy_unchecked(&replay.request, port, replay.request.work.local, replay.target);
        }
    }
}
