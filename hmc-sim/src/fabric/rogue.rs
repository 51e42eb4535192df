//! What a broken NIC does. Every function here touches memory without a right, after telling the
//! detector of it as it tells of everything else.

use hmc_core::range::{Extent, Side};
use hmc_core::region::LocalSlice;
use hmc_core::types::Access;

use super::end_number;
use super::flight::{Flight, Ghost, Part};
use super::net::Fabric;
use super::touch::{cut, touches};
use crate::detector::Touch;
use crate::fault::Rate;

impl Fabric {
    fn rogue(&mut self, rate: Rate) -> bool {
        let hit = rate.hits(&mut self.rng);
        self.tally.rogue = self.tally.rogue.saturating_add(u64::from(hit));
        hit
    }

    /// Copies, whatever became of the two regions.
    fn smash(&mut self, flight: &Flight, port: usize, local: LocalSlice, target: LocalSlice) {
        let (here, there) = (self.port(port).host, self.port(port).peer_host);
        let ends = if flight.is_put() { [here, there] } else { [there, here] };
        let (source, sink) = if flight.is_put() { (local, target) } else { (target, local) };
        self.judge(&touches(flight, (here, there), local, target));
        if let Ok([from, to]) = self.hosts.get_disjoint_mut(ends)
            && let Some(from) = from.memory.raw(source)
            && let Some(to) = to.memory.raw(sink)
            && from.len() == to.len()
        {
            to.copy_from_slice(from);
        }
    }

    /// Goes on with a request though its window was fenced.
    pub(super) fn rogue_after_fence(
        &mut self,
        port: usize,
        flight: &Flight,
        part: Part,
    ) -> Option<()> {
        let target = flight.target?;
        if !self.rogue(self.faults.rogue.after_fence) {
            return None;
        }
        let (local, target) = (cut(flight.work.local, part).ok()?, cut(target, part).ok()?);
        self.smash(flight, port, local, target);
        Some(())
    }

    /// Writes the byte behind the window.
    pub(super) fn rogue_beyond(&mut self, port: usize, flight: &Flight) {
        let (rate, peer) = (self.faults.rogue.outside_window, self.port(port).peer);
        let remote = flight.work.remote;
        let entry = self.port(peer).windows.entry(remote.window, remote.epoch);
        let Some(window) = entry.ok().map(|entry| entry.local()) else {
            return;
        };
        if !flight.is_put() || !self.rogue(rate) {
            return;
        }
        let at = window.span.end();
        let Ok(span) = Extent::new(u64::MAX).span(Side::Remote, at, 1) else {
            return;
        };
        let there = self.port(port).peer_host;
        let touch = Touch {
            end: end_number(there),
            range: LocalSlice { key: window.key, span },
            access: Access::WRITE,
            ticket: flight.ticket,
            by: flight.who,
            through: Some(flight.through()),
        };
        let now_ns = self.now_ns;
        if let Some(detector) = &mut self.detector {
            detector.judge(now_ns, &touch);
        }
        if let Some(byte) = self.host(there).memory.raw_byte(window.key, at) {
            *byte = !*byte;
        }
    }

    /// Spoils one bit of what a piece wrote, and tells nobody.
    pub(super) fn rogue_flip(&mut self, [_, written]: &[Touch; 2]) {
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

    /// A flight is over: perhaps it comes back.
    pub(super) fn over(&mut self, port: usize, flight: &Flight) {
        let Some(target) = flight.target else {
            return;
        };
        if self.rogue(self.faults.rogue.late_write) {
            let due_ns = self.later().saturating_add(self.faults.delay_max_ns);
            self.port(port).ghosts.push(Ghost { flight: *flight, target, due_ns });
        }
    }

    pub(super) fn run_ghosts(&mut self, port: usize) {
        let now_ns = self.now_ns;
        while let Some(at) = self.port(port).ghosts.iter().position(|g| g.due_ns <= now_ns) {
            let ghost = self.port(port).ghosts.swap_remove(at);
            self.smash(&ghost.flight, port, ghost.flight.work.local, ghost.target);
        }
    }
}
