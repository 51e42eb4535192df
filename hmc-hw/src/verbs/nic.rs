//! One NIC of a session: the port in use, and the objects that links share on it.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::current_port::CurrentPort;
use super::device::Device;
use super::error::VerbsError;
use super::event::EventType;
use super::fault::VerbsFault;
use super::select::Port;
use super::shared_regions::SharedRegions;

/// Gets under way at a time on one queue pair.
const MAX_GETS: u32 = 16;

/// A port of a session, on a device that is open.
pub(super) struct Nic {
    device: Arc<Device>,
    pub(super) port: CurrentPort,
    /// The event by which the device has failed.
    failed: OnceLock<EventType>,
    /// What new links share if the devices of the session enforce memory windows.
    shared: Mutex<Option<Arc<SharedRegions>>>,
}

impl fmt::Debug for Nic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nic").field("port", &self.port).finish_non_exhaustive()
    }
}

/// An event by which a device has failed.
struct DeviceEvent<'d>(&'d Device, EventType);

impl fmt::Display for DeviceEvent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.name(), self.1)
    }
}

impl Nic {
    pub(super) fn new(port: Port) -> Self {
        let device = Arc::clone(port.device());
        let port = CurrentPort::new(port);
        Self { device, port, failed: OnceLock::new(), shared: Mutex::default() }
    }

    pub(super) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// What new links share: made, if there is nothing.
    ///
    /// # Errors
    /// Those of `make`.
    pub(super) fn shared_or(
        &self,
        make: impl FnOnce() -> Result<SharedRegions, VerbsError>,
    ) -> Result<Arc<SharedRegions>, VerbsError> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        match &*shared {
            Some(shared) => Ok(Arc::clone(shared)),
            None => Ok(Arc::clone(shared.insert(Arc::new(make()?)))),
        }
    }

    /// New links share something else than that.
    pub(super) fn retire(&self, domain: &Arc<SharedRegions>) {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.take_if(|shared| Arc::ptr_eq(shared, domain));
    }

    /// Returns the port for a new link, as it is now.
    ///
    /// # Errors
    /// [`VerbsFault::Device`], [`VerbsFault::Port`].
    pub(super) fn usable_port(&self) -> Result<Arc<Port>, VerbsFault> {
        match self.failed.get() {
            Some(event) => {
                Err(VerbsFault::Device { name: self.device.name().to_owned(), event: *event })
            }
            None => self.port.read(),
        }
    }

    /// Returns the event by which the device has failed.
    pub(super) fn failed(&self) -> Option<EventType> {
        self.failed.get().copied()
    }

    /// The device has failed. Calls `report` with that, once.
    pub(super) fn fail(&self, event: EventType, report: impl FnOnce(&dyn fmt::Display)) {
        if self.failed.set(event).is_ok() {
            report(&DeviceEvent(&self.device, event));
        }
    }

    /// Gets that a queue pair of this end may have under way.
    pub(super) fn gets(&self) -> u8 {
        limited(self.device.attrs().max_initiator_gets)
    }

    /// Gets of a peer that a queue pair serves at a time.
    pub(super) fn gets_of_peer(&self) -> u8 {
        limited(self.device.attrs().max_target_gets)
    }
}

/// Gets under way at a time, of a device that can have so many: more than some would only take space there.
fn limited(count: u32) -> u8 {
    u8::try_from(count.min(MAX_GETS)).unwrap_or(u8::MAX)
}
