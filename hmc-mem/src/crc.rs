//! CRC-32C (Castagnoli, RFC 3720 B.4) of bytes that others may write.
//!
//! Each byte is read once, with the SSE4.2 instruction in three interleaved streams if available, otherwise with
//! volatile loads and a table. The checksum is of the bytes that were read: to verify a copy, compute the checksum
//! of the copy.

/// The polynomial of RFC 3720, reflected.
const POLY: u32 = 0x82f6_3b78;

/// The remainder of each byte value.
#[allow(
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::arithmetic_side_effects,
    reason = "evaluated by the compiler: a mistake is a build error"
)]
const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        let mut crc = i as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ POLY } else { crc >> 1 };
            bit += 1;
        }
        table[i] = crc;
        i += 1;
    }
    table
};

/// Goes on with the CRC-32C `crc` (0 at the start) over `len` bytes at `src`.
///
/// # Safety
/// `src` is readable for `len` bytes without a trap; no `&mut` to them is used meanwhile.
pub(crate) unsafe fn append(crc: u32, src: *const u8, len: usize) -> u32 {
    #[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
    if crate::copy::has_crc() {
        // SAFETY: the caller's contract; the CPU has SSE4.2.
        return unsafe { hardware::append(crc, src, len) };
    }
    // SAFETY: the caller's contract.
    unsafe { table(crc, src, len) }
}

fn step(crc: u32, byte: u8) -> u32 {
    let [low, ..] = crc.to_le_bytes();
    // The index is a byte and the table has 256 entries: the default is never taken.
    TABLE.get(usize::from(low ^ byte)).copied().unwrap_or_default() ^ (crc >> 8)
}

/// # Safety
/// That of [`append`].
unsafe fn table(crc: u32, src: *const u8, len: usize) -> u32 {
    let mut crc = !crc;
    for i in 0..len {
        // SAFETY: `i < len`, within the readable range; `u8` has no alignment; volatile makes no reference.
        crc = step(crc, unsafe { src.wrapping_add(i).read_volatile() });
    }
    !crc
}

#[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
mod hardware {
    use super::step;
    use core::arch::asm;

    /// Bytes of each of the three streams: a multiple of 8.
    const STREAM: usize = 2048;

    /// `SHIFT[k][b]`: the remainder of byte `b` at place `k` of a CRC after [`STREAM`] zero bytes. With it
    /// the sums of neighbouring streams are joined: crc(a || b) = shift(crc(a)) ^ crc(b).
    #[allow(
        clippy::indexing_slicing,
        clippy::as_conversions,
        clippy::arithmetic_side_effects,
        reason = "evaluated by the compiler: a mistake is a build error"
    )]
    static SHIFT: [[u32; 256]; 4] = {
        // The operator on single bits, then its sums: it is linear over GF(2).
        let mut bits = [0u32; 32];
        let mut bit = 0;
        while bit < 32 {
            let mut crc = 1u32 << bit;
            let mut i = 0;
            while i < STREAM {
                crc = super::TABLE[(crc & 255) as usize] ^ crc >> 8;
                i += 1;
            }
            bits[bit] = crc;
            bit += 1;
        }
        let mut shift = [[0u32; 256]; 4];
        let mut place = 0;
        while place < 4 {
            let mut byte = 0;
            while byte < 256 {
                let mut bit = 0;
                while bit < 8 {
                    if byte >> bit & 1 == 1 {
                        shift[place][byte] ^= bits[8 * place + bit];
                    }
                    bit += 1;
                }
                byte += 1;
            }
            place += 1;
        }
        shift
    };

    fn shift(crc: u32) -> u32 {
        SHIFT.iter().zip(crc.to_le_bytes()).fold(0, |sum, (place, byte)| {
            // 256 entries and a byte: the default is never taken.
            sum ^ place.get(usize::from(byte)).copied().unwrap_or_default()
        })
    }

    /// # Safety
    /// That of [`super::append`], and the CPU has SSE4.2.
    pub(super) unsafe fn append(crc: u32, src: *const u8, len: usize) -> u32 {
        let (mut crc, mut at, mut left) = (!crc, src, len);
        while let Some(rest) = left.checked_sub(STREAM * 3) {
            // SAFETY: three streams lie in the range, as that many bytes are left; SSE4.2 as the caller vouched.
            let (a, b, c) = unsafe { three(crc, at) };
            crc = shift(shift(a) ^ b) ^ c;
            at = at.wrapping_add(STREAM * 3);
            left = rest;
        }
        let mut wide = u64::from(crc);
        while let Some(rest) = left.checked_sub(8) {
            // SAFETY: 8 bytes lie in the range, as that many are left; x86-64 has no alignment here.
            unsafe {
                asm!(
                    "crc32 {c}, qword ptr [{p}]",
                    c = inout(reg) wide, p = in(reg) at,
                    options(nostack, preserves_flags, readonly)
                );
            }
            at = at.wrapping_add(8);
            left = rest;
        }
        crc = crate::sync::low(wide);
        for i in 0..left {
            // SAFETY: `i < left`, within the range; volatile makes no reference.
            crc = step(crc, unsafe { at.wrapping_add(i).read_volatile() });
        }
        !crc
    }

    /// Sums three neighbouring streams at once: the instruction takes three cycles but starts each cycle.
    ///
    /// # Safety
    /// `3 * STREAM` bytes at `at` are readable without a trap; the CPU has SSE4.2.
    unsafe fn three(crc: u32, at: *const u8) -> (u32, u32, u32) {
        let (mut a, mut b, mut c) = (u64::from(crc), 0u64, 0u64);
        // SAFETY: the loop reads 8 bytes at each multiple of 8 below STREAM in each of the three streams,
        // all within the caller's range.
        unsafe {
            asm!(
                "2:",
                "crc32 {a}, qword ptr [{p}]",
                "crc32 {b}, qword ptr [{p} + {s}]",
                "crc32 {c}, qword ptr [{p} + 2 * {s}]",
                "add {p}, 8",
                "cmp {p}, {e}",
                "jne 2b",
                a = inout(reg) a, b = inout(reg) b, c = inout(reg) c,
                p = inout(reg) at => _, e = in(reg) at.wrapping_add(STREAM), s = const STREAM,
                options(nostack, readonly)
            );
        }
        (crate::sync::low(a), crate::sync::low(b), crate::sync::low(c))
    }
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "tests may panic")]
mod tests {
    use super::{append, table};
    use std::vec::Vec;

    fn crc(bytes: &[u8]) -> u32 {
        // SAFETY: a slice is readable for its length, and nobody writes it.
        unsafe { append(0, bytes.as_ptr(), bytes.len()) }
    }

    /// RFC 3720 B.4 and the check value of the catalogue of parametrised CRCs.
    #[test]
    fn the_published_vectors() {
        let up: Vec<u8> = (0..32).collect();
        let down: Vec<u8> = (0..32).rev().collect();
        assert_eq!(crc(&[]), 0);
        assert_eq!(crc(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc(&up), 0x46dd_794e);
        assert_eq!(crc(&down), 0x113f_db5c);
        assert_eq!(crc(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn hardware_and_table_agree_in_one_piece_and_in_two() {
        let bytes: Vec<u8> = (0..20_000u32).map(|i| (i * i / 7).to_le_bytes()[0]).collect();
        let lens: &[usize] = if cfg!(miri) {
            &[0, 1, 9, 300]
        } else {
            &[0, 1, 7, 8, 9, 63, 6143, 6144, 6145, 12_299, 19_000]
        };
        for &len in lens {
            for at in [0usize, 1, 5] {
                let part = &bytes[at..at + len];
                // SAFETY: a slice is readable for its length, and nobody writes it.
                let want = unsafe { table(0, part.as_ptr(), len) };
                assert_eq!(crc(part), want, "{len} bytes at {at}");
                let (head, tail) = part.split_at(len / 3);
                // SAFETY: as above.
                let joined = unsafe { append(crc(head), tail.as_ptr(), tail.len()) };
                assert_eq!(joined, want);
            }
        }
    }
}
