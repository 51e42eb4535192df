//! Cuts a pair of equally long ranges, here and there, into pieces: chunks of at most so many
//! bytes, or a number of stripes.
//!
//! Both sides are cut at the same places, so that piece by piece they stay equally long. It decides
//! nothing about order or concurrency ([`crate::pipeline`] does) and allocates nothing.

use core::num::{NonZeroU32, NonZeroU64};

use crate::region::{LocalSlice, RemoteSlice};

/// Two ranges that should be equally long and are not.
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

/// A range here and a range there, equally long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    local: LocalSlice,
    remote: RemoteSlice,
}

impl Pair {
    /// The pair of two ranges.
    ///
    /// # Errors
    /// [`LengthMismatch`] when they are not equally long.
    #[inline]
    pub const fn new(local: LocalSlice, remote: RemoteSlice) -> Result<Self, LengthMismatch> {
        if local.span.len() == remote.span.len() {
            Ok(Self { local, remote })
        } else {
            Err(LengthMismatch { local: local.span.len(), remote: remote.span.len() })
        }
    }

    /// The range here.
    #[must_use]
    #[inline]
    pub const fn local(&self) -> LocalSlice {
        self.local
    }

    /// The range there.
    #[must_use]
    #[inline]
    pub const fn remote(&self) -> RemoteSlice {
        self.remote
    }

    /// Bytes on either side.
    #[must_use]
    #[inline]
    pub const fn len(&self) -> u64 {
        self.local.span.len()
    }

    /// Whether there are no bytes.
    #[must_use]
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.local.span.is_empty()
    }

    /// Cuts after at most `at` bytes. The second part is empty when the pair is no longer than that.
    #[must_use]
    #[inline]
    pub const fn take(self, at: u64) -> (Self, Self) {
        let (local, local_rest) = self.local.span.take(at);
        let (remote, remote_rest) = self.remote.span.take(at);
        (
            Self {
                local: LocalSlice { key: self.local.key, span: local },
                remote: RemoteSlice { span: remote, ..self.remote },
            },
            Self {
                local: LocalSlice { key: self.local.key, span: local_rest },
                remote: RemoteSlice { span: remote_rest, ..self.remote },
            },
        )
    }

    /// Pieces of `max_bytes`, the last one what is left. An empty pair has no pieces.
    #[must_use]
    pub const fn chunks(self, max_bytes: NonZeroU64) -> Chunks {
        Chunks { rest: self, max_bytes }
    }

    /// At most `count` pieces of nearly equal length, cut at multiples of `align_bytes` counted from
    /// the start of the pair (1 for any place). A short pair has fewer pieces, an empty one none.
    #[must_use]
    pub fn stripes(self, count: NonZeroU32, align_bytes: NonZeroU64) -> Chunks {
        let even = self.len().div_ceil(u64::from(count.get()));
        // Where rounding up does not fit 64 bits one piece takes it all.
        let bytes = even.checked_next_multiple_of(align_bytes.get()).unwrap_or(u64::MAX);
        Chunks { rest: self, max_bytes: NonZeroU64::new(bytes).unwrap_or(NonZeroU64::MIN) }
    }
}

/// The pieces of a [`Pair`], in order; together they are the pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunks {
    rest: Pair,
    max_bytes: NonZeroU64,
}

impl Chunks {
    /// What is not cut off yet.
    #[must_use]
    pub const fn rest(&self) -> Pair {
        self.rest
    }

    /// Pieces to come.
    #[must_use]
    pub const fn left(&self) -> u64 {
        self.rest.len().div_ceil(self.max_bytes.get())
    }
}

impl Iterator for Chunks {
    type Item = Pair;

    #[inline]
    fn next(&mut self) -> Option<Pair> {
        if self.rest.is_empty() {
            return None;
        }
        let (head, rest) = self.rest.take(self.max_bytes.get());
        self.rest = rest;
        Some(head)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match usize::try_from(self.left()) {
            Ok(left) => (left, Some(left)),
            Err(_) => (usize::MAX, None),
        }
    }
}

impl core::iter::FusedIterator for Chunks {}
