//! One peer: everything that can be done with it.

mod ends;
mod explanation;
mod many;
mod message;
mod rndv;
mod route;
mod span;
pub(crate) mod transfer;

pub use crate::ops::peer_handle::Peer;
pub use explanation::Explanation;
pub(crate) use message::take_message;
pub use route::Route;
