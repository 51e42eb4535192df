//! Models of what threads share in hmc-std besides its mutexes: the event count of a session, the queue of
//! links to be run (`link/schedule.rs`, `io/reactor.rs`, `progress/service.rs`), the state of a link (`link/mod.rs`), the
//! incarnations of a session (`state/inner.rs`).
//!
//! hmc-std does not build under loom. Each model writes out the few lines it is about, with the same orders.

use super::{Cases, Cell, check, check_cases, deadlocks};
use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

/// A planted bug of the event count.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CountBug {
    Nothing,
    /// They leave the fences out.
    NoFences,
    /// `notify` releases the lock before it counts.
    CountsOutside,
}

/// hmc-std's event count, and one fact that is waited for.
struct EventCount {
    life: AtomicU8,
    number: AtomicU64,
    asleep: Mutex<()>,
    changed: Condvar,
    waiting: AtomicU32,
    bug: CountBug,
}

impl EventCount {
    fn fence(&self) {
        if self.bug != CountBug::NoFences {
            fence(Ordering::SeqCst);
        }
    }

    fn wait(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        self.fence();
        loop {
            let before = self.number.load(Ordering::SeqCst);
            if self.life.load(Ordering::Acquire) != 0 {
                break;
            }
            let asleep = self.asleep.lock().unwrap();
            if self.number.load(Ordering::SeqCst) == before {
                drop(self.changed.wait(asleep).unwrap());
            }
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    fn notify(&self) {
        self.fence();
        if self.waiting.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut asleep = Some(self.asleep.lock().unwrap());
        if self.bug == CountBug::CountsOutside {
            asleep = None;
        }
        self.number.fetch_add(1, Ordering::SeqCst);
        drop(asleep);
        self.changed.notify_all();
    }
}

fn event_count(bug: CountBug) {
    let shared = Arc::new(EventCount {
        life: AtomicU8::new(0),
        number: AtomicU64::new(0),
        asleep: Mutex::new(()),
        changed: Condvar::new(),
        waiting: AtomicU32::new(0),
        bug,
    });
    let notifier = Arc::clone(&shared);
    let t = thread::spawn(move || {
        notifier.life.fetch_max(1, Ordering::AcqRel);
        notifier.notify();
    });
    shared.wait();
    t.join().unwrap();
}

/// Event count: a thread that waits for a fact sees it, although `notify` does nothing if it sees no waiter.
#[test]
fn event_count_wakes_the_waiter() {
    check(|| event_count(CountBug::Nothing));
}

/// Control: without the fences `notify` may miss the waiter, and the waiter the fact.
#[test]
fn control_event_count_without_the_fences() {
    assert!(deadlocks("session::broken_event_count_without_the_fences"));
}

#[test]
#[ignore = "deadlocks: its control runs it; see docs/TESTING.md, By hand"]
fn broken_event_count_without_the_fences() {
    check(|| event_count(CountBug::NoFences));
}

/// Control: an event that is counted outside the lock comes between the last check of the number and the park.
#[test]
fn control_event_count_counted_outside() {
    assert!(deadlocks("session::broken_event_count_counted_outside"));
}

#[test]
#[ignore = "deadlocks: its control runs it; see docs/TESTING.md, By hand"]
fn broken_event_count_counted_outside() {
    check(|| event_count(CountBug::CountsOutside));
}

/// `Link::schedule`, `Driver` and the background thread's round: each link's work and whether it is queued, the
/// queue and the flag that spares a look at it, and the eventfd that is written only for a thread that is parked.
struct Queue {
    links: [Posted; 2],
    queue: Mutex<Links>,
    wanted: AtomicBool,
    eventfd: Mutex<bool>,
    written: Condvar,
}

struct Posted {
    work: Mutex<u32>,
    queued: AtomicBool,
}

#[derive(Default)]
struct Links {
    links: Vec<usize>,
    parked: bool,
}

/// A planted bug of the background thread.
#[derive(Clone, Copy, PartialEq, Eq)]
enum QueueBug {
    Nothing,
    /// It takes the link off the queue after its work was done.
    DequeuesLate,
    /// It says that it sleeps after it looked at the queue.
    ParksLate,
    /// It says that no link is wanted after it took the links, without the lock.
    ClearsLate,
}

impl Queue {
    fn enqueue(&self, link: usize) {
        let posted = &self.links[link];
        *posted.work.lock().unwrap() += 1;
        if !posted.queued.swap(true, Ordering::AcqRel) {
            let mut queue = self.queue.lock().unwrap();
            queue.links.push(link);
            self.wanted.store(true, Ordering::Relaxed);
            let parked = std::mem::take(&mut queue.parked);
            drop(queue);
            if parked {
                *self.eventfd.lock().unwrap() = true;
                self.written.notify_all();
            }
        }
    }

    /// `Driver::wait`, and the read of the eventfd after it. Returns whether it slept.
    fn wait(&self, bug: QueueBug) -> bool {
        let mut queue = self.queue.lock().unwrap();
        let sleeps = queue.links.is_empty();
        if bug == QueueBug::ParksLate {
            drop(queue);
            queue = self.queue.lock().unwrap();
        }
        queue.parked = sleeps;
        drop(queue);
        let mut eventfd = self.eventfd.lock().unwrap();
        while sleeps && !*eventfd {
            eventfd = self.written.wait(eventfd).unwrap();
        }
        let is_written = *eventfd;
        drop(eventfd);
        if sleeps {
            self.queue.lock().unwrap().parked = false;
        }
        if is_written {
            *self.eventfd.lock().unwrap() = false;
        }
        sleeps
    }

    /// `Driver::take_queued`.
    fn take_queued(&self, bug: QueueBug) -> Vec<usize> {
        let mut out = Vec::new();
        if self.wanted.load(Ordering::Relaxed) {
            let mut queue = self.queue.lock().unwrap();
            if bug != QueueBug::ClearsLate {
                self.wanted.store(false, Ordering::Relaxed);
            }
            std::mem::swap(&mut queue.links, &mut out);
            drop(queue);
            if bug == QueueBug::ClearsLate {
                self.wanted.store(false, Ordering::Relaxed);
            }
        }
        out
    }

    fn serve(&self, until: u32, bug: QueueBug, cases: &Cases) {
        let mut done = 0;
        // The first round is for the sake of a socket, the others are for the links.
        let mut slept = true;
        while done < until {
            let taken = self.take_queued(bug);
            // Else the thread would go round and round beside a link that waits.
            assert!(slept || !taken.is_empty(), "a link waits and is not wanted");
            if taken.is_empty() {
                cases.seen("nothing wanted");
            }
            for link in taken {
                let posted = &self.links[link];
                if bug != QueueBug::DequeuesLate {
                    posted.queued.store(false, Ordering::Release);
                }
                done += std::mem::take(&mut *posted.work.lock().unwrap());
                if bug == QueueBug::DequeuesLate {
                    posted.queued.store(false, Ordering::Release);
                }
            }
            if done < until {
                slept = self.wait(bug);
                cases.seen(if slept { "slept" } else { "awake" });
            }
        }
    }
}

const QUEUE_CASES: &[&str] = &["nothing wanted", "slept", "awake"];

/// Two threads post work, each to the link of that number.
fn queue(to: [usize; 2], bug: QueueBug, cases: &Cases) {
    let shared = Arc::new(Queue {
        links: [0, 1].map(|_| Posted { work: Mutex::new(0), queued: AtomicBool::new(false) }),
        queue: Mutex::new(Links::default()),
        wanted: AtomicBool::new(false),
        eventfd: Mutex::new(false),
        written: Condvar::new(),
    });
    let posts = to.map(|link| {
        let shared = Arc::clone(&shared);
        thread::spawn(move || shared.enqueue(link))
    });
    shared.serve(2, bug, cases);
    posts.into_iter().for_each(|t| t.join().unwrap());
}

/// Queue: work that is posted while the link is being taken off the queue, or while the thread goes to sleep, is
/// done, now or in the next round.
#[test]
fn queued_work_is_done() {
    check_cases(QUEUE_CASES, |cases| queue([0, 0], QueueBug::Nothing, cases));
}

/// Queue: a link that asks to be run while the thread takes others, or goes to sleep, is run, and the thread never
/// goes round for it in vain.
#[test]
fn queued_links_are_run() {
    check_cases(QUEUE_CASES, |cases| queue([0, 1], QueueBug::Nothing, cases));
}

/// Control: a link that is taken off the queue after its work was done loses what came in between.
#[test]
fn control_queue_dequeued_late() {
    assert!(deadlocks("session::broken_queue_dequeued_late"));
}

#[test]
#[ignore = "deadlocks: its control runs it; see docs/TESTING.md, By hand"]
fn broken_queue_dequeued_late() {
    check_cases(QUEUE_CASES, |cases| queue([0, 0], QueueBug::DequeuesLate, cases));
}

/// Control: a thread that looks at the queue before it says that it sleeps is not woken for what comes in between.
#[test]
fn control_queue_parked_late() {
    assert!(deadlocks("session::broken_queue_parked_late"));
}

#[test]
#[ignore = "deadlocks: its control runs it; see docs/TESTING.md, By hand"]
fn broken_queue_parked_late() {
    check_cases(QUEUE_CASES, |cases| queue([0, 0], QueueBug::ParksLate, cases));
}

/// Control: a thread that clears the flag when it has the links and gave the lock back clears it for a link that came
/// in between.
#[test]
#[should_panic(expected = "a link waits and is not wanted")]
fn control_queue_cleared_late() {
    check_cases(QUEUE_CASES, |cases| queue([0, 1], QueueBug::ClearsLate, cases));
}

/// `Link::advance`: of those who end a link one does, nobody revives it, and whoever sees it ready sees what
/// was set up before.
fn life(order: Ordering) {
    let shared = Arc::new((AtomicU8::new(0), Cell::new(), AtomicU32::new(0)));
    let opener = Arc::clone(&shared);
    let a = thread::spawn(move || {
        opener.1.set(7);
        opener.0.fetch_max(1, order);
    });
    let ender = |shared: Arc<(AtomicU8, Cell, AtomicU32)>| {
        if shared.0.fetch_max(3, Ordering::AcqRel) < 3 {
            shared.2.fetch_add(1, Ordering::Relaxed);
        }
    };
    let other = Arc::clone(&shared);
    let b = thread::spawn(move || ender(other));
    if shared.0.load(Ordering::Acquire) == 1 {
        assert_eq!(shared.1.get(), 7);
    }
    ender(Arc::clone(&shared));
    a.join().unwrap();
    b.join().unwrap();
    assert_eq!((shared.0.load(Ordering::Acquire), shared.2.load(Ordering::Relaxed)), (3, 1));
}

#[test]
fn a_link_ends_once() {
    check(|| life(Ordering::AcqRel));
}

/// Control: a link that is made ready by a relaxed step.
#[test]
#[should_panic]
fn control_life_relaxed() {
    check(|| life(Ordering::Relaxed));
}

/// `Shared::next_life`: two dials at once begin two lives, and an answer never speaks of one before them.
#[test]
fn incarnations_are_never_shared() {
    check(|| {
        let last = Arc::new(AtomicU64::new(5));
        let next = |last: &AtomicU64, clock: u64| {
            let mut seen = last.load(Ordering::Acquire);
            loop {
                let next = clock.max(seen + 1);
                match last.compare_exchange_weak(seen, next, Ordering::AcqRel, Ordering::Acquire) {
                    Ok(_) => return next,
                    Err(newer) => seen = newer,
                }
            }
        };
        let other = Arc::clone(&last);
        let t = thread::spawn(move || next(&other, 9));
        // The clock was set back.
        let mine = next(&last, 3);
        assert!(last.load(Ordering::Acquire) >= mine);
        let theirs = t.join().unwrap();
        assert!(mine != theirs && mine > 5 && theirs >= 9);
    });
}
