//! HMC moves bytes between registered memory of any two processes: over shared memory on one host,
//! over TCP between hosts, with a control plane of ranks, tags and small messages.
//!
//! No transfer can access memory outside its window, outlive its buffers, block forever, or report success
//! early. Start with [`session::Session`]:
//!
//! ```
//! use hmc_std::{Address, Message, Session, want};
//!
//! # fn main() -> Result<(), hmc_std::Error> {
//! # let dir = std::env::temp_dir().join(format!("hmc-doc-{}", std::process::id()));
//! let target = Session::builder(1).uds(&dir).buffer(1 << 20).start()?;
//! let source = Session::builder(0).start()?;
//!
//! let peer = source.connect(&Address::Uds(dir.clone())).wait()?;
//! peer.buffer()?.put(4096, b"hello").wait()?; // when this returns, the target can read the bytes
//! peer.send(Message::Tag(42)).wait()?;
//!
//! assert_eq!(target.peer(0)?.recv(want::Tag).wait()?, 42);
//! let mut got = [0; 5];
//! target.buffer().read_at(4096, &mut got)?;
//! assert_eq!(&got, b"hello");
//! # drop(target); let _ = std::fs::remove_dir_all(&dir);
//! # Ok(()) }
//! ```
//!
//! A [`Remote`] is a window of a peer: its session buffer ([`Peer::buffer`]) or one that it exposed ([`Peer::window`]). Each
//! transfer is a [`Request`], which is finished in one of three ways: `.wait()`, `.start()`, `.await`.
//!
//! [`manual`] describes which call to use, what completion means, and what a drop does.
//!
//! Public modules: [`session`] has a process's part in a job, [`peer`] the calls for one peer, [`request`] the
//! types of requests, [`memory`] registered memory, [`window`] exposed memory, [`want`] what a receiver takes, [`group`]
//! collectives, and [`transport`] the interface that an application's own transport implements.
//!
//! Each folder of the source is one layer, with dependencies downward only:
//!
//! | folder | content |
//! | --- | --- |
//! | `api` | the calls of an application: sessions, peers, groups |
//! | `ops` | requests, operations, and the objects that an application holds of them: remotes, lists, windows, messages |
//! | `progress` | the progress thread, and the reactions to ready sockets, queued links and timers |
//! | `conn` | start and end of links: accept, handshake, dial, reconnect, shutdown |
//! | `state` | the state of one session: links, listeners, pending connections, counters |
//! | `link` | one connection to one incarnation of a peer: control plane, data plane, rendezvous, waits |
//! | `quarantine` | memory that a peer may still access after its link closed |
//! | `transport` | the transports: loopback, shm, stream, tcp, ucx |
//! | `memory`, `callbacks` | registered memory; calls of the application's wakers and drops of its owners |
//! | `io` | sockets, listeners, eventfds, and the reactor that reports which of them are ready |
//! | `node` | decisions without I/O: membership, inbox, link tokens |
//! | `base` | errors, settings, addresses, the clock, locks |

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
pub mod manual;
pub mod memory;
mod node;
mod ops;
mod progress;
mod quarantine;
mod state;
pub mod transport;

pub use api::{group, peer, probe, session};
#[doc(hidden)]
pub use base::identity;
pub use base::{address, config, error, process};
pub use ops::{file, want, window};
pub use state::metrics;

// The facade: what an application names most. Everything else is reached through its module.
pub use api::events::Events;
pub use api::group::{Element, Exchange, Group, Reduce};
pub use api::listener::Listener;
pub use api::peer::{Explanation, Peer};
pub use api::prepared::Prepared;
pub use api::session::{Session, SessionBuilder, SessionInfo};
pub use base::address::Address;
pub use base::config::Progress;
pub use base::error::{Blame, Error, ErrorKind, Limit, Result};
pub use base::op_name::OpName;
pub use base::private_ranks::rank_of;
pub use base::process::Origin;
pub use hmc_core::place::{DeviceId, DeviceIdError, MemoryClass, Place};
pub use hmc_core::types::{Access, ConnType, MemoryKind, Rank, Status};
pub use hmc_core::work::CompleteWhen;
pub use link::Choice;
pub use memory::{ConnBuffer, Generations, LocalRange, Memory, Region, Span};
pub use node::inbox::Message;
pub use ops::carried::{Done, Failed};
pub use ops::connect::PeerRank;
pub use ops::list::{Piece, Plan};
pub use ops::remote::Remote;
pub use ops::request::Request;
pub use ops::started::{Op, Waited};
pub use ops::wait_any::wait_any;
pub use ops::who::Who;
pub use ops::window::Window;
pub use quarantine::{Held, held};

/// Requests by type: what they do, what they take and give. Programs seldom name these.
pub mod request {
    pub use crate::api::group::join::Join;
    pub use crate::api::group::request::Collective;
    pub use crate::api::session::Shutdown;
    pub use crate::ops::accept::Accept;
    pub use crate::ops::carried::Carried;
    pub use crate::ops::connect::Connect;
    pub use crate::ops::data_message::{RecvData, SendData};
    pub use crate::ops::disconnect::Disconnect;
    pub use crate::ops::exposable::Exposable;
    pub use crate::ops::find::Find;
    pub use crate::ops::lent::Lent;
    pub use crate::ops::list::{Again, Gets, List, ListKind, Puts};
    pub use crate::ops::put_get::{Get, Put};
    pub use crate::ops::reclaim::Reclaim;
    pub use crate::ops::recv::{Recv, RecvFrom};
    pub use crate::ops::request::{Expect, Notify, Pending, Start, Verb, When};
    pub use crate::ops::send::SendMessage;
    pub use crate::ops::sources::{Sink, Source};
}

/// The program of the README, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
