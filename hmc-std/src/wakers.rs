//! Calls code of the application, wakers above all, where it can neither stop nor delay the session's only thread.
//!
//! Wakers run on a thread of their own, which is started when the first future waits and ends with the session. A panic of
//! theirs is caught and counted. Where there is no such thread (sessions that are driven from outside, or that have ended)
//! they run where they come up, without locks.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::Waker;

#[cfg(hmc_mutants)]
use hmc_core::mutant::{self, Mutant};

use crate::any::Bell;
use crate::shared::lock;

/// Who is to be told that an operation has ended.
#[derive(Debug)]
pub(crate) enum Notice {
    /// A wait of this crate: rung where the operation ends.
    Own(Arc<Bell>),
    /// Code of the application.
    User(Waker),
}

/// Runs code of the application. Whether it panicked.
pub(crate) fn panics(code: impl FnOnce()) -> bool {
    let Err(panic) = catch_unwind(AssertUnwindSafe(code)) else { return false };
    // Its own drop is code of whoever panicked.
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(again);
    }
    true
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Waker>,
    runs: bool,
    closed: bool,
}

/// The wakers of one session that are to be called.
#[derive(Debug, Default)]
pub(crate) struct Wakers {
    state: Mutex<State>,
    changed: Condvar,
    /// Panics of the application's code that were caught.
    panics: AtomicU64,
}

impl Wakers {
    /// A future is about to wait: its waker will need the thread.
    pub(crate) fn start(self: &Arc<Self>) {
        let mut state = lock(&self.state);
        if state.runs || state.closed {
            return;
        }
        let me = Arc::clone(self);
        let spawned = std::thread::Builder::new().name("hmc-wakers".into()).spawn(move || me.run());
        state.runs = spawned.is_ok();
        if let Err(e) = spawned {
            drop(state);
            tracing::warn!(error = %e, "no thread for wakers: they run on the session's until the next try");
        }
    }

    /// Calls a waker. The session's thread does not wait for it.
    pub(crate) fn wake(&self, waker: Waker) {
        let mut state = lock(&self.state);
        let runs = state.runs;
        #[cfg(hmc_mutants)]
        let runs = runs && !mutant::is(Mutant::WakersOnThread) && !mutant::is(Mutant::JoinItself);
        if !runs {
            drop(state);
            self.call(waker);
            return;
        }
        state.queue.push_back(waker);
        drop(state);
        self.changed.notify_one();
    }

    fn call(&self, waker: Waker) {
        #[cfg(hmc_mutants)]
        if mutant::is(Mutant::WakerPanicEscapes) {
            return waker.wake();
        }
        if panics(|| waker.wake()) {
            self.note_panic();
        }
    }

    /// A panic of the application's code was caught.
    pub(crate) fn note_panic(&self) {
        self.panics.fetch_add(1, Ordering::Relaxed);
    }

    /// How many panics were caught.
    pub(crate) fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    /// The session is over. The thread calls what is left and ends by itself: it may be the one that ends the session.
    pub(crate) fn close(&self) {
        lock(&self.state).closed = true;
        self.changed.notify_one();
    }

    fn run(&self) {
        let mut state = lock(&self.state);
        loop {
            if let Some(waker) = state.queue.pop_front() {
                drop(state);
                self.call(waker);
                state = lock(&self.state);
            } else if state.closed {
                state.runs = false;
                return;
            } else {
                state = self.changed.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
            }
        }
    }
}
