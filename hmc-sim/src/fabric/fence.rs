//! Regions and windows of an end: registration, exposure, revocation with a fence that may take time.

use hmc_core::region::{Epoch, LocalRegion, LocalSlice, RegionKey, WindowDesc, WindowId};
use hmc_core::window::{WindowState, WindowTransition};

use super::port::PendingRevoke;
use super::timed::Fabric;
use super::{end_number, open};
use crate::access_checker::Finding;

impl Fabric {
    /// Lets the other end reach a range by the name that the host gave the window. Returns `false` if the name is taken.
    pub(crate) fn open_window(
        &mut self,
        port: usize,
        range: LocalSlice,
        window: &WindowDesc,
    ) -> bool {
        if !open(&mut self.port(port).windows, range, window) {
            return false;
        }
        let (end, peer) = (self.port(port).host, self.port(port).peer_host);
        if let Some(checker) = &mut self.checker {
            let (end, peer) = (end_number(end), end_number(peer));
            let name = (window.window.0, window.epoch.0);
            checker.opened(self.now_ns, end, peer, range, name, window.access);
        }
        true
    }

    /// Begins to revoke a window. Returns the time when its fence passes.
    pub(crate) fn begin_revoke(&mut self, port: usize, window: (WindowId, Epoch)) -> u64 {
        if let Some(closing) = self.port(port).closing.iter().find(|c| c.window == window) {
            return closing.due_ns;
        }
        let entry = self.port(port).windows.entry(window.0, window.1);
        let Some(entry) = entry.ok().filter(|entry| entry.state() == WindowState::Exposed) else {
            // A window that is revoked already needs no revocation.
            return self.now_ns;
        };
        let range = entry.local();
        let takes_ns = match self.faults.fence_max_ns {
            0 => 0,
            max_ns => self.rng.below(max_ns.saturating_add(1)),
        };
        let due_ns = self.now_ns.saturating_add(takes_ns);
        let end = end_number(self.port(port).host);
        if let Some(checker) = &mut self.checker {
            checker.closing(self.now_ns, end, range, (window.0.0, window.1.0));
        }
        self.counts.slow_fences = self.counts.slow_fences.saturating_add(u64::from(takes_ns != 0));
        self.port(port).closing.push(PendingRevoke { window, range, due_ns });
        self.pass_fences(port);
        due_ns
    }

    /// Returns `true` if no access to the window is possible any more.
    pub(crate) fn is_fenced(&self, port: usize, (id, epoch): (WindowId, Epoch)) -> bool {
        let entry = self.ports.get(port).and_then(|port| port.windows.entry(id, epoch).ok());
        entry.is_none_or(|entry| entry.state() != WindowState::Exposed)
    }

    pub(super) fn pass_fences(&mut self, port: usize) {
        let now_ns = self.now_ns;
        while let Some(at) = self.port(port).closing.iter().position(|c| c.due_ns <= now_ns) {
            let closing = self.port(port).closing.swap_remove(at);
            self.refuse(port, closing.window, closing.range, closing.due_ns);
        }
    }

    /// From now on no access to the window is possible.
    fn refuse(
        &mut self,
        port: usize,
        (id, epoch): (WindowId, Epoch),
        range: LocalSlice,
        at_ns: u64,
    ) {
        // It is exposed: only this function and `forget_window`, which asks, change that.
        let _ = self.port(port).windows.apply(id, epoch, WindowTransition::Revoke);
        let end = end_number(self.port(port).host);
        if let Some(checker) = &mut self.checker {
            checker.fenced(at_ns, end, range, (id.0, epoch.0));
        }
    }

    /// The host uses the window's name again. It has a fence, or the window was never announced.
    pub(crate) fn forget_window(&mut self, port: usize, window: (WindowId, Epoch)) {
        let Ok(entry) = self.port(port).windows.entry(window.0, window.1).copied() else {
            return;
        };
        self.port(port).closing.retain(|closing| closing.window != window);
        if entry.state() == WindowState::Exposed {
            self.refuse(port, window, entry.local(), self.now_ns);
        }
        // Legal in each state that an entry of a name has.
        let _ = self.port(port).windows.apply(window.0, window.1, WindowTransition::Fence);
    }

    /// The peer revokes one of its windows: requests for it are refused from now on. Returns `true` if one in flight uses it.
    pub(crate) fn remove_window(&mut self, port: usize, window: (WindowId, Epoch)) -> bool {
        let port = self.port(port);
        port.removed.retain(|(id, _)| id.index() != window.0.index());
        port.removed.push(window);
        port.any(|work| (work.remote.window, work.remote.epoch) == window)
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
