//! Operations, and the objects that an application holds of them: requests, operations under way, windows, messages.

pub(crate) mod carried;
pub mod delivery;
pub mod file;
pub(crate) mod find;
pub(crate) mod job;
pub(crate) mod lent;
pub(crate) mod list;
pub(crate) mod peer_handle;
pub(crate) mod post;
pub(crate) mod posted;
pub(crate) mod put_get;
pub(crate) mod reclaim;
pub(crate) mod remote;
pub(crate) mod request;
pub(crate) mod sources;
pub(crate) mod started;
pub(crate) mod transfer;
pub(crate) mod wait_any;
pub mod window;
