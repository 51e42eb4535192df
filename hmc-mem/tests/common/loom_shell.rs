//! Models of what threads share in hmc-std besides its mutexes: the news of a session (`news.rs`), the queue of
//! links to be run (`link/schedule.rs`, `driver.rs`, `node/service.rs`), the life of a link (`link/mod.rs`), the
//! lives of a session (`shared.rs`).
//!
//! hmc-std does not build under loom. Each model writes out the few lines it is about, with the same orders.

use super::{Cases, Cell, check, check_cases, deadlocks};
use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

/// What those who wait and tell do wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hush {
    Nothing,
    /// They leave the fences out.
    NoFences,
    /// The teller gives the lock back before it counts.
    CountsOutside,
}

/// `News::wait` and `News::tell`, and one fact that is looked for.
struct News {
    life: AtomicU8,
    number: AtomicU64,
    asleep: Mutex<()>,
    changed: Condvar,
    waiting: AtomicU32,
    hush: Hush,
}

impl News {
    fn fence(&self) {
        if self.hush != Hush::NoFences {
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

    fn tell(&self) {
        self.fence();
        if self.waiting.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut asleep = Some(self.asleep.lock().unwrap());
        if self.hush == Hush::CountsOutside {
            asleep = None;
        }
        self.number.fetch_add(1, Ordering::SeqCst);
        drop(asleep);
        self.changed.notify_all();
    }
}

fn news(hush: Hush) {
    let shared = Arc::new(News {
        life: AtomicU8::new(0),
        number: AtomicU64::new(0),
        asleep: Mutex::new(()),
        changed: Condvar::new(),
        waiting: AtomicU32::new(0),
        hush,
    });
    let teller = Arc::clone(&shared);
    let t = thread::spawn(move || {
        teller.life.fetch_max(1, Ordering::AcqRel);
        teller.tell();
    });
    shared.wait();
    t.join().unwrap();
}

/// News: who waits for a fact learns of it, although a teller that sees nobody waiting tells nobody.
#[test]
fn news_reach_who_waits() {
    check(|| news(Hush::Nothing));
}

/// Control: without the fences the teller may miss the waiter, and the waiter the fact.
#[test]
fn control_news_without_the_fences() {
    assert!(deadlocks("shell::broken_news_without_the_fences"));
}

#[test]
#[ignore = "deadlocks: its control runs it; see docs/TESTING.md, By hand"]
fn broken_news_without_the_fences() {
    check(|| news(Hush::NoFences));
}

/// Control: news that are counted outside the lock come between the last look at the number and the sleep.
#[test]
fn control_news_counted_outside() {
    assert!(deadlocks("shell::broken_news_counted_outside"));
}

#[test]
#[ignore = "deadlocks: its control runs it; see docs/TESTING.md, By hand"]
fn broken_news_counted_outside() {
    check(|| news(Hush::CountsOutside));
}

/// `Link::enqueue`, `Driver` and the background thread's round: each link's work and whether it is queued, the
/// queue and the flag that spares a look at it, and the bell (an eventfd) that is rung only for a thread that sleeps.
struct Queue {
    links: [Posted; 2],
    queue: Mutex<Links>,
    wanted: AtomicBool,
    bell: Mutex<bool>,
    rung: Condvar,
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

/// What the background thread does wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Slip {
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
                *self.bell.lock().unwrap() = true;
                self.rung.notify_all();
            }
        }
    }

    /// `Driver::wait`, and the silence after a bell. Whether it slept.
    fn wait(&self, slip: Slip) -> bool {
        let mut queue = self.queue.lock().unwrap();
        let sleeps = queue.links.is_empty();
        if slip == Slip::ParksLate {
            drop(queue);
            queue = self.queue.lock().unwrap();
        }
        queue.parked = sleeps;
        drop(queue);
        let mut bell = self.bell.lock().unwrap();
        while sleeps && !*bell {
            bell = self.rung.wait(bell).unwrap();
        }
        let rung = *bell;
        drop(bell);
        if sleeps {
            self.queue.lock().unwrap().parked = false;
        }
        if rung {
            *self.bell.lock().unwrap() = false;
        }
        sleeps
    }

    /// `Driver::take_queued`.
    fn take_queued(&self, slip: Slip) -> Vec<usize> {
        let mut out = Vec::new();
        if self.wanted.load(Ordering::Relaxed) {
            let mut queue = self.queue.lock().unwrap();
            if slip != Slip::ClearsLate {
                self.wanted.store(false, Ordering::Relaxed);
            }
            std::mem::swap(&mut queue.links, &mut out);
            drop(queue);
            if slip == Slip::ClearsLate {
                self.wanted.store(false, Ordering::Relaxed);
            }
        }
        out
    }

    fn serve(&self, until: u32, slip: Slip, cases: &Cases) {
        let mut done = 0;
        // The first round is for the sake of a socket, the others are for the links.
        let mut slept = true;
        while done < until {
            let taken = self.take_queued(slip);
            // Else the thread would go round and round beside a link that waits.
            assert!(slept || !taken.is_empty(), "a link waits and is not wanted");
            if taken.is_empty() {
                cases.seen("nothing wanted");
            }
            for link in taken {
                let posted = &self.links[link];
                if slip != Slip::DequeuesLate {
                    posted.queued.store(false, Ordering::Release);
                }
                done += std::mem::take(&mut *posted.work.lock().unwrap());
                if slip == Slip::DequeuesLate {
                    posted.queued.store(false, Ordering::Release);
                }
            }
            if done < until {
                slept = self.wait(slip);
                cases.seen(if slept { "slept" } else { "awake" });
            }
        }
    }
}

const QUEUE_CASES: &[&str] = &["nothing wanted", "slept", "awake"];

/// Two threads post work, each to the link of that number.
fn queue(to: [usize; 2], slip: Slip, cases: &Cases) {
    let shared = Arc::new(Queue {
        links: [0, 1].map(|_| Posted { work: Mutex::new(0), queued: AtomicBool::new(false) }),
        queue: Mutex::new(Links::default()),
        wanted: AtomicBool::new(false),
        bell: Mutex::new(false),
        rung: Condvar::new(),
    });
    let posts = to.map(|link| {
        let shared = Arc::clone(&shared);
        thread::spawn(move || shared.enqueue(link))
    });
    shared.serve(2, slip, cases);
    posts.into_iter().for_each(|t| t.join().unwrap());
}

/// Queue: work that is posted while the link is being taken off the queue, or while the thread goes to sleep, is
/// done, now or in the next round.
#[test]
fn queued_work_is_done() {
    check_cases(QUEUE_CASES, |cases| queue([0, 0], Slip::Nothing, cases));
}

/// Queue: a link that asks to be run while the thread takes others, or goes to sleep, is run, and the thread never
/// goes round for it in vain.
#[test]
fn queued_links_are_run() {
    check_cases(QUEUE_CASES, |cases| queue([0, 1], Slip::Nothing, cases));
}

/// Control: a link that is taken off the queue after its work was done loses what came in between.
#[test]
fn control_queue_dequeued_late() {
    assert!(deadlocks("shell::broken_queue_dequeued_late"));
}

#[test]
#[ignore = "deadlocks: its control runs it; see docs/TESTING.md, By hand"]
fn broken_queue_dequeued_late() {
    check_cases(QUEUE_CASES, |cases| queue([0, 0], Slip::DequeuesLate, cases));
}

/// Control: a thread that looks at the queue before it says that it sleeps is not rung for what comes in between.
#[test]
fn control_queue_parked_late() {
    assert!(deadlocks("shell::broken_queue_parked_late"));
}

#[test]
#[ignore = "deadlocks: its control runs it; see docs/TESTING.md, By hand"]
fn broken_queue_parked_late() {
    check_cases(QUEUE_CASES, |cases| queue([0, 0], Slip::ParksLate, cases));
}

/// Control: a thread that clears the flag when it has the links and gave the lock back clears it for a link that came
/// in between.
#[test]
#[should_panic(expected = "a link waits and is not wanted")]
fn control_queue_cleared_late() {
    check_cases(QUEUE_CASES, |cases| queue([0, 1], Slip::ClearsLate, cases));
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
fn lives_are_never_shared() {
    check(|| {
        let last = Arc::new(AtomicU64::new(5));
        let next = |last: &AtomicU64, wall: u64| {
            let mut seen = last.load(Ordering::Acquire);
            loop {
                let next = wall.max(seen + 1);
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
