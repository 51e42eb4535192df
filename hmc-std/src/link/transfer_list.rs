//! Transfers that are posted as one operation, and the local memory that they read or write.

use hmc_core::queue::Transfer;
use hmc_core::region::RegionKey;

use crate::memory::Region;

/// The transfers, in their order.
#[derive(Debug, Default)]
pub(crate) struct TransferList {
    regions: Vec<Region>,
    transfers: Vec<Transfer>,
    /// In all of them; saturating.
    bytes: u64,
}

impl TransferList {
    pub(crate) fn with_capacity(transfers: usize) -> Self {
        Self { transfers: Vec::with_capacity(transfers), ..Self::default() }
    }

    /// Adds a transfer from or to `region`.
    pub(crate) fn push(&mut self, region: &Region, t: Transfer) {
        // Most lists have one region, and the regions of the others follow each other.
        if self.region(t.local.key).is_none() {
            self.regions.push(region.clone());
        }
        self.bytes = self.bytes.saturating_add(t.local.span.len());
        self.transfers.push(t);
    }

    pub(crate) fn transfers(&self) -> &[Transfer] {
        &self.transfers
    }

    pub(crate) fn regions(&self) -> &[Region] {
        &self.regions
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The region of that key, if it is one of the list's.
    pub(crate) fn region(&self, key: RegionKey) -> Option<&Region> {
        self.regions.iter().rev().find(|r| r.key() == key)
    }
}
