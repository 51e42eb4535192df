//! Windows over whole regions of ours that are kept between messages.
//!
//! A message into a part of such a region needs no window of its own, whose pages the peer would map and forget, and of whose end it
//! would be told. A window serves one message at a time: it is open from READY until the sender has reported that all its puts have
//! ended, or, of a message whose bytes are counted, until all of them were put. When a message fails it is revoked, as any.

use hmc_core::region::WindowDesc;
use hmc_mem::registered::{CachedHandle, Registered as _};

use crate::memory::Region;

/// A window over a whole region, for messages into any part of it.
#[derive(Debug)]
pub(crate) struct KeptWindow {
    /// Keeps no memory that nobody else uses.
    pub(super) region: CachedHandle<Region>,
    pub(super) remote: WindowDesc,
    /// A peer of this host could map all pages of the region when the window was opened.
    had_pages: bool,
}

/// Whether a peer of this host can map all pages of a region and write them.
pub(crate) fn has_all_pages(region: &Region) -> bool {
    let pages = region.mapping().filter(|_| !region.is_empty() && !region.is_write_sealed());
    pages.is_some_and(|m| m.fd().is_ok())
}

impl KeptWindow {
    pub(crate) fn new(region: &Region, remote: WindowDesc) -> Self {
        let had_pages = has_all_pages(region);
        Self { region: CachedHandle::new(region), remote, had_pages }
    }

    /// Whether no message will come into it: nobody else has the region, or the pages that the peer has are not all of its pages any
    /// more.
    pub(super) fn is_useless(&self) -> bool {
        self.region.is_only_cached() || self.had_pages && !has_all_pages(&self.region)
    }
}
