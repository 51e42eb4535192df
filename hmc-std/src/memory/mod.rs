//! Registered memory: regions, the private ranges taken from them, and what keeps both alive.
//!
//! A [`Region`] is shared by everything that may touch its pages (operations, windows, peers'
//! requests in progress) and is unmapped when the last of them let go. A [`Span`] is a linear token
//! for a range of it: no two live spans of a region overlap, so the holder may treat the bytes as
//! private. Exposing or transferring a span consumes it; it comes back through a fence.

pub mod buffer;
pub mod owner;
pub mod range;
pub(crate) mod region;
pub mod span;
pub(crate) mod stable;
pub(crate) mod table_handle;

pub use buffer::ConnBuffer;
pub use hmc_mem::shared::SharedBytes;
pub use range::LocalRange;
pub use region::Region;
pub(crate) use region::{RegionTable, check_writable};
pub use span::Span;
pub use stable::{HeapBytes, StableBytes};
pub use table_handle::Memory;
