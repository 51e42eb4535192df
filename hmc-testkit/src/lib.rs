//! What tests drive in place of applications. Not for applications; nothing here is stable.

pub mod buffers;
pub mod ends;
pub mod node;
pub mod wire;
