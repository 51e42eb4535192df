//! RDMA verbs: libibverbs over InfiniBand and RoCE.
//!
//! From the lowest layer (the layers are in `xtask/src/cmd/tidy/layers.txt`):
//!
//! - `sys` and `functions` declare what `infiniband/verbs.h` does; `ops` has the calls that are inline in C.
//! - [`status`] decodes completions.
//! - [`event`] decodes asynchronous events, `async_event` reads them.
//! - [`error`] is a call that failed, with its errno.
//! - [`library`] finds and loads libibverbs.
//! - [`device_info`] says which devices HMC can use, [`device_attrs`] what one can do.
//! - [`device`] lists and opens devices.
//! - [`port`] has the attributes of a device's ports.
//! - [`gid`] is an address of a port.
//! - [`gid_table`] has all addresses of a port.
//! - [`gid_choice`] is the rule by which one is chosen.
//! - [`reach`] says whether two ends can reach each other.
//! - [`select`] opens the port that a user wants; `current_port` reads it again when it has changed.
//! - [`nic_list`] opens those that a session uses.
//! - [`survey`] reports all of them.
//! - `objects` owns protection domains, memory regions, completion queues and queue pairs, in the order of their ends.
//! - `chain` and `send_queue` are what is posted to one queue pair, `requests` what a link has under way, `lane` joins them. `backlog`
//!   is what a link has still to post.
//! - `locals` and `exposed` are registered memory and windows of this end, `remotes` the peer's windows, `conn_info` is what
//!   the two ends tell each other.
//! - `pairing` says which queue pairs of the two ends belong together, `nic` is one NIC of a session, `link_nic` what a link has on it,
//!   and `link_queues` are the completion queues of a link.
//! - [`link_worker`] wakes who waits for completions; [`domain`] is a session's part, [`data_plane`] a link's.

mod async_event;
mod backlog;
mod chain;
mod conn_info;
mod current_port;
pub mod data_plane;
pub mod device;
pub mod device_attrs;
pub mod device_info;
pub mod domain;
pub mod error;
pub mod event;
mod exposed;
pub mod fault;
mod flush_regions;
mod functions;
pub mod gid;
pub mod gid_choice;
pub mod gid_table;
mod lane;
pub mod library;
mod link_nic;
mod link_queues;
pub mod link_worker;
mod locals;
mod looks;
mod nic;
pub mod nic_list;
mod objects;
mod ops;
mod page;
mod pairing;
mod path;
pub mod port;
pub mod reach;
mod region_set;
mod remotes;
mod requests;
pub mod select;
mod send_queue;
mod shared_regions;
pub mod status;
pub mod survey;
mod sys;
mod tags;
#[cfg(test)]
mod tests;
mod window_parts;
pub mod window_probe;
pub mod window_scheme;
mod window_set;

#[doc(hidden)]
pub use conn_info::reread;
pub use conn_info::{ENDPOINT_VERBS, ENDPOINT_VERBS_CONNECTED, ENDPOINT_VERBS_KEY};
