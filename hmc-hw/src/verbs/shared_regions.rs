//! What the links of a session share where the device enforces windows by themselves: one protection domain, in which memory is
//! registered once, without rights for peers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use hmc_core::region::RegionKey;
use hmc_mem::registered::Registered;

use super::device::Device;
use super::error::VerbsError;
use super::fault::VerbsFault;
use super::flush_regions::FlushRegions;
use super::locals::register;
use super::objects::{MemoryRegion, ProtectionDomain};
use super::page::Page;
use super::sys::{IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_MW_BIND};

/// A region, as long as a link uses it.
#[derive(Debug)]
struct SharedRegion {
    region: Weak<MemoryRegion>,
    /// The address of its first byte.
    base: u64,
}

/// The protection domain of all links, and the regions in it. A region ends when the last link has let go of it.
#[derive(Debug)]
pub(super) struct SharedRegions {
    pd: Arc<ProtectionDomain>,
    flush: FlushRegions,
    regions: Mutex<HashMap<RegionKey, SharedRegion>>,
}

impl SharedRegions {
    /// A domain with the pages that flushes read and write.
    ///
    /// # Errors
    /// [`VerbsError`].
    pub(super) fn new(
        device: &Arc<Device>,
        source: &Arc<Page>,
        sink: &Arc<Page>,
    ) -> Result<Self, VerbsError> {
        let pd = ProtectionDomain::new(device)?;
        let flush = FlushRegions::new(&pd, source, sink)?;
        Ok(Self { pd, flush, regions: Mutex::default() })
    }

    /// The domain.
    pub(super) fn pd(&self) -> &Arc<ProtectionDomain> {
        &self.pd
    }

    /// The pages of flushes.
    pub(super) fn flush(&self) -> &FlushRegions {
        &self.flush
    }

    /// Returns the region of all of `memory`, and its address. It is registered at its first use; two links that do so at the same time
    /// have a region each.
    ///
    /// # Errors
    /// [`VerbsFault`].
    pub(super) fn region_of(
        &self,
        memory: &impl Registered,
    ) -> Result<(Arc<MemoryRegion>, u64), VerbsFault> {
        let local = memory.local();
        let lock = || self.regions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shared) = lock().get(&local.key)
            && let Some(region) = shared.region.upgrade()
        {
            return Ok((region, shared.base));
        }
        // Without the lock: that takes as long as the memory is large.
        let access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;
        let (region, base) = register(&self.pd, memory, local.extent.whole(), access)?;
        let region = Arc::new(region);
        let mut regions = lock();
        regions.retain(|_, shared| shared.region.strong_count() != 0);
        regions.insert(local.key, SharedRegion { region: Arc::downgrade(&region), base });
        Ok((region, base))
    }
}
