//! Assembles received bytes into whole frames, on the caller's storage.
//!
//! A socket receives directly into [`Framer::space`]. The storage grows only as bytes arrive: the header of a long
//! frame allocates nothing. If the storage is full, the framer returns [`Next::Grow`], which requests at most twice
//! the size. The payload of a frame is returned in place.

use crate::limits::FRAME_HEADER_BYTES;
use crate::time::Instant;
use crate::wire::cursor::WireError;
use crate::wire::header::Header;

/// What [`Framer::next`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next<'a> {
    /// A whole frame. It is consumed; its bytes stay until the framer is used again.
    Frame(Header, &'a [u8]),
    /// The next frame is not whole: so many bytes are missing as far as one can tell (those of the
    /// header, then those of the payload). At least one of them fits into the storage.
    Need(usize),
    /// The storage is full and the frame is not whole: [`Framer::grow`] it to this many bytes.
    Grow(usize),
}

/// Storage that was too small to take over what a [`Framer`] holds.
#[derive(Debug)]
pub struct TooSmall<S> {
    /// The storage, unchanged.
    pub storage: S,
    /// Bytes that it must have at least.
    pub need: usize,
}

/// Cuts a stream of bytes into frames.
#[derive(Debug)]
pub struct Framer<S> {
    storage: S,
    /// First byte that was not given out.
    head: usize,
    /// One past the last byte received. `head <= tail <= storage.len()`.
    tail: usize,
    /// When the bytes at `head` began to arrive.
    began: Instant,
    last_fill: Instant,
}

impl<S: AsRef<[u8]> + AsMut<[u8]>> Framer<S> {
    /// An empty framer. Storage shorter than [`FRAME_HEADER_BYTES`] asks to grow at once.
    pub const fn new(storage: S) -> Self {
        Self { storage, head: 0, tail: 0, began: Instant::ZERO, last_fill: Instant::ZERO }
    }

    /// Bytes received and not given out.
    #[must_use]
    pub const fn held(&self) -> usize {
        self.tail.saturating_sub(self.head)
    }

    /// Takes the bytes received and not given out; none is held then.
    pub fn take_held(&mut self) -> &[u8] {
        let (head, tail) = (self.head, self.tail);
        (self.head, self.tail) = (0, 0);
        self.storage.as_ref().get(head..tail).unwrap_or(&[])
    }

    /// Time at which an incomplete frame started to arrive; `None` if there is none.
    #[must_use]
    pub const fn began(&self) -> Option<Instant> {
        if self.head == self.tail { None } else { Some(self.began) }
    }

    /// Where to receive into. Empty only when [`Self::next`] answers `Grow` or has frames to give.
    pub fn space(&mut self) -> &mut [u8] {
        self.compact();
        self.storage.as_mut().get_mut(self.tail..).unwrap_or(&mut [])
    }

    /// Says that `n` bytes were received into the front of [`Self::space`] at `now`. More than
    /// there was space for counts as all of it.
    #[inline]
    pub fn filled(&mut self, n: usize, now: Instant) {
        if n == 0 {
            return;
        }
        if self.head == self.tail {
            self.began = now;
        }
        self.last_fill = now;
        self.tail = self.tail.saturating_add(n).min(self.storage.as_ref().len());
    }

    /// Takes over as much of `bytes` as there is space for, and says how much that was.
    pub fn push(&mut self, bytes: &[u8], now: Instant) -> usize {
        let space = self.space();
        let n = space.len().min(bytes.len());
        for (to, from) in space.iter_mut().zip(bytes) {
            *to = *from;
        }
        self.filled(n, now);
        n
    }

    /// The next frame, if it is whole. `limit` is the longest payload accepted now
    /// ([`crate::ctrl::conn::ControlConn::frame_limit`]); ask for it anew before each call.
    ///
    /// # Errors
    /// The header is not one that may come. The stream is then lost: close it.
    #[inline]
    pub fn next(&mut self, limit: u32) -> Result<Next<'_>, WireError> {
        let capacity = self.storage.as_ref().len();
        let head = self.head;
        let held = self.storage.as_ref().get(head..self.tail).unwrap_or(&[]);
        let Some((first, rest)) = held.split_first_chunk::<FRAME_HEADER_BYTES>() else {
            return Ok(need(FRAME_HEADER_BYTES, held.len(), capacity));
        };
        let header = Header::parse(first, limit)?;
        let payload = header.frame_bytes().saturating_sub(FRAME_HEADER_BYTES);
        if rest.len() < payload {
            return Ok(need(header.frame_bytes(), held.len(), capacity));
        }
        self.began = self.last_fill;
        self.head = head.saturating_add(header.frame_bytes());
        let start = head.saturating_add(FRAME_HEADER_BYTES);
        let bytes = self.storage.as_ref().get(start..self.head).unwrap_or(&[]);
        Ok(Next::Frame(header, bytes))
    }

    /// Moves what is held into larger storage and gives the old one back.
    ///
    /// # Errors
    /// [`TooSmall`] when `new` cannot take what is held; nothing changes.
    pub fn grow(&mut self, mut new: S) -> Result<S, TooSmall<S>> {
        let need = self.held();
        let old = self.storage.as_ref().get(self.head..self.tail).unwrap_or(&[]);
        if new.as_ref().len() < need {
            return Err(TooSmall { storage: new, need });
        }
        for (to, from) in new.as_mut().iter_mut().zip(old) {
            *to = *from;
        }
        self.head = 0;
        self.tail = need;
        Ok(core::mem::replace(&mut self.storage, new))
    }

    /// The storage's size in bytes.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.storage.as_ref().len()
    }

    /// Moves what is held to the front of the storage.
    fn compact(&mut self) {
        if self.head == 0 {
            return;
        }
        if self.head != self.tail
            && let Some(used) = self.storage.as_mut().get_mut(..self.tail)
            && self.head <= used.len()
        {
            used.copy_within(self.head.., 0);
        }
        self.tail = self.held();
        self.head = 0;
    }
}

/// Number of bytes missing from `total` if `held` have arrived.
#[inline]
fn need(total: usize, held: usize, capacity: usize) -> Next<'static> {
    if held < capacity {
        return Next::Need(total.saturating_sub(held));
    }
    Next::Grow(total.min(capacity.saturating_mul(2)).max(FRAME_HEADER_BYTES))
}

#[cfg(test)]
mod tests {
    use super::{Framer, Next};
    use crate::limits::MAX_FRAME_BYTES;
    use crate::time::Instant;
    use crate::wire::cursor::{WireErrorKind, Writer};
    use crate::wire::message::{ControlMessage, tag_frame};
    use std::vec;
    use std::vec::Vec;

    const T: Instant = Instant::from_nanos(7);

    fn at(ns: u64) -> Instant {
        Instant::from_nanos(ns)
    }

    #[test]
    fn two_frames_and_a_half() {
        let mut f = Framer::new([0u8; 64]);
        let two = [tag_frame(1), tag_frame(2)].concat();
        assert_eq!(f.push(&two, T), 32);
        assert_eq!(f.push(&tag_frame(3)[..5], T), 5);
        for tag in [1u64, 2] {
            let Next::Frame(h, p) = f.next(MAX_FRAME_BYTES).unwrap() else { panic!("no frame") };
            assert_eq!(ControlMessage::parse(h, p), Ok(ControlMessage::Tag(tag)));
        }
        assert_eq!(f.next(MAX_FRAME_BYTES), Ok(Next::Need(3)));
        assert_eq!(f.push(&tag_frame(3)[5..8], T), 3);
        assert_eq!(f.next(MAX_FRAME_BYTES), Ok(Next::Need(8)));
        assert_eq!(f.push(&tag_frame(3)[8..], T), 8);
        assert!(matches!(f.next(MAX_FRAME_BYTES), Ok(Next::Frame(..))));
        assert_eq!((f.held(), f.began()), (0, None));
    }

    #[test]
    fn storage_grows_only_as_bytes_arrive() {
        let body = vec![0xA5u8; 1000];
        let mut wire = vec![0u8; 2000];
        let mut w = Writer::new(&mut wire);
        ControlMessage::Struct(&body).emit(&mut w).unwrap();
        let n = usize::try_from(w.written()).unwrap();
        let mut f: Framer<Vec<u8>> = Framer::new(vec![0u8; 16]);
        let mut left = &wire[..n];
        let mut sizes = Vec::new();
        loop {
            match f.next(MAX_FRAME_BYTES).unwrap() {
                Next::Frame(h, p) => {
                    assert_eq!(ControlMessage::parse(h, p), Ok(ControlMessage::Struct(&body)));
                    break;
                }
                Next::Need(_) => {
                    let took = f.push(left, T);
                    assert!(took > 0);
                    left = &left[took..];
                }
                Next::Grow(to) => {
                    assert_eq!(f.held(), f.capacity(), "grows only when it is full");
                    sizes.push(to);
                    f.grow(vec![0; to]).unwrap();
                }
            }
        }
        assert_eq!(sizes, [32, 64, 128, 256, 512, 1008]);
        let e = f.grow(vec![]);
        assert!(e.is_ok(), "nothing is held any more");
    }

    #[test]
    fn a_claim_of_4_gib_takes_no_memory() {
        let mut f = Framer::new([0u8; 16]);
        f.push(&[2, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF], T);
        let e = f.next(MAX_FRAME_BYTES).unwrap_err();
        assert!(matches!(e.kind, WireErrorKind::TooLong { len: u32::MAX, .. }));
    }

    #[test]
    fn the_partial_frame_knows_when_it_began() {
        let mut f = Framer::new([0u8; 64]);
        f.push(&tag_frame(1)[..3], at(10));
        f.push(&tag_frame(1)[3..9], at(20));
        assert_eq!(f.began(), Some(at(10)));
        f.push(&[&tag_frame(1)[9..], &[1u8][..]].concat(), at(30));
        assert!(matches!(f.next(MAX_FRAME_BYTES), Ok(Next::Frame(..))));
        assert_eq!(f.began(), Some(at(30)), "the next frame's first byte came last");
        f.push(&[0], at(40));
        assert_eq!(f.began(), Some(at(30)));
    }

    #[test]
    fn a_growth_that_would_lose_bytes_is_refused() {
        let mut f: Framer<Vec<u8>> = Framer::new(vec![0; 16]);
        f.push(&[1, 0, 0, 0, 8, 0, 0, 0, 9], T);
        let e = f.grow(vec![0; 8]).unwrap_err();
        assert_eq!((e.need, e.storage.len()), (9, 8));
        assert_eq!(f.next(64), Ok(Next::Need(7)));
    }
}
