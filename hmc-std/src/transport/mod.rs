//! The transports of this crate behind one interface, and how to implement your own.
//!
//! A transport is two types: a [`Domain`], which is a session's part in it, and a
//! [`DataPlane`](hmc_core::transport::DataPlane), which a domain makes for each link. `registry` names those of this crate, and
//! nothing else does; [`SessionBuilder::transport`](crate::SessionBuilder::transport) registers one of your own. The folder
//! `examples/own_transport` has a whole one.
//!
//! # A data plane
//! It implements the traits of [`hmc_core::transport`] with the types of [`HostDataPlane`]:
//!
//! | associated type | type here |
//! |---|---|
//! | `Error` | [`PostErrorKind`](hmc_core::transport::PostErrorKind) |
//! | `Memory` | [`Region`](crate::Region); keep them in a [`RegionCache`], which finds their bytes |
//! | `Released` | [`Released`] |
//! | `Windows` | `Box<[WindowEntry]>`, from [`DataPlaneParams::windows`] |
//! | `Gate` | [`Gate`], for fences of shared pages |
//! | `Fault` | [`Error`](crate::Error) |
//! | `Mapped` | `Arc<`[`MappedWindow`]`>` |
//! | `Worker` | [`Worker`]: `None` |
//! | `PeerLife` | [`PeerLife`], from [`DataPlaneParams::peer_life`] |
//!
//! # Threads and time
//! A waiting thread of the application or the session's thread calls all methods under the lock of the data plane's link, never two
//! at a time. No method may sleep, wait for the peer, allocate for each request, copy more than 1 MiB, or call the session. A method
//! reports remaining work in [`Interest::work`](hmc_core::transport::Interest::work). Long copies are made in chunks, in
//! [`DataPlane::copy_piece`](hmc_core::transport::DataPlane::copy_piece). The caller that takes [`Released`] drops the memory, without
//! the lock.
//!
//! # Completions
//! Each accepted request completes exactly once, in [`Transport::poll`](hmc_core::transport::Transport::poll), also after a failure.
//! After that, nothing accesses the request's memory. The traits define visibility and fences. The suite of
//! `hmc-conformance` checks this; `hmc_testkit::ends::pair_of` makes its subject from two domains.
//!
//! # Connections
//! Each link has a second connection, which a data plane uses as a [`SideStream`]; the exit of the peer's process closes it. Notes
//! ([`hmc_core::transport::Notes`]) use the control connection: the note of a window arrives before its advert.

pub(crate) mod control_only;
pub(crate) mod ctrl_rings;
pub(crate) mod data_plane;
pub(crate) mod domain;
pub(crate) mod gate;
pub(crate) mod generation_tables;
pub(crate) mod link_waker;
pub(crate) mod loopback;
pub(crate) mod pieces;
pub(crate) mod regions;
pub(crate) mod registry;
pub(crate) mod released;
pub(crate) mod session_host;
pub(crate) mod shm;
pub(crate) mod side_stream;
pub(crate) mod stream;
pub(crate) mod tag_inbox;
pub(crate) mod tcp;
pub(crate) mod ucx;
pub(crate) mod verbs;
pub(crate) mod with_stream;
pub(crate) mod worker;

pub use crate::memory::region::RegionTable;
pub use data_plane::{AnyDataPlane, Fence, HostDataPlane};
pub use domain::{DataPlaneParams, Domain, PeerFacts, Side};
pub use gate::Gate;
pub use hmc_mem::os::mapped_window::MappedWindow;
pub use regions::{RegionCache, pages_of};
pub use released::Released;
pub use side_stream::SideStream;
pub use stream::PeerLife;
pub use tag_inbox::TagInbox;
pub use worker::Worker;
