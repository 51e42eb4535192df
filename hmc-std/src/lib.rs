//! HMC moves bytes between registered memory of any two processes: over shared memory on one host,
//! over TCP between hosts, with a control plane of ranks, tags and small messages.
//!
//! No transfer can leave its window, outlive its memory, hang for ever, or report success that is
//! not yet true. Start with [`session::Session`]:
//!
//! ```
//! use hmc_std::{Address, Session};
//!
//! # fn main() -> Result<(), hmc_std::Error> {
//! # let dir = std::env::temp_dir().join(format!("hmc-doc-{}", std::process::id()));
//! let target = Session::builder(1).uds(&dir).buffer(1 << 20).start()?;
//! let source = Session::builder(0).buffer(1 << 20).start()?;
//!
//! let peer = source.connect(1, &Address::Uds(dir.clone()))?;
//! source.buffer().write_at(0, b"hello")?;
//! peer.put(0, 4096, 5)?; // when this returns, the target can read the bytes
//! peer.send_tag(42)?;
//!
//! assert_eq!(target.ctrl_recv(0)?, 42);
//! let mut got = [0; 5];
//! target.buffer().read_at(4096, &mut got)?;
//! assert_eq!(&got, b"hello");
//! # drop(target); let _ = std::fs::remove_dir_all(&dir);
//! # Ok(()) }
//! ```
//!
//! Space: [`session`] and [`communicator`] are the faces, [`peer`] is what can be done with one
//! peer, [`memory`] is what is registered, [`window`] what is exposed, [`control`] small messages, [`group`] what several ranks do together,
//! [`transport`] what a transport of your own is made of.
//! Inside: `link` (one life of a peer), `node` (decisions without
//! I/O), `progress_thread` and `reactor` (the background thread), `dial` and `accept` (how links come about).

#[cfg(not(target_os = "linux"))]
compile_error!("hmc-std needs Linux (memfd, epoll, SCM_RIGHTS); hmc-core builds everywhere");

mod api;
mod base;
mod callbacks;
mod conn;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod internals;
mod io;
mod link;
pub mod memory;
mod node;
mod ops;
mod progress;
mod quarantine;
mod state;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod testing;
pub mod transport;

pub use api::{communicator, control, group, peer, probe, session};
#[doc(hidden)]
pub use base::identity;
pub use base::{address, config, error, process};
pub use ops::{batch, delivery, file, future, op, window};
pub use state::metrics;

// The facade: what an application names most. Everything else is reached through its space.
pub use api::communicator::Communicator;
pub use api::control::Control;
pub use api::group::{Element, Exchange, Group, Reduce};
pub use api::peer::{Explanation, Peer, Route};
pub use api::prepared::Prepared;
pub use api::session::{Session, SessionBuilder};
pub use base::address::Address;
pub use base::config::Progress;
pub use base::error::{Error, ErrorKind, Result};
pub use base::private_ranks::rank_of;
pub use base::process::Origin;
pub use hmc_core::types::{Access, ConnType, MemoryKind, Rank, Status};
pub use link::Choice;
pub use memory::{ConnBuffer, Region, Span};
pub use node::inbox::{Message, Want};
pub use ops::batch::{Batch, Copy, Direction};
pub use ops::delivery::Delivery;
pub use ops::op::{OpError, OpId};
pub use ops::window::{RemoteWindow, SharedWindow, Window};
pub use quarantine::{Held, held};

/// The program of the README, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
