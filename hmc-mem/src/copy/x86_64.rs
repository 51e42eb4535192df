//! The x86-64 kernel: plain moves up to 128 bytes, AVX blocks, `rep movsb`, non-temporal stores.
//!
//! Each step is one assembly block, which the optimiser cannot see through and which declares the memory it
//! accesses. `cargo run --release -p hmc-mem --example copy_speed` measured the bounds below and
//! [`CpuFeatures::non_temporal_from`] (see the comments). A CPU without AVX or ERMS uses the other steps.

use core::arch::asm;

mod cpu;

pub(crate) use cpu::CpuFeatures;

/// From here `rep movsb` wins over AVX blocks on a CPU with ERMS: it takes some 30 ns to start. Warm, it is
/// ahead from 4 KiB on (46 ns against 60), but on 1,024 scattered cold pages of 4 KiB it falls to 0.60 of
/// memcpy where AVX blocks reach 0.8 to 0.9: the prefetcher sees the blocks.
const REP_FROM: usize = 8 << 10;
/// Below this many bytes a fill by 16-byte stores beats the start of `rep stosb`.
const REP_FILL_FROM: usize = 512;

/// Copies `len` bytes.
///
/// # Safety
/// That of [`super::copy`].
#[inline]
pub(super) unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) {
    if len <= 16 {
        // SAFETY: the caller's contract; `len <= 16`.
        unsafe { upto16(dst, src, len) };
    } else if len <= 32 {
        // SAFETY: the caller's contract: both 16-byte blocks, the first and the last, lie in the ranges, as
        // `len >= 16`; both are read before either is written. Baseline x86-64 has SSE2.
        unsafe {
            asm!(
                "movups {a}, [{s}]",
                "movups {b}, [{s} + {n} - 16]",
                "movups [{d}], {a}",
                "movups [{d} + {n} - 16], {b}",
                s = in(reg) src, d = in(reg) dst, n = in(reg) len,
                a = out(xmm_reg) _, b = out(xmm_reg) _,
                options(nostack, preserves_flags)
            );
        }
    } else if len <= 64 {
        // SAFETY: as above with two blocks from either end, as `len >= 32`.
        unsafe {
            asm!(
                "movups {a}, [{s}]",
                "movups {b}, [{s} + 16]",
                "movups {e}, [{s} + {n} - 32]",
                "movups {f}, [{s} + {n} - 16]",
                "movups [{d}], {a}",
                "movups [{d} + 16], {b}",
                "movups [{d} + {n} - 32], {e}",
                "movups [{d} + {n} - 16], {f}",
                s = in(reg) src, d = in(reg) dst, n = in(reg) len,
                a = out(xmm_reg) _, b = out(xmm_reg) _, e = out(xmm_reg) _, f = out(xmm_reg) _,
                options(nostack, preserves_flags)
            );
        }
    } else if len <= 128 {
        // SAFETY: as above with four blocks from either end, as `len >= 64`.
        unsafe { upto128(dst, src, len) };
    } else {
        // SAFETY: the caller's contract; `len > 128`.
        unsafe { large(dst, src, len) };
    }
}

/// Copies a piece of a transfer of `whole` bytes.
///
/// # Safety
/// That of [`super::copy`].
pub(super) unsafe fn copy_piece(dst: *mut u8, src: *const u8, len: usize, whole: u64) {
    let cpu = CpuFeatures::get();
    let long = usize::try_from(whole).map_or(true, |n| n >= cpu.non_temporal_from());
    if len > 256 && long && cpu.has_avx() {
        // SAFETY: the caller's contract; the CPU has AVX; `len > 128`.
        unsafe { stream(dst, src, len) };
    } else {
        // SAFETY: the caller's contract.
        unsafe { copy(dst, src, len) };
    }
}

/// Copies up to 16 bytes with plain moves that may overlap, all read before any is written.
///
/// # Safety
/// That of [`super::copy`], and `len <= 16`.
#[inline]
unsafe fn upto16(dst: *mut u8, src: *const u8, len: usize) {
    if len >= 8 {
        // SAFETY: the first and the last 8 bytes lie in the ranges, as `len >= 8`.
        unsafe {
            asm!(
                "mov {a}, [{s}]",
                "mov {b}, [{s} + {n} - 8]",
                "mov [{d}], {a}",
                "mov [{d} + {n} - 8], {b}",
                s = in(reg) src, d = in(reg) dst, n = in(reg) len,
                a = out(reg) _, b = out(reg) _,
                options(nostack, preserves_flags)
            );
        }
    } else if len >= 4 {
        // SAFETY: the first and the last 4 bytes lie in the ranges, as `len >= 4`.
        unsafe {
            asm!(
                "mov {a:e}, [{s}]",
                "mov {b:e}, [{s} + {n} - 4]",
                "mov [{d}], {a:e}",
                "mov [{d} + {n} - 4], {b:e}",
                s = in(reg) src, d = in(reg) dst, n = in(reg) len,
                a = out(reg) _, b = out(reg) _,
                options(nostack, preserves_flags)
            );
        }
    } else if len >= 2 {
        // SAFETY: the first and the last 2 bytes lie in the ranges, as `len >= 2`.
        unsafe {
            asm!(
                "movzx {a:e}, word ptr [{s}]",
                "movzx {b:e}, word ptr [{s} + {n} - 2]",
                "mov [{d}], {a:x}",
                "mov [{d} + {n} - 2], {b:x}",
                s = in(reg) src, d = in(reg) dst, n = in(reg) len,
                a = out(reg) _, b = out(reg) _,
                options(nostack, preserves_flags)
            );
        }
    } else if len == 1 {
        // SAFETY: one byte lies in both ranges.
        unsafe {
            asm!(
                "movzx {a:e}, byte ptr [{s}]",
                "mov [{d}], {a:l}",
                s = in(reg) src, d = in(reg) dst, a = out(reg) _,
                options(nostack, preserves_flags)
            );
        }
    }
}

/// Copies 64 to 128 bytes with eight SSE moves.
///
/// # Safety
/// That of [`super::copy`], and `64 <= len <= 128`.
#[inline]
unsafe fn upto128(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: four 16-byte blocks from either end lie in the ranges, as `len >= 64`; all are read first.
    unsafe {
        asm!(
            "movups xmm0, [{s}]",
            "movups xmm1, [{s} + 16]",
            "movups xmm2, [{s} + 32]",
            "movups xmm3, [{s} + 48]",
            "movups xmm4, [{s} + {n} - 64]",
            "movups xmm5, [{s} + {n} - 48]",
            "movups xmm6, [{s} + {n} - 32]",
            "movups xmm7, [{s} + {n} - 16]",
            "movups [{d}], xmm0",
            "movups [{d} + 16], xmm1",
            "movups [{d} + 32], xmm2",
            "movups [{d} + 48], xmm3",
            "movups [{d} + {n} - 64], xmm4",
            "movups [{d} + {n} - 48], xmm5",
            "movups [{d} + {n} - 32], xmm6",
            "movups [{d} + {n} - 16], xmm7",
            s = in(reg) src, d = in(reg) dst, n = in(reg) len,
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
            out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
            options(nostack, preserves_flags)
        );
    }
}

/// Copies more than 128 bytes.
///
/// # Safety
/// That of [`super::copy`], and `len > 128`.
unsafe fn large(dst: *mut u8, src: *const u8, len: usize) {
    let cpu = CpuFeatures::get();
    if len <= 256 && cpu.has_avx() {
        // SAFETY: the caller's contract; the CPU has AVX; `128 < len <= 256`.
        unsafe { avx_upto256(dst, src, len) };
    } else if len >= cpu.non_temporal_from() && cpu.has_avx() {
        // SAFETY: the caller's contract; the CPU has AVX; `len > 128`.
        unsafe { stream(dst, src, len) };
    } else if len >= REP_FROM && cpu.has_erms() {
        // SAFETY: the caller's contract; `len > 64`.
        unsafe { rep(dst, src, len) };
    } else if cpu.has_avx() {
        // SAFETY: the caller's contract; the CPU has AVX; `len > 256`.
        unsafe { avx(dst, src, len) };
    } else {
        // SAFETY: the caller's contract; `len > 128`.
        unsafe { sse(dst, src, len) };
    }
}

/// `rep movsb` from the first 64-byte line of the destination on; the bytes before it by moves. The
/// microcode copies whole lines fastest when its stores are aligned.
///
/// # Safety
/// That of [`super::copy`], and `len >= 64`.
#[inline(never)]
unsafe fn rep(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the first 64 bytes lie in both ranges.
    unsafe { upto128(dst, src, 64) };
    // 1 to 64 bytes are done with; the rest starts on a line.
    let skip = 64usize.wrapping_sub(dst.addr() & 63);
    // SAFETY: `skip <= 64 <= len`, so the rest lies in the ranges; the ABI keeps the direction flag clear.
    unsafe {
        asm!(
            "rep movsb",
            inout("rcx") len.wrapping_sub(skip) => _,
            inout("rdi") dst.wrapping_add(skip) => _,
            inout("rsi") src.wrapping_add(skip) => _,
            options(nostack, preserves_flags)
        );
    }
}

/// Copies 128 to 256 bytes with eight AVX moves.
///
/// # Safety
/// That of [`super::copy`], `128 <= len <= 256`, and the CPU and the system have AVX.
#[inline]
unsafe fn avx_upto256(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: four 32-byte blocks from either end lie in the ranges, as `len >= 128`; all are read first. Every
    // vector register is declared as written, since `vzeroupper` touches them all.
    unsafe {
        asm!(
            "vmovups ymm0, [{s}]",
            "vmovups ymm1, [{s} + 32]",
            "vmovups ymm2, [{s} + 64]",
            "vmovups ymm3, [{s} + 96]",
            "vmovups ymm4, [{s} + {n} - 128]",
            "vmovups ymm5, [{s} + {n} - 96]",
            "vmovups ymm6, [{s} + {n} - 64]",
            "vmovups ymm7, [{s} + {n} - 32]",
            "vmovups [{d}], ymm0",
            "vmovups [{d} + 32], ymm1",
            "vmovups [{d} + 64], ymm2",
            "vmovups [{d} + 96], ymm3",
            "vmovups [{d} + {n} - 128], ymm4",
            "vmovups [{d} + {n} - 96], ymm5",
            "vmovups [{d} + {n} - 64], ymm6",
            "vmovups [{d} + {n} - 32], ymm7",
            "vzeroupper",
            s = in(reg) src, d = in(reg) dst, n = in(reg) len,
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
            out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
            out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
            out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
            options(nostack, preserves_flags)
        );
    }
}

/// AVX blocks of 128 bytes to an aligned destination; the ragged ends are read first and written around.
///
/// # Safety
/// That of [`super::copy`], `len >= 160`, and the CPU and the system have AVX.
#[inline(never)]
unsafe fn avx(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the first 32 and the last 128 bytes lie in the ranges. The loop starts at the first multiple of
    // 32 after `dst`, at most 32 on, so that at least 128 bytes are left, and goes on only while more than 128
    // are; the last 128, read at the start, close the gap. Every vector
    // register is declared as written, since `vzeroupper` touches them all.
    unsafe {
        asm!(
            "vmovups ymm4, [rsi]",
            "vmovups ymm5, [rsi + rdx - 128]",
            "vmovups ymm6, [rsi + rdx - 96]",
            "vmovups ymm7, [rsi + rdx - 64]",
            "vmovups ymm8, [rsi + rdx - 32]",
            "lea r8, [rdi + rdx]",
            "vmovups [rdi], ymm4",
            "sub rsi, rdi",
            "lea rdx, [r8 - 128]",
            "or rdi, 31",
            "inc rdi",
            ".p2align 5",
            "2:",
            "vmovups ymm0, [rdi + rsi]",
            "vmovups ymm1, [rdi + rsi + 32]",
            "vmovups ymm2, [rdi + rsi + 64]",
            "vmovups ymm3, [rdi + rsi + 96]",
            "vmovaps [rdi], ymm0",
            "vmovaps [rdi + 32], ymm1",
            "vmovaps [rdi + 64], ymm2",
            "vmovaps [rdi + 96], ymm3",
            "sub rdi, -128",
            "cmp rdi, rdx",
            "jb 2b",
            "vmovups [r8 - 128], ymm5",
            "vmovups [r8 - 96], ymm6",
            "vmovups [r8 - 64], ymm7",
            "vmovups [r8 - 32], ymm8",
            "vzeroupper",
            inout("rdi") dst => _, inout("rsi") src => _, inout("rdx") len => _,
            out("r8") _,
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
            out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
            out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
            out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
            options(nostack)
        );
    }
}

/// Stores that pass the caches by, for copies larger than the cache, where a plain store would first read
/// the line that it is about to overwrite. Four pages are copied side by side, a quarter of the way apart, which
/// keeps four banks of memory and four hardware prefetchers busy. Ends with `sfence`, so that later stores of
/// this thread (the flag that publishes the bytes) come after.
///
/// # Safety
/// That of [`super::copy`], `len > 128`, and the CPU and the system have AVX.
#[inline(never)]
unsafe fn stream(dst: *mut u8, src: *const u8, len: usize) {
    // The rest starts on a line, as non-temporal stores must. A destination that does so already loses nothing:
    // a piece of whole blocks has no rest for the slower copy below.
    let skip = dst.addr().wrapping_neg() & 63;
    if skip != 0 {
        // SAFETY: the first 64 bytes lie in both ranges.
        unsafe { upto128(dst, src, 64) };
    }
    let (dst, src, len) = (dst.wrapping_add(skip), src.wrapping_add(skip), len.wrapping_sub(skip));
    let whole = len / BLOCK;
    if whole > 0 {
        // SAFETY: `whole` blocks lie in both ranges; `dst` is a multiple of 64; the CPU has AVX.
        unsafe { stream_blocks(dst, src, whole) };
    }
    // Fewer than a block is left.
    let done = whole.wrapping_mul(BLOCK);
    // SAFETY: the rest of the ranges. The chooser does not come back here: a block is below every bound.
    unsafe { copy(dst.wrapping_add(done), src.wrapping_add(done), len.wrapping_sub(done)) };
}

/// Bytes that [`stream_blocks`] copies side by side: four pages.
const BLOCK: usize = 4 * 4096;

/// # Safety
/// `blocks * BLOCK` bytes at `src` and `dst` as in [`super::copy`]; `dst` is a multiple of 32; `blocks > 0`;
/// the CPU and the system have AVX.
unsafe fn stream_blocks(dst: *mut u8, src: *const u8, blocks: usize) {
    // SAFETY: for each block the inner loop goes over 32 steps of 128 bytes in each of its four pages, all
    // within the caller's ranges; prefetches never trap, wherever they point. Every vector register is
    // declared as written.
    unsafe {
        asm!(
            "3:",
            "mov ecx, 32",
            "2:",
            "prefetcht0 [rsi + 256]",
            "prefetcht0 [rsi + 320]",
            "prefetcht0 [rsi + 4352]",
            "prefetcht0 [rsi + 4416]",
            "prefetcht0 [rsi + 8448]",
            "prefetcht0 [rsi + 8512]",
            "prefetcht0 [rsi + 12544]",
            "prefetcht0 [rsi + 12608]",
            "vmovups ymm0, [rsi]",
            "vmovups ymm1, [rsi + 32]",
            "vmovups ymm2, [rsi + 64]",
            "vmovups ymm3, [rsi + 96]",
            "vmovups ymm4, [rsi + 4096]",
            "vmovups ymm5, [rsi + 4128]",
            "vmovups ymm6, [rsi + 4160]",
            "vmovups ymm7, [rsi + 4192]",
            "vmovups ymm8, [rsi + 8192]",
            "vmovups ymm9, [rsi + 8224]",
            "vmovups ymm10, [rsi + 8256]",
            "vmovups ymm11, [rsi + 8288]",
            "vmovups ymm12, [rsi + 12288]",
            "vmovups ymm13, [rsi + 12320]",
            "vmovups ymm14, [rsi + 12352]",
            "vmovups ymm15, [rsi + 12384]",
            "vmovntps [rdi], ymm0",
            "vmovntps [rdi + 32], ymm1",
            "vmovntps [rdi + 64], ymm2",
            "vmovntps [rdi + 96], ymm3",
            "vmovntps [rdi + 4096], ymm4",
            "vmovntps [rdi + 4128], ymm5",
            "vmovntps [rdi + 4160], ymm6",
            "vmovntps [rdi + 4192], ymm7",
            "vmovntps [rdi + 8192], ymm8",
            "vmovntps [rdi + 8224], ymm9",
            "vmovntps [rdi + 8256], ymm10",
            "vmovntps [rdi + 8288], ymm11",
            "vmovntps [rdi + 12288], ymm12",
            "vmovntps [rdi + 12320], ymm13",
            "vmovntps [rdi + 12352], ymm14",
            "vmovntps [rdi + 12384], ymm15",
            "sub rsi, -128",
            "sub rdi, -128",
            "dec ecx",
            "jnz 2b",
            "add rsi, 12288",
            "add rdi, 12288",
            "dec rdx",
            "jnz 3b",
            "sfence",
            "vzeroupper",
            inout("rdi") dst => _, inout("rsi") src => _, inout("rdx") blocks => _, out("rcx") _,
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
            out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
            out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
            out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
            options(nostack)
        );
    }
}

/// 128-byte steps of SSE moves, for a CPU without AVX.
///
/// # Safety
/// That of [`super::copy`], and `len > 128`.
#[inline(never)]
unsafe fn sse(dst: *mut u8, src: *const u8, len: usize) {
    let last = len.saturating_sub(128);
    let mut i = 0usize;
    while i < last {
        // SAFETY: `i < len - 128`, so 128 bytes from `i` lie in both ranges.
        unsafe { upto128(dst.wrapping_add(i), src.wrapping_add(i), 128) };
        i = i.saturating_add(128);
    }
    // SAFETY: the last 128 bytes, as `len > 128`; the ranges do not overlap, so `src` is as it was.
    unsafe { upto128(dst.wrapping_add(last), src.wrapping_add(last), 128) };
}

/// Sets `len` bytes.
///
/// # Safety
/// That of [`super::fill`].
#[inline]
pub(super) unsafe fn fill(dst: *mut u8, byte: u8, len: usize) {
    if len < REP_FILL_FROM {
        // SAFETY: the caller's contract.
        unsafe { super::portable::fill(dst, byte, len) };
        return;
    }
    // SAFETY: the caller's contract; the ABI keeps the direction flag clear.
    unsafe {
        asm!(
            "rep stosb",
            inout("rcx") len => _, inout("rdi") dst => _, in("al") byte,
            options(nostack, preserves_flags)
        );
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "tests may panic")]
mod tests {
    use super::{CpuFeatures, avx, rep, sse, stream};
    use std::vec;
    use std::vec::Vec;

    type Kernel = unsafe fn(*mut u8, *const u8, usize);

    /// Each kernel by itself, at sizes and alignments that the chooser would give to another.
    #[test]
    fn every_kernel_copies_its_range_and_no_more() {
        let mut kernels: Vec<(&str, Kernel)> = vec![("rep", rep), ("sse", sse)];
        if CpuFeatures::get().has_avx() {
            kernels.push(("avx", avx));
            kernels.push(("stream", stream));
        }
        for (name, kernel) in kernels {
            for len in (160..450).chain([4095, 4096, 4097, 70_001]) {
                for (from, to) in [(0usize, 0usize), (1, 0), (0, 1), (31, 33), (32, 63), (7, 64)] {
                    let src: Vec<u8> = (0..len + 128)
                        .map(|i: usize| i.wrapping_mul(37).to_le_bytes()[0])
                        .collect();
                    let mut dst = vec![0xEEu8; len + 192];
                    let (s, d) =
                        (src.as_ptr().wrapping_add(from), dst.as_mut_ptr().wrapping_add(to));
                    // SAFETY: `from <= 64` and `to <= 64` leave `len` bytes in both vectors, which are
                    // different allocations; `len > 128`; AVX kernels are listed only where there is AVX.
                    unsafe { kernel(d, s, len) };
                    let ok = dst[..to].iter().all(|b| *b == 0xEE)
                        && dst[to..to + len] == src[from..from + len]
                        && dst[to + len..].iter().all(|b| *b == 0xEE);
                    assert!(ok, "{name}: {len} bytes from +{from} to +{to}");
                }
            }
        }
    }
}
