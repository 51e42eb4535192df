//! Windows of this end as memory windows: made and bound when they are exposed, and their end.

use std::sync::Arc;

use hmc_core::region::{LocalSlice, WindowDesc};
use hmc_mem::registered::Registered;

use super::VerbsDataPlane;
use crate::verbs::error::VerbsError;
use crate::verbs::exposed::Entrance;
use crate::verbs::fault::VerbsFault;
use crate::verbs::lane::Lane;
use crate::verbs::locals::register;
use crate::verbs::objects::MemoryRegion;
use crate::verbs::region_set::RegionSet;
use crate::verbs::window_set::{WindowSet, end_windows};

/// Looks for the completions of binds before the keys are sent later: a bind takes a microsecond or two where nothing is in front of it.
const BIND_LOOKS: u32 = 256;

impl<M: Registered> VerbsDataPlane<M> {
    /// Makes memory windows for an exposed window, and binds them if the queue pairs are connected.
    pub(super) fn open_windows(
        &mut self,
        memory: &M,
        local: LocalSlice,
        window: &WindowDesc,
        access: u32,
    ) -> Result<(), VerbsFault> {
        let mut regions = Vec::new();
        let set = self.regions_of(memory, &mut regions).and_then(|base| {
            let nics: Vec<_> = self.lanes.iter().map(Lane::nic).collect();
            WindowSet::new(&regions, *window, local.span.address(base), access, &nics)
        });
        // If it has failed, nobody else may use the regions.
        self.release(regions);
        self.open_entrance(window, Entrance::Windows(set?));
        self.bind_windows();
        Ok(())
    }

    /// Registers the bytes of an exposed window for the peer, on each NIC.
    pub(super) fn open_regions(
        &mut self,
        memory: &M,
        local: LocalSlice,
        window: &WindowDesc,
        access: u32,
    ) -> Result<(), VerbsFault> {
        let mut set = RegionSet { desc: *window, base: 0, regions: Vec::new() };
        for nic in &self.nics {
            match register(&nic.pd, memory, local.span, access) {
                Ok((region, base)) => {
                    set.regions.push(region);
                    set.base = base;
                }
                Err(e) => {
                    self.end_entrances([Entrance::Regions(set)]);
                    return Err(e);
                }
            }
        }
        self.open_entrance(window, Entrance::Regions(set));
        Ok(())
    }

    fn open_entrance(&mut self, window: &WindowDesc, entrance: Entrance) {
        let now = self.domain.host().now();
        self.exposed.open((window.window, window.epoch), Some(entrance), now);
    }

    /// Posts binds, and waits for a moment until they have completed. Otherwise the peer receives the keys later.
    pub(super) fn bind_windows(&mut self) {
        for _ in 0..BIND_LOOKS {
            if !self.exposed.is_binding() || !self.is_connected || self.lanes.is_empty() {
                break;
            }
            let _ = self.advance();
        }
        if self.exposed.is_binding() || self.exposed.owes_keys() || self.has_work() {
            self.has_posted = true;
            self.worker.set_busy(true);
            self.worker.set_awaited();
            self.worker.wake();
        }
    }

    /// Ends what lets the peer in, which is the fence. What does not end ends the link: the end of its queue pairs keeps the peer out, as
    /// long as no other one of the domain has the number of one of them.
    pub(super) fn end_entrances(&mut self, entrances: impl IntoIterator<Item = Entrance>) {
        for entrance in entrances {
            match entrance {
                Entrance::Regions(set) => {
                    self.release(set.regions.into_iter().map(Arc::new));
                }
                Entrance::Windows(set) => {
                    let mut regions = Vec::new();
                    let ended = set.end(&mut regions);
                    self.release(regions);
                    self.keep_if_open(ended);
                }
            }
        }
    }

    /// The link has just the queue pairs that had these indices, in that order, and the first `nics` NICs: ends windows and
    /// registrations for the others.
    pub(super) fn end_surplus_windows(&mut self, kept: &[usize], nics: usize) {
        let mut ended_with: Vec<Arc<MemoryRegion>> = Vec::new();
        let (windows, regions) = self.exposed.connect(kept, nics);
        let ended = end_windows(windows, &mut ended_with);
        self.release(ended_with);
        self.release(regions.into_iter().map(Arc::new));
        self.keep_if_open(ended);
    }

    /// The link is over: ends the memory windows. Returns their regions, which requests may still name. The end of the queue pairs is
    /// the fence of a window that does not end. `executes_nothing`: these are in their error state. Otherwise a window whose bind is
    /// under way is not ended.
    pub(super) fn end_bound_windows(&mut self, executes_nothing: bool) -> Vec<Arc<MemoryRegion>> {
        let mut regions = Vec::new();
        for set in self.exposed.take_sets() {
            let has_ended = if executes_nothing || set.is_settled() {
                set.end(&mut regions).is_ok()
            } else {
                set.keep();
                false
            };
            if !has_ended {
                self.keep_windows();
            }
        }
        regions
    }

    fn keep_if_open(&mut self, ended: Result<(), VerbsError>) {
        if let Err(e) = ended {
            self.keep_windows();
            self.fail(e.into());
        }
    }

    /// Some memory window stays. New links have no queue pair in its domain.
    fn keep_windows(&mut self) {
        self.keeps_memory = true;
        for (nic, of_domain) in self.nics.iter().zip(self.domain.nics()) {
            if let Some(shared) = &nic.shared {
                self.domain.retire(of_domain, shared);
            }
        }
    }

    /// Ends windows that are over. If the bind of one is still under way after the peer's time for it, behind requests that do not
    /// complete, the link ends.
    pub(super) fn end_revoked(&mut self) -> bool {
        let now = self.domain.host().now();
        let ended = self.exposed.take_ended(now);
        let any = !ended.is_empty();
        self.end_entrances(ended);
        if self.exposed.is_stuck(now) && !self.lanes.is_empty() {
            let e = VerbsError::new("binding a window", self.nic_names(), libc::ETIMEDOUT);
            self.fail(e.into());
            return true;
        }
        any
    }
}
