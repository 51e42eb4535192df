//! Splits a local and a remote range of equal length into chunks of bounded length, or into stripes.
//!
//! Both ranges are split at the same offsets, so the two parts of each chunk have equal lengths. The order and the
//! concurrency of chunks are decided by [`crate::pipeline`]. Nothing is allocated.

use core::num::{NonZeroU32, NonZeroU64};

use crate::region::{LocalSlice, WindowSlice};

/// Error: two ranges differ in length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LengthMismatch {
    /// Bytes here.
    pub local: u64,
    /// Bytes there.
    pub remote: u64,
}

impl core::fmt::Display for LengthMismatch {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            f,
            "the local range has {} bytes and the remote one {}; both must be equally long",
            self.local, self.remote
        )
    }
}

impl core::error::Error for LengthMismatch {}

/// A local and a remote range of equal length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangePair {
    local: LocalSlice,
    remote: WindowSlice,
}

impl RangePair {
    /// Returns the pair of two ranges.
    ///
    /// # Errors
    /// [`LengthMismatch`] if their lengths differ.
    #[inline]
    pub const fn new(local: LocalSlice, remote: WindowSlice) -> Result<Self, LengthMismatch> {
        if local.span.len() == remote.span.len() {
            Ok(Self { local, remote })
        } else {
            Err(LengthMismatch { local: local.span.len(), remote: remote.span.len() })
        }
    }

    /// Returns the local range.
    #[must_use]
    #[inline]
    pub const fn local(&self) -> LocalSlice {
        self.local
    }

    /// Returns the remote range.
    #[must_use]
    #[inline]
    pub const fn remote(&self) -> WindowSlice {
        self.remote
    }

    /// Returns the length of each range in bytes.
    #[must_use]
    #[inline]
    pub const fn len(&self) -> u64 {
        self.local.span.len()
    }

    /// Returns `true` if the ranges are empty.
    #[must_use]
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.local.span.is_empty()
    }

    /// Splits after at most `at` bytes. The second part is empty if the pair has no more than `at` bytes.
    #[must_use]
    #[inline]
    pub const fn split_at_most(self, at: u64) -> (Self, Self) {
        let (local, local_rest) = self.local.span.split_at_most(at);
        let (remote, remote_rest) = self.remote.span.split_at_most(at);
        (
            Self {
                local: LocalSlice { key: self.local.key, span: local },
                remote: WindowSlice { span: remote, ..self.remote },
            },
            Self {
                local: LocalSlice { key: self.local.key, span: local_rest },
                remote: WindowSlice { span: remote_rest, ..self.remote },
            },
        )
    }

    /// Returns chunks of `max_bytes`; the last one may be shorter. An empty pair has no chunks.
    #[must_use]
    pub const fn chunks(self, max_bytes: NonZeroU64) -> Chunks {
        Chunks { rest: self, max_bytes }
    }

    /// Returns at most `count` chunks of nearly equal length, split at multiples of `align_bytes` counted from
    /// the start of the pair (1 for any offset). A short pair has fewer chunks, an empty pair has none.
    #[must_use]
    pub fn stripes(self, count: NonZeroU32, align_bytes: NonZeroU64) -> Chunks {
        let even = self.len().div_ceil(u64::from(count.get()));
        // If rounding up does not fit 64 bits, one chunk is the whole pair.
        let bytes = even.checked_next_multiple_of(align_bytes.get()).unwrap_or(u64::MAX);
        Chunks { rest: self, max_bytes: NonZeroU64::new(bytes).unwrap_or(NonZeroU64::MIN) }
    }
}

/// The chunks of a [`RangePair`], in order; together they are the pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunks {
    rest: RangePair,
    max_bytes: NonZeroU64,
}

impl Chunks {
    /// Returns the part that was not returned yet.
    #[must_use]
    pub const fn remaining(&self) -> RangePair {
        self.rest
    }

    /// Returns the number of chunks that follow.
    #[must_use]
    pub const fn remaining_chunks(&self) -> u64 {
        self.rest.len().div_ceil(self.max_bytes.get())
    }
}

impl Iterator for Chunks {
    type Item = RangePair;

    #[inline]
    fn next(&mut self) -> Option<RangePair> {
        if self.rest.is_empty() {
            return None;
        }
        let (head, rest) = self.rest.split_at_most(self.max_bytes.get());
        self.rest = rest;
        Some(head)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match usize::try_from(self.remaining_chunks()) {
            Ok(left) => (left, Some(left)),
            Err(_) => (usize::MAX, None),
        }
    }
}

impl core::iter::FusedIterator for Chunks {}
