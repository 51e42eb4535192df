//! Memory that a peer may still access after its link closed: the process owns it until its fence.
//!
//! All sessions of a process share this state. A thread runs only while memory is kept. It waits for the peers'
//! processes and streams (poll(2)), and releases memory whose fence has passed. Owners of that memory are code of
//! the application; the thread that calls a session's wakers drops them. Neither the end of a session nor the exit
//! of the process waits for the quarantine. It belongs to the process that made it: a forked child has none of it,
//! and frees nothing. A vendor library may report the fence, and its state ends at exit(3): from then on the thread
//! does nothing.

mod entry;
mod park;

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::SystemTime;

use hmc_core::types::Rank;
use hmc_mem::os::exit::at_exit;
use hmc_mem::os::fork::ForkGuard;
use rustix::event::{EventfdFlags, eventfd};

use crate::callbacks::deferred_drops::DeferDrops;
use crate::callbacks::wakers::panics;
use entry::Entry;
pub(crate) use entry::Unfenced;
use park::sleep;

/// How long the end of the process waits for the thread. It is longer at it only in code of others: a waker, a vendor's library.
const REST_WITHIN: std::time::Duration = std::time::Duration::from_secs(1);

/// One piece of memory that is not given back yet, since a peer may still read or write it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Held {
    /// Size of the memory that stays, in bytes.
    pub bytes: u64,
    /// The peer.
    pub peer: Rank,
    /// What the peer may still do.
    pub reason: &'static str,
    /// When the link, or the window, ended.
    pub since: SystemTime,
}

/// How much of one session's is held.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) links: AtomicUsize,
    pub(crate) window_bytes: AtomicU64,
}

#[derive(Default)]
struct State {
    entries: Vec<Arc<Entry>>,
    /// Wakes the thread, while there is one.
    waker: Option<Arc<OwnedFd>>,
    runs: bool,
}

struct Quarantine {
    /// `None` when the system refused: then no fork is noticed here.
    process: Option<ForkGuard>,
    state: Mutex<State>,
    /// Held while the thread looks at a fence and lets go, owners of memory apart; for ever, once the process ends.
    at_work: Mutex<()>,
    ends: AtomicBool,
}

/// The keeper of this process, or of the parent that it was forked from.
static QUARANTINE: AtomicPtr<Quarantine> = AtomicPtr::new(std::ptr::null_mut());

impl Quarantine {
    /// This process's.
    fn get() -> &'static Self {
        loop {
            let current = QUARANTINE.load(Ordering::Acquire);
            if let Some(keeper) = Self::of_this_process(current) {
                return keeper;
            }
            // What the parent holds is the parent's: it stays as it is, and its lock may be held by a thread that is not here.
            let new = Box::leak(Box::new(Self {
                process: ForkGuard::new().ok(),
                state: Mutex::default(),
                at_work: Mutex::default(),
                ends: AtomicBool::new(false),
            }));
            // If another thread was faster, its keeper is found in the next round.
            let set =
                QUARANTINE.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire);
            if set.is_ok() && !at_exit(rest) {
                tracing::warn!(
                    "no space to note what is done at exit: memory that is held then may end the process by a signal"
                );
            }
        }
    }

    fn of_this_process(current: *mut Self) -> Option<&'static Self> {
        // SAFETY: null, or from `Box::leak` in `get`: valid for ever, and only shared references to it are made.
        let keeper = unsafe { current.as_ref() }?;
        let is_child = keeper.process.as_ref().is_some_and(ForkGuard::is_child);
        (!is_child).then_some(keeper)
    }

    /// Lets the thread finish what it is at, and then do nothing more.
    fn rest(&self) {
        if self.ends.swap(true, Ordering::AcqRel) {
            return;
        }
        let start = std::time::Instant::now();
        while start.elapsed() < REST_WITHIN {
            match self.at_work.try_lock() {
                Err(TryLockError::WouldBlock) => std::thread::yield_now(),
                mine => return std::mem::forget(mine),
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sees to it that the thread runs and knows of all that is held.
    fn wake(&'static self) {
        let mut state = self.state();
        if let Some(waker) = &state.waker {
            let _ = rustix::io::write(waker, &1u64.to_ne_bytes());
        }
        if state.runs {
            return;
        }
        // Without a descriptor it looks periodically.
        state.waker = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok().map(Arc::new);
        let spawned = std::thread::Builder::new().name("hmc-keeper".into()).spawn(|| self.run());
        state.runs = spawned.is_ok();
        if let Err(e) = spawned {
            state.waker = None;
            tracing::error!(error = %e, "no thread for memory that peers may still use: it stays until the next try");
        }
    }

    fn run(&self) {
        loop {
            let (entries, waker) = {
                let mut state = self.state();
                if state.entries.is_empty() {
                    state.runs = false;
                    state.waker = None;
                    return;
                }
                (state.entries.clone(), state.waker.clone())
            };
            // Before the fences are asked for: what ends between the two looks is found by the second.
            let ticks = waker.is_none() || entries.iter().any(|e| e.needs_ticks());
            let held = self.let_go_of_fenced(entries);
            if !held.is_empty() {
                sleep(&held, waker.as_deref(), ticks);
            }
        }
    }

    /// Lets go of what nobody uses any more. Returns the others.
    fn let_go_of_fenced(&self, entries: Vec<Arc<Entry>>) -> Vec<Arc<Entry>> {
        entries.into_iter().filter_map(|entry| self.unless_fenced(entry)).collect()
    }

    fn unless_fenced(&self, entry: Arc<Entry>) -> Option<Arc<Entry>> {
        let wakers = Arc::clone(entry.what.wakers());
        // Before the lock, and so handed over after it: an owner that blocks holds up neither other memory nor the end of
        // the process.
        let _aside = DeferDrops::to(&wakers);
        let at_work = self.at_work.lock().unwrap_or_else(PoisonError::into_inner);
        if !entry.what.is_fenced() {
            // A subscriber is code of the application.
            drop(at_work);
            let _ = panics(|| entry.note_held());
            return Some(entry);
        }
        // Those who wait for it may run code of theirs.
        let mut panicked = panics(|| entry.what.release());
        self.state().entries.retain(|e| !Arc::ptr_eq(e, &entry));
        panicked |= panics(|| drop(entry));
        if panicked {
            tracing::error!("code that was called when memory came back panicked");
        }
        None
    }
}

/// The process ends.
extern "C" fn rest() {
    if let Some(keeper) = Quarantine::of_this_process(QUARANTINE.load(Ordering::Acquire)) {
        keeper.rest();
    }
}

/// Hands memory over to the process, until its fence.
pub(crate) fn keep(what: Arc<dyn Unfenced>) {
    let keeper = Quarantine::get();
    keeper.state().entries.push(Arc::new(Entry::new(what)));
    keeper.wake();
}

/// Memory of this process that is not given back yet because a peer may still read or write it, of all sessions, those that
/// have ended included. Each piece goes as soon as its peer says that it is done, or its process ends.
#[must_use]
pub fn held() -> Vec<Held> {
    let entries = Quarantine::get().state().entries.clone();
    let mut all = Vec::new();
    for e in entries {
        let (peer, since) = (e.what.peer(), e.since);
        e.what.pieces(&mut |bytes, reason| all.push(Held { bytes, peer, reason, since }));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::{Unfenced, keep};
    use crate::callbacks::wakers::Wakers;
    use crate::memory::{HeapBytes, Region, RegionTable, StableBytes};
    use crate::transport::stream::PeerLife;
    use hmc_core::types::Rank;
    use hmc_mem::os::exit::at_exit;
    use std::process::Command;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::sync::{Arc, Mutex};
    use std::time::{Duration, Instant};

    /// How often a fence was asked for; in the process that ends.
    static LOOKS: AtomicU32 = AtomicU32::new(0);

    struct Never(Arc<Wakers>);

    impl Unfenced for Never {
        fn peer(&self) -> Rank {
            Rank(1)
        }
        fn life(&self) -> PeerLife {
            PeerLife::default()
        }
        fn may_end_before(&self) -> bool {
            true
        }
        fn is_fenced(&self) -> bool {
            LOOKS.fetch_add(1, Ordering::SeqCst);
            false
        }
        fn release(&self) {}
        fn wakers(&self) -> &Arc<Wakers> {
            &self.0
        }
        fn pieces(&self, _: &mut dyn FnMut(u64, &'static str)) {}
    }

    /// Where libraries would be taken down: for ten of its ticks.
    extern "C" fn look_for_a_while() {
        let (before, start) = (LOOKS.load(Ordering::SeqCst), Instant::now());
        while start.elapsed() < Duration::from_secs(1) {
            if LOOKS.load(Ordering::SeqCst) != before {
                std::process::abort();
            }
            std::thread::yield_now();
        }
    }

    #[test]
    #[ignore = "ends: `nothing_is_looked_at_once_the_process_ends` runs it as a process"]
    fn a_process_that_ends() {
        // Registered before the keeper's, it runs after it.
        assert!(at_exit(look_for_a_while));
        keep(Arc::new(Never(Wakers::closed())));
        while LOOKS.load(Ordering::SeqCst) < 2 {
            std::thread::yield_now();
        }
    }

    #[test]
    fn nothing_is_looked_at_once_the_process_ends() {
        let program = std::env::current_exe().expect("this program");
        let test = ["--exact", "quarantine::tests::a_process_that_ends", "--ignored"];
        let out = Command::new(program).args(test).output().expect("it runs");
        let said = String::from_utf8_lossy(&out.stdout);
        assert!(said.contains("1 passed"), "{said}");
        assert!(out.status.success(), "it went on: {}", out.status);
    }

    /// Held for so many looks, or without a number until the warning and two more.
    struct Looked {
        looks: Option<AtomicU32>,
        is_warned: AtomicBool,
        later: AtomicU32,
        said: Sender<&'static str>,
        wakers: Arc<Wakers>,
    }

    impl Unfenced for Looked {
        fn peer(&self) -> Rank {
            Rank(1)
        }
        fn life(&self) -> PeerLife {
            PeerLife::default()
        }
        fn may_end_before(&self) -> bool {
            self.looks.is_none()
        }
        fn is_fenced(&self) -> bool {
            let looks = match &self.looks {
                Some(looks) => looks,
                None if self.is_warned.load(Ordering::SeqCst) => &self.later,
                None => return false,
            };
            looks.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_err()
        }
        fn release(&self) {
            let _ = self.said.send("free");
        }
        fn warn(&self) {
            self.is_warned.store(true, Ordering::SeqCst);
            let _ = self.said.send("late");
        }
        fn wakers(&self) -> &Arc<Wakers> {
            &self.wakers
        }
        fn pieces(&self, _: &mut dyn FnMut(u64, &'static str)) {}
    }

    #[test]
    fn only_memory_that_is_held_for_longer_than_a_tick_is_warned_of_and_once() {
        let limit = Duration::from_secs(20);
        let (short, long) = (vec!["free"], vec!["late", "free"]);
        for (looks, words) in [(Some(0), short.clone()), (Some(1), short), (None, long)] {
            let (said, hears) = channel();
            let wakers = Wakers::closed();
            let (looks_left, is_warned) = (looks.map(AtomicU32::new), AtomicBool::new(false));
            let later = AtomicU32::new(2);
            keep(Arc::new(Looked { looks: looks_left, is_warned, later, said, wakers }));
            let mut heard = Vec::new();
            while let Ok(word) = hears.recv_timeout(limit) {
                heard.push(word);
            }
            assert_eq!(heard, words, "{looks:?} looks");
        }
    }

    /// Memory of one session, whose fence has passed.
    struct Passed {
        memory: Mutex<Option<Region>>,
        wakers: Arc<Wakers>,
    }

    impl Unfenced for Passed {
        fn peer(&self) -> Rank {
            Rank(1)
        }
        fn life(&self) -> PeerLife {
            PeerLife::default()
        }
        fn may_end_before(&self) -> bool {
            true
        }
        fn is_fenced(&self) -> bool {
            true
        }
        fn release(&self) {
            drop(self.memory.lock().map(|mut memory| memory.take()));
        }
        fn wakers(&self) -> &Arc<Wakers> {
            &self.wakers
        }
        fn pieces(&self, _: &mut dyn FnMut(u64, &'static str)) {}
    }

    /// Says that it goes, and waits until it may.
    struct Owner(HeapBytes, Mutex<(Sender<()>, Receiver<()>)>);

    // SAFETY: the bytes are those of `HeapBytes`, which lives as long as this.
    unsafe impl StableBytes for Owner {
        fn as_bytes_ptr(&self) -> (*mut u8, usize) {
            self.0.as_bytes_ptr()
        }
    }

    impl Drop for Owner {
        fn drop(&mut self) {
            let _ = self.1.lock().map(|ends| (ends.0.send(()), ends.1.recv()));
        }
    }

    #[test]
    fn an_owner_that_blocks_holds_no_memory_of_others() {
        let limit = Duration::from_secs(20);
        let mut all = Vec::new();
        for _ in 0..2 {
            let ((tell, told), (may, wait)) = (channel(), channel());
            let owner = Owner(HeapBytes::from(vec![1; 64]), Mutex::new((tell, wait)));
            let region = Arc::new(RegionTable::default()).adopt(Box::new(owner)).expect("memory");
            let (memory, wakers) = (Mutex::new(Some(region)), Wakers::closed());
            keep(Arc::new(Passed { memory, wakers }));
            assert_eq!(told.recv_timeout(limit), Ok(()), "its memory goes");
            all.push((may, told));
        }
        for (may, told) in all {
            drop(may);
            assert!(told.recv_timeout(limit).is_err(), "it is gone");
        }
    }
}
