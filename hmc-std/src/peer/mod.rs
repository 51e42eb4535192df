//! One peer: everything that can be done with it.

mod ends;
mod explanation;
mod handle;
mod many;
mod message;
mod relay;
mod route;
mod span;
pub(crate) mod transfer;

pub use explanation::Explanation;
pub use handle::Peer;
pub(crate) use message::take_message;
pub use route::Route;
