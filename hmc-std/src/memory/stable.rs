//! Memory of the application that is registered in place.

use std::ptr::NonNull;

/// The owner of memory of the application.
pub(crate) type Foreign = Box<dyn StableBytes>;

/// Memory whose address does not change while the value lives, wherever the value is moved.
///
/// ```
/// fn registers(_: impl hmc_std::memory::StableBytes) {}
/// registers(hmc_std::memory::HeapBytes::from(vec![0; 8]));
/// ```
///
/// Bytes that may have no value yet are none:
///
/// ```compile_fail,E0277
/// fn registers(_: impl hmc_std::memory::StableBytes) {}
/// registers(Box::<[u8]>::new_uninit_slice(8));
/// ```
///
/// The value is dropped with the last handle of its memory. If a connection has the last one, a thread of the session drops the value
/// (the thread that calls wakers); the end of a session waits for that until its deadline.
///
/// # Safety
/// [`StableBytes::as_bytes_ptr`] always gives the same pointer and the same number of bytes, at most `isize::MAX`; it may be
/// null for none. From the call that registers the value until it is dropped, all of them
/// - are initialised: they are sent as they are, and [`Span::as_slice`](super::Span::as_slice) shows them as `&[u8]`. So
///   they have no padding, and are no `MaybeUninit` that was not written. Peers write any values: where the bytes are those of
///   a type, each pattern of bits is one of its values;
/// - are valid for reads and writes from any thread;
/// - are not read or written through Rust references, and are named by no other value that is registered, unless no
///   [`Span`](super::Span) of either is borrowed as a slice.
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

// SAFETY: the leaked slice, whose bytes a `Vec<u8>` had initialised, never moves and only `drop` frees it; no reference to it
// exists, and no other value names it.
unsafe impl StableBytes for HeapBytes {
    fn as_bytes_ptr(&self) -> (*mut u8, usize) {
        (self.start.as_ptr(), self.len)
    }
}
