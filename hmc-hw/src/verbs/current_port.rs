//! The port of a session: its attributes as last read, and the events since then.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::event::EventType;
use super::fault::VerbsFault;
use super::select::Port;
use super::sys::{IBV_EVENT_PORT_ACTIVE, IBV_EVENT_PORT_ERR};
use crate::host::{Event, Host};

/// A port whose attributes may change.
#[derive(Debug)]
pub(super) struct CurrentPort {
    last: Mutex<Arc<Port>>,
    /// It is to be read again before it is used.
    is_stale: AtomicBool,
    /// It was reported as down, and not as active since then.
    is_down: AtomicBool,
}

/// An event of a port.
struct PortEvent<'p>(&'p Port, EventType);

impl fmt::Display for PortEvent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(port, event) = self;
        write!(f, "{}:{}: {event}", port.device().name(), port.number())
    }
}

impl CurrentPort {
    pub(super) fn new(port: Port) -> Self {
        let last = Mutex::new(Arc::new(port));
        Self { last, is_stale: AtomicBool::new(false), is_down: AtomicBool::new(false) }
    }

    fn lock(&self) -> MutexGuard<'_, Arc<Port>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns it as it was read last.
    pub(super) fn last(&self) -> Arc<Port> {
        Arc::clone(&self.lock())
    }

    /// Returns it as it is now.
    ///
    /// # Errors
    /// [`VerbsFault::Port`] if it cannot be used now.
    pub(super) fn read(&self) -> Result<Arc<Port>, VerbsFault> {
        // Nobody takes the old one while it is read again.
        let mut last = self.lock();
        // An event that comes meanwhile makes it stale once more.
        if self.is_stale.swap(false, Ordering::AcqRel) {
            match last.read_again() {
                Ok(read) => *last = Arc::new(read),
                Err(e) => {
                    self.is_stale.store(true, Ordering::Release);
                    return Err(VerbsFault::Port(e));
                }
            }
        }
        Ok(Arc::clone(&last))
    }

    /// An event has changed it. That it is down is reported once.
    pub(super) fn record(&self, event: EventType, host: &dyn Host) {
        self.is_stale.store(true, Ordering::Release);
        let last = self.last();
        let what = PortEvent(&last, event);
        match event.0 {
            IBV_EVENT_PORT_ERR => {
                if !self.is_down.swap(true, Ordering::AcqRel) {
                    host.report(Event::PortDown(&what));
                }
                return;
            }
            IBV_EVENT_PORT_ACTIVE => self.is_down.store(false, Ordering::Release),
            _ => {}
        }
        host.report(Event::PortChanged(&what));
    }
}
