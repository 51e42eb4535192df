//! The interface of a device: memory on it, copies to, from and within it, and streams of such copies.
//!
//! The traits are safe: memory is named by [`RegionKey`](crate::region::RegionKey) and
//! [`ByteRange`](crate::range::ByteRange), never by address. A backend resolves keys in its own table, and checks each range
//! against the region's extent before it calls the vendor's library.
//!
//! - [`DeviceMemory`]: allocates, frees, and adds memory that others own.
//! - [`Copies`]: submits copies, which run later.
//! - [`Streams`]: order between copies, and events that report their end.
//!
//! Rules for all calls of all three:
//! - Nothing blocks but the calls that say so.
//! - Each call may be refused with `Forked` or `Lost`, also where its errors are listed.
//! - A refused call has no effect.
//! - The range of an accepted copy must not be touched before an event behind the copy has passed: its bytes are anything.
//! - An implementation selects its vendor's context on whatever thread it is called, and leaves the caller's device selected.

mod attributes;
mod copies;
mod error;
mod memory;
mod streams;

pub use attributes::{DeviceAttributes, DeviceFeatures, PciAddress};
pub use copies::{Copies, Rows};
pub use error::{DeviceError, DeviceErrorKind};
pub use memory::{Allocation, DeviceMemory, MemoryUsage};
pub use streams::{StreamEvent, StreamId, Streams};

use crate::place::DeviceId;

/// One device: its memory, its copies, and its streams.
pub trait Device: Copies + Streams {
    /// Which one it is.
    fn id(&self) -> DeviceId;

    /// What people call it, such as the vendor's product name.
    fn name(&self) -> &str;

    /// What it has and can do, as the vendor's runtime answered when the device was opened.
    fn attributes(&self) -> &DeviceAttributes;
}
