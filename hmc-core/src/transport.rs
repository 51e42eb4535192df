//! The interface between the protocol logic and a transport.
//!
//! A transport's object for one link is its [`DataPlane`]. What it must do is split into traits by role:
//!
//! | trait | what it covers |
//! |---|---|
//! | [`Transport`] | this end as the initiator: post, poll, cancel |
//! | [`Registration`] | local memory: which kinds are served, what is registered, what is not used any more |
//! | [`Target`] | this end as the target: windows that are exposed to the peer, and their fences |
//! | [`PeerWindows`] | windows of the peer: mapped here or reached by messages, and when this end uses them no more |
//! | [`Progress`] | what the peer sent; what to wait for; heartbeats through memory |
//! | [`Notes`] | what the data planes of the two ends tell each other by the control connection |
//! | [`NeedsStream`] | what a data plane without tags tells the layer that sends them by a stream beside it |
//!
//! [`Transport`] alone is what [`crate::queue::WorkQueue`] needs. The others have defaults for what a transport lacks. The host
//! chooses the associated types: handles of memory, mappings, fences and workers are opaque here.

mod data_plane;
mod initiator;
mod memory;
mod needs_stream;
mod note;
mod notes;
mod peer_windows;
mod progress;
mod target;

pub use data_plane::{DataCloseReason, DataPlane};
pub use initiator::{CancelOutcome, PostErrorKind, Transport, TransportError};
pub use memory::{Registration, Served};
pub use needs_stream::{NeedsStream, PeerAccess};
pub use note::Note;
pub use notes::Notes;
pub use peer_windows::PeerWindows;
pub use progress::{Interest, Progress, Readiness};
pub use target::{Fence, Target};
