//! Memory that can be exposed to a peer.

use crate::base::error::Error;
use crate::memory::{ConnBuffer, LocalRange, Region, Span};
use crate::ops::window::ExposedAs;

/// Memory that [`Peer::expose`](crate::Peer::expose) takes.
///
/// | type | the window holds | an error |
/// | --- | --- | --- |
/// | [`Span`] | the span: nobody else uses its bytes | gives the span back |
/// | [`LocalRange`], `&ConnBuffer` | a handle of the buffer: ranges may overlap, be exposed to several peers, and be used by operations meanwhile | |
pub trait Exposable: sealed::Sealed {
    /// What the window holds, and [`Window::revoke`](crate::Window::revoke) gives back.
    type Held: ExposedAs;
    /// What an error gives back.
    type Error;

    /// Region, offset and length in bytes.
    #[doc(hidden)]
    fn place(&self) -> (&Region, u64, u64);

    #[doc(hidden)]
    fn into_held(self) -> Self::Held;

    #[doc(hidden)]
    fn into_error(self, error: Error) -> Self::Error;
}

mod sealed {
    pub trait Sealed {}
}

impl sealed::Sealed for Span {}
impl sealed::Sealed for LocalRange<'_> {}
impl sealed::Sealed for &ConnBuffer {}

impl Exposable for Span {
    type Held = Self;
    type Error = (Error, Self);

    fn place(&self) -> (&Region, u64, u64) {
        (self.region(), self.offset(), self.len())
    }

    fn into_held(self) -> Self {
        self
    }

    fn into_error(self, error: Error) -> (Error, Self) {
        (error, self)
    }
}

impl Exposable for LocalRange<'_> {
    type Held = ConnBuffer;
    type Error = Error;

    fn place(&self) -> (&Region, u64, u64) {
        (self.region(), self.bytes().offset(), self.bytes().len())
    }

    fn into_held(self) -> ConnBuffer {
        self.buffer()
    }

    fn into_error(self, error: Error) -> Error {
        error
    }
}

impl Exposable for &ConnBuffer {
    type Held = ConnBuffer;
    type Error = Error;

    fn place(&self) -> (&Region, u64, u64) {
        (self.region(), 0, self.len())
    }

    fn into_held(self) -> ConnBuffer {
        self.clone()
    }

    fn into_error(self, error: Error) -> Error {
        error
    }
}
