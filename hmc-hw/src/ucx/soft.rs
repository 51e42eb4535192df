//! The software path: puts and gets as active messages, which the target's own code judges and executes.
//!
//! Where an endpoint has no lane that reaches memory by itself (TCP, UD), UCX makes puts and gets out of messages too,
//! but its target checks nothing, answers each piece of some kilobytes, and ends its process when an answer finds the
//! initiator gone (`ucp_rma_sw_send_cmpl` and `ucp_request_send`, rma_sw.c and ucp_request.inl, 1.13.1 and 1.22.0). Here
//! the target looks the window up as it does for our own streams, answers once for each operation, several in one
//! message, and a send that fails is a status like any other.
//!
//! Lanes of shared memory reach what they map and nothing else: what they do not map goes this way, too. UCX's own answers
//! there end the process that closes the endpoint of a killed initiator (`ucp_request_send_state_ff` of an answer that waits
//! in the initiator's full queue, 1.13.1), and its flush is lost.
//!
//! A message is the core's data frame behind the number of the receiver's [`Door`]:
//!
//! | kind | bytes that follow |
//! |---|---|
//! | `Write` | payload for `offset` of the window; `total` is the operation's. With `total` 0: the wireup message. Then more such frames, each with its payload |
//! | `Read` | none |
//! | `ReadData` | payload for `offset` of the operation |
//! | `Ack`, `Nack` | more such frames |
//!
//! Pieces may come in any order: both ends count bytes. `seq` is the record of the operation at its initiator with a
//! count of its uses above it.

mod answers;
mod door;
mod hall;
mod head;
mod parcel;
mod reach;
mod violation;
mod way;

pub use door::Door;
pub(super) use door::Landing;
pub(super) use hall::Hall;
pub(super) use parcel::{PIECE, Parcel};
pub(super) use reach::Reach;
pub use violation::Violation;
pub(super) use way::Way;
