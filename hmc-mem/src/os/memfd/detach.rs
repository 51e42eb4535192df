//! Returns the pages of a mapping while handles keep its address.

use super::Mapping;
use crate::error::MemError;
use crate::os::pages::{self, no_space};

impl Mapping {
    /// Replaces the pages by empty pages of this process, so that a peer's memory is released although handles keep the
    /// mapping. Views read zeros afterwards, and no other process can read what they write. An access during the call
    /// reaches the old or the new page.
    ///
    /// # Errors
    /// [`MemError::NoSpace`], [`MemError::Os`]; the pages are unchanged.
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
