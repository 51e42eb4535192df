//! Small types of links.

use std::sync::atomic::{AtomicU64, Ordering};

use hmc_core::time::{Duration, Instant};
use hmc_core::types::ConnType;

/// Why a transport was chosen or not, for `explain`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The transport.
    pub conn: ConnType,
    /// Whether it was chosen.
    pub chosen: bool,
    /// Why, or why not.
    pub why: String,
}

/// How far a link has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum LinkState {
    /// Connected, but the data plane or the peer's window is still missing.
    Opening = 0,
    /// Operations can be posted.
    Ready = 1,
    /// The peer sent BYE, or we did: no new operations.
    Leaving = 2,
    /// Over.
    Dead = 3,
}

/// The time, as a session tells it to its links.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tick {
    pub(crate) now: Instant,
    /// How long ago that was due: time in which this process was not run. A peer of this system has got no more of the
    /// processor than we, and is not silent for that.
    pub(crate) late: Duration,
    /// After how many silent periods to beat to a peer of this system.
    pub(crate) spread: u64,
}

/// Counters of one link; all monotonic.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) failures: AtomicU64,
    pub(crate) messages_out: AtomicU64,
    /// Parks that ended by their time and found what they waited for.
    pub(crate) overslept: AtomicU64,
}

pub(crate) fn increment(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// What requests of a peer reach of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Serves {
    All,
    /// Nothing before [`hmc_core::transport::Target::reopen`] says which part.
    Nothing,
}
