//! [`DeviceSubject`]: a device under test.

use hmc_core::device::Device;
use hmc_core::region::{LocalRegion, RegionKey};

use super::subject::{IdleLimit, Support};

/// A device under test, and host memory that it can reach.
pub trait DeviceSubject {
    /// The device.
    type D: Device;

    /// Makes a device without memory. Earlier ones may be dropped.
    ///
    /// # Errors
    /// Why it could not be made; the case fails with it.
    fn fresh(&mut self) -> Result<(), String>;
    /// The device.
    fn device(&mut self) -> &mut Self::D;
    /// Another device of the same runtime, made with the first one: each can add the other's memory.
    fn other(&mut self) -> Option<&mut Self::D> {
        None
    }
    /// Host memory of `len` bytes that the device can reach, in its table under `key`.
    ///
    /// # Errors
    /// Why there is none.
    fn host(&mut self, key: RegionKey, len: u64) -> Result<LocalRegion, String>;
    /// Writes host memory: that of `host`, or pinned memory of the device.
    fn write_host(&mut self, region: LocalRegion, offset: u64, bytes: &[u8]);
    /// Reads host memory: it must move nothing and wait for nothing.
    fn read_host(&mut self, region: LocalRegion, offset: u64, out: &mut [u8]);
    /// Lets the device make progress if it does not by itself.
    fn drive(&mut self) {}
    /// Bytes that can be allocated in all, if a test may use them up.
    fn capacity(&self) -> Option<u64> {
        None
    }
    /// The device is lost.
    fn lose(&mut self) -> Support {
        Support::Unsupported("this device cannot be lost on purpose")
    }
    /// Checks for bytes that were written without a right.
    ///
    /// # Errors
    /// The first such byte.
    fn check(&mut self) -> Result<(), String> {
        Ok(())
    }
    /// How long a case waits for this subject.
    fn idle_limit(&self) -> IdleLimit {
        IdleLimit::REAL
    }
    /// The seed of the suite's own random numbers.
    fn seed(&self) -> u64 {
        1
    }
}
