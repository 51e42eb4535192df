//! The devices of this crate, alone or wrapped, as subjects.

use hmc_core::device::{Allocation, Device, DeviceMemory as _};
use hmc_core::place::DeviceId;
use hmc_core::region::{LocalRegion, RegionKey};

use super::device::DeviceSubject;
use super::transport::{IdleLimit, Support};
use crate::device::fake::{Config, FakeDevice};
use crate::device::host::HostDevice;

/// The fake device, or something that wraps it.
#[derive(Debug)]
pub struct FakeSubject<W, F> {
    config: Config,
    wrap: F,
    built: Option<W>,
    other: Option<W>,
}

impl<W, F> FakeSubject<W, F>
where
    W: Device + AsMut<FakeDevice>,
    F: Fn(FakeDevice) -> W,
{
    /// A subject whose device is what `wrap` makes of a fake one; its seed is also the suite's.
    pub const fn new(config: Config, wrap: F) -> Self {
        Self { config, wrap, built: None, other: None }
    }

    fn fake(&mut self) -> &mut FakeDevice {
        self.built.as_mut().expect("fresh was called").as_mut()
    }
}

impl AsMut<Self> for FakeDevice {
    fn as_mut(&mut self) -> &mut Self {
        self
    }
}

impl<W, F> DeviceSubject for FakeSubject<W, F>
where
    W: Device + AsMut<FakeDevice>,
    F: Fn(FakeDevice) -> W,
{
    type D = W;

    fn fresh(&mut self) -> Result<(), String> {
        let fake = FakeDevice::new(self.config);
        let id = DeviceId { index: self.config.id.index.wrapping_add(1), ..self.config.id };
        self.other = Some((self.wrap)(fake.beside(Config { id, ..self.config })));
        self.built = Some((self.wrap)(fake));
        Ok(())
    }

    fn device(&mut self) -> &mut W {
        self.built.as_mut().expect("fresh was called")
    }

    fn other(&mut self) -> Option<&mut W> {
        self.other.as_mut()
    }

    fn host(&mut self, key: RegionKey, len: u64) -> Result<LocalRegion, String> {
        self.fake().host(key, len).ok_or_else(|| "no host memory".to_owned())
    }

    fn write_host(&mut self, region: LocalRegion, offset: u64, bytes: &[u8]) {
        assert!(self.fake().host_write(region, offset, bytes), "host memory is known");
    }

    fn read_host(&mut self, region: LocalRegion, offset: u64, out: &mut [u8]) {
        assert!(self.fake().host_read(region, offset, out), "host memory is known");
    }

    fn drive(&mut self) {
        // Slow copies pass in fewer turns, but never in one.
        let by_ns = 100 + (self.config.delay_max_ns >> 4);
        self.fake().advance(by_ns);
    }

    fn capacity(&self) -> Option<u64> {
        Some(self.config.capacity_bytes)
    }

    fn lose(&mut self) -> Support {
        self.fake().lose();
        Support::Done
    }

    fn check(&mut self) -> Result<(), String> {
        self.fake().check().map_err(|damage| damage.to_string())?;
        match self.fake().misuse().first() {
            Some(what) => Err(what.clone()),
            None => Ok(()),
        }
    }

    fn idle_limit(&self) -> IdleLimit {
        IdleLimit::VIRTUAL
    }

    fn seed(&self) -> u64 {
        self.config.seed
    }
}

/// The host device.
#[derive(Debug, Default)]
pub struct HostSubject {
    device: HostDevice,
}

impl DeviceSubject for HostSubject {
    type D = HostDevice;

    fn fresh(&mut self) -> Result<(), String> {
        self.device = HostDevice::default();
        Ok(())
    }

    fn device(&mut self) -> &mut HostDevice {
        &mut self.device
    }

    fn host(&mut self, key: RegionKey, len: u64) -> Result<LocalRegion, String> {
        self.device.alloc(key, &Allocation::device(len)).map_err(|e| format!("{e:?}"))
    }

    fn write_host(&mut self, region: LocalRegion, offset: u64, bytes: &[u8]) {
        assert!(self.device.write(region, offset, bytes), "host memory is known");
    }

    fn read_host(&mut self, region: LocalRegion, offset: u64, out: &mut [u8]) {
        assert!(self.device.read(region, offset, out), "host memory is known");
    }

    fn check(&mut self) -> Result<(), String> {
        self.device.check().map_err(|damage| damage.to_string())
    }

    fn idle_limit(&self) -> IdleLimit {
        IdleLimit::VIRTUAL
    }
}
