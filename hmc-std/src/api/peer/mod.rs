//! One peer: everything that can be done with it.

mod explanation;
mod span;
#[cfg(test)]
mod tests;

pub use crate::ops::peer_handle::Peer;
pub use explanation::Explanation;
