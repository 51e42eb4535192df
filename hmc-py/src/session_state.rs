//! Where a session is in its life: a buffer that nobody can reach, a session with a rank and a thread, or over.
//!
//! A large buffer is made on a thread of its own: taking all of its pages takes a second for some gigabytes. Whoever needs it
//! waits for that; nobody touches it before.

use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;

use hmc_std::error::Result;
use hmc_std::{ConnBuffer, Error, ErrorKind, Origin, Prepared, Session, SessionBuilder};
use pyo3::prelude::*;

use crate::data::DropDeferred;
use crate::errors::{OrRaise, interrupted, refuse};

enum State {
    /// Its buffer is there; nobody can reach it.
    Prepared,
    /// With its id among those of the process.
    Live(Arc<Session>, u64),
    Closed,
}

/// Buffers of at least so many bytes are made on a thread.
const LONG: u64 = 64 << 20;

/// How often a thread that waits for a buffer looks for signals.
const SLICE: Duration = Duration::from_millis(50);

/// Says that the thread which makes a buffer is over, or about to be.
#[derive(Default)]
struct Signal(Mutex<bool>, Condvar);

impl Signal {
    /// Waits for it, for `SLICE` at most; whether it is over.
    fn wait(&self) -> bool {
        let over = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.1.wait_timeout_while(over, SLICE, |over| !*over);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Gives the signal when it is dropped, also by a panic.
struct Signals(Arc<Signal>);

impl Drop for Signals {
    fn drop(&mut self) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.1.notify_all();
    }
}

/// What becomes a session when it starts.
enum Beginning {
    Making(JoinHandle<Result<Prepared>>, Arc<Signal>),
    Made(Box<Prepared>),
    Over,
}

/// The life of one session.
pub(crate) struct SessionState {
    beginning: Mutex<Beginning>,
    /// Once it is there, or why it is not.
    buffer: OnceLock<Result<ConnBuffer>>,
    state: RwLock<State>,
    pub(crate) origin: Origin,
}

impl Drop for SessionState {
    fn drop(&mut self) {
        if self.origin.is_child() {
            // A thread of the parent, whose name may be that of one of the child's by now.
            let beginning = self.beginning.get_mut().unwrap_or_else(PoisonError::into_inner);
            if matches!(beginning, Beginning::Making(..)) {
                std::mem::forget(std::mem::replace(beginning, Beginning::Over));
            }
        }
    }
}

pub(crate) fn closed() -> Error {
    Error::new(ErrorKind::Closed, "this session was closed")
}

impl SessionState {
    /// A buffer of `bytes` bytes with those settings. What can be refused at once is.
    pub(crate) fn begin(builder: SessionBuilder, bytes: u64, at_once: bool) -> Result<Self> {
        let origin = Origin::here()?;
        let state = |beginning, buffer| Self {
            beginning: Mutex::new(beginning),
            buffer,
            state: RwLock::new(State::Prepared),
            origin,
        };
        if at_once || bytes < LONG {
            let prepared = builder.prepare()?;
            let buffer = OnceLock::from(Ok(prepared.buffer().clone()));
            return Ok(state(Beginning::Made(Box::new(prepared)), buffer));
        }
        builder.check()?;
        let thread = std::thread::Builder::new().name("hmc-buffer".to_owned());
        let signal = Arc::<Signal>::default();
        let signals = Signals(Arc::clone(&signal));
        let making = thread.spawn(move || {
            let _signals = signals;
            builder.prepare()
        });
        let making = making.map_err(|e| {
            Error::new(ErrorKind::SystemLimit, format!("cannot start a thread: {e}"))
        })?;
        Ok(state(Beginning::Making(making, signal), OnceLock::new()))
    }

    /// Another session to be over the same buffer.
    pub(crate) fn beside(&self) -> Result<Self> {
        let buffer = self.buffer()?;
        let beginning = self.beginning.lock().unwrap_or_else(PoisonError::into_inner);
        let Beginning::Made(prepared) = &*beginning else { return Err(closed()) };
        Ok(Self {
            beginning: Mutex::new(Beginning::Made(Box::new(prepared.beside()?))),
            buffer: OnceLock::from(Ok(buffer)),
            state: RwLock::new(State::Prepared),
            origin: self.origin,
        })
    }

    /// The buffer, waiting until it is there. Without the interpreter's lock.
    pub(crate) fn buffer(&self) -> Result<ConnBuffer> {
        self.made()?;
        self.buffer.get().cloned().unwrap_or_else(|| Err(closed()))
    }

    /// Waits until no thread makes the buffer any more.
    ///
    /// # Errors
    /// `Interrupted`; `Forked`: a buffer that was being made when the process forked never comes.
    fn made(&self) -> Result<()> {
        if self.buffer.get().is_some() {
            return Ok(());
        }
        self.check_process()?;
        while let Some(signal) = self.making() {
            if signal.wait() {
                self.take_made();
            } else if interrupted() {
                // No lock is held here: the handler may have used this session.
                let what = "waiting for the session's buffer was interrupted";
                return Err(Error::new(ErrorKind::Interrupted, what));
            }
            // The handler may have forked.
            self.check_process()?;
        }
        Ok(())
    }

    fn making(&self) -> Option<Arc<Signal>> {
        match &*self.beginning.lock().unwrap_or_else(PoisonError::into_inner) {
            Beginning::Making(_, signal) => Some(Arc::clone(signal)),
            Beginning::Made(_) | Beginning::Over => None,
        }
    }

    /// Takes what the thread made, which is over.
    fn take_made(&self) {
        let mut beginning = self.beginning.lock().unwrap_or_else(PoisonError::into_inner);
        if !matches!(&*beginning, Beginning::Making(..)) {
            // Another thread waited, too, and took it.
            return;
        }
        if let Beginning::Making(thread, _) = std::mem::replace(&mut *beginning, Beginning::Over) {
            let made = thread.join().unwrap_or_else(|_| {
                Err(Error::new(ErrorKind::Io, "the thread that made the buffer panicked"))
            });
            let buffer = made.map(|prepared| {
                let buffer = prepared.buffer().clone();
                *beginning = Beginning::Made(Box::new(prepared));
                buffer
            });
            let _ = self.buffer.set(buffer);
        }
    }

    /// The buffer, if it is there.
    #[inline]
    pub(crate) fn buffer_now(&self) -> Option<Result<ConnBuffer>> {
        self.buffer.get().cloned()
    }

    /// Refuses to go on in a forked child, before it takes a lock: a thread that the child does not have may hold it.
    pub(crate) fn check_process(&self) -> Result<()> {
        self.origin.check()
    }

    fn replace(&self, state: State) -> State {
        std::mem::replace(&mut *self.state.write().unwrap_or_else(PoisonError::into_inner), state)
    }

    pub(crate) fn is_live(&self) -> bool {
        self.check_process().is_ok() && self.running().is_some()
    }

    /// The session, if it runs. Not in a forked child.
    pub(crate) fn running(&self) -> Option<Arc<Session>> {
        match &*self.state.read().unwrap_or_else(PoisonError::into_inner) {
            State::Live(session, _) => Some(Arc::clone(session)),
            State::Prepared | State::Closed => None,
        }
    }

    /// The id of the session that runs.
    pub(crate) fn id(&self) -> Option<u64> {
        match &*self.state.read().unwrap_or_else(PoisonError::into_inner) {
            State::Live(_, id) => Some(*id),
            State::Prepared | State::Closed => None,
        }
    }

    /// The session, while it runs.
    pub(crate) fn session(&self, py: Python<'_>) -> PyResult<Arc<Session>> {
        self.check_process().or_raise(py)?;
        drop(DropDeferred);
        let (kind, what) = match &*self.state.read().unwrap_or_else(PoisonError::into_inner) {
            State::Live(session, _) => return Ok(Arc::clone(session)),
            State::Prepared => (
                ErrorKind::NotFound,
                "this session has no peers yet: call init_server() or connect() first",
            ),
            State::Closed => (ErrorKind::Closed, "this session was closed"),
        };
        // Without the lock: raising runs Python, which may let a thread run that wants it.
        Err(refuse(py, kind, what))
    }

    /// Starts it with the settings that `set` makes.
    pub(crate) fn start(&self, set: impl FnOnce(&mut Prepared)) -> Result<()> {
        self.check_process()?;
        self.buffer()?;
        let mut beginning = self.beginning.lock().unwrap_or_else(PoisonError::into_inner);
        let Beginning::Made(prepared) = &mut *beginning else { return Err(closed()) };
        set(prepared);
        let session = Arc::new(prepared.start()?);
        let id = session.info().id;
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        if matches!(*state, State::Closed) {
            // Meanwhile. Nobody has seen it.
            drop(state);
            return Err(closed());
        }
        *state = State::Live(session, id);
        Ok(())
    }

    /// Gives the rank back, so that another can be tried.
    pub(crate) fn unstart(&self) {
        if self.check_process().is_ok() {
            drop(self.replace(State::Prepared));
        }
    }

    /// Ends it in order. Calls of other threads end with their links.
    pub(crate) fn close(&self, timeout: Duration) -> Result<()> {
        // The buffer stays readable.
        self.made()?;
        let state = self.replace(State::Closed);
        let beginning = {
            let mut place = self.beginning.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *place, Beginning::Over)
        };
        let ended = match state {
            State::Live(session, _) => session.shutdown().within(timeout).wait(),
            State::Prepared | State::Closed => Ok(()),
        };
        drop(beginning);
        ended
    }
}
