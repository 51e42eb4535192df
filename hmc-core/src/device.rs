//! The interface of a device: where bytes are stored and how they are copied.
//!
//! The trait is safe: memory is named by [`RegionKey`] and [`crate::range::ByteRange`], never by address. A backend
//! resolves keys in its own table, and checks each range against the region's extent before it calls the vendor's
//! library. The backend also registers host memory (pinned, mapped, user memory), which needs `unsafe` there. No
//! call blocks: a copy is submitted to a stream, and its [`StreamEvent`] reports when it has ended.

use crate::region::{LocalRegion, LocalSlice, RegionKey};
use crate::types::MemoryKind;

/// What a caller can do about an error of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeviceErrorKind {
    /// The queue is full: poll, then submit again. Nothing was accepted.
    Busy,
    /// The device has not that much memory left.
    NoSpace,
    /// The key is not (or no longer) in the device's table, or still has copies in flight.
    Region,
    /// The ranges differ in length or leave their regions.
    Range,
    /// This device cannot do it at all.
    Unsupported,
    /// The device or its context is lost. No event passes any more, so nothing is fenced: its memory
    /// must not be used again in this process.
    Lost,
    /// The vendor's library failed.
    Other,
}

/// An error of a device.
pub trait DeviceError: core::fmt::Debug {
    /// What a caller can do about it.
    fn kind(&self) -> DeviceErrorKind;

    /// The vendor's own status, or 0 when it gave none.
    fn code(&self) -> i64 {
        0
    }
}

impl DeviceError for DeviceErrorKind {
    fn kind(&self) -> DeviceErrorKind {
        *self
    }
}

/// The number of a stream: copies in one stream run one after the other, those of different streams
/// in any order. Stream 0 exists on every device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct StreamId(pub u16);

/// A point in a stream, behind all that was submitted to it before. Within a stream a greater
/// number is later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamEvent {
    /// The stream.
    pub stream: StreamId,
    /// Which point.
    pub number: u64,
}

/// One device: memory of one [`MemoryKind`] and the engine that copies to, from and within it.
///
/// - Nothing blocks, but for `alloc` and `free`, which may take as long as the vendor's do.
/// - A refused `copy` has no effect.
/// - A range of an accepted copy must not be touched before its event was passed.
/// - An implementation selects its vendor's context on whatever thread it is called.
pub trait Device {
    /// Why a request was refused.
    type Error: DeviceError;

    /// Where its bytes live.
    fn kind(&self) -> MemoryKind;

    /// What people call it, such as the vendor's product name.
    fn name(&self) -> &str;

    /// New memory of `len_bytes` on the device. What it holds is not defined.
    ///
    /// # Errors
    /// `NoSpace`, `Lost`, `Other`.
    fn alloc(&mut self, len_bytes: u64) -> Result<LocalRegion, Self::Error>;

    /// Gives memory back.
    ///
    /// # Errors
    /// `Region` when there is none of that key or a copy in flight uses it, `Lost`, `Other`: then the
    /// memory is not given back.
    fn free(&mut self, key: RegionKey) -> Result<(), Self::Error>;

    /// The region of that key: memory of the device, or host memory that it can reach.
    fn region(&self, key: RegionKey) -> Option<LocalRegion>;

    /// Submits a copy between two ranges of equal length that do not overlap, at least one of them on
    /// the device. The copy kind follows from the kinds of the two regions. The event lies behind it.
    ///
    /// # Errors
    /// Any kind; nothing was accepted.
    fn copy(
        &mut self,
        stream: StreamId,
        from: LocalSlice,
        to: LocalSlice,
    ) -> Result<StreamEvent, Self::Error>;

    /// Whether the stream has passed the event: every copy before it is done, and what it wrote can be
    /// read. This is a fence for those copies.
    ///
    /// # Errors
    /// A copy before the event failed, or the device is lost; the ranges hold anything. It is a fence
    /// too unless the kind is `Lost`.
    fn passed(&mut self, event: StreamEvent) -> Result<bool, Self::Error>;
}
