//! [`RingWords`]: the four words of a ring of bytes with one writer and one reader, which may be two processes.
//!
//! The words count bytes from the start of the ring's life and never wrap in practice; each end keeps its own count and only
//! publishes it. The other process may store any value: a count that the ring cannot have is [`BrokenRing`], and no index
//! is ever computed from a count of the other end.
//!
//! A reader that is about to sleep [announces it](RingReads::sleep) and looks once more; a writer that
//! [published](RingWrites::publish) bytes then finds the announcement and wakes the reader by other means. The same holds for
//! a writer that waits for space. Each side stores, fences, and loads the other's word (both `SeqCst`), so at least one of
//! the two sees the other.

use crate::sync::{AtomicU64, Ordering, fence};

/// The other end stored a count that the ring cannot have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BrokenRing;

/// The shared words of a ring.
#[derive(Clone, Copy, Debug)]
pub struct RingWords<'a> {
    /// Bytes written. Stored by the writer.
    pub written: &'a AtomicU64,
    /// Bytes read. Stored by the reader.
    pub read: &'a AtomicU64,
    /// Not 0: the reader sleeps, or is about to.
    pub reader_sleeps: &'a AtomicU64,
    /// Not 0: the writer waits for space.
    pub writer_waits: &'a AtomicU64,
}

/// The writer's own state.
#[derive(Debug)]
pub struct RingWrites {
    capacity: u64,
    written: u64,
    read: u64,
}

impl RingWrites {
    /// The writer of an empty ring of `capacity` bytes.
    #[must_use]
    pub const fn new(capacity: u64) -> Self {
        Self { capacity, written: 0, read: 0 }
    }

    /// Bytes written.
    #[must_use]
    pub const fn written(&self) -> u64 {
        self.written
    }

    /// Bytes that fit, looked up again if the last count does not show `wanted`.
    ///
    /// # Errors
    /// [`BrokenRing`].
    pub fn space(&mut self, words: &RingWords<'_>, wanted: u64) -> Result<u64, BrokenRing> {
        let space = self.capacity.saturating_sub(self.written.wrapping_sub(self.read));
        if space >= wanted {
            return Ok(space);
        }
        // Acquire pairs with the Release in `consume`: the reader has copied the bytes that are overwritten now.
        let read = words.read.load(Ordering::Acquire);
        let unread = self.written.wrapping_sub(read);
        let space = self.capacity.checked_sub(unread).ok_or(BrokenRing)?;
        self.read = read;
        Ok(space)
    }

    /// Publishes `n` bytes that were copied into the ring. Returns whether the reader sleeps, or is about to.
    #[must_use]
    pub fn publish(&mut self, words: &RingWords<'_>, n: u64) -> bool {
        self.written = self.written.wrapping_add(n);
        // Release pairs with the Acquire in `available`.
        words.written.store(self.written, Ordering::Release);
        fence(Ordering::SeqCst);
        words.reader_sleeps.load(Ordering::Relaxed) != 0
    }

    /// Returns whether the reader still sleeps although bytes can be read, and takes its announcement back: the caller wakes it,
    /// nobody else does. A reader that has read all needs no wake: the next [`publish`](Self::publish) finds its announcement.
    #[must_use]
    pub fn take_sleeper(&self, words: &RingWords<'_>) -> bool {
        // An older count only wakes in vain.
        words.read.load(Ordering::Relaxed) != self.written
            && words.reader_sleeps.swap(0, Ordering::SeqCst) != 0
    }

    /// Announces that this end waits for space. Returns the space there is nevertheless.
    ///
    /// # Errors
    /// [`BrokenRing`].
    pub fn await_space(&mut self, words: &RingWords<'_>) -> Result<u64, BrokenRing> {
        words.writer_waits.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.space(words, u64::MAX)
    }
}

/// The reader's own state.
#[derive(Debug)]
pub struct RingReads {
    capacity: u64,
    read: u64,
}

impl RingReads {
    /// The reader of an empty ring of `capacity` bytes.
    #[must_use]
    pub const fn new(capacity: u64) -> Self {
        Self { capacity, read: 0 }
    }

    /// Bytes read.
    #[must_use]
    pub const fn read(&self) -> u64 {
        self.read
    }

    /// Bytes that can be read now.
    ///
    /// # Errors
    /// [`BrokenRing`].
    pub fn available(&self, words: &RingWords<'_>) -> Result<u64, BrokenRing> {
        // Acquire pairs with the Release in `publish`: the bytes are there.
        let unread = words.written.load(Ordering::Acquire).wrapping_sub(self.read);
        if unread <= self.capacity { Ok(unread) } else { Err(BrokenRing) }
    }

    /// Frees `n` bytes that were copied out. Returns whether the writer waited for space, and takes its announcement back:
    /// the caller wakes it.
    #[must_use]
    pub fn consume(&mut self, words: &RingWords<'_>, n: u64) -> bool {
        self.read = self.read.wrapping_add(n);
        // Release pairs with the Acquire in `space`.
        words.read.store(self.read, Ordering::Release);
        fence(Ordering::SeqCst);
        words.writer_waits.load(Ordering::Relaxed) != 0
            && words.writer_waits.swap(0, Ordering::SeqCst) != 0
    }

    /// Announces that this end is about to sleep. Returns whether it may: nothing can be read.
    ///
    /// # Errors
    /// [`BrokenRing`].
    pub fn sleep(&self, words: &RingWords<'_>) -> Result<bool, BrokenRing> {
        words.reader_sleeps.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let is_empty = self.available(words)? == 0;
        if !is_empty {
            self.awake(words);
        }
        Ok(is_empty)
    }

    /// Announces that this end looks by itself. Returns whether its announcement that it sleeps stood: the writer has not taken
    /// it back, and does not wake this end.
    pub fn awake(&self, words: &RingWords<'_>) -> bool {
        words.reader_sleeps.swap(0, Ordering::SeqCst) != 0
    }
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "tests may panic")]
mod tests {
    use super::{BrokenRing, RingReads, RingWords, RingWrites};
    use crate::sync::{AtomicU64, Ordering};

    fn with(f: impl FnOnce(&RingWords<'_>)) {
        let words = [(); 4].map(|()| AtomicU64::new(0));
        let [written, read, reader_sleeps, writer_waits] = &words;
        f(&RingWords { written, read, reader_sleeps, writer_waits });
    }

    #[test]
    fn each_end_sees_what_the_other_published_and_who_sleeps() {
        with(|words| {
            let (mut w, mut r) = (RingWrites::new(8), RingReads::new(8));
            assert_eq!((w.space(words, 1), r.available(words)), (Ok(8), Ok(0)));
            assert!(r.sleep(words).unwrap() && w.publish(words, 5));
            assert!(w.take_sleeper(words) && !w.take_sleeper(words), "one wakes it");
            assert!(!r.awake(words), "it is being woken");
            assert!(!r.sleep(words).unwrap(), "there are bytes");
            assert!(!w.publish(words, 3), "it is awake");
            assert_eq!((w.space(words, 1), r.available(words)), (Ok(0), Ok(8)));
            assert!(!r.consume(words, 1), "nobody waits");
            assert_eq!(w.await_space(words), Ok(1));
            assert!(r.consume(words, 7) && !r.consume(words, 0), "one is told");
            assert_eq!(w.space(words, 2), Ok(8));
            assert!(r.sleep(words).unwrap());
            assert!(r.awake(words) && !r.awake(words), "nobody woke it");
            assert!(!w.publish(words, 1));
            assert_eq!((w.written(), r.read()), (9, 8));
        });
    }

    #[test]
    fn a_reader_that_sleeps_after_it_has_read_all_is_not_woken() {
        with(|words| {
            let (mut w, mut r) = (RingWrites::new(8), RingReads::new(8));
            assert!(r.sleep(words).unwrap() && w.publish(words, 2));
            // It looked by itself before anybody woke it.
            assert!(r.awake(words) && !r.consume(words, 2) && r.sleep(words).unwrap());
            assert!(!w.take_sleeper(words), "there is nothing to read");
            assert!(w.publish(words, 1) && w.take_sleeper(words), "its announcement stood");
        });
    }

    #[test]
    fn counts_that_no_ring_can_have_are_refused() {
        for wrong in [9, u64::MAX, 1 << 63] {
            with(|words| {
                let (mut w, r) = (RingWrites::new(8), RingReads::new(8));
                words.written.store(wrong, Ordering::Relaxed);
                assert_eq!(r.available(words), Err(BrokenRing), "{wrong}");
                assert_eq!(r.sleep(words), Err(BrokenRing), "{wrong}");
                // More than was written.
                words.read.store(wrong >> 3, Ordering::Relaxed);
                assert_eq!(w.await_space(words), Err(BrokenRing), "{wrong}");
                assert_eq!(w.space(words, 8), Ok(8), "its own count is not touched");
                assert_eq!(w.space(words, 9), Err(BrokenRing), "{wrong}");
            });
        }
    }
}
