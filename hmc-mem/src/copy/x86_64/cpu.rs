//! What this CPU can do, asked once: `cpuid` costs microseconds in a virtual machine.

use core::arch::x86_64::{__cpuid_count, _xgetbv, CpuidResult};
// Not from `sync`: this word publishes nothing but itself and belongs to no model.
use core::sync::atomic::{AtomicU64, Ordering};

const KNOWN: u64 = 1;
const AVX: u64 = 1 << 1;
const ERMS: u64 = 1 << 2;
const SSE42: u64 = 1 << 3;
/// The non-temporal bound in KiB lies from bit 8 on.
const BOUND_SHIFT: u32 = 8;

static CACHE: AtomicU64 = AtomicU64::new(0);

/// The features that the kernels ask for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cpu(u64);

impl Cpu {
    /// The features of this CPU.
    #[inline]
    pub(crate) fn get() -> Self {
        // Relaxed: the word is all there is, and asking twice gives the same answer.
        match CACHE.load(Ordering::Relaxed) {
            0 => Self::ask(),
            bits => Self(bits),
        }
    }

    /// Whether AVX may be used: the CPU has it and the system saves its registers.
    #[inline]
    pub(crate) const fn has_avx(self) -> bool {
        self.0 & AVX != 0
    }

    /// Whether `rep movsb` is fast.
    #[inline]
    pub(crate) const fn has_erms(self) -> bool {
        self.0 & ERMS != 0
    }

    /// Whether there is a CRC-32C instruction.
    #[inline]
    pub(crate) const fn has_sse42(self) -> bool {
        self.0 & SSE42 != 0
    }

    /// From how many bytes on a copy passes the caches by.
    #[inline]
    pub(crate) fn non_temporal_from(self) -> usize {
        usize::try_from((self.0 >> BOUND_SHIFT) << 10).unwrap_or(usize::MAX)
    }

    #[cold]
    fn ask() -> Self {
        let mut bits = KNOWN;
        let max = cpuid(0, 0).eax;
        if max >= 1 {
            let leaf = cpuid(1, 0);
            // Intel SDM vol. 2A, CPUID: leaf 1 ECX bit 20 SSE4.2, bit 27 OSXSAVE, bit 28 AVX.
            if leaf.ecx >> 20 & 1 == 1 {
                bits |= SSE42;
            }
            if leaf.ecx >> 27 & 3 == 3 && system_saves_avx() {
                bits |= AVX;
            }
        }
        // Leaf 7 EBX bit 9: enhanced REP MOVSB/STOSB.
        if max >= 7 && cpuid(7, 0).ebx >> 9 & 1 == 1 {
            bits |= ERMS;
        }
        bits |= (super::stream_from(last_level_cache(max)) >> 10) << BOUND_SHIFT;
        CACHE.store(bits, Ordering::Relaxed);
        Self(bits)
    }
}

/// What the processor says under `leaf` and `sub`. Every x86-64 processor has the instruction; a leaf that it
/// does not know answers with that of another, so ask leaf 0 (or 0x8000_0000) first how far they go.
#[allow(unused_unsafe, reason = "a safe function since Rust 1.94")]
fn cpuid(leaf: u32, sub: u32) -> CpuidResult {
    // SAFETY: CPUID is part of the x86-64 baseline and touches no memory.
    unsafe { __cpuid_count(leaf, sub) }
}

/// XCR0 bits 1 and 2: the system saves XMM and YMM registers (Intel SDM vol. 1, 13.3).
fn system_saves_avx() -> bool {
    // SAFETY: called only after CPUID said OSXSAVE, so XGETBV exists and XCR0 may be read.
    let xcr0 = unsafe { xcr0() };
    xcr0 & 6 == 6
}

/// Reads XCR0.
///
/// # Safety
/// CPUID says OSXSAVE.
#[target_feature(enable = "xsave")]
unsafe fn xcr0() -> u64 {
    // SAFETY: register 0 exists wherever XGETBV does, which the caller vouched for.
    unsafe { _xgetbv(0) }
}

/// The size of the largest cache that `cpuid` tells of, in bytes; 0 when it tells of none.
fn last_level_cache(max: u32) -> u64 {
    // Intel: leaf 4. AMD: leaf 0x8000001D in the same format, which is empty or absent elsewhere.
    let ext = cpuid(0x8000_0000, 0).eax;
    let leaf = if max >= 4 && cpuid(4, 0).eax & 31 != 0 {
        4
    } else if ext >= 0x8000_001d {
        0x8000_001d
    } else {
        return 0;
    };
    let mut largest = 0;
    for index in 0..8 {
        let cache = cpuid(leaf, index);
        if cache.eax & 31 == 0 {
            break;
        }
        let ways = u64::from(cache.ebx >> 22).wrapping_add(1);
        let parts = u64::from(cache.ebx >> 12 & 0x3ff).wrapping_add(1);
        let line = u64::from(cache.ebx & 0xfff).wrapping_add(1);
        let sets = u64::from(cache.ecx).wrapping_add(1);
        largest = largest.max(ways.wrapping_mul(parts).wrapping_mul(line).wrapping_mul(sets));
    }
    largest
}
