//! A session's part in UCX.

use std::sync::Arc;

#[cfg(hmc_mutants)]
use hmc_core::mutant::{self, Mutant};
use hmc_core::types::ConnType;
use hmc_hw::ucx::memory::Memory;

use crate::aside::Collects;
use crate::error::{Error, ErrorKind, Result};
use crate::lock::lock;
use crate::shared::Shared;
use crate::ucx::Plane;

impl Shared {
    /// The session's part in UCX, begun at its first use.
    ///
    /// # Errors
    /// As [`Plane::start`].
    pub(crate) fn ucx(&self) -> Result<Arc<Plane>> {
        let mut place = lock(&self.plane);
        if let Some(plane) = &*place {
            return Ok(Arc::clone(plane));
        }
        let plane = Plane::start(&self.config.ucx, self.config.progress, &self.driver)?;
        *place = Some(Arc::clone(&plane));
        Ok(plane)
    }

    /// The transport that was asked for, once what it needs is there.
    ///
    /// # Errors
    /// As [`Plane::start`].
    pub(crate) fn found(&self, conn: ConnType) -> Result<ConnType> {
        if conn == ConnType::Ucx {
            let plane = self.ucx();
            #[cfg(hmc_mutants)]
            if plane.is_err() && mutant::is(Mutant::FallBack) {
                return Ok(ConnType::Auto);
            }
            plane?;
        }
        Ok(conn)
    }

    /// Whether some worker of UCX is to be looked at each millisecond.
    pub(crate) fn is_restless(&self) -> bool {
        self.ucx_begun().is_some_and(|plane| plane.is_restless())
    }

    /// Something came for the worker of that number. Whether anything happened.
    pub(crate) fn serve_worker(&self, worker: u32) -> bool {
        self.at_plane(|plane, free| plane.serve(worker, free))
    }

    /// Lets UCX look after its own connections, and after what peers that are gone have left.
    pub(crate) fn serve_workers(&self) {
        self.at_plane(|plane, free| {
            plane.serve_all(free);
            true
        });
    }

    /// Lets all workers work, whoever watches them. Whether anything happened.
    pub(crate) fn crank_workers(&self) -> bool {
        self.at_plane(Plane::crank_all)
    }

    /// Whether peers that are gone have left something for a worker to do.
    pub(crate) fn has_left_in_ucx(&self) -> bool {
        self.ucx_begun().is_some_and(|plane| plane.has_left())
    }

    /// What becomes free meanwhile may be the application's: it is dropped after the right to make calls was given back.
    fn at_plane(&self, run: impl FnOnce(&Plane, &mut Vec<Arc<Memory>>) -> bool) -> bool {
        let Some(plane) = self.ucx_begun() else { return false };
        let _aside = Collects::to(&self.wakers);
        let mut free = Vec::new();
        let busy = run(&plane, &mut free);
        drop(free);
        busy
    }

    /// # Errors
    /// `Closed` when the process is about to end by exit(3) and this session takes part in UCX: what its thread has locked
    /// stays so, and the system closes everything.
    pub(crate) fn check_lasts(&self) -> Result<()> {
        if self.ucx_begun().is_some_and(|plane| plane.is_ending()) {
            let what = "the process is about to end: the system closes what is open";
            return Err(Error::new(ErrorKind::Closed, what));
        }
        Ok(())
    }

    /// The session's part in UCX, if it has begun.
    pub(crate) fn ucx_begun(&self) -> Option<Arc<Plane>> {
        lock(&self.plane).clone()
    }
}
