//! The portable kernel: volatile 8-byte words if the alignment of both sides allows it, otherwise bytes.
//!
//! Used by Miri and loom, and on machines without their own kernel.
#![cfg_attr(
    all(any(target_arch = "x86_64", target_arch = "aarch64"), not(any(miri, loom))),
    allow(
        dead_code,
        reason = "the machine has a kernel of its own, which uses a part of this one"
    )
)]

/// Copies `len` bytes.
///
/// # Safety
/// That of [`super::copy`].
pub(super) unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) {
    let mut i = 0usize;
    if dst.addr() % 8 == src.addr() % 8 {
        let head = dst.align_offset(8).min(len);
        // SAFETY: the first `head <= len` bytes of both ranges, as the caller vouched.
        unsafe { bytes(dst, src, head) };
        i = head;
        while len.saturating_sub(i) >= 8 {
            let (d, s) = (dst.wrapping_add(i).cast::<u64>(), src.wrapping_add(i).cast::<u64>());
            // SAFETY: 8 bytes from `i` lie in `src`, and `src + i` is a multiple of 8, as `dst + i` is and
            // both have the same remainder; volatile makes no reference.
            let word = unsafe { s.read_volatile() };
            // SAFETY: as above for `dst`.
            unsafe { d.write_volatile(word) };
            i = i.saturating_add(8);
        }
    }
    // SAFETY: the rest, from `i <= len` on.
    unsafe { bytes(dst.wrapping_add(i), src.wrapping_add(i), len.saturating_sub(i)) };
}

/// Copies `len` bytes, each by itself.
///
/// # Safety
/// That of [`super::copy`].
unsafe fn bytes(dst: *mut u8, src: *const u8, len: usize) {
    for i in 0..len {
        // SAFETY: `i < len`, within the readable range; `u8` has no alignment; volatile makes no reference.
        let byte = unsafe { src.wrapping_add(i).read_volatile() };
        // SAFETY: as above for the writable range.
        unsafe { dst.wrapping_add(i).write_volatile(byte) };
    }
}

/// Copies a piece of a transfer; how long the transfer is makes no difference here.
///
/// # Safety
/// That of [`super::copy`].
pub(super) unsafe fn copy_piece(dst: *mut u8, src: *const u8, len: usize, _whole: u64) {
    // SAFETY: the caller's contract.
    unsafe { copy(dst, src, len) };
}

/// Sets `len` bytes.
///
/// # Safety
/// That of [`super::fill`].
pub(super) unsafe fn fill(dst: *mut u8, byte: u8, len: usize) {
    let mut i = 0usize;
    while i < len {
        let at = dst.wrapping_add(i);
        if len.saturating_sub(i) >= 8 && at.addr().is_multiple_of(8) {
            // SAFETY: 8 bytes from `i` lie in the range and `at` is a multiple of 8.
            unsafe { at.cast::<u64>().write_volatile(u64::from_ne_bytes([byte; 8])) };
            i = i.saturating_add(8);
        } else {
            // SAFETY: `i < len`, within the range; `u8` has no alignment.
            unsafe { at.write_volatile(byte) };
            i = i.saturating_add(1);
        }
    }
}
