//! UCX: one library over InfiniBand, RoCE, shared memory, TCP and the memory of devices.
//!
//! From the ground up: `sys` and `functions` are what its headers declare, [`result`] what its calls answer, [`library`] finds and loads
//! it, [`settings`] is what it is set up with, [`context`] knows the devices, [`memory`] is registered with a context, [`worker`] makes progress and is shared by
//! the peers of a session, `ending` keeps threads out of UCX when the process ends, `endpoint` is the way to one of them, `board` is where callbacks leave their news,
//! [`soft`] moves bytes by messages where no lane reaches memory by itself, and [`transport`] joins them to the core's
//! border. [`bare`] is the reference of measurements: UCX without all that.
//!
//! Trust: UCX's lanes over TCP and shared memory check no bounds at the target (our messages are judged, but whoever
//! can send them can send UCX's own as well), and no lane checks the addresses and keys
//! that peers send: UCX is for processes that trust each other, and what makes endpoints and keys must come through an
//! authenticated channel.

#[doc(hidden)]
pub mod bare;
mod board;
mod card;
pub mod context;
mod ending;
mod endpoint;
mod functions;
#[cfg(test)]
mod layout;
pub mod library;
mod lock;
pub mod log;
pub mod memory;
mod peer;
mod printed;
mod process;
mod records;
pub mod result;
pub mod settings;
pub mod soft;
mod sys;
pub mod transport;
mod ucp_worker;
mod ucs_log;
pub mod worker;

pub use board::Bell;
