//! Frames of a data stream (TCP or Unix socket): 56 bytes, then `len` bytes of payload.
//!
//! A stream starts after ATTACH and its reply. The initiator of an operation numbers it (`seq`). The target checks
//! every frame against its own window table and replies `Ack` or `Nack`. This module parses and emits frames;
//! [`crate::window`] checks accesses.

use bitflags::bitflags;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, TryFromBytes, Unaligned};

use crate::limits::{MAX_GATHERED_FRAMES, MAX_SLOTS, MAX_STREAM_FRAME_BYTES};
use crate::range::{Extent, RangeError, Side};
use crate::region::{Epoch, WindowId};
use crate::window::{StaleGeneration, WindowFault};
use crate::wire::cursor::{WireError, WireErrorKind};
use crate::work::Failure;

/// Bytes of a data frame before its payload.
pub const DATA_FRAME_BYTES: usize = 56;

/// What a data frame does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, TryFromBytes, IntoBytes, Immutable)]
#[repr(u8)]
pub enum DataKind {
    /// `len` bytes follow; they belong at `offset` of the window. `total`: bytes of the operation.
    Write = 1,
    /// Asks for `total` bytes at `offset` of the window.
    Read = 2,
    /// `len` bytes follow; they belong at `offset` of the *operation*. `total`: its bytes.
    ReadData = 3,
    /// `total` operations in a row, the last of which is `seq`, are done.
    Ack = 4,
    /// Operation `seq` failed; `status` says why.
    Nack = 5,
    /// As `Write` of `total` bytes that lie at `addr` of the initiator: the target fetches them by
    /// `process_vm_readv(2)` from the process that its socket names (`SO_PEERCRED`).
    WriteRef = 6,
    /// As `Read` of `total` bytes; the target stores them at `addr` of the initiator by
    /// `process_vm_writev(2)`, then answers `Ack`.
    ReadRef = 7,
    /// A memfd of `total` bytes travels with this frame (`SCM_RIGHTS`); the window lies in it.
    Region = 8,
    /// The headers of the next `total` frames follow each other, and then their payloads do, in the same order.
    Gather = 9,
}

impl DataKind {
    /// The flags that a frame of this kind may carry.
    const fn flags(self) -> DataFlags {
        match self {
            Self::Write => DataFlags::all(),
            Self::WriteRef => DataFlags::LAST.union(DataFlags::NOTIFY),
            Self::ReadData => DataFlags::LAST,
            Self::Read | Self::Region => DataFlags::EXPECT,
            Self::Ack | Self::Nack | Self::ReadRef | Self::Gather => DataFlags::empty(),
        }
    }
}

bitflags! {
    /// Flags of a data frame.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct DataFlags: u8 {
        /// The last frame of its operation.
        const LAST = 1;
        /// `tag` goes to the target's inbox after the bytes. Only together with `LAST`.
        const NOTIFY = 1 << 1;
        /// `addr` is the generation that the blocks of the range must have. In a `Region`: the memfd has the generations of the
        /// window's blocks.
        const EXPECT = 1 << 2;
    }
}

/// A frame of a data stream. Fields that its kind does not use are zero and mean nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DataFrame {
    /// What it does.
    pub kind: DataKind,
    /// How.
    pub flags: DataFlags,
    /// Why an operation failed; zero except in a `Nack`.
    pub status: u16,
    /// The operation.
    pub seq: u32,
    /// The window.
    pub window: WindowId,
    /// The epoch in which the initiator knows the window.
    pub epoch: Epoch,
    /// Bytes of payload that follow; at most [`MAX_STREAM_FRAME_BYTES`].
    pub len: u32,
    /// Where the payload belongs.
    pub offset: u64,
    /// Bytes of the whole operation; operations acknowledged by an `Ack`.
    pub total: u64,
    /// The tag to deliver.
    pub tag: u64,
    /// An address of the initiator's memory; with `EXPECT`, a generation.
    pub addr: u64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    kind: u8,
    flags: u8,
    status: U16,
    seq: U32,
    window: U64,
    epoch: U32,
    len: U32,
    offset: U64,
    total: U64,
    tag: U64,
    addr: U64,
}

const _: () = assert!(size_of::<Raw>() == DATA_FRAME_BYTES);

/// The low half.
const fn low(number: u64) -> u32 {
    let [a, b, c, d, ..] = number.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

impl DataFrame {
    /// A frame with all other fields zero.
    #[must_use]
    #[inline]
    pub const fn new(kind: DataKind, seq: u32) -> Self {
        Self {
            kind,
            flags: DataFlags::empty(),
            status: 0,
            seq,
            window: WindowId(0),
            epoch: Epoch(0),
            len: 0,
            offset: 0,
            total: 0,
            tag: 0,
            addr: 0,
        }
    }

    /// The answer that `count` operations up to `seq` are done.
    #[must_use]
    #[inline]
    pub const fn ack(seq: u32, count: u64) -> Self {
        let mut ack = Self::new(DataKind::Ack, seq);
        ack.total = count;
        ack
    }

    /// What announces `count` frames whose headers come before their payloads.
    #[must_use]
    #[inline]
    pub const fn gather(count: u64) -> Self {
        let mut gather = Self::new(DataKind::Gather, 0);
        gather.total = count;
        gather
    }

    /// Whether it may be one of the frames of a [`DataKind::Gather`]: a whole put without a tag, or a part of an answer.
    #[must_use]
    #[inline]
    pub fn can_be_gathered(&self) -> bool {
        match self.kind {
            DataKind::Write => self.flags == DataFlags::LAST && u64::from(self.len) == self.total,
            DataKind::ReadData => true,
            DataKind::Read
            | DataKind::Ack
            | DataKind::Nack
            | DataKind::WriteRef
            | DataKind::ReadRef
            | DataKind::Region
            | DataKind::Gather => false,
        }
    }

    /// The answer that operation `seq` failed. The numbers of a range error travel in `offset`,
    /// `total` and `addr` (the limit), and so do block, expected and found generation; a transport's own number in `tag`.
    #[must_use]
    pub fn nack(seq: u32, why: Failure) -> Self {
        let mut n = Self::new(DataKind::Nack, seq);
        n.status = match why {
            Failure::Window(WindowFault::Unknown) => 1,
            Failure::Window(WindowFault::StaleEpoch) => 2,
            Failure::Window(WindowFault::Revoked) => 3,
            Failure::Window(WindowFault::OutOfWindow(e)) => {
                (n.offset, n.total, n.addr) = (e.offset, e.len, e.limit);
                4
            }
            Failure::Window(WindowFault::Access) => 5,
            Failure::Window(WindowFault::StaleGeneration(e)) => {
                (n.offset, n.total, n.addr) = (e.block.into(), e.expected.into(), e.found.into());
                12
            }
            Failure::PeerDead => 6,
            Failure::DeadlineExceeded => 7,
            Failure::Cancelled => 8,
            Failure::UnknownRegion => 9,
            Failure::Unsupported => 10,
            Failure::Transport(code) => {
                n.tag = u64::from(u32::from_le_bytes(code.to_le_bytes()));
                11
            }
        };
        n
    }

    /// Why the operation failed, when this is a `Nack`.
    #[must_use]
    pub fn why(&self) -> Option<Failure> {
        if !matches!(self.kind, DataKind::Nack) {
            return None;
        }
        Some(match self.status {
            1 => Failure::Window(WindowFault::Unknown),
            2 => Failure::Window(WindowFault::StaleEpoch),
            3 => Failure::Window(WindowFault::Revoked),
            4 => Failure::Window(WindowFault::OutOfWindow(RangeError {
                side: Side::Remote,
                offset: self.offset,
                len: self.total,
                limit: self.addr,
            })),
            5 => Failure::Window(WindowFault::Access),
            6 => Failure::PeerDead,
            7 => Failure::DeadlineExceeded,
            8 => Failure::Cancelled,
            9 => Failure::UnknownRegion,
            10 => Failure::Unsupported,
            11 => {
                let [a, b, c, d, ..] = self.tag.to_le_bytes();
                Failure::Transport(i32::from_le_bytes([a, b, c, d]))
            }
            12 => Failure::Window(WindowFault::StaleGeneration(StaleGeneration {
                block: low(self.offset),
                expected: low(self.total),
                found: low(self.addr),
            })),
            // A number of a later version.
            n => Failure::Transport(i32::from(n)),
        })
    }

    /// The generation that the blocks of its range must have, if it names one, as it was sent.
    #[inline]
    fn expected(&self) -> Option<u64> {
        let names = self.flags.contains(DataFlags::EXPECT) && self.kind != DataKind::Region;
        names.then_some(self.addr)
    }

    /// The generation that the blocks of its range must have, if it names one.
    #[must_use]
    #[inline]
    pub fn generation(&self) -> Option<u32> {
        self.expected().map(low)
    }

    /// Has it name a generation. For `Write` and `Read`.
    #[inline]
    pub fn expect(&mut self, generation: u32) {
        self.flags |= DataFlags::EXPECT;
        self.addr = generation.into();
    }

    /// Reads a frame.
    ///
    /// # Errors
    /// Unknown kinds and flags, lengths beyond the limit or the operation, statuses and flags that
    /// the kind does not have. Offsets are *not* checked against a window here.
    #[inline]
    pub fn parse(bytes: &[u8; DATA_FRAME_BYTES]) -> Result<Self, WireError> {
        let raw: Raw = zerocopy::transmute!(*bytes);
        let Ok(kind) = DataKind::try_read_from_bytes(&[raw.kind]) else {
            return Err(WireError::new(0, WireErrorKind::UnknownKind(raw.kind)));
        };
        let flags = DataFlags::from_bits_retain(raw.flags);
        let frame = Self {
            kind,
            flags,
            status: raw.status.get(),
            seq: raw.seq.get(),
            window: WindowId(raw.window.get()),
            epoch: Epoch(raw.epoch.get()),
            len: raw.len.get(),
            offset: raw.offset.get(),
            total: raw.total.get(),
            tag: raw.tag.get(),
            addr: raw.addr.get(),
        };
        if !kind.flags().contains(flags) {
            return Err(WireError::new(1, WireErrorKind::UnknownFlags(u16::from(raw.flags))));
        }
        frame.check()?;
        Ok(frame)
    }

    #[inline]
    fn check(&self) -> Result<(), WireError> {
        let len = u64::from(self.len);
        if self.flags.contains(DataFlags::NOTIFY) && !self.flags.contains(DataFlags::LAST) {
            return Err(WireError::value(1, "notify without last", self.flags.bits().into()));
        }
        if self.expected().is_some_and(|generation| generation > u32::MAX.into()) {
            return Err(WireError::value(48, "generation", self.addr));
        }
        if (self.status != 0) != matches!(self.kind, DataKind::Nack) {
            return Err(WireError::value(2, "status", u64::from(self.status)));
        }
        match self.kind {
            DataKind::Write | DataKind::ReadData => {
                if self.len > MAX_STREAM_FRAME_BYTES {
                    let kind =
                        WireErrorKind::TooLong { len: self.len, limit: MAX_STREAM_FRAME_BYTES };
                    return Err(WireError::new(20, kind));
                }
                if len > self.total {
                    return Err(WireError::value(20, "length beyond the operation's", len));
                }
            }
            _ if len != 0 => return Err(WireError::value(20, "length", len)),
            DataKind::Ack => {
                // Whoever gets this counts up to it.
                if !usize::try_from(self.total).is_ok_and(|n| (1..=MAX_SLOTS).contains(&n)) {
                    return Err(WireError::value(32, "acknowledged operations", self.total));
                }
            }
            DataKind::WriteRef | DataKind::ReadRef => {
                // The bytes must lie within the address space: `addr + total` must not wrap.
                if let Err(e) = Extent::new(u64::MAX).span(Side::Remote, self.addr, self.total) {
                    return Err(WireError::new(48, WireErrorKind::Range(e)));
                }
            }
            DataKind::Gather => {
                let most = MAX_GATHERED_FRAMES;
                if !usize::try_from(self.total).is_ok_and(|n| (1..=most).contains(&n)) {
                    return Err(WireError::value(32, "gathered frames", self.total));
                }
            }
            DataKind::Read | DataKind::Nack | DataKind::Region => {}
        }
        if matches!(self.kind, DataKind::ReadData)
            && let Err(e) = Extent::new(self.total).span(Side::Local, self.offset, len)
        {
            return Err(WireError::new(24, WireErrorKind::Range(e)));
        }
        Ok(())
    }

    /// The frame's bytes.
    #[must_use]
    #[inline]
    pub fn emit(&self) -> [u8; DATA_FRAME_BYTES] {
        zerocopy::transmute!(Raw {
            kind: zerocopy::transmute!(self.kind),
            flags: self.flags.bits(),
            status: U16::new(self.status),
            seq: U32::new(self.seq),
            window: U64::new(self.window.0),
            epoch: U32::new(self.epoch.0),
            len: U32::new(self.len),
            offset: U64::new(self.offset),
            total: U64::new(self.total),
            tag: U64::new(self.tag),
            addr: U64::new(self.addr),
        })
    }
}
