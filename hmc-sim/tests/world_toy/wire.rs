//! Frames of the toy: a length, a kind, numbers, bytes. It trusts its peers; it is a toy.

/// A frame being written.
pub struct Out(Vec<u8>);

impl Out {
    pub fn new(kind: u8) -> Self {
        Self(vec![0, 0, 0, 0, kind])
    }

    pub fn n(mut self, value: u64) -> Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub fn bytes(mut self, bytes: &[u8]) -> Vec<u8> {
        self.0.extend_from_slice(bytes);
        let len = u32::try_from(self.0.len() - 4).expect("a short frame");
        self.0[..4].copy_from_slice(&len.to_le_bytes());
        self.0
    }

    pub fn end(self) -> Vec<u8> {
        self.bytes(&[])
    }
}

/// A frame being read.
pub struct In<'a>(pub &'a [u8]);

impl In<'_> {
    pub fn n(&mut self) -> u64 {
        let (head, rest) = self.0.split_first_chunk::<8>().expect("a whole frame");
        self.0 = rest;
        u64::from_le_bytes(*head)
    }
}

/// Takes the next whole frame out of `stream` from `at` on: its kind and body.
pub fn next<'a>(stream: &'a [u8], at: &mut usize) -> Option<(u8, &'a [u8])> {
    let (head, rest) = stream.get(*at..)?.split_first_chunk::<4>()?;
    let len = usize::try_from(u32::from_le_bytes(*head)).expect("a short frame");
    let (kind, body) = rest.get(..len)?.split_first()?;
    *at += 4 + len;
    Some((*kind, body))
}
