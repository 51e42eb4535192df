//! Transfers that calls of the C++ HMC's API posted, which names them by numbers. The sessions over one buffer share them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hmc_std::error::Result;
use hmc_std::identity;
use hmc_std::request::Carried;
use hmc_std::{Error, ErrorKind, Op, Session, Waited};

use crate::peer_table::PeerKey;
use crate::session_state::closed;

/// Time limit for the completion of a cancelled operation.
const CANCELLED: Duration = Duration::from_secs(1);

/// Transfers that no call has waited for.
pub(crate) struct OpTable(Mutex<HashMap<u64, State>>);

enum State {
    /// Started at the session of that number for that key.
    Open(Arc<Op>, u64, PeerKey),
    /// Its key was ended: the outcome. The operation would keep the memory of a closed link.
    Over(Result<()>),
}

impl OpTable {
    pub(crate) fn new() -> Self {
        Self(Mutex::default())
    }

    fn table(&self) -> MutexGuard<'_, HashMap<u64, State>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Inserts a transfer and returns its number; never 0, and unique in the process.
    pub(crate) fn insert(&self, op: Op, session: u64, key: PeerKey) -> u64 {
        let n = identity::next();
        self.table().insert(n, State::Open(Arc::new(op), session, key));
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
                Some(State::Open(op, session, _)) => (Arc::clone(op), *session),
                Some(State::Over(_)) | None => return taken(&mut table, n),
            }
        };
        find(session).inspect_err(|_| self.set(n, None))?;
        let ended = outcome(&op, timeout);
        if !matches!(ended, Waited::Limit | Waited::Interrupted) {
            self.set(n, None);
        }
        result(&op, ended)
    }

    /// Marks a transfer as no longer open: its outcome can be taken once, or it was waited for.
    fn set(&self, n: u64, over: Option<State>) {
        let mut table = self.table();
        let known = table.remove(&n);
        table.extend(known.is_some().then_some(over).flatten().map(|over| (n, over)));
        drop(table);
        // The last handle of the operation may be there.
        drop(known);
    }

    /// A session was closed: its operations would keep its links, and their descriptors.
    pub(crate) fn close(&self, session: u64) {
        let mut ended = Vec::new();
        for state in self.table().values_mut() {
            if matches!(state, State::Open(_, at, _) if *at == session) {
                ended.push(std::mem::replace(state, State::Over(Err(closed()))));
            }
        }
        // Without the lock.
        drop(ended);
    }

    /// Waits until the transfers of a session and a key have completed, and cancels those that have not before the deadline. The
    /// outcome of each can be taken as before.
    ///
    /// # Errors
    /// `Interrupted`.
    pub(crate) fn end(&self, session: u64, key: PeerKey, timeout: Duration) -> Result<()> {
        let open: Vec<(u64, Arc<Op>)> = {
            let table = self.table();
            let of = |(n, state): (&u64, &State)| match state {
                State::Open(op, at, by) if *by == key && *at == session => {
                    Some((*n, Arc::clone(op)))
                }
                State::Open(..) | State::Over(_) => None,
            };
            table.iter().filter_map(of).collect()
        };
        let left = time_left(timeout);
        for (n, op) in open {
            let mut ended = outcome(&op, left());
            if matches!(ended, Waited::Interrupted) {
                return result(&op, ended);
            }
            if matches!(ended, Waited::Limit) {
                op.cancel();
                ended = outcome(&op, CANCELLED);
            }
            self.set(n, Some(State::Over(result(&op, ended))));
        }
        Ok(())
    }
}

/// Waits for the end of a transfer.
fn outcome(op: &Op, timeout: Duration) -> Waited<Result<()>> {
    match op.wait_for(timeout) {
        Waited::Ended(moved) => Waited::Ended(moved.map(drop)),
        Waited::Limit => Waited::Limit,
        Waited::Interrupted => Waited::Interrupted,
    }
}

/// The error of a wait that ended before its operation.
pub(crate) fn unfinished<M: Carried>(op: &Op<M>, kind: ErrorKind, what: &str) -> Error {
    let error = Error::new(kind, what);
    match op.name() {
        Some(name) => error.with_op(name),
        None => error,
    }
}

/// What a caller is told of it.
fn result(op: &Op, waited: Waited<Result<()>>) -> Result<()> {
    match waited {
        Waited::Ended(result) => result,
        Waited::Limit => Err(unfinished(
            op,
            ErrorKind::DeadlineExceeded,
            "waiting: the deadline passed; wait longer or look at the peer",
        )),
        Waited::Interrupted => {
            let what = "waiting: the interrupt hook ended the wait";
            Err(unfinished(op, ErrorKind::Interrupted, what))
        }
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

/// Returns a function that gives the rest of a time limit.
fn time_left(timeout: Duration) -> impl Fn() -> Duration {
    let until = Instant::now().checked_add(timeout);
    move || until.map_or(Duration::MAX, |u| u.saturating_duration_since(Instant::now()))
}
