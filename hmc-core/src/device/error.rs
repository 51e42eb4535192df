//! [`DeviceErrorKind`], [`DeviceError`].

/// What a caller can do about an error of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeviceErrorKind {
    /// The queue is full: ask an event of it, then submit again.
    Busy,
    /// The device has not that much memory left.
    NoSpace,
    /// The key is not (or no longer) in the device's table, is there already, or has copies in flight.
    Region,
    /// The ranges differ in length, overlap, or leave their regions.
    Range,
    /// The device has no such stream, or no such event.
    Stream,
    /// This device cannot do it at all.
    Unsupported,
    /// The process was forked from one that has the device open. Nothing of it works in the child.
    Forked,
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

    /// The vendor's function that failed; empty if none was called.
    fn call(&self) -> &'static str {
        ""
    }

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
