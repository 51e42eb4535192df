//! UCX: one library over InfiniBand, RoCE, shared memory, TCP and the memory of devices.
//!
//! From the lowest layer (the layers are in `xtask/src/cmd/tidy/layers.txt`):
//!
//! - `sys` and `functions` are generated from UCX's headers; [`result`] decodes results of calls.
//! - [`library`] finds and loads libucp, [`settings`] has its configuration, `ending` keeps threads out of UCX when the
//!   process ends, [`log`] passes on its log records.
//! - [`context`] owns the devices, [`memory`] has registrations with a context.
//! - `ucp_worker` owns UCX's worker and its lock, `endpoint` is UCX's endpoint to one peer, callbacks write to a completion
//!   queue (`cq`).
//! - [`am`] emulates puts and gets by active messages where no lane reaches memory by itself.
//! - `peer` has the state of one peer: requests, windows, endpoint.
//! - [`worker`] is the worker that peers of a session share.
//! - [`domain`] is a session's part in UCX: [`session_worker`] is a worker and who makes its progress, `worker_pool` has all of them,
//!   and what can go wrong is a [`fault`].
//! - [`data_plane`] is a link's data plane, the `DataPlane` of hmc-core.
//! - [`transport`] implements the `Transport` of hmc-core. `testing` is the reference of measurements: calls of UCX alone.
//!
//! Trust: UCX's lanes over TCP and shared memory check no bounds at the target. The AM path validates messages, but a
//! peer that can send them can also send UCX's own. No lane checks the addresses and keys that peers send. UCX is for
//! processes that trust each other, and connection info and keys must come through an authenticated channel.

pub mod am;
mod conn_info;
pub mod context;
mod cq;
pub mod data_plane;
pub mod domain;
mod ending;
mod endpoint;
pub mod fault;
mod functions;
pub mod library;
mod lock;
pub mod log;
pub mod memory;
mod peer;
mod print_info;
mod process;
mod records;
pub mod result;
pub mod session_worker;
pub mod settings;
mod sys;
#[cfg(feature = "testing")]
pub mod testing;
#[cfg(test)]
mod tests;
pub mod transport;
mod ucp_worker;
mod ucs_log;
pub mod worker;
mod worker_pool;

pub use crate::host::Notify;
