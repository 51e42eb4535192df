//! Models of the flags beside the rendezvous state of a link (hmc-std's `link/relay/progress.rs`): a thread that brings work and finds
//! the state locked returns, since the holder of the lock checks again.
//!
//! hmc-std does not build under loom. The models write out its lines, with the same orders. loom takes a load or a store
//! that is `SeqCst` for an acquire or a release: what needs more than that is not believed here.

use super::{Cases, Cell, check_cases};
use loom::sync::atomic::{AtomicBool, Ordering, fence};
use loom::sync::{Arc, Mutex};
use loom::thread;

/// A planted bug.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bug {
    Nothing,
    /// They say that there is something to be done after they found the state locked.
    MarksLate,
    /// They do not check again after they unlocked the state.
    LooksOnce,
    /// They set the flag by a store.
    Stores,
    /// They look at the flag by a load.
    Loads,
    /// A thread that only reads the state does not check again.
    GlancesOnly,
    /// Who finds a note after it said that nothing is under way leaves it there.
    LeavesNote,
    /// Who begins a message and who ends the link leave the fences out.
    NoFences,
}

/// The flags, with as much of the state as they are about.
struct Rndv {
    received: Mutex<u32>,
    /// The lock of the state as std makes it of a word. loom's own is stronger: who finds this one taken has loaded the
    /// word, relaxed, and may have got an old value.
    taken: AtomicBool,
    /// The operations under way, a bit each, and the notes that were read.
    state: (Cell, Cell),
    dirty: AtomicBool,
    live: AtomicBool,
    /// What a poll looks for outside: the operations that ended, and whether the link is dead.
    ended: [AtomicBool; 2],
    dead: AtomicBool,
    bug: Bug,
    cases: std::sync::Arc<Cases>,
}

/// What one thread brings.
#[derive(Clone, Copy)]
enum Work {
    /// A note of the peer.
    Note,
    /// The end of the operation of that number.
    End(usize),
    /// The first operation begins, and only the death of the link ends it.
    Begin,
    /// The link dies.
    Die,
    /// Nothing: it asks whether the state is empty.
    Glance,
}

impl Rndv {
    fn fence(&self) {
        if self.bug != Bug::NoFences {
            fence(Ordering::SeqCst);
        }
    }

    fn mark(&self) {
        match self.bug {
            Bug::Stores => self.dirty.store(true, Ordering::SeqCst),
            _ => _ = self.dirty.swap(true, Ordering::AcqRel),
        }
    }

    fn unmark(&self) -> bool {
        self.dirty.swap(false, Ordering::AcqRel)
    }

    fn is_marked(&self) -> bool {
        match self.bug {
            Bug::LooksOnce => false,
            Bug::Loads => self.dirty.load(Ordering::SeqCst),
            _ => self.dirty.fetch_or(false, Ordering::AcqRel),
        }
    }

    /// Who gets it calls `unlock`.
    fn try_lock(&self) -> bool {
        !self.taken.load(Ordering::Relaxed)
            && self
                .taken
                .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
    }

    fn unlock(&self) {
        self.taken.swap(false, Ordering::Release);
    }

    fn receive(&self) {
        *self.received.lock().unwrap() += 1;
        self.live.store(true, Ordering::SeqCst);
    }

    fn run(&self) {
        if !self.live.load(Ordering::SeqCst) {
            self.cases.seen("not live");
            return;
        }
        if self.bug != Bug::MarksLate {
            self.mark();
        }
        loop {
            let mine = self.try_lock();
            if self.bug == Bug::MarksLate {
                self.mark();
            }
            if !mine {
                self.cases.seen("taken");
                return;
            }
            let mut more = false;
            while self.unmark() {
                more |= self.poll();
            }
            if self.state.0.get() == 0 && *self.received.lock().unwrap() == 0 {
                self.live.store(false, Ordering::SeqCst);
                if *self.received.lock().unwrap() != 0 {
                    self.cases.seen("heard late");
                    self.live.store(true, Ordering::SeqCst);
                    if self.bug != Bug::LeavesNote {
                        self.mark();
                    }
                }
            }
            self.unlock();
            // As `finish_relay`: what ended makes space, and the next one ends.
            if more {
                self.ended[1].store(true, Ordering::Release);
                self.mark();
            }
            if !self.is_marked() {
                return;
            }
            self.cases.seen("again");
        }
    }

    /// Whether the first operation ended in it.
    fn poll(&self) -> bool {
        let received = std::mem::take(&mut *self.received.lock().unwrap());
        let (under_way, read) = (self.state.0.get(), self.state.1.get());
        let dead = self.dead.load(Ordering::Acquire);
        let over = |i: usize| dead || self.ended[i].load(Ordering::Acquire);
        let left = (0..2).filter(|i| under_way & 1 << i != 0 && !over(*i));
        let left = left.fold(0, |all, i| all | 1 << i);
        self.state.0.set(left);
        self.state.1.set(read + received);
        under_way & !left & 1 != 0
    }

    fn with_state(&self, change: impl FnOnce()) {
        while self
            .taken
            .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            thread::yield_now();
        }
        self.live.store(true, Ordering::SeqCst);
        self.fence();
        change();
        self.unlock();
        self.run();
    }

    fn glance(&self) {
        if self.try_lock() {
            let _ = self.state.0.get();
            self.unlock();
            if self.bug != Bug::GlancesOnly && self.is_marked() {
                self.cases.seen("marked at a glance");
                self.run();
            }
        }
    }

    fn bring(&self, work: Work) {
        match work {
            Work::Note => {
                self.receive();
                self.run();
            }
            Work::End(i) => {
                self.ended[i].store(true, Ordering::Release);
                self.run();
            }
            Work::Begin => self.with_state(|| self.state.0.set(1)),
            Work::Die => {
                self.dead.swap(true, Ordering::AcqRel);
                self.fence();
                self.run();
            }
            Work::Glance => self.glance(),
        }
    }
}

/// Each thread brings its work while the operations `under_way` are; in the end all of it is done.
fn rndv<const N: usize>(
    under_way: u32,
    works: [Work; N],
    bug: Bug,
    cases: &'static [&'static str],
) {
    check_cases(cases, move |cases| {
        let rndv = Arc::new(Rndv {
            received: Mutex::new(0),
            taken: AtomicBool::new(false),
            state: (Cell::new(), Cell::new()),
            dirty: AtomicBool::new(false),
            live: AtomicBool::new(under_way != 0),
            ended: [AtomicBool::new(false), AtomicBool::new(false)],
            dead: AtomicBool::new(false),
            bug,
            cases: std::sync::Arc::clone(cases),
        });
        rndv.state.0.set(under_way);
        let [mine, others @ ..] = &works[..] else { unreachable!() };
        let threads: Vec<_> = others
            .iter()
            .map(|work| {
                let (rndv, work) = (Arc::clone(&rndv), *work);
                thread::spawn(move || rndv.bring(work))
            })
            .collect();
        rndv.bring(*mine);
        threads.into_iter().for_each(|t| t.join().unwrap());
        let notes = works.iter().filter(|w| matches!(w, Work::Note)).count();
        let read = rndv.state.1.get() as usize;
        assert!(rndv.state.0.get() == 0 && read == notes, "work is left");
    });
}

/// Rendezvous: notes that are received while another poll finds that nothing is under way are read.
#[test]
fn rndv_notes_are_read() {
    let cases = &["not live", "taken", "heard late", "again"];
    rndv(0, [Work::Note, Work::Note], Bug::Nothing, cases);
}

/// Rendezvous: an operation that ends while another thread has the state locked is seen, and so is the one that only ends when
/// the first was followed up.
#[test]
fn rndv_ends_are_seen() {
    rndv(0b11, [Work::End(0), Work::Note], Bug::Nothing, &["taken", "again"]);
}

/// Rendezvous: of three, one only reads the state; what the others bring is done.
#[test]
fn rndv_work_beside_a_glance_is_done() {
    let cases = &["taken", "again", "marked at a glance"];
    rndv(1, [Work::End(0), Work::Note, Work::Glance], Bug::Nothing, cases);
}

/// Rendezvous: a message that begins while the link dies ends, although closing a link does not lock the state of one that
/// never sent messages.
#[test]
fn rndv_messages_end_with_the_link() {
    rndv(0, [Work::Begin, Work::Die], Bug::Nothing, &["not live", "taken", "again"]);
}

/// Control: who sets the flag after it found the state locked sets it for nobody.
#[test]
#[should_panic(expected = "work is left")]
fn control_rndv_marked_late() {
    rndv(1, [Work::End(0), Work::Note], Bug::MarksLate, &[]);
}

/// Control: who does not look again leaves the work of who found the state locked.
#[test]
#[should_panic(expected = "work is left")]
fn control_rndv_looks_once() {
    rndv(1, [Work::End(0), Work::Note], Bug::LooksOnce, &[]);
}

/// Control: a flag that is set by a store covers the one that another set, with what that one brought.
#[test]
#[should_panic(expected = "work is left")]
fn control_rndv_marked_by_stores() {
    rndv(1, [Work::End(0), Work::Note], Bug::Stores, &[]);
}

/// Control: a look by a load may miss the flag of one that found the state locked although it was unlocked.
#[test]
#[should_panic(expected = "work is left")]
fn control_rndv_looks_by_loads() {
    rndv(1, [Work::End(0), Work::Note], Bug::Loads, &[]);
}

/// Control: a state that is locked to be read loses the work of who comes meanwhile.
#[test]
#[should_panic(expected = "work is left")]
fn control_rndv_glances_only() {
    rndv(0, [Work::Note, Work::Glance], Bug::GlancesOnly, &[]);
}

/// Control: a note that is found after it was said that nothing is under way, by one who does not set the flag: who
/// brought it went away before.
#[test]
#[should_panic(expected = "work is left")]
fn control_rndv_leaves_a_note() {
    rndv(0, [Work::Note, Work::Note], Bug::LeavesNote, &[]);
}

/// Control: without the fences whoever ends the link may miss the message, and the message's poll the death.
#[test]
#[should_panic(expected = "work is left")]
fn control_rndv_without_the_fences() {
    rndv(0, [Work::Begin, Work::Die], Bug::NoFences, &[]);
}
