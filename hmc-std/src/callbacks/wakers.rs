//! Calls code of the application (wakers, and drops of owners of memory) where it can neither block nor end the
//! session's only thread.
//!
//! These calls run on their own thread. It starts with the first waiting future or the first dropped owner, and
//! ends with the session; for owners dropped later (by the quarantine) it starts again. A panic is caught and
//! counted. If there is no such thread (a driven session, no thread available, wakers of an ended session), the
//! calls run in place, without locks.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::thread::ThreadId;

use hmc_core::time::{Duration, Instant};

use crate::base::clock;
use crate::base::error::Result;
use crate::base::lock::lock;
use crate::base::polling;
use crate::base::process::forked;
use crate::base::wait_limit::{WaitLimit, WaitStopped};
use crate::io::eventfd::EventfdWaker;
use crate::io::events_fd::EventsFd;
use crate::memory::stable::Foreign;

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
    /// Wakers of futures whose time ends, by when, and by the number of the timer.
    timers: BTreeMap<(Instant, u64), Waker>,
    /// Timers that were made.
    timers_made: u64,
    /// Owners of memory in the queue, and the one that is being dropped.
    owners: usize,
    thread: Option<ThreadId>,
    runs: bool,
    closed: bool,
    /// No thread is ever started.
    stays: bool,
}

impl State {
    /// When the first timer is due; never without one.
    fn next_timer(&self) -> Instant {
        self.timers.first_key_value().map_or(Instant::NEVER, |((at, _), _)| *at)
    }

    /// The wakers whose time has come are to be called.
    fn queue_timers(&mut self, now: Instant) {
        while self.next_timer() <= now
            && let Some((_, waker)) = self.timers.pop_first()
        {
            self.queue.push_back(Task::Wake(waker));
        }
    }
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
    /// What event loops of the application sleep on.
    pub(crate) events: EventsFd,
}

impl std::fmt::Debug for Wakers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wakers").field("panics", &self.panics).finish_non_exhaustive()
    }
}

impl Wakers {
    /// Of a session that begins. If all `stays`, it runs where it comes up, and no thread is ever started.
    pub(crate) fn new(stays: bool) -> Arc<Self> {
        let state = Mutex::new(State { stays, ..State::default() });
        Arc::new(Self { state, ..Self::default() })
    }

    /// Of a session that is not there any more.
    pub(crate) fn closed() -> Arc<Self> {
        let wakers = Self::new(false);
        wakers.close();
        wakers
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
    pub(crate) fn drop_owners(self: &Arc<Self>, owners: Vec<Foreign>) {
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
        if !runs {
            drop(state);
            self.call(Task::Wake(waker));
            return;
        }
        state.queue.push_back(Task::Wake(waker));
        drop(state);
        self.changed.notify_one();
    }

    /// Tells who waits that an operation has ended.
    pub(crate) fn notify(&self, notice: Notice) {
        match notice {
            Notice::Own(waker) => waker.wake(),
            Notice::User(waker) => self.wake(waker),
        }
    }

    /// A number that no other timer has.
    pub(super) fn timer_number(&self) -> u64 {
        let mut state = lock(&self.state);
        state.timers_made = state.timers_made.saturating_add(1);
        state.timers_made
    }

    /// Has `waker` called at that time, in place of the one that the timer had.
    pub(super) fn set_timer(self: &Arc<Self>, key: (Instant, u64), waker: Waker) {
        let mut state = self.started(lock(&self.state));
        let is_first = key.0 < state.next_timer();
        let replaced = state.timers.insert(key, waker);
        drop(state);
        if is_first {
            self.changed.notify_one();
        }
        // Code of the application's: without the lock.
        drop(replaced);
    }

    pub(super) fn remove_timer(&self, key: (Instant, u64)) {
        let waker = lock(&self.state).timers.remove(&key);
        drop(waker);
    }

    fn call(&self, task: Task) {
        let code = || match task {
            Task::Wake(waker) => waker.wake(),
            Task::Drop(owner) => drop(owner),
        };
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

    /// Waits until the owners that were let go of are gone, or `until` has come: one of them may block. Who `left` without its
    /// peers' consent waits no longer than it must.
    ///
    /// # Errors
    /// `Forked`: by the hook, and this is the child. Otherwise as `left`.
    pub(crate) fn wait_for_owners(&self, until: WaitLimit, left: Result<()>) -> Result<()> {
        let least = clock::now().after(OWNERS_WITHIN);
        let until = if left.is_ok() { until } else { WaitLimit::time(least) };
        let mut timer = until.with_deadline(until.at.max(least)).timer();
        loop {
            let state = lock(&self.state);
            // It is no use to wait for oneself.
            if state.owners == 0 || state.thread == Some(std::thread::current().id()) {
                return left;
            }
            let pause = clock::left(timer.park_until()).as_nanos();
            let pause = std::time::Duration::from_nanos(pause);
            polling::waits();
            drop(self.gone.wait_timeout_while(state, pause, |state| state.owners != 0));
            match timer.check() {
                Ok(()) => {}
                Err(WaitStopped::Forked) => return Err(forked()),
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
            } else if state.closed && !state.timers.is_empty() {
                // Nobody calls them at their time any more: they are called now, and look.
                let all = std::mem::take(&mut state.timers);
                state.queue.extend(all.into_values().map(Task::Wake));
            } else if state.closed {
                state.runs = false;
                state.thread = None;
                return;
            } else {
                let next = state.next_timer();
                if next == Instant::NEVER {
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                    continue;
                }
                let left = std::time::Duration::from_nanos(clock::left(next).as_nanos());
                if !left.is_zero() {
                    let waited = self.changed.wait_timeout(state, left);
                    state = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
                state.queue_timers(clock::now());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::sync::{Arc, Mutex};
    use std::task::Wake;
    use std::thread::{ThreadId, current};
    use std::time::Duration as StdDuration;

    use super::{WaitLimit, Wakers, lock, panics};
    use crate::base::clock;
    use crate::base::error::{Error, ErrorKind};
    use crate::memory::{HeapBytes, StableBytes};
    use hmc_core::time::Duration;

    const LONG: StdDuration = StdDuration::from_secs(20);

    /// Says on which thread it is woken, and panics then if it is to.
    struct WakeReporter(Mutex<Sender<ThreadId>>, bool);

    impl Wake for WakeReporter {
        fn wake(self: Arc<Self>) {
            lock(&self.0).send(current().id()).expect("it is received");
            assert!(!self.1, "as it was told to");
        }
    }

    fn reporter(panics: bool) -> (std::task::Waker, Receiver<ThreadId>) {
        let (sender, reported) = channel();
        (Arc::new(WakeReporter(Mutex::new(sender), panics)).into(), reported)
    }

    /// Memory whose owner waits at its end until it may go.
    struct Owner(HeapBytes, Mutex<Receiver<()>>);

    // SAFETY: the bytes are those of `HeapBytes`, which lives as long as this.
    unsafe impl StableBytes for Owner {
        fn as_bytes_ptr(&self) -> (*mut u8, usize) {
            self.0.as_bytes_ptr()
        }
    }

    impl Drop for Owner {
        fn drop(&mut self) {
            let _ = lock(&self.1).recv();
        }
    }

    fn owner() -> (Box<dyn StableBytes>, Sender<()>) {
        let (may, wait) = channel();
        (Box::new(Owner(HeapBytes::from(vec![1; 8]), Mutex::new(wait))), may)
    }

    #[test]
    fn a_panic_of_the_applications_code_is_caught() {
        assert!(!panics(|| ()));
        assert!(panics(|| panic!("as it was told to")));
    }

    #[test]
    fn wakers_are_called_by_a_thread_of_their_own_once_a_future_waits() {
        let wakers = Arc::<Wakers>::default();
        let here = current().id();
        let called = |panics| {
            let (waker, reported) = reporter(panics);
            wakers.wake(waker);
            reported.recv_timeout(LONG).expect("it is called")
        };
        assert_eq!(called(false), here, "nobody has waited");
        wakers.start();
        let there = called(false);
        assert_ne!(there, here);
        wakers.start();
        assert_eq!(called(true), there, "one thread");
        assert_eq!(called(false), there, "which goes on after a panic");
        assert_eq!(wakers.panics(), 1);
        wakers.note_panic();
        assert_eq!(wakers.panics(), 2);
        let text = format!("{wakers:?}");
        assert!(text.contains("panics: 2"), "{text}");
        wakers.close();
        while lock(&wakers.state).runs {
            std::thread::yield_now();
        }
        assert_eq!(called(false), here, "the thread has ended");
        wakers.start();
        assert!(!lock(&wakers.state).runs, "and is not started again");
    }

    #[test]
    fn nothing_runs_elsewhere_if_all_is_to_stay() {
        let wakers = Wakers::new(true);
        wakers.start();
        let (owner, may) = owner();
        drop(may);
        wakers.drop_owners(vec![owner]);
        let state = lock(&wakers.state);
        assert!(!state.runs && state.owners == 0 && state.queue.is_empty());
    }

    #[test]
    fn the_end_of_a_session_waits_for_owners_that_it_released() {
        let wakers = Arc::<Wakers>::default();
        let soon = || WaitLimit::time(clock::now().after(Duration::from_millis(1)));
        assert!(wakers.wait_for_owners(soon(), Ok(())).is_ok(), "there are none");
        let ((first, may_first), (second, may_second)) = (owner(), owner());
        wakers.drop_owners(vec![first, second]);
        assert_eq!(lock(&wakers.state).owners, 2);
        let start = std::time::Instant::now();
        assert!(wakers.wait_for_owners(soon(), Ok(())).is_ok(), "they go on");
        assert!(start.elapsed() >= StdDuration::from_millis(95), "{:?}", start.elapsed());
        assert_eq!(lock(&wakers.state).owners, 2);
        // How the session left its peers is told all the same.
        let left = || Err(Error::new(ErrorKind::Interrupted, "for a test"));
        let long = || WaitLimit::time(clock::now().after(Duration::from_millis(20_000)));
        let start = std::time::Instant::now();
        let waited = wakers.wait_for_owners(long(), left());
        assert_eq!(waited.map_err(|e| e.kind()), Err(ErrorKind::Interrupted));
        assert!(start.elapsed() < LONG, "no longer than it must");
        drop(may_first);
        while lock(&wakers.state).owners == 2 {
            std::thread::yield_now();
        }
        assert_eq!(lock(&wakers.state).owners, 1);
        drop(may_second);
        let start = std::time::Instant::now();
        assert!(wakers.wait_for_owners(long(), Ok(())).is_ok());
        assert_eq!(lock(&wakers.state).owners, 0);
        assert!(start.elapsed() < LONG, "it is told of the last one");
        wakers.close();
    }

    /// Waits for owners from within one's end.
    struct Waits(HeapBytes, Arc<Wakers>);

    // SAFETY: the bytes are those of `HeapBytes`, which lives as long as this.
    unsafe impl StableBytes for Waits {
        fn as_bytes_ptr(&self) -> (*mut u8, usize) {
            self.0.as_bytes_ptr()
        }
    }

    impl Drop for Waits {
        fn drop(&mut self) {
            let long = WaitLimit::time(clock::now().after(Duration::from_millis(20_000)));
            assert!(self.1.wait_for_owners(long, Ok(())).is_ok());
        }
    }

    #[test]
    fn an_owner_does_not_wait_for_itself() {
        let wakers = Arc::<Wakers>::default();
        let bytes = HeapBytes::from(vec![1; 8]);
        wakers.drop_owners(vec![Box::new(Waits(bytes, Arc::clone(&wakers)))]);
        let start = std::time::Instant::now();
        while lock(&wakers.state).owners != 0 {
            std::thread::yield_now();
        }
        assert!(start.elapsed() < StdDuration::from_secs(10), "{:?}", start.elapsed());
        assert_eq!(wakers.panics(), 0);
        wakers.close();
    }
}
