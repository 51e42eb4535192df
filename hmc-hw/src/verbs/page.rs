//! Pages of the library that every link's device reads and writes in addition to the application's memory.

use std::ptr::{self, NonNull};

use hmc_mem::shared::SharedBytes;

use super::error::VerbsError;

/// Bytes of a page of memory here.
pub(super) const PAGE_BYTES: usize = 4096;

/// A page of zeros of its own.
#[derive(Debug)]
pub(super) struct Page(NonNull<u8>);

// SAFETY: an address of memory that this value owns, and that only devices access.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

impl Page {
    /// # Errors
    /// [`VerbsError`].
    pub(super) fn new() -> Result<Self, VerbsError> {
        let (rights, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, at an address that the system chooses.
        let at = unsafe { libc::mmap(ptr::null_mut(), PAGE_BYTES, rights, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(VerbsError::last("mapping memory", "a page"));
        }
        NonNull::new(at.cast())
            .map(Self)
            .ok_or_else(|| VerbsError::last("mapping memory", "a page"))
    }

    /// Its address.
    pub(super) fn start(&self) -> NonNull<u8> {
        self.0
    }

    /// Its bytes.
    pub(super) fn bytes(&self) -> SharedBytes<'_> {
        // SAFETY: the page is mapped as long as this value, for reads and writes; nothing but views and devices accesses it.
        unsafe { SharedBytes::new(self.0, PAGE_BYTES) }
    }

    /// Its address as a number for the peer.
    pub(super) fn address(&self) -> u64 {
        u64::try_from(self.0.as_ptr().expose_provenance()).unwrap_or(0)
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and unmapped once; registrations hold the value.
        let _ = unsafe { libc::munmap(self.0.as_ptr().cast(), PAGE_BYTES) };
    }
}
