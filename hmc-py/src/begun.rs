//! Transfers that were begun by the seeds' calls, which know them by numbers. The sessions over one buffer know each other's.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hmc_std::error::Result;
use hmc_std::identity;
use hmc_std::{Error, ErrorKind, OpId, Session};

use crate::places::Place;

/// How long an operation that was cancelled may take to end.
const CANCELLED: Duration = Duration::from_secs(1);

/// Within what time a thread that took the outcome of a transfer has said so.
const SAID: Duration = Duration::from_secs(1);

/// Those that nobody has waited for.
pub(crate) struct Begun {
    table: Mutex<HashMap<u64, State>>,
    /// Notified whenever a transfer is no longer open.
    ended: Condvar,
}

enum State {
    /// Begun at the session of that number by that name. A peer here would keep a link that is over, and its descriptors.
    Open(OpId, u64, Place),
    /// Its name was ended: what became of it.
    Over(Result<()>),
}

impl Begun {
    pub(crate) fn new() -> Self {
        Self { table: Mutex::default(), ended: Condvar::new() }
    }

    fn table(&self) -> MutexGuard<'_, HashMap<u64, State>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number for a transfer; never 0, and never one that another transfer of the process has.
    pub(crate) fn number(&self, op: OpId, session: u64, place: Place) -> u64 {
        let n = identity::next();
        self.table().insert(n, State::Open(op, session, place));
        n
    }

    /// Waits for all of them, whatever becomes of each. 0 is the number of one that has ended. `find` gives the session of a
    /// number.
    ///
    /// # Errors
    /// `NotFound` for a number that is none, before anything is waited for; then the first failure, those of `find` among them. One that has not ended in
    /// time can be waited for again.
    pub(crate) fn wait(
        &self,
        find: impl Fn(u64) -> Result<Arc<Session>>,
        numbers: &[u64],
        timeout: Duration,
    ) -> Result<()> {
        let unknown = {
            let table = self.table();
            numbers.iter().copied().find(|n| *n != 0 && !table.contains_key(n))
        };
        if let Some(n) = unknown {
            let what = format!("{n} is no transfer that was begun and not waited for");
            return Err(Error::new(ErrorKind::NotFound, what));
        }
        let left = time_left(timeout);
        let mut failure = None;
        for n in numbers {
            match self.wait_one(&find, *n, left()) {
                Ok(()) => {}
                Err(e) if e.kind() == ErrorKind::Interrupted => return Err(e),
                Err(e) => failure = failure.or(Some(e)),
            }
        }
        failure.map_or(Ok(()), Err)
    }

    fn wait_one(
        &self,
        find: impl Fn(u64) -> Result<Arc<Session>>,
        n: u64,
        timeout: Duration,
    ) -> Result<()> {
        let (op, session) = {
            let mut table = self.table();
            match table.get(&n) {
                Some(State::Open(op, session, _)) => (*op, *session),
                Some(State::Over(_)) | None => return taken(&mut table, n),
            }
        };
        let session = find(session).inspect_err(|_| self.set(n, None))?;
        let ended = session.wait_within(op, timeout).map(drop);
        if is_taken(&ended) {
            // By another thread that waits for it or ends its name, which now says so in the table.
            let open =
                |table: &mut HashMap<u64, State>| matches!(table.get(&n), Some(State::Open(..)));
            let said = self.ended.wait_timeout_while(self.table(), SAID, |table| open(table));
            let (mut table, _) = said.unwrap_or_else(PoisonError::into_inner);
            return if open(&mut table) { ended } else { taken(&mut table, n) };
        }
        if !runs_on(&session, op, &ended) {
            self.set(n, None);
        }
        ended
    }

    /// Says that a transfer is no longer open: it can be asked for once more, or it was waited for.
    fn set(&self, n: u64, over: Option<State>) {
        let mut table = self.table();
        let known = table.remove(&n);
        table.extend(known.and(over).map(|over| (n, over)));
        self.ended.notify_all();
    }

    /// Waits until the transfers that were begun at a session by a name have ended, and has those end that have not in time.
    /// What became of each can be asked for as before.
    ///
    /// # Errors
    /// `Interrupted`.
    pub(crate) fn end(&self, session: &Session, place: Place, timeout: Duration) -> Result<()> {
        let open: Vec<(u64, OpId)> = {
            let table = self.table();
            let of = |(n, state): (&u64, &State)| match state {
                State::Open(op, at, by) if *by == place && *at == session.id() => Some((*n, *op)),
                State::Open(..) | State::Over(_) => None,
            };
            table.iter().filter_map(of).collect()
        };
        let left = time_left(timeout);
        for (n, op) in open {
            let mut ended = session.wait_within(op, left()).map(drop);
            if runs_on(session, op, &ended) {
                if let Err(e) = &ended
                    && e.kind() == ErrorKind::Interrupted
                {
                    return ended;
                }
                let _ = session.cancel(op);
                ended = session.wait_within(op, CANCELLED).map(drop);
            }
            // What another thread took, it gives to its caller.
            if !is_taken(&ended) {
                self.set(n, Some(State::Over(ended)));
            }
        }
        Ok(())
    }
}

/// What became of a transfer that is not open. One that is not in the table was named twice, or waited for by another thread.
fn taken(table: &mut HashMap<u64, State>, n: u64) -> Result<()> {
    match table.remove(&n) {
        Some(State::Over(ended)) => ended,
        Some(State::Open(..)) | None => Ok(()),
    }
}

/// Whether another thread has the operation's outcome.
fn is_taken(ended: &Result<()>) -> bool {
    ended.as_ref().is_err_and(|e| e.kind() == ErrorKind::Stale)
}

/// Whether a wait came back before the operation's end.
fn runs_on(session: &Session, op: OpId, ended: &Result<()>) -> bool {
    ended.as_ref().is_err_and(|e| {
        matches!(e.kind(), ErrorKind::DeadlineExceeded | ErrorKind::Interrupted)
            && session.test(op).is_ok()
    })
}

/// What is left of a time, whenever it is asked for.
fn time_left(timeout: Duration) -> impl Fn() -> Duration {
    let until = Instant::now().checked_add(timeout);
    move || until.map_or(Duration::MAX, |u| u.saturating_duration_since(Instant::now()))
}
