//! Memory of the application that is registered in place.

use std::ptr::NonNull;

/// Memory whose address does not change while the value lives, wherever the value is moved.
///
/// # Safety
/// [`StableBytes::as_bytes_ptr`] must always give the same pointer, valid for reads and writes of
/// the same number of bytes until the value is dropped, and nothing else may read or write those
/// bytes through Rust references while the value is registered.
pub unsafe trait StableBytes: Send + Sync + 'static {
    /// Start and size of the bytes.
    fn as_bytes_ptr(&self) -> (*mut u8, usize);
}

/// A heap buffer that can be registered in place, without a staging copy.
#[derive(Debug)]
pub struct HeapBytes {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the buffer is owned by this value alone; the pointer is not shared with any other owner.
unsafe impl Send for HeapBytes {}
// SAFETY: no method reads or writes the bytes; regions copy by raw pointer under their own rules.
unsafe impl Sync for HeapBytes {}

impl From<Vec<u8>> for HeapBytes {
    fn from(bytes: Vec<u8>) -> Self {
        let whole = Box::leak(bytes.into_boxed_slice());
        Self { len: whole.len(), start: NonNull::from(whole).cast() }
    }
}

impl Drop for HeapBytes {
    fn drop(&mut self) {
        let whole = NonNull::slice_from_raw_parts(self.start, self.len);
        // SAFETY: `start` and `len` are those of the boxed slice leaked in `from`, and this value
        // is its only owner; a region that held it has let go, so nobody else touches the bytes.
        drop(unsafe { Box::from_raw(whole.as_ptr()) });
    }
}

// SAFETY: the leaked slice never moves and only `drop` frees it; no reference to it exists.
unsafe impl StableBytes for HeapBytes {
    fn as_bytes_ptr(&self) -> (*mut u8, usize) {
        (self.start.as_ptr(), self.len)
    }
}
