//! A small writer of PNG (RFC 2083) for charts: RGB, filter Up, runs of equal bytes in deflate's fixed
//! code (RFC 1951, 3.2.6). Charts are mostly runs, so this is small enough without a library.

/// Encodes RGB pixels, `width` to a row.
pub(super) fn encode(pixels: &[u8], width: u32) -> Vec<u8> {
    let stride = usize::try_from(width).unwrap_or(usize::MAX).saturating_mul(3).max(1);
    let height = u32::try_from(pixels.len() / stride).unwrap_or(0);
    let mut raw = Vec::with_capacity(pixels.len() + pixels.len() / stride);
    let mut above: &[u8] = &[];
    for row in pixels.chunks_exact(stride) {
        raw.push(2); // Filter type Up.
        let before = above.iter().copied().chain(std::iter::repeat(0));
        raw.extend(row.iter().zip(before).map(|(now, before)| now.wrapping_sub(before)));
        above = row;
    }
    let mut header = Vec::new();
    header.extend(width.to_be_bytes());
    header.extend(height.to_be_bytes());
    // 8 bits for each of red, green and blue; deflate, the five filters, not interlaced.
    header.extend([8, 2, 0, 0, 0]);
    let mut out = b"\x89PNG\r\n\x1a\n".to_vec();
    chunk(&mut out, *b"IHDR", &header);
    chunk(&mut out, *b"IDAT", &zlib(&raw));
    chunk(&mut out, *b"IEND", &[]);
    out
}

fn chunk(out: &mut Vec<u8>, kind: [u8; 4], body: &[u8]) {
    out.extend(u32::try_from(body.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend(kind);
    out.extend(body);
    out.extend(crc32(kind.iter().chain(body)).to_be_bytes());
}

/// CRC-32 of RFC 2083, 15.
fn crc32<'a>(bytes: impl Iterator<Item = &'a u8>) -> u32 {
    !bytes.fold(!0u32, |crc, byte| {
        (0..8).fold(
            crc ^ u32::from(*byte),
            |c, _| if c & 1 == 1 { c >> 1 ^ 0xedb8_8320 } else { c >> 1 },
        )
    })
}

/// RFC 1950.
fn zlib(raw: &[u8]) -> Vec<u8> {
    let mut bits = Bits { out: vec![0x78, 0x01], held: 0, count: 0 };
    // The last block, of the fixed code.
    bits.put(0b011, 3);
    let mut left = raw;
    while let Some((&byte, rest)) = left.split_first() {
        bits.literal(byte);
        let mut run = rest.iter().take_while(|b| **b == byte).count();
        left = rest.get(run..).unwrap_or_default();
        while run >= 3 {
            let now = if run >= 258 { 258 } else { run.min(10) };
            bits.copy_last(now);
            run -= now;
        }
        for _ in 0..run {
            bits.literal(byte);
        }
    }
    bits.symbol(256);
    let mut out = bits.finish();
    out.extend(adler32(raw).to_be_bytes());
    out
}

fn adler32(bytes: &[u8]) -> u32 {
    let (a, b) = bytes.iter().fold((1u32, 0u32), |(a, b), byte| {
        let a = (a + u32::from(*byte)) % 65_521;
        (a, (b + a) % 65_521)
    });
    b << 16 | a
}

/// Bits, the first in the lowest place.
struct Bits {
    out: Vec<u8>,
    held: u32,
    count: u32,
}

impl Bits {
    fn put(&mut self, bits: u32, count: u32) {
        self.held |= bits << self.count;
        self.count += count;
        while self.count >= 8 {
            let [low, ..] = self.held.to_le_bytes();
            self.out.push(low);
            self.held >>= 8;
            self.count -= 8;
        }
    }

    /// A code word of deflate: its highest bit comes first.
    fn code(&mut self, word: u32, count: u32) {
        self.put(word.reverse_bits() >> (32 - count), count);
    }

    /// A literal or length symbol in the fixed code.
    fn symbol(&mut self, n: u32) {
        match n {
            0..=143 => self.code(0x30 + n, 8),
            144..=255 => self.code(0x190 + n - 144, 9),
            256..=279 => self.code(n - 256, 7),
            _ => self.code(0xc0 + n - 280, 8),
        }
    }

    fn literal(&mut self, byte: u8) {
        self.symbol(u32::from(byte));
    }

    /// Repeats the last byte 3 to 10 or 258 times: lengths whose symbols have no further bits.
    fn copy_last(&mut self, times: usize) {
        let symbol = if times == 258 { 285 } else { 254 + u32::try_from(times).unwrap_or(3) };
        self.symbol(symbol);
        // Distance 1.
        self.code(0, 5);
    }

    fn finish(mut self) -> Vec<u8> {
        if self.count > 0 {
            self.put(0, 8 - self.count);
        }
        self.out
    }
}

#[cfg(test)]
mod tests {
    use super::{adler32, crc32, encode, zlib};

    #[test]
    fn sums_are_those_of_the_standards() {
        assert_eq!(crc32(b"123456789".iter()), 0xcbf4_3926);
        assert_eq!(adler32(b"Wikipedia"), 0x11e6_0398);
    }

    /// Reads what `zlib` writes, by RFC 1951.
    fn inflate(bytes: &[u8]) -> Vec<u8> {
        let body = &bytes[2..bytes.len() - 4];
        let bit = |at: usize| u32::from(body[at / 8] >> (at % 8) & 1);
        let mut at = 3;
        let mut out: Vec<u8> = Vec::new();
        loop {
            let mut word = 0;
            let mut len = 0;
            let symbol = loop {
                word = word << 1 | bit(at);
                at += 1;
                len += 1;
                match (len, word) {
                    (7, 0..=0x17) => break 256 + word,
                    (8, 0x30..=0xbf) => break word - 0x30,
                    (8, 0xc0..=0xc7) => break 280 + word - 0xc0,
                    (9, 0x190..=0x1ff) => break 144 + word - 0x190,
                    _ => assert!(len < 9, "no code word"),
                }
            };
            let times = match symbol {
                0..=255 => {
                    out.push(u8::try_from(symbol).unwrap());
                    continue;
                }
                256 => {
                    assert_eq!(
                        at.div_ceil(8),
                        body.len(),
                        "the sum follows the last block at once"
                    );
                    return out;
                }
                257..=264 => symbol - 254,
                285 => 258,
                other => panic!("length symbol {other}"),
            };
            assert_eq!((0..5).map(|i| bit(at + i)).sum::<u32>(), 0, "distance 1");
            at += 5;
            let last = *out.last().unwrap();
            out.extend(std::iter::repeat_n(last, usize::try_from(times).unwrap()));
        }
    }

    #[test]
    fn what_is_written_can_be_read() {
        for run in [0, 1, 2, 3, 4, 10, 11, 12, 13, 257, 258, 259, 260, 261, 262, 600] {
            let mut raw: Vec<u8> = (0..=255).collect();
            raw.extend(std::iter::repeat_n(200, run));
            raw.push(7);
            assert_eq!(inflate(&zlib(&raw)), raw, "a run of {run}");
        }
    }

    #[test]
    fn a_blank_picture_is_small() {
        let bytes = encode(&[255; 300 * 200], 100);
        assert!(bytes.len() < 60_000 / 20, "{} bytes", bytes.len());
        assert_eq!(bytes.get(20..24), Some(&200u32.to_be_bytes()[..]), "the height");
    }
}
