//! Log records of the library, passed to Python's `logging`.
//!
//! A session's thread must never wait for the interpreter lock: it puts its records into a bounded queue, and a thread of its own
//! passes them to the logger `hmc` (UCX's to `hmc.ucx`). If the queue is full, records are dropped and counted. That thread ends
//! before the interpreter does: a handler that comes back to an interpreter that is taken down aborts the process. One that takes too
//! long is ended by `SystemExit`, raised where it runs; only one that blocks outside of Python meanwhile is not reached by that.

use std::convert::Infallible;
use std::ffi::c_long;
use std::fmt::{self, Write as _};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use hmc_std::Origin;
use pyo3::exceptions::PySystemExit;
use pyo3::ffi;
use pyo3::prelude::*;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Capacity of the queue.
const CAPACITY: usize = 1024;

/// How long the end of the interpreter waits for handlers, and after that for the one that it has ended.
const ENDING: Duration = Duration::from_secs(1);

/// One message.
struct LogLine {
    /// As `logging` numbers them.
    level: u8,
    ucx: bool,
    text: String,
}

/// Receives the log records of the whole library.
struct LogLayer {
    /// Made with its thread by the first message: a program without log records has neither. Of this process, or of the one that
    /// it was forked from.
    queue: AtomicPtr<Queue>,
    dropped: AtomicU64,
    /// The interpreter ends: what is said from then on is lost.
    over: AtomicBool,
}

struct Queue {
    /// `None` when the system refused: then no fork is noticed here.
    process: Option<Origin>,
    /// `None` has the thread look whether it is to end.
    words: SyncSender<Option<LogLine>>,
    /// Its thread ends when the queue is empty.
    ends: AtomicBool,
    /// Its thread ends whatever is in the queue.
    late: AtomicBool,
    /// Its thread, as Python names threads; 0 before it runs.
    ident: AtomicU64,
    thread: Mutex<Option<Carrier>>,
}

/// The thread of a queue.
struct Carrier {
    handle: JoinHandle<()>,
    /// Disconnected when it runs no Python code any more.
    ended: Receiver<Infallible>,
}

impl Queue {
    fn is_foreign(&self) -> bool {
        self.process.is_some_and(|p| p.is_child())
    }

    fn thread(&self) -> Option<Carrier> {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Has its thread hand on what there is, and waits until that has ended, for `ENDING` at most.
    fn end(&self) {
        let Some(thread) = self.thread() else { return };
        self.ends.store(true, Ordering::SeqCst);
        // If the queue is full, the thread has records to process.
        let _ = self.words.try_send(None);
        match thread.ended.recv_timeout(ENDING) {
            Err(RecvTimeoutError::Disconnected) => drop(thread.handle.join()),
            Err(RecvTimeoutError::Timeout) => self.stop(&thread),
            Ok(never) => match never {},
        }
    }

    /// Raises `SystemExit` in the handler that its thread runs, and waits until that has ended, for `ENDING` at most.
    fn stop(&self, thread: &Carrier) {
        self.late.store(true, Ordering::SeqCst);
        let ident = c_long::try_from(self.ident.load(Ordering::Acquire)).unwrap_or(0);
        Python::attach(|py| {
            let exit = py.get_type::<PySystemExit>();
            // SAFETY: the interpreter lock is held, and the exception type is borrowed for the call. A thread that is in no Python code
            // any more is not found.
            unsafe { ffi::PyThreadState_SetAsyncExc(ident, exit.as_ptr()) };
        });
        let _ = thread.ended.recv_timeout(ENDING);
    }
}

impl LogLayer {
    /// This process's queue.
    fn queue(&self) -> &'static Queue {
        loop {
            let current = self.queue.load(Ordering::Acquire);
            // SAFETY: null, or from a box that was leaked below: valid for ever, and only shared references to it are made.
            let found = unsafe { current.as_ref() };
            if let Some(queue) = found.filter(|q| !q.is_foreign()) {
                return queue;
            }
            // That of the parent stays as it is: a thread that is not here may be in the middle of it.
            let (words, receiver) = sync_channel(CAPACITY);
            let new = Box::into_raw(Box::new(Queue {
                process: Origin::here().ok(),
                words,
                ends: AtomicBool::new(false),
                late: AtomicBool::new(false),
                ident: AtomicU64::new(0),
                thread: Mutex::new(None),
            }));
            let set =
                self.queue.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire);
            if set.is_err() {
                // SAFETY: from a box, and nobody else knows it.
                drop(unsafe { Box::from_raw(new) });
                continue;
            }
            // SAFETY: from a box that was leaked; as above.
            let queue: &'static Queue = unsafe { &*new };
            // Without the thread messages are dropped: no reason to fail.
            let thread = std::thread::Builder::new().name("hmc-log".to_owned());
            let (runs, ended) = sync_channel(0);
            let begun = thread.spawn(move || {
                carry(queue, &receiver);
                drop(runs);
            });
            let mut place = queue.thread.lock().unwrap_or_else(PoisonError::into_inner);
            *place = begun.ok().map(|handle| Carrier { handle, ended });
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

impl Subscriber for LogLayer {
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
        if self.over.load(Ordering::SeqCst) {
            return;
        }
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
        let words = LogLine { level, ucx: event.metadata().target() == "ucx", text: line.0 };
        if let Err(TrySendError::Full(_)) = self.queue().words.try_send(Some(words)) {
            self.dropped.fetch_add(lost.saturating_add(1), Ordering::Relaxed);
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Takes messages to Python until the queue is ended, or there is no interpreter any more.
fn carry(queue: &Queue, words: &Receiver<Option<LogLine>>) {
    // SAFETY: it can be called by any thread, with or without the interpreter lock.
    let ident = unsafe { ffi::PyThread_get_thread_ident() };
    queue.ident.store(ident, Ordering::Release);
    while !queue.late.load(Ordering::SeqCst) {
        let ends = queue.ends.load(Ordering::SeqCst);
        let next = if ends { words.try_recv().ok() } else { words.recv().ok() };
        let Some(next) = next else { return };
        let Some(w) = next else { continue };
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
    let _ = tracing::subscriber::set_global_default(LogLayer {
        queue: AtomicPtr::new(ptr::null_mut()),
        dropped: AtomicU64::new(0),
        over: AtomicBool::new(false),
    });
}

/// Hands what was said to ``logging``, for a second at most, and ends the thread that does so; what is said from then on is lost.
/// For the end of the interpreter.
#[pyfunction]
pub(crate) fn end_log(py: Python<'_>) {
    py.detach(|| {
        tracing::dispatcher::get_default(|dispatch| {
            let Some(ear) = dispatch.downcast_ref::<LogLayer>() else { return };
            ear.over.store(true, Ordering::SeqCst);
            // SAFETY: as in `Ear::queue`.
            let queue = unsafe { ear.queue.load(Ordering::Acquire).as_ref() };
            // The thread of a parent is not here.
            if let Some(queue) = queue.filter(|q| !q.is_foreign()) {
                queue.end();
            }
        });
    });
}
