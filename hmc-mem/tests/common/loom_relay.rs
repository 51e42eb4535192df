//! Models of the flags beside the desk of a link's messages (hmc-std's `link/relay/progress.rs`): who brings work and finds
//! the desk taken goes away, since whoever holds it looks again.
//!
//! hmc-std does not build under loom. The models write out its lines, with the same orders. loom takes a load or a store
//! that is `SeqCst` for an acquire or a release: what needs more than that is not believed here.

use super::{Cases, Cell, check_cases};
use loom::sync::atomic::{AtomicBool, Ordering, fence};
use loom::sync::{Arc, Mutex};
use loom::thread;

/// What those at the desk do wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Slip {
    Nothing,
    /// They say that there is something to be done after they found the desk taken.
    MarksLate,
    /// They do not look again when they gave the desk back.
    LooksOnce,
    /// They set the flag by a store.
    Stores,
    /// They look at the flag by a load.
    Loads,
    /// Who only asks something at the desk does not look again.
    GlancesOnly,
    /// Who finds a note after it said that nothing is under way leaves it there.
    LeavesNote,
    /// Who begins a message and who ends the link leave the fences out.
    NoFences,
}

/// `Relay`, with as much of a desk as the flags are about.
struct Relay {
    heard: Mutex<u32>,
    /// The lock of the desk as std makes it of a word. loom's own is stronger: who finds this one taken has loaded the
    /// word, relaxed, and may have got an old value.
    taken: AtomicBool,
    /// The operations under way, a bit each, and the notes that were read.
    desk: (Cell, Cell),
    dirty: AtomicBool,
    live: AtomicBool,
    /// What a turn looks for outside: the operations that ended, and whether the link is dead.
    ended: [AtomicBool; 2],
    dead: AtomicBool,
    slip: Slip,
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
    /// Nothing: it asks whether the desk is empty.
    Glance,
}

impl Relay {
    fn fence(&self) {
        if self.slip != Slip::NoFences {
            fence(Ordering::SeqCst);
        }
    }

    fn mark(&self) {
        match self.slip {
            Slip::Stores => self.dirty.store(true, Ordering::SeqCst),
            _ => _ = self.dirty.swap(true, Ordering::AcqRel),
        }
    }

    fn unmark(&self) -> bool {
        self.dirty.swap(false, Ordering::AcqRel)
    }

    fn is_marked(&self) -> bool {
        match self.slip {
            Slip::LooksOnce => false,
            Slip::Loads => self.dirty.load(Ordering::SeqCst),
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

    fn hear(&self) {
        *self.heard.lock().unwrap() += 1;
        self.live.store(true, Ordering::SeqCst);
    }

    fn run(&self) {
        if !self.live.load(Ordering::SeqCst) {
            self.cases.seen("not live");
            return;
        }
        if self.slip != Slip::MarksLate {
            self.mark();
        }
        loop {
            let mine = self.try_lock();
            if self.slip == Slip::MarksLate {
                self.mark();
            }
            if !mine {
                self.cases.seen("taken");
                return;
            }
            let mut more = false;
            while self.unmark() {
                more |= self.turn();
            }
            if self.desk.0.get() == 0 && *self.heard.lock().unwrap() == 0 {
                self.live.store(false, Ordering::SeqCst);
                if *self.heard.lock().unwrap() != 0 {
                    self.cases.seen("heard late");
                    self.live.store(true, Ordering::SeqCst);
                    if self.slip != Slip::LeavesNote {
                        self.mark();
                    }
                }
            }
            self.unlock();
            // As `finish_relay`: what ended makes room, and the next one ends.
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
    fn turn(&self) -> bool {
        let heard = std::mem::take(&mut *self.heard.lock().unwrap());
        let (under_way, read) = (self.desk.0.get(), self.desk.1.get());
        let dead = self.dead.load(Ordering::Acquire);
        let over = |i: usize| dead || self.ended[i].load(Ordering::Acquire);
        let left = (0..2).filter(|i| under_way & 1 << i != 0 && !over(*i));
        let left = left.fold(0, |all, i| all | 1 << i);
        self.desk.0.set(left);
        self.desk.1.set(read + heard);
        under_way & !left & 1 != 0
    }

    fn at_relay(&self, change: impl FnOnce()) {
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
            let _ = self.desk.0.get();
            self.unlock();
            if self.slip != Slip::GlancesOnly && self.is_marked() {
                self.cases.seen("marked at a glance");
                self.run();
            }
        }
    }

    fn bring(&self, work: Work) {
        match work {
            Work::Note => {
                self.hear();
                self.run();
            }
            Work::End(i) => {
                self.ended[i].store(true, Ordering::Release);
                self.run();
            }
            Work::Begin => self.at_relay(|| self.desk.0.set(1)),
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
fn relay<const N: usize>(
    under_way: u32,
    works: [Work; N],
    slip: Slip,
    cases: &'static [&'static str],
) {
    check_cases(cases, move |cases| {
        let relay = Arc::new(Relay {
            heard: Mutex::new(0),
            taken: AtomicBool::new(false),
            desk: (Cell::new(), Cell::new()),
            dirty: AtomicBool::new(false),
            live: AtomicBool::new(under_way != 0),
            ended: [AtomicBool::new(false), AtomicBool::new(false)],
            dead: AtomicBool::new(false),
            slip,
            cases: std::sync::Arc::clone(cases),
        });
        relay.desk.0.set(under_way);
        let [mine, others @ ..] = &works[..] else { unreachable!() };
        let threads: Vec<_> = others
            .iter()
            .map(|work| {
                let (relay, work) = (Arc::clone(&relay), *work);
                thread::spawn(move || relay.bring(work))
            })
            .collect();
        relay.bring(*mine);
        threads.into_iter().for_each(|t| t.join().unwrap());
        let notes = works.iter().filter(|w| matches!(w, Work::Note)).count();
        let read = relay.desk.1.get() as usize;
        assert!(relay.desk.0.get() == 0 && read == notes, "work is left");
    });
}

/// Relay: notes that are heard while another turn finds that nothing is under way are read.
#[test]
fn relay_notes_are_read() {
    let cases = &["not live", "taken", "heard late", "again"];
    relay(0, [Work::Note, Work::Note], Slip::Nothing, cases);
}

/// Relay: an operation that ends while another thread is at the desk is seen, and so is the one that only ends when
/// the first was followed up.
#[test]
fn relay_ends_are_seen() {
    relay(0b11, [Work::End(0), Work::Note], Slip::Nothing, &["taken", "again"]);
}

/// Relay: of three, one only asks something at the desk; what the others bring is done.
#[test]
fn relay_work_beside_a_glance_is_done() {
    let cases = &["taken", "again", "marked at a glance"];
    relay(1, [Work::End(0), Work::Note, Work::Glance], Slip::Nothing, cases);
}

/// Relay: a message that begins while the link dies ends, although whoever ends a link goes by the desk of one that
/// never sent messages.
#[test]
fn relay_messages_die_with_the_link() {
    relay(0, [Work::Begin, Work::Die], Slip::Nothing, &["not live", "taken", "again"]);
}

/// Control: who sets the flag after it found the desk taken sets it for nobody.
#[test]
#[should_panic(expected = "work is left")]
fn control_relay_marked_late() {
    relay(1, [Work::End(0), Work::Note], Slip::MarksLate, &[]);
}

/// Control: who does not look again leaves the work of who found the desk taken.
#[test]
#[should_panic(expected = "work is left")]
fn control_relay_looks_once() {
    relay(1, [Work::End(0), Work::Note], Slip::LooksOnce, &[]);
}

/// Control: a flag that is set by a store covers the one that another set, with what that one brought.
#[test]
#[should_panic(expected = "work is left")]
fn control_relay_marked_by_stores() {
    relay(1, [Work::End(0), Work::Note], Slip::Stores, &[]);
}

/// Control: a look by a load may miss the flag of one that found the desk taken although it was given back.
#[test]
#[should_panic(expected = "work is left")]
fn control_relay_looks_by_loads() {
    relay(1, [Work::End(0), Work::Note], Slip::Loads, &[]);
}

/// Control: a desk that is taken to ask something loses the work of who comes meanwhile.
#[test]
#[should_panic(expected = "work is left")]
fn control_relay_glances_only() {
    relay(0, [Work::Note, Work::Glance], Slip::GlancesOnly, &[]);
}

/// Control: a note that is found after it was said that nothing is under way, by one who does not set the flag: who
/// brought it went away before.
#[test]
#[should_panic(expected = "work is left")]
fn control_relay_leaves_a_note() {
    relay(0, [Work::Note, Work::Note], Slip::LeavesNote, &[]);
}

/// Control: without the fences whoever ends the link may miss the message, and the message's turn the death.
#[test]
#[should_panic(expected = "work is left")]
fn control_relay_without_the_fences() {
    relay(0, [Work::Begin, Work::Die], Slip::NoFences, &[]);
}
