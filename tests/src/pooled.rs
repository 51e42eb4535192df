//! Memory of an application that is notified of its return.

use hmc_std::memory::{HeapBytes, StableBytes};

/// Memory that does something when it comes back.
pub struct Pooled<F: Fn() + Send + Sync + 'static>(pub HeapBytes, pub F);

impl<F: Fn() + Send + Sync + 'static> Drop for Pooled<F> {
    fn drop(&mut self) {
        (self.1)();
    }
}

// SAFETY: the bytes are those of `HeapBytes`, which lives as long as this.
unsafe impl<F: Fn() + Send + Sync + 'static> StableBytes for Pooled<F> {
    fn as_bytes_ptr(&self) -> (*mut u8, usize) {
        self.0.as_bytes_ptr()
    }
}
