//! A ring of bytes in pages that two processes map: [`RingReader`] made the pages, [`RingWriter`] got their descriptor.

use std::os::fd::OwnedFd;
use std::ptr::NonNull;

use hmc_core::types::Access;
use rustix::io::Errno;

use super::memfd::Mapping;
use super::pages::os;
use crate::error::MemError;
use crate::length::widen;
use crate::ring::{BrokenRing, RingReads, RingWords, RingWrites};
use crate::shared::{SharedBytes, SharedError};
use crate::sync::Word64;

/// Bytes that a ring holds.
pub const RING_BYTES: u64 = 32 << 10;
/// Bytes of the pages of a ring: the words come first, and each end stores into a cache line of its own.
pub const RING_PAGES_BYTES: u64 = DATA_AT + RING_BYTES;

const DATA_AT: u64 = 512;
/// Where each word lies, in words. Those that one end stores share a cache line.
const WRITTEN: usize = 0;
const WRITER_WAITS: usize = 1;
const READ: usize = 16;
const READER_SLEEPS: usize = 32;

/// The words, which come before the data.
type Words = [Word64; 64];

const _: () = assert!(RING_BYTES.is_power_of_two());
const _: () = assert!(DATA_AT == 8 * 64);

impl From<SharedError> for BrokenRing {
    fn from(_: SharedError) -> Self {
        Self
    }
}

/// The pages, whose words are looked up once.
#[derive(Debug)]
struct RingPages {
    pages: Mapping,
    words: NonNull<Words>,
}

// SAFETY: the words are atomics, reached by shared references only, and stay mapped as long as the value lives, whichever
// thread has it.
unsafe impl Send for RingPages {}
// SAFETY: as above.
unsafe impl Sync for RingPages {}

impl RingPages {
    /// Maps the pages.
    ///
    /// # Errors
    /// Those of [`Mapping::map_peer`].
    fn map(fd: OwnedFd) -> Result<Self, MemError> {
        let pages = Mapping::map_peer(fd, RING_PAGES_BYTES, 0, Access::all())?;
        let bytes = pages.bytes();
        let (at, _) = bytes.locate(bytes.span(0, DATA_AT)?)?;
        let words = NonNull::new(at.cast::<Words>()).filter(|words| words.is_aligned());
        let words = words.ok_or(MemError::Unaligned { value: 0, align: 8 })?;
        Ok(Self { pages, words })
    }

    #[inline]
    fn words(&self) -> RingWords<'_> {
        // SAFETY: `map` mapped the pages for reading and writing and found them long enough and aligned; `self` keeps them mapped,
        // and this process accesses the words by atomics only. A `Word64` has the layout of a `u64`, of which every value is one.
        let words = unsafe { self.words.as_ref() };
        RingWords {
            written: words[WRITTEN].atomic(),
            read: words[READ].atomic(),
            reader_sleeps: words[READER_SLEEPS].atomic(),
            writer_waits: words[WRITER_WAITS].atomic(),
        }
    }

    /// The data after `count` bytes, up to the end of the ring and at most `len` bytes.
    fn piece(&self, count: u64, len: u64) -> Result<SharedBytes<'_>, SharedError> {
        let bytes = self.pages.bytes();
        let at = count & (RING_BYTES - 1);
        let len = len.min(RING_BYTES.saturating_sub(at));
        bytes.part(bytes.span(DATA_AT.saturating_add(at), len)?)
    }
}

/// The end that sends.
#[derive(Debug)]
pub struct RingWriter {
    pages: RingPages,
    writes: RingWrites,
}

impl RingWriter {
    /// Maps the pages that a peer sent.
    ///
    /// # Errors
    /// Those of [`Mapping::map_peer`].
    pub fn map(fd: OwnedFd) -> Result<Self, MemError> {
        Ok(Self { pages: RingPages::map(fd)?, writes: RingWrites::new(RING_BYTES) })
    }

    /// Copies as many bytes as fit. Returns their number, and whether the reader sleeps; if not all fit, the reader wakes
    /// this end once there is space.
    ///
    /// # Errors
    /// [`BrokenRing`].
    pub fn write(&mut self, bytes: &[u8]) -> Result<(usize, bool), BrokenRing> {
        let words = self.pages.words();
        let (mut rest, mut sleeps) = (bytes, false);
        while !rest.is_empty() {
            let mut space = self.writes.space(&words, widen(rest.len()))?;
            if space == 0 {
                space = self.writes.await_space(&words)?;
                if space == 0 {
                    break;
                }
            }
            let to = self.pages.piece(self.writes.written(), space.min(widen(rest.len())))?;
            let len = to.extent().len();
            let Some((now, later)) =
                usize::try_from(len).ok().and_then(|n| rest.split_at_checked(n))
            else {
                return Err(BrokenRing);
            };
            to.write_at(to.extent().whole(), now)?;
            sleeps = self.writes.publish(&words, len);
            rest = later;
        }
        Ok((bytes.len().saturating_sub(rest.len()), sleeps))
    }

    /// Returns whether the reader still sleeps although bytes can be read: the caller wakes it, nobody else does.
    #[must_use]
    pub fn take_sleeper(&self) -> bool {
        self.writes.take_sleeper(&self.pages.words())
    }
}

/// The end that receives, which owns the pages.
#[derive(Debug)]
pub struct RingReader {
    pages: RingPages,
    reads: RingReads,
}

impl RingReader {
    /// Makes an empty ring. Returns the descriptor of its pages for the writer, too; the reader keeps none.
    ///
    /// # Errors
    /// Those of [`Mapping::create`] and [`Mapping::map_peer`]; `Os` if no descriptor is left.
    pub fn new() -> Result<(Self, OwnedFd), MemError> {
        let made = Mapping::builder().huge(false).create(RING_PAGES_BYTES)?;
        let fd = || {
            made.fd()?.try_clone_to_owned().map_err(|e| {
                let errno = Errno::from_io_error(&e).unwrap_or(Errno::MFILE);
                os("fcntl(F_DUPFD_CLOEXEC)", errno)
            })
        };
        let pages = RingPages::map(fd()?)?;
        Ok((Self { pages, reads: RingReads::new(RING_BYTES) }, fd()?))
    }

    /// Copies out what was written, as far as `into` holds it. Returns the number of bytes, and whether the writer waited for
    /// space: the caller wakes it.
    ///
    /// # Errors
    /// [`BrokenRing`].
    pub fn read(&mut self, into: &mut [u8]) -> Result<(usize, bool), BrokenRing> {
        let words = self.pages.words();
        let all = self.reads.available(&words)?.min(widen(into.len()));
        let (mut left, mut done, mut waits) = (all, 0, false);
        while left != 0 {
            let from = self.pages.piece(self.reads.read(), left)?;
            let len = from.extent().len();
            let n = usize::try_from(len).map_err(|_| BrokenRing)?;
            let (_, to) = into.split_at_mut_checked(done).ok_or(BrokenRing)?;
            from.read_at(from.extent().whole(), to.get_mut(..n).ok_or(BrokenRing)?)?;
            waits |= self.reads.consume(&words, len);
            left = left.saturating_sub(len);
            done = done.saturating_add(n);
        }
        Ok((done, waits))
    }

    /// Returns whether anything can be read.
    ///
    /// # Errors
    /// [`BrokenRing`].
    pub fn has_bytes(&self) -> Result<bool, BrokenRing> {
        Ok(self.reads.available(&self.pages.words())? != 0)
    }

    /// Announces that this end is about to sleep. Returns whether it may: nothing can be read.
    ///
    /// # Errors
    /// [`BrokenRing`].
    pub fn sleep(&self) -> Result<bool, BrokenRing> {
        self.reads.sleep(&self.pages.words())
    }

    /// Announces that this end looks by itself. Returns whether its announcement that it sleeps stood: the writer has not taken
    /// it back, and does not wake this end.
    pub fn awake(&self) -> bool {
        self.reads.awake(&self.pages.words())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may panic")]
mod tests {
    use super::{RING_BYTES, RingReader, RingWriter};
    use crate::ring::BrokenRing;
    use crate::sync::Ordering;

    fn pair() -> (RingReader, RingWriter) {
        let (reader, fd) = RingReader::new().unwrap();
        (reader, RingWriter::map(fd).unwrap())
    }

    #[test]
    fn bytes_come_out_as_they_went_in_across_the_end_of_the_ring() {
        let (mut reader, mut writer) = pair();
        let mut out = vec![0; 1500];
        for n in 0..200 {
            let len = usize::from(n).saturating_add(1000);
            let bytes: Vec<u8> = (n..=u8::MAX).chain(0..=u8::MAX).cycle().take(len).collect();
            assert_eq!(writer.write(&bytes), Ok((bytes.len(), false)));
            assert_eq!(reader.read(&mut out), Ok((bytes.len(), false)));
            assert_eq!(out.get(..len), Some(&*bytes), "{n}");
        }
        assert_eq!(reader.read(&mut out), Ok((0, false)));
    }

    #[test]
    fn a_full_ring_takes_no_more_and_its_reader_wakes_the_writer() {
        let (mut reader, mut writer) = pair();
        let all = usize::try_from(RING_BYTES).unwrap();
        let bytes = vec![5; all + 10];
        assert!(reader.sleep().unwrap());
        assert_eq!(writer.write(&bytes), Ok((all, true)));
        assert!(writer.take_sleeper() && !writer.take_sleeper());
        assert_eq!(writer.write(&bytes), Ok((0, false)));
        assert_eq!(reader.read(&mut [0; 3]), Ok((3, true)));
        assert_eq!(reader.read(&mut [0; 3]), Ok((3, false)), "once");
        assert_eq!(writer.write(&bytes), Ok((6, false)));
        assert!(!reader.sleep().unwrap(), "there are bytes");
        assert_eq!(reader.read(&mut []), Ok((0, false)));
    }

    /// Both ends map the words: a peer may store what it likes into each.
    #[test]
    fn a_peer_that_stores_wrong_counts_breaks_the_ring_and_nothing_else() {
        for wrong in [RING_BYTES + 1, u64::MAX] {
            let (mut reader, mut writer) = pair();
            reader.pages.words().written.store(wrong, Ordering::Relaxed);
            assert_eq!(reader.read(&mut [0; 8]), Err(BrokenRing));
            assert_eq!(reader.sleep(), Err(BrokenRing));
            // More than was written.
            reader.pages.words().read.store(1, Ordering::Relaxed);
            let all = vec![0; usize::try_from(RING_BYTES).unwrap() + 1];
            assert_eq!(writer.write(&all), Err(BrokenRing));
        }
    }
}
