//! A fake libibverbs: its calls between queue pairs of one process, for faults that cannot be provoked in soft-RoCE.
//!
//! A test loads the shared library in place of libibverbs and writes its script through the functions of [`script`]:
//! operations and completions that are late, held, failed or lost, queue pairs that fail, events, calls that fail at the
//! n-th time, devices that lack abilities. Everything else is strict where a NIC may be: a posted request moves nothing
//! until a tick, which a poll of any completion queue is; bytes of a write are visible with a later read or receive of the
//! same queue pair and not with its completion; a key is valid for its domain, rights and range, that of a window for its
//! queue pair; either end must have the address and numbers of the other; a failed operation leaves half of its bytes. What
//! a caller must not do (a call on a destroyed object, a region that is given back under a posted request, an event that
//! is not acknowledged) aborts the process with a message.
//!
//! An error of libibverbs stays one: `EBUSY` for a domain, completion queue, shared queue or channel that is used, `EINVAL`
//! for a region with a bound window, `ENOMEM` for a full queue. Where libibverbs or a driver would never return, stop the
//! kernel or use memory that is gone, the process ends: events that are not acknowledged, a queue pair with bound windows,
//! the local invalidation of a free window, a region or window that a request names whose completion was not polled.
//!
//! Only reliable connections are here. Nothing of time, chance or the environment is read, except by the script's ticker: the
//! same calls and script give the same run. Posts and polls allocate nothing after as many operations were in flight once. Any thread may make any
//! call. Nothing here may be used outside of tests.
//!
//! Reading order: [`abi`] (the declarations, written from libibverbs' manual), `table` (names of objects), `object`,
//! `queue` and `queue_pair`, `device`, `faults` (the script), `state` (all state), [`script`] (its C functions), then what
//! progress does: `progress`, `message`, `target`, `window`, `bytes`, `completion`, `event`, `release`,
//! `ticker`; then libibverbs'
//! calls: `context`, `port`, `domain`, `region`, `mw`, `channel`, `cq`, `qp`, `modify`, `srq`, `post`, `async_event`.
#![allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::indexing_slicing,
    reason = "a library of tests; it may panic, and numbers stand for pointers in C"
)]

pub mod abi;
pub mod api;
mod async_event;
mod bytes;
mod channel;
mod completion;
mod context;
mod cq;
mod device;
mod domain;
mod event;
mod faults;
mod message;
mod modify;
mod mw;
mod object;
mod ops;
mod port;
mod post;
mod progress;
mod qp;
mod queue;
mod queue_pair;
mod region;
mod release;
pub mod script;
mod srq;
mod state;
mod table;
mod target;
#[cfg(test)]
mod tests;
mod text;
mod ticker;
mod window;
