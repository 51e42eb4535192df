//! What a session does for the shared workers of its transports.

use hmc_core::types::ConnType;

use crate::base::error::{Error, ErrorKind, Result};
use crate::callbacks::deferred_drops::DeferDrops;
use crate::state::inner::SessionInner;
use crate::transport::domain::Domain;
use crate::transport::released::Released;

impl SessionInner {
    /// The shared worker of that number has something to do. Returns whether anything happened.
    pub(crate) fn poll_worker(&self, worker: u32) -> bool {
        self.with_released(|released| self.domains.poll_worker(worker, released))
    }

    /// Lets the workers do what has a time of its own, and what closed links have left.
    pub(crate) fn tick_workers(&self) {
        self.with_released(|released| self.domains.tick_workers(released));
    }

    /// Makes progress on all workers, whoever watches them. Returns whether anything happened.
    pub(crate) fn progress_workers(&self) -> bool {
        self.with_released(|released| self.domains.progress_workers(released))
    }

    /// What is released may be the application's: it is dropped without a lock.
    fn with_released<R>(&self, run: impl FnOnce(&mut Released) -> R) -> R {
        let _aside = DeferDrops::to(&self.wakers);
        let mut released = Released::default();
        let result = run(&mut released);
        drop(released);
        result
    }

    /// The transport that was asked for, once what it needs is there.
    ///
    /// # Errors
    /// `Unavailable`.
    pub(crate) fn activate(&self, conn: ConnType) -> Result<ConnType> {
        if conn != ConnType::Auto {
            // One that is not in this build is refused once it is known whether a peer is there.
            let activated = self.domains.find(conn).map_or(Ok(()), Domain::activate);
            activated?;
        }
        Ok(conn)
    }

    /// # Errors
    /// `Closed` when the process is about to end by exit(3) and this session uses a library that has state of its own: what its
    /// thread has locked stays so, and the system closes everything.
    pub(crate) fn check_lasts(&self) -> Result<()> {
        if self.domains.is_ending() {
            let what = "the process is about to end: the system closes what is open";
            return Err(Error::new(ErrorKind::Closed, what));
        }
        Ok(())
    }
}
