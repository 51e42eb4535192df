//! Fake devices.
//!
//! - [`fake`]: a separate address space, streams that take time, memory that runs out, a device that
//!   is lost.
//! - [`host`]: host memory that pretends to be a device; nothing of it takes time.

pub mod fake;
pub mod host;
mod stream;
