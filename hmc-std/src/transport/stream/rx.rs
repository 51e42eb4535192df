//! Received frames: headers through a small buffer, large payload directly into its region.

use hmc_core::range::ByteRange;
use hmc_core::region::{Epoch, WindowId};
use hmc_core::types::Access;
use hmc_core::wire::data::DataFrame;
use hmc_core::work::Failure;
use hmc_mem::error::MemError;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use super::target::PutInProgress;
use crate::memory::Region;

const BUF_BYTES: usize = 16 * 1024;
/// The same where most payload goes through mapped memory: a thousand idle peers cost a page each.
const LOCAL_BUF_BYTES: usize = 4 * 1024;
/// A window that can be mapped, as its Region frame says.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) window: WindowId,
    pub(crate) epoch: Epoch,
    /// Where the window starts within the memfd, in bytes.
    pub(crate) offset: u64,
    /// Size of the window, in bytes.
    pub(crate) len: u64,
    /// What may be done with it; of generations, the length of a block.
    pub(crate) tag: u64,
    /// The memfd has the generations of the window, not its bytes.
    pub(crate) is_generations: bool,
    /// Size of the memfd, in bytes.
    pub(crate) total: u64,
    /// The memfd, or why it could not be taken.
    pub(crate) fd: Result<OwnedFd, MemError>,
}

impl Arrival {
    /// What may be done with the window.
    pub(crate) fn access(&self) -> Access {
        Access::from_bits_truncate(u8::try_from(self.tag & 0xFF).unwrap_or(0))
    }
}

/// Where payload goes.
#[derive(Debug)]
pub(super) enum Dest {
    /// Into one of our windows, for the peer's put.
    Window { region: Region, range: ByteRange, window: WindowId, epoch: Epoch },
    /// Into our local memory, for our get of that number.
    Answer { region: Region, range: ByteRange, seq: u32 },
    /// Nowhere.
    Discard { left: u64 },
}

impl Dest {
    pub(super) fn left(&self) -> u64 {
        match self {
            Self::Window { range, .. } | Self::Answer { range, .. } => range.len(),
            Self::Discard { left } => *left,
        }
    }

    /// Accounts for `n` bytes received.
    pub(super) fn advance(&mut self, n: u64) {
        match self {
            Self::Window { range, .. } | Self::Answer { range, .. } => {
                *range = range.split_at_most(n).1
            }
            Self::Discard { left } => *left = left.saturating_sub(n),
        }
    }
}

#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) frame: DataFrame,
    pub(super) dest: Dest,
    /// Of a put among gathered frames that follow the one whose payload is being received: it is checked already.
    pub(super) writing: Option<PutInProgress>,
}

#[derive(Debug)]
pub(super) struct Rx {
    pub(super) buf: Box<[u8]>,
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) body: Option<Incoming>,
    /// Frames whose payloads follow that of `body`.
    pub(super) gathered: VecDeque<Incoming>,
    /// What came beside the bytes, in the order of its frames. One that could not be taken has its place there, too.
    pub(super) descriptors: VecDeque<Result<OwnedFd, MemError>>,
    pub(super) paused: bool,
}

impl Rx {
    pub(super) fn new(local: bool) -> Self {
        let bytes = if local { LOCAL_BUF_BYTES } else { BUF_BYTES };
        Self {
            buf: vec![0; bytes].into(),
            start: 0,
            end: 0,
            body: None,
            gathered: VecDeque::new(),
            descriptors: VecDeque::new(),
            paused: false,
        }
    }

    pub(super) fn drop_body(&mut self) {
        self.body = None;
        self.gathered.clear();
    }

    pub(super) fn available(&self) -> usize {
        self.end.saturating_sub(self.start)
    }

    /// Stops writing into a window: the rest of its frames is discarded, and puts that have not begun fail with `why`.
    pub(super) fn divert_window(&mut self, id: WindowId, of: Epoch, why: Failure) {
        let is_hit = |dest: &Dest| match dest {
            Dest::Window { window, epoch, .. } => *window == id && *epoch == of,
            Dest::Answer { .. } | Dest::Discard { .. } => false,
        };
        for Incoming { dest, writing, .. } in &mut self.gathered {
            if is_hit(dest) {
                *dest = Dest::Discard { left: dest.left() };
                *writing = writing.map(|w| PutInProgress { fault: Some(why), ..w });
            }
        }
        if let Some(body) = self.body.as_mut().filter(|body| is_hit(&body.dest)) {
            body.dest = Dest::Discard { left: body.dest.left() };
        }
    }

    /// Stops writing the answer of our get `of` into local memory.
    pub(super) fn divert_answer(&mut self, of: u32) {
        for Incoming { dest, .. } in self.body.iter_mut().chain(&mut self.gathered) {
            let hit = match dest {
                Dest::Answer { seq, .. } => *seq == of,
                Dest::Window { .. } | Dest::Discard { .. } => false,
            };
            if hit {
                *dest = Dest::Discard { left: dest.left() };
            }
        }
    }
}
