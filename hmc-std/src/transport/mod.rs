//! The transports of this crate behind one interface.
//!
//! A transport is two types: a [`domain::Domain`], which is a session's part in it, and a
//! [`DataPlane`](hmc_core::transport::DataPlane), which a domain makes for each link. [`registry`] names all of them, and nothing
//! else does.

pub(crate) mod control_only;
pub(crate) mod data_plane;
pub(crate) mod domain;
pub(crate) mod gate;
pub(crate) mod link_waker;
pub(crate) mod loopback;
pub(crate) mod regions;
pub(crate) mod registry;
pub(crate) mod released;
pub(crate) mod shm;
pub(crate) mod stream;
pub(crate) mod tcp;
pub(crate) mod ucx;
pub(crate) mod with_stream;
pub(crate) mod worker;
