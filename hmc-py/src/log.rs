//! What the library says, handed to Python's `logging`.
//!
//! A session's thread must never wait for the interpreter lock: it leaves its words in a bounded queue, and a thread of its own
//! takes them to the logger `hmc` (UCX's to `hmc.ucx`). When the queue is full, words are dropped and counted.

use std::fmt::{self, Write as _};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use hmc_std::Origin;
use pyo3::prelude::*;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Messages that may wait.
const ROOM: usize = 1024;

/// One message.
struct Words {
    /// As `logging` numbers them.
    level: u8,
    ucx: bool,
    text: String,
}

/// Takes what is said anywhere in the library.
struct Ear {
    /// Made with its thread by the first message: a program that hears nothing has neither. Of this process, or of the one that
    /// it was forked from.
    queue: AtomicPtr<Queue>,
    dropped: AtomicU64,
}

struct Queue {
    /// `None` when the system refused: then no fork is noticed here.
    process: Option<Origin>,
    words: SyncSender<Words>,
}

impl Ear {
    /// This process's queue.
    fn queue(&self) -> &'static Queue {
        loop {
            let current = self.queue.load(Ordering::Acquire);
            // SAFETY: null, or from a box that was leaked below: valid for ever, and only shared references to it are made.
            let found = unsafe { current.as_ref() };
            if let Some(queue) = found.filter(|q| !q.process.is_some_and(|p| p.is_child())) {
                return queue;
            }
            // That of the parent stays as it is: a thread that is not here may be in the middle of it.
            let (words, receiver) = sync_channel(ROOM);
            let new = Box::into_raw(Box::new(Queue { process: Origin::here().ok(), words }));
            let set =
                self.queue.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire);
            if set.is_err() {
                // SAFETY: from a box, and nobody else knows it.
                drop(unsafe { Box::from_raw(new) });
                continue;
            }
            // Without the thread messages are dropped: no reason to fail.
            let thread = std::thread::Builder::new().name("hmc-log".to_owned());
            let _ = thread.spawn(move || carry(&receiver));
        }
    }
}

/// `message; name=value, ...`
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = &mut self.0;
        // Into a String nothing fails.
        let _ = if field.name() == "message" {
            let rest = std::mem::take(text);
            write!(text, "{value:?}{rest}")
        } else {
            write!(text, "; {}={value:?}", field.name())
        };
    }
}

impl Subscriber for Ear {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO && !metadata.is_span()
    }

    fn max_level_hint(&self) -> Option<tracing::metadata::LevelFilter> {
        Some(tracing::metadata::LevelFilter::INFO)
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let level = match *event.metadata().level() {
            Level::ERROR => 40,
            Level::WARN => 30,
            _ => 20,
        };
        let mut line = Line(String::new());
        event.record(&mut line);
        let lost = self.dropped.swap(0, Ordering::Relaxed);
        if lost > 0 {
            let _ = write!(line.0, "; messages dropped before: {lost}");
        }
        let words = Words { level, ucx: event.metadata().target() == "ucx", text: line.0 };
        if let Err(TrySendError::Full(_)) = self.queue().words.try_send(words) {
            self.dropped.fetch_add(lost.saturating_add(1), Ordering::Relaxed);
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Takes messages to Python until there is no interpreter any more.
fn carry(words: &Receiver<Words>) {
    while let Ok(w) = words.recv() {
        let told = Python::try_attach(|py| {
            let name = if w.ucx { "hmc.ucx" } else { "hmc" };
            let logger = py.import("logging")?.call_method1("getLogger", (name,))?;
            logger.call_method1("log", (w.level, "%s", w.text)).map(drop)
        });
        if told.is_none() {
            return;
        }
    }
}

/// From here on what the library says goes to `logging`; once in a process.
pub(crate) fn begin() {
    // Somebody else's, within this library: there is none.
    let _ = tracing::subscriber::set_global_default(Ear {
        queue: AtomicPtr::new(ptr::null_mut()),
        dropped: AtomicU64::new(0),
    });
}
