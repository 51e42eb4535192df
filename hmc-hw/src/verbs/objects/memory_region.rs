//! Memory that a device may access.

use std::any::Any;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

use super::ProtectionDomain;
use crate::verbs::error::{VerbsError, check};
use crate::verbs::sys::ibv_mr;

/// What keeps registered bytes where they are.
pub(in crate::verbs) type Keep = Box<dyn Any + Send + Sync>;

/// A memory region. Its end is a fence: once `ibv_dereg_mr` has returned, the device accesses the bytes no more.
pub(in crate::verbs) struct MemoryRegion {
    mr: NonNull<ibv_mr>,
    /// Dropped after the region has ended.
    keep: ManuallyDrop<Keep>,
    pd: ManuallyDrop<Arc<ProtectionDomain>>,
    lkey: u32,
    rkey: u32,
}

// SAFETY: as of `ProtectionDomain`.
unsafe impl Send for MemoryRegion {}
// SAFETY: as above.
unsafe impl Sync for MemoryRegion {}

/// The registration of `len` bytes was refused.
#[cold]
fn refused(pd: &ProtectionDomain, len: usize) -> VerbsError {
    let e = VerbsError::last("registering memory", format!("{}, {len} bytes", pd.device().name()));
    e.needing(u64::try_from(len).unwrap_or(u64::MAX))
}

impl fmt::Debug for MemoryRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not its keys: who has them can reach the memory.
        f.debug_struct("MemoryRegion").finish_non_exhaustive()
    }
}

impl MemoryRegion {
    /// Registers `len` bytes with these rights (`IBV_ACCESS_*`), and keeps `keep` until the region ends.
    ///
    /// # Errors
    /// [`VerbsError`]: `ENOMEM` where the limit of locked memory is too low, `EFAULT` for addresses without memory.
    ///
    /// # Safety
    /// The bytes are valid for reads and writes by a device as long as `keep` lives, and no code accesses them through references.
    pub(in crate::verbs) unsafe fn register(
        pd: &Arc<ProtectionDomain>,
        start: NonNull<u8>,
        len: usize,
        access: i32,
        keep: Keep,
    ) -> Result<Self, VerbsError> {
        let api = pd.device().api();
        // SAFETY: the domain exists; the bytes are as the caller promises.
        let mr = unsafe { (api.ibv_reg_mr)(pd.raw(), start.as_ptr().cast(), len, access) };
        let mr = NonNull::new(mr).ok_or_else(|| refused(pd, len))?;
        // SAFETY: libibverbs returned it, with its keys filled in.
        let filled = unsafe { mr.as_ref() };
        let (lkey, rkey) = (filled.lkey, filled.rkey);
        let (keep, pd) = (ManuallyDrop::new(keep), ManuallyDrop::new(Arc::clone(pd)));
        Ok(Self { mr, keep, pd, lkey, rkey })
    }

    /// The key by which requests of this end name it.
    #[inline]
    pub(in crate::verbs) fn lkey(&self) -> u32 {
        self.lkey
    }

    /// The key by which a peer names it, if its rights let peers in.
    pub(in crate::verbs) fn rkey(&self) -> u32 {
        self.rkey
    }

    /// Its domain.
    pub(super) fn pd(&self) -> &Arc<ProtectionDomain> {
        &self.pd
    }

    /// What libibverbs knows it by.
    pub(super) fn raw(&self) -> *mut ibv_mr {
        self.mr.as_ptr()
    }

    /// Ends the region, and returns what kept its bytes. Whoever drops that may run code of the application.
    ///
    /// # Errors
    /// [`VerbsError`]: the device may still access the bytes, which stay for ever, as does the domain. The end of all queue pairs of
    /// the domain is the fence then.
    pub(in crate::verbs) fn deregister(self) -> Result<Keep, VerbsError> {
        let mut this = ManuallyDrop::new(self);
        // What the region holds stays with it.
        this.end()?;
        // SAFETY: taken once, since `this` is never dropped.
        let keep = unsafe { ManuallyDrop::take(&mut this.keep) };
        // SAFETY: as above.
        let pd = unsafe { ManuallyDrop::take(&mut this.pd) };
        drop(pd);
        Ok(keep)
    }

    fn end(&self) -> Result<(), VerbsError> {
        let device = self.pd.device();
        // In a forked child it is the parent's.
        if device.library().is_inherited() {
            return Ok(());
        }
        // SAFETY: registered in `register`; called once, by `deregister` or by `drop`.
        let result = unsafe { (device.api().ibv_dereg_mr)(self.mr.as_ptr()) };
        check("ending a registration", device.name(), result)
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        if self.end().is_err() {
            // The device may still access the bytes: they stay for ever, as does the domain.
            return;
        }
        // SAFETY: the value is dropped, so that nothing reads them again.
        unsafe { ManuallyDrop::drop(&mut self.keep) };
        // SAFETY: as above.
        unsafe { ManuallyDrop::drop(&mut self.pd) };
    }
}
