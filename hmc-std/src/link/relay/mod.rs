//! Messages of `send_data` on one link: the core's relay machines, and who moves them on.
//!
//! Notes of the peer are put aside by whoever reads the control connection; ends of operations are
//! told by whoever makes progress. Whoever comes next runs the [`Desk`]: one thread at a time, with
//! no other lock held. Lock order: desk before ctrl before data. A caller that lends memory for the
//! time of its call copies its bytes itself; nobody else ever touches them.
//! [`desk`] is what is under way, [`run`] a turn of it and [`borrowed`] what lenders copy: a machine, whose effects are calls
//! of its [`host`]. [`on_link`] is the host that a link is, and [`progress`] runs the machine, as its driver.

mod actions;
mod borrowed;
pub(crate) mod desk;
mod host;
mod on_link;
mod progress;
mod run;
pub(crate) mod ticket;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use hmc_core::rndv::RndvMsg;

use desk::Desk;

/// The relay of one link.
#[derive(Debug, Default)]
pub(crate) struct Relay {
    heard: Mutex<Vec<RndvMsg>>,
    desk: Mutex<Desk>,
    /// There is something to be done at the desk. Touched by read-modify-writes alone: they stand in
    /// one order, and each has seen all that came before the earlier ones. One marks it and finds
    /// the desk taken, another gives the desk back and looks at it: whoever is later sees the free
    /// desk, or the mark with what it was set for. Stores and loads promise neither, even if
    /// sequentially consistent: to find a lock taken is a relaxed load.
    dirty: AtomicBool,
    /// Something is under way: links that never send messages pay one load.
    live: AtomicBool,
    /// A caller that lends memory has bytes to copy.
    lend: AtomicBool,
}

impl Relay {
    fn mark(&self) {
        self.dirty.swap(true, Ordering::AcqRel);
    }

    fn unmark(&self) -> bool {
        self.dirty.swap(false, Ordering::AcqRel)
    }

    fn is_marked(&self) -> bool {
        self.dirty.fetch_or(false, Ordering::AcqRel)
    }
}
