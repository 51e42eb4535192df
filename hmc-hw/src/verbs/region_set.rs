//! The registrations of one exposed window if each peer has its own protection domain: one on each NIC.

use hmc_core::region::WindowDesc;

use super::conn_info::WindowKey;
use super::objects::MemoryRegion;

/// Registrations of just the window's bytes, with its rights.
#[derive(Debug)]
pub(super) struct RegionSet {
    pub(super) desc: WindowDesc,
    /// The address of its first byte.
    pub(super) base: u64,
    /// In the order of the link's NICs.
    pub(super) regions: Vec<MemoryRegion>,
}

impl RegionSet {
    /// Returns what the peer receives, for a link of so many queue pairs; 0 if that is not known yet. A key for all of them does not
    /// depend on that.
    pub(super) fn key(&self, lanes: usize) -> WindowKey {
        let wanted = if self.regions.len() == 1 { 1 } else { lanes };
        let in_turn = self.regions.iter().cycle();
        let keys = in_turn.map(MemoryRegion::rkey).take(wanted).collect();
        WindowKey { window: self.desc, base: self.base, keys }
    }

    /// Takes those of the NICs that the link does not use.
    pub(super) fn keep_nics(&mut self, count: usize) -> Vec<MemoryRegion> {
        self.regions.split_off(count.min(self.regions.len()))
    }
}
