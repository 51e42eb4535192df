//! A session: one buffer and one communicator, made by a builder. The recommended API.

mod builder;
mod running;

pub use builder::SessionBuilder;
pub use running::Session;
