//! Keys to memory: each data plane's own table, so that no lock is shared between peers.

use crate::memory::Region;

/// The regions that one data plane has met.
pub(crate) type RegionCache = hmc_mem::registered::MemoryCache<Region>;
