//! Models of what threads share in hmc-std besides its mutexes: the news of a session (`shared.rs`), the queue
//! of links to be run (`link/schedule.rs`), the life of a link (`link/mod.rs`), the lives of a session (`dial.rs`).
//!
//! hmc-std does not build under loom. Each model writes out the few lines it is about, with the same orders.

use super::{Cell, check, deadlocks};
use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

/// `News::wait` and `News::tell`, and one fact that is looked for.
struct News {
    life: AtomicU8,
    waiting: AtomicU32,
    news: Mutex<u32>,
    changed: Condvar,
    /// The control leaves the fences out.
    fenced: bool,
}

impl News {
    fn fence(&self) {
        if self.fenced {
            fence(Ordering::SeqCst);
        }
    }

    fn wait(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        self.fence();
        loop {
            let before = *self.news.lock().unwrap();
            if self.life.load(Ordering::Acquire) != 0 {
                break;
            }
            let seen = self.news.lock().unwrap();
            if *seen == before {
                drop(self.changed.wait(seen).unwrap());
            }
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    fn tell(&self) {
        self.fence();
        if self.waiting.load(Ordering::SeqCst) == 0 {
            return;
        }
        *self.news.lock().unwrap() += 1;
        self.changed.notify_all();
    }
}

fn news(fenced: bool) {
    let shared = Arc::new(News {
        life: AtomicU8::new(0),
        waiting: AtomicU32::new(0),
        news: Mutex::new(0),
        changed: Condvar::new(),
        fenced,
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
    check(|| news(true));
}

/// Control: without the fences the teller may miss the waiter, and the waiter the fact.
#[test]
fn control_news_without_the_fences() {
    assert!(deadlocks("shell::broken_news_without_the_fences"));
}

#[test]
#[ignore = "deadlocks: its control runs it, `RUSTFLAGS='--cfg loom' cargo test -p hmc-mem --release --test loom --no-default-features control`"]
fn broken_news_without_the_fences() {
    check(|| news(false));
}

/// `Link::enqueue`, `Driver` and the background thread's round: the link's work, whether it is queued, the queue,
/// and the bell (an eventfd) that is rung only for a thread that sleeps.
struct Queue {
    work: Mutex<u32>,
    queued: AtomicBool,
    queue: Mutex<Links>,
    bell: Mutex<bool>,
    rung: Condvar,
}

#[derive(Default)]
struct Links {
    waiting: u32,
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
}

impl Queue {
    fn enqueue(&self) {
        *self.work.lock().unwrap() += 1;
        if !self.queued.swap(true, Ordering::AcqRel) {
            let mut queue = self.queue.lock().unwrap();
            queue.waiting += 1;
            let parked = std::mem::take(&mut queue.parked);
            drop(queue);
            if parked {
                *self.bell.lock().unwrap() = true;
                self.rung.notify_all();
            }
        }
    }

    fn sleep(&self, slip: Slip) {
        let mut queue = self.queue.lock().unwrap();
        if queue.waiting > 0 {
            return;
        }
        if slip == Slip::ParksLate {
            drop(queue);
            queue = self.queue.lock().unwrap();
        }
        queue.parked = true;
        drop(queue);
        let mut bell = self.bell.lock().unwrap();
        while !*bell {
            bell = self.rung.wait(bell).unwrap();
        }
        *bell = false;
        drop(bell);
        self.queue.lock().unwrap().parked = false;
    }

    fn serve(&self, until: u32, slip: Slip) {
        let mut done = 0;
        while done < until {
            self.sleep(slip);
            let waiting = std::mem::take(&mut self.queue.lock().unwrap().waiting);
            for _ in 0..waiting {
                if slip != Slip::DequeuesLate {
                    self.queued.store(false, Ordering::Release);
                }
                done += std::mem::take(&mut *self.work.lock().unwrap());
                if slip == Slip::DequeuesLate {
                    self.queued.store(false, Ordering::Release);
                }
            }
        }
    }
}

fn queue(slip: Slip) {
    let shared = Arc::new(Queue {
        work: Mutex::new(0),
        queued: AtomicBool::new(false),
        queue: Mutex::new(Links::default()),
        bell: Mutex::new(false),
        rung: Condvar::new(),
    });
    let posts = [0, 1].map(|_| {
        let shared = Arc::clone(&shared);
        thread::spawn(move || shared.enqueue())
    });
    shared.serve(2, slip);
    posts.into_iter().for_each(|t| t.join().unwrap());
}

/// Queue: work that is posted while the link is being taken off the queue, or while the thread goes to sleep, is
/// done, now or in the next round.
#[test]
fn queued_work_is_done() {
    check(|| queue(Slip::Nothing));
}

/// Control: a link that is taken off the queue after its work was done loses what came in between.
#[test]
fn control_queue_dequeued_late() {
    assert!(deadlocks("shell::broken_queue_dequeued_late"));
}

#[test]
#[ignore = "deadlocks: its control runs it, `RUSTFLAGS='--cfg loom' cargo test -p hmc-mem --release --test loom --no-default-features control`"]
fn broken_queue_dequeued_late() {
    check(|| queue(Slip::DequeuesLate));
}

/// Control: a thread that looks at the queue before it says that it sleeps is not rung for what comes in between.
#[test]
fn control_queue_parked_late() {
    assert!(deadlocks("shell::broken_queue_parked_late"));
}

#[test]
#[ignore = "deadlocks: its control runs it, `RUSTFLAGS='--cfg loom' cargo test -p hmc-mem --release --test loom --no-default-features control`"]
fn broken_queue_parked_late() {
    check(|| queue(Slip::ParksLate));
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
