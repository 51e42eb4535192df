//! Messages of `send_data` on one link: the core's rendezvous machines and their driver.
//!
//! The thread that reads the control connection queues messages of the peer; the thread that makes progress reports
//! completed operations. The next of these threads runs the [`RndvState`]: one thread at a time, with no other lock
//! held. Lock order: rendezvous state before ctrl before data. A caller that lends memory for the time of its call
//! copies its bytes itself, and no other thread accesses them.
//!
//! [`state`] has the messages in flight, [`run`] polls them, [`short`] passes the poll over where a message begins or ends in one step, and [`borrowed`] has the memory that callers copy
//! themselves, [`kept_window`] the windows that serve many messages. Together they are a state machine whose effects are calls of its [`host`]. [`on_link`] implements
//! the host on a link, and [`progress`] drives the machine.

mod actions;
mod borrowed;
pub(crate) mod handle;
mod host;
pub(crate) mod kept_window;
pub(crate) mod note;
mod on_link;
mod progress;
mod reuse;
mod run;
mod short;
pub(crate) mod state;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use note::Note;
use state::RndvState;

/// The rendezvous of one link.
#[derive(Debug, Default)]
pub(crate) struct Rndv {
    received: Mutex<Vec<Note>>,
    state: Mutex<RndvState>,
    /// There is something to be done under the lock of `state`. Changed by read-modify-writes alone: these have one
    /// order, and each sees all that happened before the earlier ones. One thread marks it and finds the lock taken,
    /// another releases the lock and looks at the mark: whichever is later sees the lock free, or the mark and what it
    /// was set for. Stores and loads promise neither, even if sequentially consistent: to find a lock taken is a relaxed
    /// load.
    dirty: AtomicBool,
    /// Something is under way: links that never send messages pay one load.
    live: AtomicBool,
    /// A caller has bytes to copy from or to its borrowed memory.
    borrow_ready: AtomicBool,
}

impl Rndv {
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
