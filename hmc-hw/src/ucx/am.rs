//! The AM path: puts and gets as active messages, which the target's own code validates and executes.
//!
//! On an endpoint without a lane that reaches memory by itself (TCP, UD), UCX emulates puts and gets by messages, too.
//! But its target checks nothing, replies to each fragment of some kilobytes, and ends its process if the initiator of
//! a reply has exited (`ucp_rma_sw_send_cmpl` and `ucp_request_send`, rma_sw.c and ucp_request.inl, 1.13.1 and 1.22.0).
//! Here the target looks up the window as it does for HMC's own streams, and replies once per operation, with several
//! replies in one message. A failed send is a status like any other.
//!
//! Lanes of shared memory reach only memory that they map. HMC uses the AM path for all other memory of such a peer:
//! UCX's own replies there end the process that closes the endpoint of a killed initiator (`ucp_request_send_state_ff`
//! of a reply that waits in the initiator's full queue, 1.13.1), and UCX loses its flush.
//!
//! A message is a data frame of hmc-core after the number of the receiving [`AmTarget`]:
//!
//! | kind | bytes that follow |
//! |---|---|
//! | `Write` | payload for `offset` of the window; `total` is the operation's. With `total` 0: the wireup message. Then more such frames, each with its payload |
//! | `Read` | none |
//! | `ReadData` | payload for `offset` of the operation |
//! | `Ack`, `Nack` | more such frames |
//!
//! Fragments may arrive in any order: both ends count bytes. `seq` is the index of the operation's record at its
//! initiator, with a count of the record's uses above it.

mod dispatch;
mod header;
mod message;
mod path;
mod reach;
mod replies;
mod target;
mod violation;

pub(super) use dispatch::AmDispatcher;
pub(super) use message::{AmMessage, FRAGMENT};
pub(super) use path::AmPath;
pub(super) use reach::Reach;
pub use target::AmTarget;
pub(super) use target::GetDest;
pub use violation::Violation;
