//! Regions and windows of an end: registration, exposure, revocation with a fence that may take time.

use hmc_core::region::{LocalRegion, LocalSlice, RegionKey, WindowDesc};
use hmc_core::types::{Access, MemoryKind};
use hmc_core::window::{WindowState, WindowTransition};

use super::end_number;
use super::port::PendingRevoke;
use super::timed::Fabric;
use crate::access_checker::Finding;

impl Fabric {
    /// Exposes a range to the other end of the connection.
    pub(crate) fn expose(
        &mut self,
        port: usize,
        range: LocalSlice,
        kind: MemoryKind,
        access: Access,
    ) -> Option<WindowDesc> {
        let entropy = self.rng.next_u64();
        let (end, peer) = (self.port(port).host, self.port(port).peer_host);
        let window = self.port(port).windows.expose(range, kind, access, entropy).ok()?;
        if let Some(checker) = &mut self.checker {
            let (end, peer) = (end_number(end), end_number(peer));
            let name = (window.window.0, window.epoch.0);
            checker.opened(self.now_ns, end, peer, range, name, access);
        }
        Some(window)
    }

    /// Begins to revoke a window. Returns the time when its fence passes.
    pub(crate) fn begin_revoke(&mut self, port: usize, window: &WindowDesc) -> u64 {
        if let Some(closing) = self.closing(port, window) {
            return closing.due_ns;
        }
        let Ok(entry) = self.port(port).windows.entry(window.window, window.epoch) else {
            // A window that is revoked already needs no revocation.
            return self.now_ns;
        };
        if entry.state() == WindowState::Free {
            return self.now_ns;
        }
        let range = entry.local();
        let takes_ns = match self.faults.fence_max_ns {
            0 => 0,
            max_ns => self.rng.below(max_ns.saturating_add(1)),
        };
        let due_ns = self.now_ns.saturating_add(takes_ns);
        let end = end_number(self.port(port).host);
        if let Some(checker) = &mut self.checker {
            checker.closing(self.now_ns, end, range, (window.window.0, window.epoch.0));
        }
        self.counts.slow_fences = self.counts.slow_fences.saturating_add(u64::from(takes_ns != 0));
        self.port(port).closing.push(PendingRevoke { window: *window, range, due_ns });
        self.pass_fences(port);
        due_ns
    }

    fn closing(&mut self, port: usize, window: &WindowDesc) -> Option<PendingRevoke> {
        let name = (window.window, window.epoch);
        let closing = &self.port(port).closing;
        closing.iter().find(|c| (c.window.window, c.window.epoch) == name).copied()
    }

    /// Returns `true` if no access to the window is possible any more.
    pub(crate) fn is_fenced(&mut self, port: usize, window: &WindowDesc) -> bool {
        let entry = self.port(port).windows.entry(window.window, window.epoch);
        entry.map_or(true, |entry| entry.state() == WindowState::Free)
    }

    pub(super) fn pass_fences(&mut self, port: usize) {
        let now_ns = self.now_ns;
        while let Some(at) = self.port(port).closing.iter().position(|c| c.due_ns <= now_ns) {
            let closing = self.port(port).closing.swap_remove(at);
            let (window, epoch) = (closing.window.window, closing.window.epoch);
            for step in [WindowTransition::Revoke, WindowTransition::Fence] {
                // It was exposed a moment ago, and both steps are legal then.
                let _ = self.port(port).windows.apply(window, epoch, step);
            }
            let end = end_number(self.port(port).host);
            if let Some(checker) = &mut self.checker {
                checker.fenced(closing.due_ns, end, closing.range, (window.0, epoch.0));
            }
        }
    }

    /// Removes a region of an end and poisons its bytes. Returns `true` if there was one.
    pub(crate) fn deregister(&mut self, port: usize, key: RegionKey) -> bool {
        let (host, end) = self.host_of(port);
        let known = host.memory.deregister(key);
        if let (true, Some(checker)) = (known, &mut self.checker) {
            checker.released(self.now_ns, end_number(end), key);
        }
        known
    }

    /// Allocates memory of the process that a port belongs to.
    pub(crate) fn allocate(&mut self, port: usize, len: u64) -> Option<LocalRegion> {
        let (host, end) = self.host_of(port);
        let region = host.memory.allocate(len)?;
        if let Some(checker) = &mut self.checker {
            let host = self.hosts.get(end)?;
            let bytes = host.memory.all(region.key)?;
            checker.registered(self.now_ns, end_number(end), region.key, bytes);
        }
        Some(region)
    }

    /// The owner writes. Returns `true` if the range is registered.
    pub(crate) fn owner_writes(&mut self, port: usize, range: LocalSlice, bytes: &[u8]) -> bool {
        let (host, end) = self.host_of(port);
        let Some(to) = host.memory.own_mut(range) else {
            return false;
        };
        to.copy_from_slice(bytes);
        if let Some(checker) = &mut self.checker {
            checker.owner_wrote(self.now_ns, end_number(end), range, bytes);
        }
        true
    }

    /// A range was reported as free to its owner.
    pub(crate) fn reclaim(&mut self, port: usize, range: LocalSlice) {
        let end = end_number(self.port(port).host);
        if let Some(checker) = &mut self.checker {
            checker.reclaimed(self.now_ns, end, range);
        }
    }

    /// Returns all findings of the access checker.
    pub(crate) fn audit(&mut self) -> Vec<Finding> {
        let Some(checker) = &mut self.checker else {
            return Vec::new();
        };
        for (end, host) in self.hosts.iter().enumerate() {
            checker.audit(self.now_ns, end_number(end), &host.memory);
        }
        checker.findings().0
    }
}
