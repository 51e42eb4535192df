//! The workers of a session: a few that links to other hosts share, and one for each link to a process of this system.
//!
//! UCX's lanes of shared memory enter messages into a queue in the memory of the one whom they are for. A sender that is
//! killed after it took its place there and before it filled it stops that queue for ever and for everybody
//! (`uct_mm_ep_am_common_send`; shown with 1.13.1 and 1.22.0 by killing a sender there). A worker has one such queue for
//! each device, so peers that may stop each other's do not share a worker.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use hmc_hw::ucx::context::Context;

use super::Seat;
use crate::config::Progress;
use crate::driver::{Driver, Token};
use crate::error::Result;
use crate::lock::lock;

/// The workers of a session.
pub(super) struct Seats {
    context: Arc<Context>,
    progress: Progress,
    driver: Arc<Driver>,
    /// Whether a peer of this system gets a worker of its own: where there are lanes of shared memory.
    apart: bool,
    /// Those that links share, made when one is needed.
    shared: Mutex<Box<[Option<Arc<Seat>>]>>,
    /// Every one, of a number of its own. Taken as it is at the moment, and used without the lock.
    all: Mutex<Arc<[Arc<Seat>]>>,
    next: AtomicU32,
}

impl Seats {
    /// Of `shared` workers for all but those that are `apart`. They are numbered from `first` on.
    pub(super) fn new(
        context: &Arc<Context>,
        progress: Progress,
        driver: &Arc<Driver>,
        (shared, first): (u32, u32),
        apart: bool,
    ) -> Self {
        Self {
            context: Arc::clone(context),
            progress,
            driver: Arc::clone(driver),
            apart,
            shared: Mutex::new((0..shared.max(1)).map(|_| None).collect()),
            all: Mutex::new([].into()),
            next: AtomicU32::new(first),
        }
    }

    /// The worker for the link of that number, whose peer is `near` if it is a process of this system.
    ///
    /// # Errors
    /// What UCX answers; `SystemLimit`.
    pub(super) fn of_link(&self, serial: u32, near: bool) -> Result<Arc<Seat>> {
        if near && self.apart {
            return self.add();
        }
        let mut shared = lock(&self.shared);
        let count = shared.len().max(1);
        let at = usize::try_from(serial).unwrap_or(0).checked_rem(count).unwrap_or(0);
        if let Some(Some(seat)) = shared.get(at) {
            return Ok(Arc::clone(seat));
        }
        let seat = self.add()?;
        if let Some(place) = shared.get_mut(at) {
            *place = Some(Arc::clone(&seat));
        }
        Ok(seat)
    }

    fn add(&self) -> Result<Arc<Seat>> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let seat = Seat::new(&self.context, Token::Worker(number), self.progress, &self.driver)?;
        let mut all = lock(&self.all);
        *all = all.iter().chain([&seat]).map(Arc::clone).collect();
        Ok(seat)
    }

    /// All there are.
    pub(super) fn all(&self) -> Arc<[Arc<Seat>]> {
        Arc::clone(&lock(&self.all))
    }

    /// The one that is watched by that number.
    pub(super) fn find(&self, number: u32) -> Option<Arc<Seat>> {
        self.all().iter().find(|seat| seat.token() == Token::Worker(number)).map(Arc::clone)
    }

    /// Whether the link of a worker is gone, and no other may use it.
    pub(super) fn is_left(seat: &Arc<Seat>) -> bool {
        // `all` is one holder, and one that is shared has another.
        Arc::strong_count(seat) == 1
    }

    /// Whether peers that are gone have left a worker, or something for one to do.
    pub(super) fn has_left(&self) -> bool {
        self.all().iter().any(|seat| Self::is_left(seat) || !seat.worker().is_idle())
    }

    /// Lets go of workers whose link is gone and of which UCX uses nothing any more.
    pub(super) fn retire(&self) {
        let is_over = |seat: &Arc<Seat>| Self::is_left(seat) && seat.worker().is_idle();
        let mut all = lock(&self.all);
        if !all.iter().any(is_over) {
            return;
        }
        let left = all.iter().filter(|seat| !is_over(seat)).map(Arc::clone).collect();
        // To end them takes some milliseconds: not under the lock.
        let before = std::mem::replace(&mut *all, left);
        drop(all);
        drop(before);
    }
}
