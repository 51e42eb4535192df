//! Bytes as decisions: a cursor that never fails. What lies behind the end is zero.

/// The cursor.
#[derive(Clone, Debug)]
pub struct Script<'a> {
    rest: &'a [u8],
}

impl<'a> Script<'a> {
    /// A cursor at the first byte.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Whether all bytes were used.
    pub fn is_over(&self) -> bool {
        self.rest.is_empty()
    }

    /// What was not used yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Up to `n` bytes.
    pub fn take(&mut self, n: usize) -> &'a [u8] {
        let (head, rest) = self.rest.split_at(n.min(self.rest.len()));
        self.rest = rest;
        head
    }

    /// One byte.
    pub fn u8(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }

    /// `N` bytes.
    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        let got = self.take(N);
        out[..got.len()].copy_from_slice(got);
        out
    }

    /// Eight bytes, little-endian.
    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// A number that is small, or near the end of its type, or anything: one byte says which.
    pub fn number(&mut self) -> u64 {
        match self.u8() {
            n @ 0..=0xDF => u64::from(n),
            n @ 0xE0..=0xEF => u64::MAX - u64::from(n - 0xE0),
            n @ 0xF0..=0xF7 => (1 << (8 * (n - 0xF0))) - 1 + u64::from(self.u8()),
            _ => self.u64(),
        }
    }
}
