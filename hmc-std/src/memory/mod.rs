//! Registered memory: regions, private ranges of them, and their lifetime.
//!
//! A [`Region`] is shared by all users of its pages (operations, windows, requests of peers in flight) and is
//! unmapped when the last of them releases it. A [`Span`] is a linear token for a range of it: no two live spans of
//! a region overlap, so its owner may treat the bytes as private. Exposing or transferring a span consumes it, and
//! its fence returns it.

pub mod buffer;
pub mod generations;
pub mod owner;
pub mod range;
pub(crate) mod region;
pub mod span;
pub(crate) mod stable;
pub(crate) mod table_handle;

pub use buffer::ConnBuffer;
pub use generations::Generations;
pub use hmc_mem::shared::SharedBytes;
pub use range::LocalRange;
pub use region::Region;
pub(crate) use region::{RegionTable, check_writable};
pub use span::Span;
pub use stable::{HeapBytes, StableBytes};
pub use table_handle::Memory;
