//! Returns the pages of a mapping while handles keep its address.

use super::Mapping;
use crate::error::MemError;
use crate::os::pages::{self, no_space};

impl Mapping {
    /// Gives the pages back, and puts empty ones of this process in their place: the memory of a peer is free although handles
    /// keep the mapping. Views read zeros from here on, and what they write nobody sees. An access during the call meets the
    /// old page or the new one.
    ///
    /// # Errors
    /// [`MemError::NoSpace`], [`MemError::Os`]; the pages are as before.
    pub fn detach(&self) -> Result<(), MemError> {
        let (at, _) = self.bytes().locate(self.extent.whole())?;
        let size = self.extent.len().next_multiple_of(self.page_size());
        if size == 0 {
            return Ok(());
        }
        let fresh = pages::reserved(size)?;
        // SAFETY: the target is all of this value's own mapping, whole pages; to replace them is the purpose, and views
        // never hold references to them.
        let moved = self.patched.note(|| unsafe { pages::put_over(fresh, at) });
        moved.map_err(|e| no_space(size, "mremap", e))
    }
}
