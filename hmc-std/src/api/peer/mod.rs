//! One peer: everything that can be done with it.

mod async_ops;
mod binding;
mod buffer_binding;
mod explanation;
mod message;
mod rndv;
mod span;
#[cfg(test)]
mod tests;
pub(crate) mod transfer;

pub use crate::ops::peer_handle::Peer;
pub use buffer_binding::Route;
pub use explanation::Explanation;
pub(crate) use message::take_message;
