//! A model of the words of a ring (`ring.rs`): neither a reader that sleeps nor a writer that waits for space misses the other, and
//! no byte is read before it was written or written before the one in its place was read.

use super::{check, deadlocks};
use hmc_mem::ring::{RingReads, RingWords, RingWrites};
use hmc_mem::sync::{AtomicU64, Ordering};
use loom::cell::UnsafeCell;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

/// The socket that carries wake bytes in one direction.
#[derive(Default)]
struct Socket {
    is_written: Mutex<bool>,
    written: Condvar,
}

impl Socket {
    fn wake(&self) {
        *self.is_written.lock().unwrap() = true;
        self.written.notify_all();
    }

    fn sleep(&self) {
        let mut is_written = self.is_written.lock().unwrap();
        while !*is_written {
            is_written = self.written.wait(is_written).unwrap();
        }
        *is_written = false;
    }
}

/// A ring of one byte.
struct Ring {
    words: [AtomicU64; 4],
    byte: UnsafeCell<u64>,
    to_reader: Socket,
    to_writer: Socket,
    /// A planted bug: the reader announces that it sleeps and looks no more.
    looks_once: bool,
}

// SAFETY: the model checks that accesses of the byte do not overlap.
unsafe impl Sync for Ring {}

impl Ring {
    fn words(&self) -> RingWords<'_> {
        let [written, read, reader_sleeps, writer_waits] = &self.words;
        RingWords { written, read, reader_sleeps, writer_waits }
    }

    fn write(&self, count: u64) {
        let (words, mut w) = (self.words(), RingWrites::new(1));
        for n in 0..count {
            while w.space(&words, 1).unwrap() == 0 && w.await_space(&words).unwrap() == 0 {
                self.to_writer.sleep();
            }
            // SAFETY: the reader has read the byte before.
            self.byte.with_mut(|at| unsafe { *at = n });
            if w.publish(&words, 1) && w.take_sleeper(&words) {
                self.to_reader.wake();
            }
        }
    }

    fn read(&self, count: u64) {
        let (words, mut r) = (self.words(), RingReads::new(1));
        for n in 0..count {
            while r.available(&words).unwrap() == 0 {
                let sleeps = if self.looks_once {
                    words.reader_sleeps.store(1, Ordering::SeqCst);
                    true
                } else {
                    r.sleep(&words).unwrap()
                };
                if sleeps {
                    self.to_reader.sleep();
                }
            }
            // SAFETY: the writer writes the next one when this one was consumed.
            assert_eq!(self.byte.with(|at| unsafe { *at }), n);
            if r.consume(&words, 1) {
                self.to_writer.wake();
            }
        }
    }
}

fn ring(count: u64, looks_once: bool) {
    let ring = Arc::new(Ring {
        words: [(); 4].map(|()| AtomicU64::new(0)),
        byte: UnsafeCell::new(0),
        to_reader: Socket::default(),
        to_writer: Socket::default(),
        looks_once,
    });
    let writer = {
        let ring = Arc::clone(&ring);
        thread::spawn(move || ring.write(count))
    };
    ring.read(count);
    writer.join().unwrap();
}

/// Ring: each byte arrives, once and in order, although both ends sleep.
#[test]
fn a_ring_loses_no_byte_and_no_wake_up() {
    check(|| ring(2, false));
}

/// Control: a byte comes between the look and the announcement.
#[test]
fn control_a_ring_whose_reader_looks_once() {
    assert!(deadlocks("ring::broken_ring_whose_reader_looks_once"));
}

#[test]
#[ignore = "deadlocks: its control runs it; see docs/TESTING.md, By hand"]
fn broken_ring_whose_reader_looks_once() {
    check(|| ring(1, true));
}
