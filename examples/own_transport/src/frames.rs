//! What travels over the link's second connection: tags, and that a tag was delivered. Each frame is 9 bytes.

use std::collections::VecDeque;
use std::io::{ErrorKind, Result};

use hmc_std::transport::SideStream;

const FRAME_BYTES: usize = 9;
const TAG: u8 = 1;
const DELIVERED: u8 = 2;
/// Frames that are received at a time.
const INPUT_FRAMES: usize = 32;

/// A frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// The bytes before this tag are there.
    Tag(u64),
    /// The oldest tag that was not acknowledged is in the inbox.
    Delivered,
}

impl Frame {
    fn to_bytes(self) -> [u8; FRAME_BYTES] {
        let (kind, number) = match self {
            Self::Tag(tag) => (TAG, tag),
            Self::Delivered => (DELIVERED, 0),
        };
        let mut bytes = [kind; FRAME_BYTES];
        for (to, from) in bytes.iter_mut().skip(1).zip(number.to_le_bytes()) {
            *to = from;
        }
        bytes
    }

    fn parse(bytes: [u8; FRAME_BYTES]) -> Option<Self> {
        let [kind, number @ ..] = bytes;
        match kind {
            TAG => Some(Self::Tag(u64::from_le_bytes(number))),
            DELIVERED => Some(Self::Delivered),
            _ => None,
        }
    }
}

/// Frames on their way out: at most `limit`, for which there is storage from the start.
#[derive(Debug)]
pub(crate) struct Output {
    bytes: VecDeque<u8>,
    limit: usize,
}

impl Output {
    pub(crate) fn new(limit: usize) -> Self {
        Self { bytes: VecDeque::with_capacity(limit.saturating_mul(FRAME_BYTES)), limit }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Whether another frame fits.
    pub(crate) fn has_space(&self) -> bool {
        self.bytes.len() < self.limit.saturating_mul(FRAME_BYTES)
    }

    pub(crate) fn push(&mut self, frame: Frame) {
        self.bytes.extend(frame.to_bytes());
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Sends what the connection takes.
    pub(crate) fn send(&mut self, stream: &SideStream) -> Result<()> {
        while !self.bytes.is_empty() {
            match stream.send(self.bytes.as_slices().0) {
                Ok(n) => drop(self.bytes.drain(..n)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

/// What came of a look for bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Came {
    Nothing,
    Bytes,
    /// The peer's direction has ended.
    End,
}

/// Frames on their way in.
#[derive(Debug)]
pub(crate) struct Input {
    bytes: [u8; FRAME_BYTES * INPUT_FRAMES],
    filled: usize,
    taken: usize,
}

impl Input {
    pub(crate) const fn new() -> Self {
        Self { bytes: [0; FRAME_BYTES * INPUT_FRAMES], filled: 0, taken: 0 }
    }

    /// The next frame, which stays; `Some(None)` if it is none that this transport knows.
    pub(crate) fn next(&self) -> Option<Option<Frame>> {
        let rest = self.bytes.get(self.taken..self.filled)?;
        rest.first_chunk().map(|bytes| Frame::parse(*bytes))
    }

    /// The frame that [`Self::next`] gave was executed.
    pub(crate) fn take(&mut self) {
        self.taken = self.taken.saturating_add(FRAME_BYTES).min(self.filled);
    }

    /// Receives once. Only when all whole frames were taken.
    pub(crate) fn receive(&mut self, stream: &SideStream) -> Result<Came> {
        self.bytes.copy_within(self.taken..self.filled, 0);
        self.filled = self.filled.saturating_sub(self.taken);
        self.taken = 0;
        let free = self.bytes.get_mut(self.filled..).unwrap_or_default();
        match stream.recv(free) {
            Ok(0) => Ok(Came::End),
            Ok(n) => {
                self.filled = self.filled.saturating_add(n);
                Ok(Came::Bytes)
            }
            Err(e) if [ErrorKind::WouldBlock, ErrorKind::Interrupted].contains(&e.kind()) => {
                Ok(Came::Nothing)
            }
            Err(e) => Err(e),
        }
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "tests may panic")]
mod tests {
    use super::{Frame, Input};

    #[test]
    fn frames_are_taken_one_by_one_when_they_are_whole() {
        let mut input = Input::new();
        for frame in [Frame::Tag(u64::MAX - 1), Frame::Delivered] {
            for byte in frame.to_bytes() {
                assert_eq!(input.next(), None, "a part of {frame:?}");
                input.bytes[input.filled] = byte;
                input.filled += 1;
            }
            assert_eq!(input.next(), Some(Some(frame)));
            input.take();
        }
        assert_eq!(input.next(), None);
        assert_eq!(Frame::parse([3; 9]), None);
    }
}
