//! Joins CRC-32C sums of parts into the sum of the whole, so that each part is summed where it lies
//! and a hole of any size costs nothing.
//!
//! A sum is a polynomial over GF(2) modulo that of RFC 3720 (B.4), with its bits reflected: bit 31 is
//! the coefficient of x^0. To append n bytes is to multiply by x^(8n).

/// The polynomial, reflected.
const POLY: u32 = 0x82f6_3b78;
/// The polynomial 1.
const ONE: u32 = 1 << 31;

/// a * b modulo the polynomial.
fn times(a: u32, b: u32) -> u32 {
    let mut product = 0;
    let mut b = b;
    for bit in (0..32).rev() {
        if a >> bit & 1 == 1 {
            product ^= b;
        }
        b = if b & 1 == 1 { b >> 1 ^ POLY } else { b >> 1 };
    }
    product
}

/// x^(8 * bytes) modulo the polynomial.
fn shift_of(bytes: u64) -> u32 {
    let mut power = ONE;
    // x^8.
    let mut square = ONE >> 8;
    let mut left = bytes;
    while left > 0 {
        if left & 1 == 1 {
            power = times(power, square);
        }
        square = times(square, square);
        left >>= 1;
    }
    power
}

/// The sum of a sequence of bytes that grows by parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Crc32c(u32);

impl Crc32c {
    /// Appends `len` bytes whose own sum is `crc`.
    pub(crate) fn append(&mut self, crc: u32, len: u64) {
        self.0 = times(shift_of(len), self.0) ^ crc;
    }

    /// Appends `len` zero bytes.
    pub(crate) fn zeros(&mut self, len: u64) {
        self.0 = !times(shift_of(len), !self.0);
    }

    /// The sum so far.
    pub(crate) fn get(self) -> u32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::{Crc32c, POLY};

    /// Bit by bit, as RFC 3720 defines it.
    fn plain(bytes: &[u8]) -> u32 {
        !bytes.iter().fold(!0u32, |crc, byte| {
            (0..8).fold(
                crc ^ u32::from(*byte),
                |c, _| {
                    if c & 1 == 1 { c >> 1 ^ POLY } else { c >> 1 }
                },
            )
        })
    }

    #[test]
    fn parts_give_the_sum_of_the_whole() {
        assert_eq!(plain(b"123456789"), 0xe306_9283, "the check value of the CRC catalogue");
        let bytes: Vec<u8> = (0..1000u32).flat_map(|n| (n * n).to_le_bytes()).collect();
        for cut in [0, 1, 7, 8, 255, 1024, 3999, 4000] {
            let (a, b) = bytes.split_at(cut);
            let mut sum = Crc32c::default();
            sum.append(plain(a), a.len() as u64);
            sum.append(plain(b), b.len() as u64);
            assert_eq!(sum.get(), plain(&bytes), "cut at {cut}");
        }
    }

    #[test]
    fn holes_are_zeros() {
        for len in [0, 1, 8, 4096, 65_537] {
            let mut sum = Crc32c::default();
            sum.append(plain(b"before"), 6);
            sum.zeros(len);
            sum.append(plain(b"after"), 5);
            let mut whole = b"before".to_vec();
            whole.resize(6 + len as usize, 0);
            whole.extend_from_slice(b"after");
            assert_eq!(sum.get(), plain(&whole), "{len} zeros");
        }
    }
}
