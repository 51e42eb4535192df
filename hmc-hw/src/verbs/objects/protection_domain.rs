//! A protection domain: its queue pairs can access only its memory regions.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::verbs::device::Device;
use crate::verbs::error::VerbsError;
use crate::verbs::sys::ibv_pd;

/// A protection domain.
pub(in crate::verbs) struct ProtectionDomain {
    pd: NonNull<ibv_pd>,
    device: Arc<Device>,
}

// SAFETY: libibverbs may be called from any thread, and two threads may call it for one object (ibv_alloc_pd(3) and others).
unsafe impl Send for ProtectionDomain {}
// SAFETY: as above.
unsafe impl Sync for ProtectionDomain {}

impl fmt::Debug for ProtectionDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProtectionDomain").field("device", &self.device).finish_non_exhaustive()
    }
}

impl ProtectionDomain {
    /// # Errors
    /// [`VerbsError`].
    pub(in crate::verbs) fn new(device: &Arc<Device>) -> Result<Arc<Self>, VerbsError> {
        // SAFETY: the context is open as long as the device.
        let pd = unsafe { (device.api().ibv_alloc_pd)(device.context()) };
        let pd = NonNull::new(pd)
            .ok_or_else(|| VerbsError::last("making a protection domain", device.name()))?;
        Ok(Arc::new(Self { pd, device: Arc::clone(device) }))
    }

    /// Its device.
    pub(in crate::verbs) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// What libibverbs knows it by.
    pub(super) fn raw(&self) -> *mut ibv_pd {
        self.pd.as_ptr()
    }
}

impl Drop for ProtectionDomain {
    fn drop(&mut self) {
        // In a forked child it is the parent's.
        if self.device.library().is_inherited() {
            return;
        }
        // SAFETY: made in `new`, and all that was made from it held this value and is destroyed.
        let result = unsafe { (self.device.api().ibv_dealloc_pd)(self.raw()) };
        debug_assert_eq!(result, 0, "ibv_dealloc_pd");
    }
}
