//! Transfers that were begun by the seeds' calls, which know them by numbers.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hmc_std::{Error, ErrorKind, OpId, Session};

/// Those that nobody has waited for.
pub(crate) struct Begun(Mutex<Table>);

struct Table {
    next: u64,
    ops: HashMap<u64, OpId>,
}

impl Begun {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Table { next: 1, ops: HashMap::new() }))
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number for a transfer; never 0.
    pub(crate) fn number(&self, op: OpId) -> u64 {
        let mut table = self.table();
        let n = table.next;
        table.next = n.wrapping_add(1).max(1);
        table.ops.insert(n, op);
        n
    }

    /// Waits for all of them, whatever becomes of each.
    ///
    /// # Errors
    /// `NotFound` for a number that is none, before anything is waited for; then the first failure. One that has not ended in
    /// time can be waited for again.
    pub(crate) fn wait(
        &self,
        session: &Session,
        numbers: &[u64],
        timeout: Duration,
    ) -> hmc_std::error::Result<()> {
        let named: Result<Vec<(u64, OpId)>, u64> = {
            let table = self.table();
            numbers.iter().map(|n| table.ops.get(n).map(|op| (*n, *op)).ok_or(*n)).collect()
        };
        let named = named.map_err(|n| {
            let what = format!("{n} is no transfer that was begun and not waited for");
            Error::new(ErrorKind::NotFound, what)
        })?;
        let until = Instant::now().checked_add(timeout);
        let left = || until.map_or(Duration::MAX, |u| u.saturating_duration_since(Instant::now()));
        let mut failure = None;
        for (n, op) in named {
            let ended = session.wait_within(op, left());
            let runs_on = ended.as_ref().is_err_and(|e| {
                matches!(e.kind(), ErrorKind::DeadlineExceeded | ErrorKind::Interrupted)
                    && session.test(op).is_ok()
            });
            if !runs_on {
                self.table().ops.remove(&n);
            }
            match ended {
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::Interrupted => return Err(e),
                Err(e) => failure = failure.or(Some(e)),
            }
        }
        failure.map_or(Ok(()), Err)
    }
}
