//! Operations, and the objects that an application holds of them: futures, batches, windows, messages.

pub mod batch;
pub mod delivery;
pub mod file;
pub mod future;
pub mod op;
pub(crate) mod peer_handle;
pub(crate) mod post;
pub mod window;
