//! What wakes a caller that waits for several links, and for which links it does.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use rustix::event::EventfdFlags;

use crate::error::{Error, Result};
use crate::lock::lock;

/// What wakes a caller that waits for several links.
#[derive(Debug)]
pub(crate) struct Bell {
    /// It sleeps on `fd`, or is about to. Touched by read-modify-writes alone, which stand in one order: who rings before
    /// it parks has done before what it rings for, and the look after that finds it; who rings later finds it parked.
    parked: AtomicBool,
    pub(super) fd: OwnedFd,
}

impl Bell {
    /// # Errors
    /// `SystemLimit` when descriptors are used up.
    pub(crate) fn new() -> Result<Arc<Self>> {
        rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map(|fd| Arc::new(Self { parked: AtomicBool::new(false), fd }))
            .map_err(|e| Error::io("cannot create an eventfd to wait on", e))
    }

    /// Wakes its owner, if that sleeps.
    fn ring(&self) {
        if self.parked.swap(false, Ordering::AcqRel) {
            // eventfd(2): fails only when the counter is full, and then it rings already.
            let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
        }
    }

    /// Its owner is about to sleep: look once more after this.
    pub(super) fn park(&self) {
        self.parked.swap(true, Ordering::AcqRel);
    }

    /// Whether nobody has rung since its owner parked.
    pub(super) fn is_parked(&self) -> bool {
        self.parked.load(Ordering::Acquire)
    }

    /// Its owner is awake.
    pub(super) fn unpark(&self) {
        if !self.parked.swap(false, Ordering::AcqRel) {
            // What has not been written yet rings the next sleep once, for nothing.
            let mut count = [0; 8];
            let _ = rustix::io::read(&self.fd, &mut count);
        }
    }
}

/// The bells of one link: rung when a message ended or has bytes for a lender, and when the link died.
#[derive(Debug, Default)]
pub(crate) struct Bells(Mutex<Vec<Arc<Bell>>>);

impl Bells {
    /// Has `bell` rung from now on: look once more after this.
    pub(crate) fn hang(&self, bell: &Arc<Bell>) {
        lock(&self.0).push(Arc::clone(bell));
    }

    /// Takes it off.
    pub(crate) fn take_off(&self, bell: &Arc<Bell>) {
        lock(&self.0).retain(|b| !Arc::ptr_eq(b, bell));
    }

    pub(super) fn ring(&self) {
        for bell in &*lock(&self.0) {
            bell.ring();
        }
    }
}
