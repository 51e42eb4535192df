//! Memory that is lent to a session and used again as soon as it comes back: what is written into it from then on is wrong.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hmc_std::memory::StableBytes;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

/// Long enough to be caught in the middle of a copy: some 50 ms.
pub const LEN: usize = 256 << 20;
const PAGE: usize = 4096;
/// What the owner writes into each page of memory that it has back: few bytes, so that it is done before a late copy.
pub const OWN: u8 = 0x11;

/// How long lent memory is, and how far apart the bytes are that its owner writes when it is back.
#[derive(Clone, Copy, Debug)]
struct Shape {
    len: usize,
    step: usize,
}

/// Memory that tells when it came back to its owner, who then uses it for something else.
#[derive(Debug)]
pub struct Lent {
    start: NonNull<u8>,
    shape: Shape,
    back: Arc<AtomicBool>,
}

// SAFETY: the bytes are touched by copies of the library until `drop`, which comes once.
unsafe impl Send for Lent {}
// SAFETY: as above.
unsafe impl Sync for Lent {}

// SAFETY: the bytes were leaked, initialised, by `Owner::with_memory`, so they stay where they are, and valid.
unsafe impl StableBytes for Lent {
    fn as_bytes_ptr(&self) -> (*mut u8, usize) {
        (self.start.as_ptr(), self.shape.len)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        for at in (0..self.shape.len).step_by(self.shape.step) {
            // SAFETY: it lies within the bytes that were leaked.
            let byte = unsafe { self.start.as_ptr().add(at) };
            // SAFETY: the library let go of the memory, which is the owner's alone again.
            unsafe { byte.write(OWN) };
        }
        self.back.store(true, Ordering::SeqCst);
    }
}

/// Maps memory as soon as nothing else is there. `None` while something is.
fn claim(start: NonNull<u8>) -> Option<()> {
    let flags = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE;
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: with FIXED_NOREPLACE no mapping is replaced.
    unsafe { mmap_anonymous(start.as_ptr().cast(), LEN, prot, flags) }.ok().map(drop)
}

/// How many bytes are in pages that the owner has written.
#[must_use]
pub fn owned(bytes: &[u8]) -> usize {
    of_owner(bytes, PAGE)
}

/// How many bytes stand for those that the owner has written, one in each `step`.
fn of_owner(bytes: &[u8], step: usize) -> usize {
    bytes.iter().step_by(step).filter(|b| **b == OWN).count() * step
}

/// Who lent it.
#[derive(Debug)]
pub struct Owner {
    start: NonNull<u8>,
    shape: Shape,
    back: Arc<AtomicBool>,
}

impl Owner {
    /// Memory full of `fill`, which stays in use for as long as the process lives.
    #[must_use]
    pub fn new(fill: u8) -> (Self, Lent) {
        Self::with_memory(fill, Shape { len: LEN, step: PAGE })
    }

    /// `len` bytes of it, each of which its owner writes when it is back.
    #[must_use]
    pub fn of(len: usize, fill: u8) -> (Self, Lent) {
        Self::with_memory(fill, Shape { len, step: 1 })
    }

    fn with_memory(fill: u8, shape: Shape) -> (Self, Lent) {
        let start = NonNull::from(vec![fill; shape.len].leak()).cast();
        let back = Arc::new(AtomicBool::new(false));
        (Self { start, shape, back: Arc::clone(&back) }, Lent { start, shape, back })
    }

    /// Memory at the place of other memory. `None` while something lies there.
    #[must_use]
    pub fn at(start: NonNull<u8>) -> Option<Self> {
        claim(start)?;
        let (shape, back) = (Shape { len: LEN, step: PAGE }, Arc::default());
        drop(Lent { start, shape, back: Arc::clone(&back) });
        Some(Self { start, shape, back })
    }

    /// Whether the memory came back.
    #[must_use]
    pub fn is_back(&self) -> bool {
        self.back.load(Ordering::SeqCst)
    }

    /// How many bytes were changed since the memory came back.
    ///
    /// # Panics
    /// When it did not.
    #[must_use]
    pub fn changed(&self) -> usize {
        assert!(self.is_back());
        // SAFETY: as in `Lent::drop`, which has written the bytes before `back`.
        let bytes = unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.shape.len) };
        self.shape.len - of_owner(bytes, self.shape.step)
    }

    /// Its first byte as it is now.
    #[must_use]
    pub fn first_byte(&self) -> u8 {
        // SAFETY: the byte stays valid; whoever writes it meanwhile is another process or a copy of the library.
        unsafe { self.start.as_ptr().read_volatile() }
    }
}
