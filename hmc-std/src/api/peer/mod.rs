//! One peer: everything that can be done with it.

mod explanation;
mod message;
mod rndv;
mod span;
#[cfg(test)]
mod tests;

pub use crate::ops::peer_handle::Peer;
pub use explanation::Explanation;
pub(crate) use message::take_message;
