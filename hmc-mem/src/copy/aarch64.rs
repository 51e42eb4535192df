//! The aarch64 kernel: plain moves up to 16 bytes, then `ldp`/`stp` of vector pairs.
//!
//! Each step is one assembly block, which the optimiser cannot see through and which declares the memory it
//! accesses. Normal memory allows unaligned access (Arm ARM B2.5). Advanced SIMD is in the Linux baseline.

use core::arch::asm;

/// Copies `len` bytes.
///
/// # Safety
/// That of [`super::copy`].
#[inline]
pub(super) unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) {
    if len < 8 {
        // SAFETY: the caller's contract.
        unsafe { super::portable::copy(dst, src, len) };
    } else if len <= 16 {
        let (s, d) = (src.wrapping_add(len).wrapping_sub(8), dst.wrapping_add(len).wrapping_sub(8));
        // SAFETY: the first and the last 8 bytes lie in the ranges, as `len >= 8`; both are read first.
        unsafe {
            asm!(
                "ldr {a}, [{s}]",
                "ldr {b}, [{t}]",
                "str {a}, [{d}]",
                "str {b}, [{e}]",
                s = in(reg) src, t = in(reg) s, d = in(reg) dst, e = in(reg) d,
                a = out(reg) _, b = out(reg) _,
                options(nostack, preserves_flags)
            );
        }
    } else if len <= 32 {
        let (s, d) =
            (src.wrapping_add(len).wrapping_sub(16), dst.wrapping_add(len).wrapping_sub(16));
        // SAFETY: the first and the last 16 bytes lie in the ranges, as `len >= 16`; both are read first.
        unsafe {
            asm!(
                "ldr {a:q}, [{s}]",
                "ldr {b:q}, [{t}]",
                "str {a:q}, [{d}]",
                "str {b:q}, [{e}]",
                s = in(reg) src, t = in(reg) s, d = in(reg) dst, e = in(reg) d,
                a = out(vreg) _, b = out(vreg) _,
                options(nostack, preserves_flags)
            );
        }
    } else if len <= 64 {
        // SAFETY: the caller's contract; `32 <= len <= 64`.
        unsafe { pairs(dst, src, len) };
    } else {
        // SAFETY: the caller's contract; `len > 64`.
        unsafe { blocks(dst, src, len) };
    }
}

/// Copies 32 to 64 bytes: 32 from either end, all read first.
///
/// # Safety
/// That of [`super::copy`], and `32 <= len <= 64`.
#[inline]
unsafe fn pairs(dst: *mut u8, src: *const u8, len: usize) {
    let (s, d) = (src.wrapping_add(len).wrapping_sub(32), dst.wrapping_add(len).wrapping_sub(32));
    // SAFETY: the first and the last 32 bytes lie in the ranges, as the caller vouched.
    unsafe {
        asm!(
            "ldp q0, q1, [{s}]",
            "ldp q2, q3, [{t}]",
            "stp q0, q1, [{d}]",
            "stp q2, q3, [{e}]",
            s = in(reg) src, t = in(reg) s, d = in(reg) dst, e = in(reg) d,
            out("v0") _, out("v1") _, out("v2") _, out("v3") _,
            options(nostack, preserves_flags)
        );
    }
}

/// Copies more than 64 bytes in blocks of 64, and the last 64, read at the start, at the end.
///
/// # Safety
/// That of [`super::copy`], and `len > 64`.
#[inline(never)]
unsafe fn blocks(dst: *mut u8, src: *const u8, len: usize) {
    let (s, d) = (src.wrapping_add(len).wrapping_sub(64), dst.wrapping_add(len).wrapping_sub(64));
    // SAFETY: the last 64 bytes lie in the ranges. The loop copies 64 bytes while more than 64 are left, so
    // it stays within them, and the last block closes the gap.
    unsafe {
        asm!(
            "ldp q4, q5, [{t}]",
            "ldp q6, q7, [{t}, #32]",
            "2:",
            "ldp q0, q1, [{s}]",
            "ldp q2, q3, [{s}, #32]",
            "add {s}, {s}, #64",
            "stp q0, q1, [{d}]",
            "stp q2, q3, [{d}, #32]",
            "add {d}, {d}, #64",
            "sub {n}, {n}, #64",
            "cmp {n}, #64",
            "b.hi 2b",
            "stp q4, q5, [{e}]",
            "stp q6, q7, [{e}, #32]",
            s = inout(reg) src => _, t = in(reg) s, d = inout(reg) dst => _, e = in(reg) d,
            n = inout(reg) len => _,
            out("v0") _, out("v1") _, out("v2") _, out("v3") _,
            out("v4") _, out("v5") _, out("v6") _, out("v7") _,
            options(nostack)
        );
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
#[inline]
pub(super) unsafe fn fill(dst: *mut u8, byte: u8, len: usize) {
    if len < 16 {
        // SAFETY: the caller's contract.
        unsafe { super::portable::fill(dst, byte, len) };
        return;
    }
    let last = dst.wrapping_add(len).wrapping_sub(16);
    // SAFETY: 16 bytes are written while the pointer lies below `last`, the start of the last 16 bytes, and
    // then those: all in the range, as `len >= 16`.
    unsafe {
        asm!(
            "dup v0.16b, {b:w}",
            "2:",
            "cmp {d}, {e}",
            "b.hs 3f",
            "str q0, [{d}], #16",
            "b 2b",
            "3:",
            "str q0, [{e}]",
            b = in(reg) u32::from(byte), d = inout(reg) dst => _, e = in(reg) last,
            out("v0") _,
            options(nostack)
        );
    }
}
