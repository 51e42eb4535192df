//! What a link is made of and what it tells: small types around it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use hmc_core::kinds::{ConnType, Incarnation, Rank};
use hmc_core::time::{Duration, Instant};

use super::Link;
use super::ctrl::CtrlState;
use super::data::DataState;
use crate::driver::Driver;
use crate::keeper::Tally;
use crate::node::inbox::SharedInbox;
use crate::op_id::LinkId;
use crate::socket::Socket;
use crate::wakers::Wakers;

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

impl Link {
    /// Its name within this process.
    #[inline]
    pub(crate) fn id(&self) -> LinkId {
        LinkId { session: self.session, serial: self.serial, peer: self.peer }
    }
}

/// How far a link has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Life {
    /// Connected, but the data plane or the peer's window is still missing.
    Opening = 0,
    /// Operations can be posted.
    Ready = 1,
    /// The peer said BYE, or we did: no new operations.
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

/// What a link tells its session.
pub(crate) trait Owner: Send + Sync {
    /// The link became ready, or its peer started to leave, or messages came.
    fn news(&self, link: &Link);
    /// The link is over. Called once, without locks held.
    fn over(&self, link: &Link);
    /// What calls the wakers of the application.
    fn wakers(&self) -> Arc<Wakers>;
    /// How much of the session's memory cannot be given back yet.
    fn tally(&self) -> Arc<Tally>;
}

/// Counters of one link; all monotonic.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) failures: AtomicU64,
    pub(crate) messages_out: AtomicU64,
    /// Naps that ended by their time and found what they waited for.
    pub(crate) overslept: AtomicU64,
}

pub(crate) fn bump(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// What a new link is made of.
pub(crate) struct LinkParts {
    pub(crate) session: u64,
    pub(crate) serial: u32,
    pub(crate) peer: Rank,
    pub(crate) incarnation: Incarnation,
    /// The peer says that it runs on this system.
    pub(crate) near: bool,
    pub(crate) choices: Vec<Choice>,
    pub(crate) spin: std::time::Duration,
    pub(crate) driver: Arc<Driver>,
    pub(crate) owner: Weak<dyn Owner>,
    pub(crate) ctrl: CtrlState,
    pub(crate) data: DataState,
    pub(crate) data_socket: Option<Arc<Socket>>,
    pub(crate) inbox: SharedInbox,
}
