//! [`Streams`]: the order of copies, and the events that report their end.

use super::DeviceMemory;

/// A stream of a device: what is submitted to one runs in that order, what is submitted to different ones in any order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamId {
    /// Place in the device's table.
    pub index: u16,
    /// How often that place was given out.
    pub generation: u16,
}

impl StreamId {
    /// The stream that each device has from the start, and never closes.
    pub const FIRST: Self = Self { index: 0, generation: 0 };
}

/// A point in a stream, behind all that was submitted to it before. Within a stream a greater
/// number is later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamEvent {
    /// The stream.
    pub stream: StreamId,
    /// Which point.
    pub number: u64,
}

/// The streams of a device.
pub trait Streams: DeviceMemory {
    /// A new stream, which is ordered with no other one: not with the runtime's default stream, either.
    ///
    /// # Errors
    /// `NoSpace` when there can be no more, `Lost`, `Other`.
    fn open_stream(&mut self) -> Result<StreamId, Self::Error>;

    /// Closes a stream. Its events have all passed before.
    ///
    /// # Errors
    /// `Stream` for one that there is not, for [`StreamId::FIRST`], and while something is under way in it: then it stays.
    /// `Lost`, `Other`.
    fn close_stream(&mut self, stream: StreamId) -> Result<(), Self::Error>;

    /// An event behind all that was submitted to the stream.
    ///
    /// # Errors
    /// `Busy`, `Stream`, `Lost`, `Other`.
    fn record(&mut self, stream: StreamId) -> Result<StreamEvent, Self::Error>;

    /// Whether the stream has passed the event: every copy before it is done, and what it wrote can be
    /// read. This is a fence for those copies.
    ///
    /// # Errors
    /// `Stream` for an event that there is not. Else a copy before the event failed, or the device is lost; the ranges hold
    /// anything. It is a fence too unless the kind is `Lost`.
    fn passed(&mut self, event: StreamEvent) -> Result<bool, Self::Error>;

    /// What is submitted to `stream` from now on runs after the event of another stream has passed. The device waits, not the
    /// caller. Whether commands before the event failed is asked of that event; later events of `stream` may fail with it.
    ///
    /// # Errors
    /// `Busy`, `Stream`, `Lost`, `Other`.
    fn wait(&mut self, stream: StreamId, event: StreamEvent) -> Result<(), Self::Error>;
}
