//! Transfers that calls of the C++ HMC's API posted, which names them by numbers. The sessions over one buffer share them.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hmc_std::error::Result;
use hmc_std::identity;
use hmc_std::{Error, ErrorKind, OpId, Session};

use crate::peer_table::PeerKey;

/// Time limit for the completion of a cancelled operation.
const CANCELLED: Duration = Duration::from_secs(1);

/// Time within which a thread that took the outcome of a transfer reports it.
const REPORTED: Duration = Duration::from_secs(1);

/// Transfers that no call has waited for.
pub(crate) struct OpTable {
    table: Mutex<HashMap<u64, State>>,
    /// Notified whenever a transfer is no longer open.
    ended: Condvar,
}

enum State {
    /// Posted at the session of that number for that key. A peer here would keep a closed link, and its descriptors.
    Open(OpId, u64, PeerKey),
    /// Its key was ended: the outcome.
    Over(Result<()>),
}

impl OpTable {
    pub(crate) fn new() -> Self {
        Self { table: Mutex::default(), ended: Condvar::new() }
    }

    fn table(&self) -> MutexGuard<'_, HashMap<u64, State>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Inserts a transfer and returns its number; never 0, and unique in the process.
    pub(crate) fn insert(&self, op: OpId, session: u64, key: PeerKey) -> u64 {
        let n = identity::next();
        self.table().insert(n, State::Open(op, session, key));
        n
    }

    /// Waits for all of them, even if some fail. 0 is the number of a completed one. `find` returns the session of a number.
    ///
    /// # Errors
    /// `NotFound` for an unknown number, before any wait; then the first failure, those of `find` among them. One that has not completed before the deadline can be waited for again.
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
            // By another thread that waits for it or ends its key, which now updates the table.
            let open =
                |table: &mut HashMap<u64, State>| matches!(table.get(&n), Some(State::Open(..)));
            let reported =
                self.ended.wait_timeout_while(self.table(), REPORTED, |table| open(table));
            let (mut table, _) = reported.unwrap_or_else(PoisonError::into_inner);
            return if open(&mut table) { ended } else { taken(&mut table, n) };
        }
        if !runs_on(&session, op, &ended) {
            self.set(n, None);
        }
        ended
    }

    /// Marks a transfer as no longer open: its outcome can be taken once, or it was waited for.
    fn set(&self, n: u64, over: Option<State>) {
        let mut table = self.table();
        let known = table.remove(&n);
        table.extend(known.and(over).map(|over| (n, over)));
        self.ended.notify_all();
    }

    /// Waits until the transfers of a session and a key have completed, and cancels those that have not before the deadline. The
    /// outcome of each can be taken as before.
    ///
    /// # Errors
    /// `Interrupted`.
    pub(crate) fn end(&self, session: &Session, key: PeerKey, timeout: Duration) -> Result<()> {
        let open: Vec<(u64, OpId)> = {
            let table = self.table();
            let of = |(n, state): (&u64, &State)| match state {
                State::Open(op, at, by) if *by == key && *at == session.id() => Some((*n, *op)),
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
            // An outcome that another thread took goes to that thread's caller.
            if !is_taken(&ended) {
                self.set(n, Some(State::Over(ended)));
            }
        }
        Ok(())
    }
}

/// Returns the outcome of a transfer that is not open. One that is not in the table was passed twice, or another thread waited
/// for it.
fn taken(table: &mut HashMap<u64, State>, n: u64) -> Result<()> {
    match table.remove(&n) {
        Some(State::Over(ended)) => ended,
        Some(State::Open(..)) | None => Ok(()),
    }
}

/// Returns `true` if another thread has the operation's outcome.
fn is_taken(ended: &Result<()>) -> bool {
    ended.as_ref().is_err_and(|e| e.kind() == ErrorKind::Stale)
}

/// Returns `true` if a wait returned before the operation's completion.
fn runs_on(session: &Session, op: OpId, ended: &Result<()>) -> bool {
    ended.as_ref().is_err_and(|e| {
        matches!(e.kind(), ErrorKind::DeadlineExceeded | ErrorKind::Interrupted)
            && session.test(op).is_ok()
    })
}

/// Returns a function that gives the rest of a time limit.
fn time_left(timeout: Duration) -> impl Fn() -> Duration {
    let until = Instant::now().checked_add(timeout);
    move || until.map_or(Duration::MAX, |u| u.saturating_duration_since(Instant::now()))
}
