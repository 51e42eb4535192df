//! Bulk copies between shared and private bytes that the optimiser cannot see through.
//!
//! `ptr::copy_nonoverlapping` on memory that another party writes is a data race in the language. Here the
//! loads and stores are assembly (x86-64, aarch64) or volatile words (Miri, loom, other machines), so the
//! compiler neither assumes that the bytes stay as they were nor invents or repeats an access.
//!
//! The kernel is chosen by size and CPU; see `copy/x86_64.rs` for the measured bounds. An 8-byte copy
//! between aligned addresses is one load and one store. Nothing else about the order or the width of the
//! accesses is promised, and a copy orders nothing: publish with [`crate::flag`] or a word.

mod portable;

#[cfg(all(target_arch = "aarch64", not(any(miri, loom))))]
mod aarch64;
#[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
mod x86_64;

#[cfg(all(target_arch = "aarch64", not(any(miri, loom))))]
use aarch64 as kernel;
#[cfg(any(miri, loom, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
use portable as kernel;
#[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
use x86_64 as kernel;

use crate::length::widen;

/// Copies of at most so many bytes are made where they are asked for.
const INLINED: usize = 16;
/// Bytes that an overlapping copy moves at a time through a private buffer.
const BOUNCE: usize = 4096;

/// Copies `len` bytes from `src` to `dst`, with any alignment. Blocks for the time of the copy, without a system call.
///
/// Later stores of this thread are not visible before those of the copy, non-temporal stores included.
///
/// # Safety
/// `src` is readable and `dst` writable for `len` bytes without a trap, `len` is at most `isize::MAX`, and the two
/// ranges do not overlap. During the call this process uses no Rust reference to the bytes of `dst`, and no `&mut` to
/// those of `src`. Other processes and devices may read and write both.
#[inline]
pub unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the kernel's contract is this function's.
    unsafe { kernel::copy(dst, src, len) };
}

/// Copies like [`copy`], as one piece of a transfer of `whole` bytes. If `whole` exceeds the caches, the stores bypass
/// them, even if `len` would fit.
///
/// # Safety
/// That of [`copy`].
#[inline(always)]
pub unsafe fn copy_piece(dst: *mut u8, src: *const u8, len: usize, whole: u64) {
    // A piece is at most as long as its transfer; a longer one is copied, too.
    if whole <= widen(INLINED) {
        // SAFETY: the caller's contract.
        unsafe { copy(dst, src, len) };
    } else {
        // SAFETY: the caller's contract.
        unsafe { copy_long_piece(dst, src, len, whole) };
    }
}

/// As [`copy_piece`], out of line: its callers are short.
///
/// # Safety
/// As for [`copy`].
#[inline(never)]
unsafe fn copy_long_piece(dst: *mut u8, src: *const u8, len: usize, whole: u64) {
    if whole <= widen(len) {
        // SAFETY: the caller's contract.
        unsafe { copy(dst, src, len) };
    } else {
        // SAFETY: the kernel's contract is this function's.
        unsafe { kernel::copy_piece(dst, src, len, whole) };
    }
}

/// Copies `len` bytes from `src` to `dst` as if through an intermediate buffer: the ranges may overlap.
///
/// # Safety
/// That of [`copy`], except that the ranges may overlap.
#[inline]
pub unsafe fn copy_overlapping(dst: *mut u8, src: *const u8, len: usize) {
    if dst.addr().abs_diff(src.addr()) >= len {
        // SAFETY: as the caller vouched; the starts are `len` bytes apart, so the ranges are disjoint.
        unsafe { copy(dst, src, len) };
    } else {
        // SAFETY: as the caller vouched.
        unsafe { bounce(dst, src, len) };
    }
}

/// Copies overlapping ranges piece by piece through a private buffer, from the end that is safe.
///
/// # Safety
/// As for [`copy_overlapping`].
#[cold]
unsafe fn bounce(dst: *mut u8, src: *const u8, len: usize) {
    let mut buffer = [0u8; BOUNCE];
    let forward = dst.addr() < src.addr();
    let mut done = 0usize;
    while done < len {
        let step = len.saturating_sub(done).min(BOUNCE);
        // From the front when the destination lies lower, else from the back.
        let at = if forward { done } else { len.saturating_sub(done).saturating_sub(step) };
        // SAFETY: `at + step <= len`, so the piece lies in `src`; `buffer` has `BOUNCE >= step` bytes and is
        // private to this frame.
        unsafe { copy(buffer.as_mut_ptr(), src.wrapping_add(at), step) };
        // SAFETY: as above for `dst`. What this overwrites of `src` was read before or is not needed.
        unsafe { copy(dst.wrapping_add(at), buffer.as_ptr(), step) };
        done = done.saturating_add(step);
    }
}

/// Sets `len` bytes at `dst` to `byte`.
///
/// # Safety
/// `dst` is writable for `len` bytes without a trap, `len` is at most `isize::MAX`, and no Rust reference to those
/// bytes is used during the call.
#[inline]
pub unsafe fn fill(dst: *mut u8, byte: u8, len: usize) {
    // SAFETY: the kernel's contract is this function's.
    unsafe { kernel::fill(dst, byte, len) };
}

/// Whether this CPU has the CRC-32C instruction.
#[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
pub(crate) fn has_crc() -> bool {
    x86_64::CpuFeatures::get().has_sse42()
}
