//! The registered memory of sessions: allocation and registration.

use std::ptr::NonNull;
use std::sync::Arc;

use super::region::{Region, RegionTable};
use super::stable::StableBytes;
use crate::base::error::Result;
use crate::base::process::Origin;

/// The registered memory of one or several sessions. Clones are handles of the same memory.
///
/// Each session has one ([`Session::memory`](crate::Session::memory)). A value that was made before the sessions
/// ([`SessionBuilder::memory`](crate::SessionBuilder::memory)) serves several of them, at a time or in turn, and regions of it outlive
/// them.
#[derive(Clone, Debug)]
pub struct Memory {
    regions: Arc<RegionTable>,
    origin: Origin,
}

impl Memory {
    /// Makes registered memory without a session.
    ///
    /// # Errors
    /// `Io` if the system does not report the id of this process.
    pub fn new() -> Result<Self> {
        Ok(Self { regions: Arc::default(), origin: Origin::here()? })
    }

    pub(crate) fn of(regions: &Arc<RegionTable>, origin: Origin) -> Self {
        Self { regions: Arc::clone(regions), origin }
    }

    pub(crate) fn regions(&self) -> &Arc<RegionTable> {
        &self.regions
    }

    /// Allocates a region that peers of this host can map. Its bytes are zero.
    ///
    /// # Errors
    /// `NoSpace` with the needed and the available bytes; `Forked`.
    pub fn allocate(&self, len: u64) -> Result<Region> {
        self.origin.check()?;
        self.regions.allocate(len)
    }

    /// Registers memory of the application in place: no byte is copied, and `owner` is kept until nothing uses the region. For a
    /// `Vec<u8>`, pass [`HeapBytes::from(bytes)`](super::HeapBytes).
    ///
    /// # Errors
    /// `Full` if too many regions are registered; `Forked`.
    pub fn register(&self, owner: impl StableBytes) -> Result<Region> {
        self.origin.check()?;
        self.regions.adopt(Box::new(owner))
    }

    /// Registers `len` bytes at `start`, in place.
    ///
    /// # Safety
    /// The bytes are what [`StableBytes`] asks for: initialised, valid for reads and writes from any thread, and not touched
    /// through Rust references; at most `isize::MAX` of them. So they stay until the region and everything made from it
    /// (spans, windows, operations) is gone, the sessions have been dropped, and [`held`](crate::held) lists none of it.
    ///
    /// # Errors
    /// As [`Memory::register`].
    pub unsafe fn register_raw(&self, start: NonNull<u8>, len: usize) -> Result<Region> {
        self.origin.check()?;
        // SAFETY: the caller vouches for just what `adopt_raw` asks.
        unsafe { self.regions.adopt_raw(start, len) }
    }
}
