//! Features of this CPU, read once: `cpuid` costs microseconds in a virtual machine.

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
pub(crate) struct CpuFeatures(u64);

impl CpuFeatures {
    /// The features of this CPU.
    #[inline]
    pub(crate) fn get() -> Self {
        // Relaxed: the word is all there is, and asking twice gives the same answer.
        match CACHE.load(Ordering::Relaxed) {
            0 => Self::detect(),
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
    fn detect() -> Self {
        let bits = features(&cpuid, system_saves_avx);
        CACHE.store(bits, Ordering::Relaxed);
        Self(bits)
    }
}

/// What a processor says under a leaf and a sub-leaf.
type Cpuid<'a> = &'a dyn Fn(u32, u32) -> CpuidResult;

/// The features of a processor, and the bound; `saves_avx` is asked only if CPUID says OSXSAVE.
fn features(cpuid: Cpuid<'_>, saves_avx: fn() -> bool) -> u64 {
    let mut bits = KNOWN;
    let max = cpuid(0, 0).eax;
    if max >= 1 {
        let leaf = cpuid(1, 0);
        // Intel SDM vol. 2A, CPUID: leaf 1 ECX bit 20 SSE4.2, bit 27 OSXSAVE, bit 28 AVX.
        if leaf.ecx >> 20 & 1 == 1 {
            bits |= SSE42;
        }
        if leaf.ecx >> 27 & 3 == 3 && saves_avx() {
            bits |= AVX;
        }
    }
    // Leaf 7 EBX bit 9: enhanced REP MOVSB/STOSB.
    if max >= 7 && cpuid(7, 0).ebx >> 9 & 1 == 1 {
        bits |= ERMS;
    }
    bits | (stream_from(last_level_cache(cpuid, max)) >> 10) << BOUND_SHIFT
}

/// From how many bytes on a copy passes the caches by, given the last-level cache in bytes: three eighths of
/// it, so that source and destination together still leave others a quarter. Measured with 36 MiB of cache
/// (2-core guest, Cascade Lake): `rep movsb` is ahead to 12 MiB (1.00 to 1.03 of memcpy), this is ahead by a
/// fifth at 24 MiB and more. Never below 4 MiB: a put that the target reads at once should be in the cache.
const fn stream_from(cache: u64) -> u64 {
    let bound = (cache >> 3).saturating_mul(3);
    if bound < 4 << 20 { 4 << 20 } else { bound }
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
fn last_level_cache(cpuid: Cpuid<'_>, max: u32) -> u64 {
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

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "tests may panic")]
mod tests {
    use super::{CpuFeatures, CpuidResult, features};
    use std::vec::Vec;

    const ZERO: CpuidResult = CpuidResult { eax: 0, ebx: 0, ecx: 0, edx: 0 };
    const MIB: usize = 1 << 20;

    /// A processor that says so much under these leaves, and nothing under others.
    fn processor(says: &[((u32, u32), CpuidResult)], saves_avx: fn() -> bool) -> CpuFeatures {
        let says: Vec<_> = says.to_vec();
        let cpuid = move |leaf, sub| {
            says.iter().find(|(at, _)| *at == (leaf, sub)).map_or(ZERO, |(_, words)| *words)
        };
        CpuFeatures(features(&cpuid, saves_avx))
    }

    fn max(eax: u32) -> ((u32, u32), CpuidResult) {
        ((0, 0), CpuidResult { eax, ..ZERO })
    }

    /// A cache of `ways` times `parts` times `line` times `sets` bytes; each stands there less one.
    fn cache(ways: u32, parts: u32, line: u32, sets: u32) -> CpuidResult {
        let ebx = (ways - 1) << 22 | (parts - 1) << 12 | (line - 1);
        CpuidResult { eax: 3, ebx, ecx: sets - 1, edx: 0 }
    }

    /// What the processor can do: AVX, fast `rep movsb`, SSE4.2.
    fn can(cpu: CpuFeatures) -> [bool; 3] {
        [cpu.has_avx(), cpu.has_erms(), cpu.has_sse42()]
    }

    #[test]
    fn a_processor_has_what_its_bits_say() {
        let all = CpuidResult { eax: !0, ebx: !0, ecx: !0, edx: !0 };
        let leaf_1 = |ecx| ((1, 0), CpuidResult { ecx, ..ZERO });
        let yes = || true;
        // Leaves beyond the last one answer with those of others.
        assert_eq!(can(processor(&[max(0), ((1, 0), all), ((7, 0), all)], yes)), [false; 3]);
        assert_eq!(can(processor(&[max(6), ((7, 0), all)], yes)), [false; 3]);
        assert_eq!(can(processor(&[max(7), ((7, 0), all)], yes)), [false, true, false]);
        let without = CpuidResult { ebx: !(1 << 9), ..ZERO };
        assert_eq!(can(processor(&[max(7), ((7, 0), without)], yes)), [false; 3]);
        assert_eq!(can(processor(&[max(1), leaf_1(1 << 20)], yes)), [false, false, true]);
        assert_eq!(can(processor(&[max(1), leaf_1(!(1 << 20))], yes)), [true, false, false]);
        assert_eq!(can(processor(&[max(1), leaf_1(1 << 27 | 1 << 28)], yes)), [true, false, false]);
        assert_eq!(can(processor(&[max(1), leaf_1(1 << 27 | 1 << 28)], || false)), [false; 3]);
        // Without OSXSAVE the system is not asked: XGETBV would be an illegal instruction.
        let unasked = || panic!("asked");
        assert_eq!(can(processor(&[max(1), leaf_1(1 << 28)], unasked)), [false; 3]);
        assert_eq!(can(processor(&[max(1), leaf_1(1 << 27)], unasked)), [false; 3]);
    }

    #[test]
    fn the_bound_is_three_eighths_of_the_largest_cache() {
        let from = |says: &[_]| processor(says, || true).non_temporal_from();
        let large = cache(16, 2, 64, 32768);
        assert_eq!(16 * 2 * 64 * 32768, 64 * MIB);
        let small = cache(8, 1, 64, 64);
        let intel = [max(4), ((4, 0), small), ((4, 1), large), ((4, 2), small)];
        assert_eq!(from(&intel), 24 * MIB);
        // Every factor counts.
        let [less, more] = [cache(15, 2, 64, 32768), cache(16, 3, 64, 32768)];
        assert_eq!(from(&[max(4), ((4, 0), less)]), 45 * MIB / 2);
        assert_eq!(from(&[max(4), ((4, 0), more)]), 36 * MIB);
        let [short, wide] = [cache(16, 2, 32, 32768), cache(16, 2, 64, 65536)];
        assert_eq!(from(&[max(4), ((4, 0), short)]), 12 * MIB);
        assert_eq!(from(&[max(4), ((4, 0), wide)]), 48 * MIB);
        // What comes after the end of the list is none, nor is what comes as the ninth.
        let none = ((4, 1), CpuidResult { eax: 1 << 5, ..large });
        assert_eq!(from(&[max(4), ((4, 0), small), none, ((4, 2), large)]), 4 * MIB);
        let mut nine: Vec<_> = (0..8).map(|n| ((4, n), small)).collect();
        nine.push(((4, 8), large));
        nine.push(max(4));
        assert_eq!(from(&nine), 4 * MIB);
        // AMD's leaf, where Intel's is empty or not there.
        let amd = ((0x8000_001d, 0), large);
        let last = |eax| ((0x8000_0000, 0), CpuidResult { eax, ..ZERO });
        assert_eq!(from(&[max(4), last(0x8000_001d), amd]), 24 * MIB);
        assert_eq!(from(&[max(3), ((4, 0), small), last(0x8000_001d), amd]), 24 * MIB);
        assert_eq!(from(&[max(3), last(0x8000_001c), amd]), 4 * MIB);
        assert_eq!(from(&[max(4), ((4, 0), small), last(0x8000_001d), amd]), 4 * MIB);
    }
}
