//! RDMA verbs: libibverbs over InfiniBand and RoCE.
//!
//! From the lowest layer (the layers are in `xtask/src/cmd/tidy/layers.txt`):
//!
//! - `sys` and `functions` declare what `infiniband/verbs.h` does; `ops` has the calls that are inline in C.
//! - [`status`] decodes completions.
//! - [`event`] decodes asynchronous events.
//! - [`error`] is a call that failed, with its errno.
//! - [`library`] finds and loads libibverbs.
//! - [`device_info`] says which devices HMC can use, [`device_attrs`] what one can do.
//! - [`device`] lists and opens devices.
//! - [`port`] has the attributes of a device's ports.
//! - [`gid`] is an address of a port.
//! - [`gid_table`] has all addresses of a port.
//! - [`gid_choice`] is the rule by which one is chosen.
//! - [`reach`] says whether two ends can reach each other.
//! - [`select`] opens the port that a user wants.
//! - [`survey`] reports all of them.

pub mod device;
pub mod device_attrs;
pub mod device_info;
pub mod error;
pub mod event;
mod functions;
pub mod gid;
pub mod gid_choice;
pub mod gid_table;
pub mod library;
mod ops;
pub mod port;
pub mod reach;
pub mod select;
pub mod status;
pub mod survey;
mod sys;
#[cfg(test)]
mod tests;
