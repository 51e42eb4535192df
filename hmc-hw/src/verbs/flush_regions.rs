//! The registrations of the pages that flushes read and write.

use std::sync::Arc;

use super::error::VerbsError;
use super::objects::{MemoryRegion, ProtectionDomain};
use super::page::{PAGE_BYTES, Page};
use super::sys::{IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_READ};

/// What flushes read and write, in one protection domain.
#[derive(Clone, Debug)]
pub(super) struct FlushRegions {
    /// A page that never changes, which each peer may read.
    pub(super) source: Arc<MemoryRegion>,
    /// Where flushes of this end put what they read.
    pub(super) sink: Arc<MemoryRegion>,
}

impl FlushRegions {
    /// Registers both pages.
    ///
    /// # Errors
    /// [`VerbsError`].
    pub(super) fn new(
        pd: &Arc<ProtectionDomain>,
        source: &Arc<Page>,
        sink: &Arc<Page>,
    ) -> Result<Self, VerbsError> {
        let register = |page: &Arc<Page>, access| {
            let (keep, access) = (Box::new(Arc::clone(page)), i32::try_from(access).unwrap_or(0));
            // SAFETY: the page is the library's own, which `keep` holds, and only devices access it.
            unsafe { MemoryRegion::register(pd, page.start(), PAGE_BYTES, access, keep) }
        };
        let source = Arc::new(register(source, IBV_ACCESS_REMOTE_READ)?);
        Ok(Self { source, sink: Arc::new(register(sink, IBV_ACCESS_LOCAL_WRITE)?) })
    }
}
