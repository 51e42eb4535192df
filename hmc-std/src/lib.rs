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
//! Rooms: [`session`] and [`communicator`] are the faces, [`peer`] is what can be done with one
//! peer, [`memory`] is what is registered, [`window`] what is exposed, [`control`] small messages, [`group`] what several ranks do together,
//! [`transport`] what a transport of your own is made of.
//! Inside: `link` (one life of a peer), `node` (decisions without
//! I/O), `engine` and `driver` (the background thread), `dial` and `accept` (how links come about).

#[cfg(not(target_os = "linux"))]
compile_error!("hmc-std needs Linux (memfd, epoll, SCM_RIGHTS); hmc-core builds everywhere");

mod accept;
pub mod address;
mod any;
mod aside;
mod asked;
pub mod batch;
mod claim;
mod clock;
pub mod communicator;
pub mod config;
mod connecting;
pub mod control;
pub mod delivery;
mod dial;
mod dial_target;
mod dialing;
mod doors;
mod driver;
mod engine;
mod entropy;
pub mod error;
mod eventfd;
pub mod file;
pub mod future;
mod greeting;
pub mod group;
mod handshake;
#[doc(hidden)]
pub mod identity;
mod inquiry;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod internals;
mod keeper;
mod leave;
mod left;
mod link;
mod links;
mod listen;
mod listeners;
mod lock;
pub mod memory;
pub mod metrics;
mod named;
mod news;
mod node;
pub mod op;
mod op_id;
mod paths;
pub mod peer;
mod pending;
mod prepared;
mod private;
pub mod probe;
pub mod process;
mod proof;
mod reconnect_info;
mod redial;
mod rest_socket;
mod retry;
mod secret;
pub mod session;
mod shared;
mod socket;
mod starting;
mod strangers;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod testing;
mod tokens;
pub mod transport;
mod until;
mod wait_pool;
mod wakers;
pub mod window;
mod workers;

// The facade: what an application names most. Everything else is reached through its room.
pub use address::Address;
pub use batch::{Batch, Copy, Direction};
pub use communicator::Communicator;
pub use config::Progress;
pub use control::Control;
pub use delivery::Delivery;
pub use error::{Error, ErrorKind, Result};
pub use group::{Element, Exchange, Group, Reduce};
pub use hmc_core::types::{Access, ConnType, MemoryKind, Rank, Status};
pub use keeper::{Held, held};
pub use link::Choice;
pub use memory::{ConnBuffer, Region, Span};
pub use node::inbox::{Message, Want};
pub use op::{OpError, OpId};
pub use peer::{Explanation, Peer, Route};
pub use prepared::Prepared;
pub use private::rank_of;
pub use process::Origin;
pub use session::{Session, SessionBuilder};
pub use window::{RemoteWindow, SharedWindow, Window};

/// The program of the README, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
