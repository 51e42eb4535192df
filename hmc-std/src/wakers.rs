//! Calls code of the application, wakers and the drops of owners of memory, where it can neither stop nor delay the session's
//! only thread.
//!
//! It runs on a thread of its own, which is started when the first future waits or the first owner goes, and ends with the
//! session; for owners that go later (`keeper`) it is started again. A panic is caught and counted. Where there is no such
//! thread (sessions that are driven from outside; the system has none to give; wakers of a session that has ended) it runs
//! where it comes up, without locks.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::task::Waker;
use std::thread::ThreadId;

#[cfg(hmc_mutants)]
use hmc_core::mutant::{self, Mutant};
use hmc_core::time::Duration;

use crate::clock;
use crate::error::Result;
use crate::eventfd::EventfdWaker;
use crate::lock::lock;
use crate::memory::stable::Foreign;
use crate::process::forked;
use crate::until::{Stop, Until};

/// How long the end of a session waits at the least for owners of memory that it let go of: its own deadline may have passed
/// over its peers.
const OWNERS_WITHIN: Duration = Duration::from_millis(100);

/// Who is to be told that an operation has ended.
#[derive(Debug)]
pub(crate) enum Notice {
    /// A waiting call of this crate, woken by the thread that learns of the end.
    Own(Arc<EventfdWaker>),
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

/// What the thread has to do.
enum Task {
    Wake(Waker),
    Drop(Foreign),
}

#[derive(Default)]
struct State {
    queue: VecDeque<Task>,
    /// Owners of memory in the queue, and the one that is being dropped.
    owners: usize,
    thread: Option<ThreadId>,
    runs: bool,
    closed: bool,
    /// No thread is ever started.
    stays: bool,
}

/// The wakers of one session that are to be called, and the owners that are to be dropped.
#[derive(Default)]
pub(crate) struct Wakers {
    state: Mutex<State>,
    changed: Condvar,
    /// The last of the owners has gone.
    gone: Condvar,
    /// Panics of the application's code that were caught.
    panics: AtomicU64,
}

impl std::fmt::Debug for Wakers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wakers").field("panics", &self.panics).finish_non_exhaustive()
    }
}

impl Wakers {
    /// Of a session that is not there any more.
    pub(crate) fn closed() -> Arc<Self> {
        let wakers = Self::default();
        wakers.close();
        Arc::new(wakers)
    }

    /// A future is about to wait: its waker will need the thread.
    pub(crate) fn start(self: &Arc<Self>) {
        let state = lock(&self.state);
        if !state.closed {
            drop(self.started(state));
        }
    }

    /// Starts the thread if it does not run.
    fn started<'a>(self: &'a Arc<Self>, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        if state.runs || state.stays {
            return state;
        }
        let me = Arc::clone(self);
        let spawned = std::thread::Builder::new().name("hmc-wakers".into()).spawn(move || me.run());
        state.runs = spawned.is_ok();
        let Err(e) = spawned else { return state };
        drop(state);
        tracing::warn!(
            error = %e,
            "no thread for wakers and owners of memory: they run on the session's until the next try"
        );
        lock(&self.state)
    }

    /// Nobody uses the memory of these owners any more: they are dropped. The session's thread does not wait for that. The
    /// caller holds no lock.
    pub(crate) fn let_go(self: &Arc<Self>, owners: Vec<Foreign>) {
        let mut state = self.started(lock(&self.state));
        if !state.runs {
            drop(state);
            owners.into_iter().for_each(|owner| self.call(Task::Drop(owner)));
            return;
        }
        state.owners = state.owners.saturating_add(owners.len());
        state.queue.extend(owners.into_iter().map(Task::Drop));
        drop(state);
        self.changed.notify_one();
    }

    /// Calls a waker. The session's thread does not wait for it.
    pub(crate) fn wake(&self, waker: Waker) {
        let mut state = lock(&self.state);
        let runs = state.runs;
        #[cfg(hmc_mutants)]
        let runs = runs && !mutant::is(Mutant::WakersOnThread) && !mutant::is(Mutant::JoinItself);
        if !runs {
            drop(state);
            self.call(Task::Wake(waker));
            return;
        }
        state.queue.push_back(Task::Wake(waker));
        drop(state);
        self.changed.notify_one();
    }

    fn call(&self, task: Task) {
        let code = || match task {
            Task::Wake(waker) => waker.wake(),
            Task::Drop(owner) => drop(owner),
        };
        #[cfg(hmc_mutants)]
        if mutant::is(Mutant::WakerPanicEscapes) {
            return code();
        }
        if panics(code) {
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

    /// Everything runs where it comes up, for good.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn stay(&self) {
        let mut state = lock(&self.state);
        (state.stays, state.closed) = (true, true);
    }

    /// Waits until the owners that were let go of are gone, or `until` has come: one of them may block. Who `left` without its
    /// peers' consent waits no longer than it must.
    ///
    /// # Errors
    /// `Forked`: by the hook, and this is the child. Otherwise as `left`.
    pub(crate) fn wait_for_owners(&self, until: Until, left: Result<()>) -> Result<()> {
        let least = clock::now().after(OWNERS_WITHIN);
        let until = if left.is_ok() { until } else { Until::time(least) };
        let mut vigil = until.moved_to(until.at.max(least)).vigil();
        loop {
            let state = lock(&self.state);
            // It is no use to wait for oneself.
            if state.owners == 0 || state.thread == Some(std::thread::current().id()) {
                return left;
            }
            let nap = clock::left(vigil.nap_until()).as_nanos();
            let nap = std::time::Duration::from_nanos(nap);
            drop(self.gone.wait_timeout_while(state, nap, |state| state.owners != 0));
            match vigil.check() {
                Ok(()) => {}
                Err(Stop::Forked) => return Err(forked()),
                Err(_) => {
                    tracing::warn!("owners of memory are not done with their drop: it goes on");
                    return left;
                }
            }
        }
    }

    fn run(&self) {
        let mut state = lock(&self.state);
        state.thread = Some(std::thread::current().id());
        loop {
            if let Some(task) = state.queue.pop_front() {
                let is_owner = matches!(task, Task::Drop(_));
                drop(state);
                self.call(task);
                state = lock(&self.state);
                if is_owner {
                    state.owners = state.owners.saturating_sub(1);
                    if state.owners == 0 {
                        self.gone.notify_all();
                    }
                }
            } else if state.closed {
                state.runs = false;
                state.thread = None;
                return;
            } else {
                state = self.changed.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
            }
        }
    }
}
