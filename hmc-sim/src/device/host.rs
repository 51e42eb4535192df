//! The smallest correct device: host memory, copied when a copy is submitted.
//!
//! Read it as the reference of the rules of [`hmc_core::device`].

use std::collections::HashMap;
use std::convert::Infallible;

use hmc_core::device::{
    Allocation, Copies, Device, DeviceAttributes, DeviceErrorKind, DeviceFeatures, DeviceMemory,
    MemoryUsage, Rows, StreamEvent, StreamId, Streams,
};
use hmc_core::place::{DeviceId, Place};
use hmc_core::region::{LocalRegion, LocalSlice, RegionKey};

use crate::memory::{Corruption, Memory};

const ATTRIBUTES: DeviceAttributes =
    DeviceAttributes { total_bytes: 1 << 30, pci: None, features: DeviceFeatures::empty() };

/// Host memory as a device.
#[derive(Debug, Default)]
pub struct HostDevice {
    memory: Memory,
    /// Its regions, each with its key in `memory`.
    regions: HashMap<RegionKey, (LocalRegion, RegionKey)>,
    submitted: u64,
}

type Result<T> = core::result::Result<T, DeviceErrorKind>;

impl HostDevice {
    /// Copies bytes into a region. Whether the range was known.
    pub fn write(&mut self, region: LocalRegion, offset: u64, bytes: &[u8]) -> bool {
        let Some((_, key)) = self.regions.get(&region.key) else { return false };
        self.memory.write(LocalRegion { key: *key, ..region }, offset, bytes)
    }

    /// Copies bytes out of a region. Whether the range was known.
    pub fn read(&mut self, region: LocalRegion, offset: u64, out: &mut [u8]) -> bool {
        let Some((_, key)) = self.regions.get(&region.key) else { return false };
        self.memory.read(LocalRegion { key: *key, ..region }, offset, out)
    }

    /// Looks for bytes that nobody may write and somebody wrote.
    ///
    /// # Errors
    /// The first [`Corruption`].
    pub fn check(&self) -> core::result::Result<(), Corruption> {
        self.memory.check()
    }

    /// The slice in `memory`.
    fn known(&self, slice: LocalSlice) -> Result<LocalSlice> {
        let (region, key) = self.regions.get(&slice.key).ok_or(DeviceErrorKind::Region)?;
        let inside = region.extent.contains(slice.span);
        if inside { Ok(LocalSlice { key: *key, ..slice }) } else { Err(DeviceErrorKind::Range) }
    }

    fn bytes(&mut self, slice: LocalSlice) -> Result<&mut [u8]> {
        let slice = self.known(slice)?;
        self.memory.get_mut(slice).ok_or(DeviceErrorKind::Region)
    }

    fn event(&mut self, stream: StreamId) -> StreamEvent {
        self.submitted = self.submitted.saturating_add(1);
        StreamEvent { stream, number: self.submitted }
    }
}

fn check_stream(stream: StreamId) -> Result<()> {
    if stream == StreamId::FIRST { Ok(()) } else { Err(DeviceErrorKind::Stream) }
}

impl DeviceMemory for HostDevice {
    type Error = DeviceErrorKind;
    /// It reaches no memory but its own.
    type Memory = Infallible;

    fn alloc(&mut self, key: RegionKey, what: &Allocation) -> Result<LocalRegion> {
        if *what != Allocation::device(what.len_bytes) {
            return Err(DeviceErrorKind::Unsupported);
        }
        if self.regions.contains_key(&key) {
            return Err(DeviceErrorKind::Region);
        }
        let own = self.memory.register(what.len_bytes).ok_or(DeviceErrorKind::NoSpace)?;
        let region = LocalRegion { key, place: Place::HOST, ..own };
        self.regions.insert(key, (region, own.key));
        self.bytes(LocalSlice { key, span: region.extent.whole() })?.fill(0);
        Ok(region)
    }

    fn add(&mut self, _: RegionKey, memory: Infallible) -> Result<LocalRegion> {
        match memory {}
    }

    fn free(&mut self, key: RegionKey) -> Result<()> {
        let (_, own) = self.regions.remove(&key).ok_or(DeviceErrorKind::Region)?;
        if self.memory.deregister(own) { Ok(()) } else { Err(DeviceErrorKind::Region) }
    }

    fn memory(&self, _: RegionKey) -> Option<Infallible> {
        None
    }

    fn region(&self, key: RegionKey) -> Option<LocalRegion> {
        self.regions.get(&key).map(|(region, _)| *region)
    }

    fn usage(&mut self) -> Result<MemoryUsage> {
        let used: u64 = self.regions.values().map(|(region, _)| region.extent.len()).sum();
        let total_bytes = ATTRIBUTES.total_bytes;
        Ok(MemoryUsage { free_bytes: total_bytes.saturating_sub(used), total_bytes })
    }
}

impl Copies for HostDevice {
    fn copy(&mut self, stream: StreamId, from: LocalSlice, to: LocalSlice) -> Result<StreamEvent> {
        check_stream(stream)?;
        self.copy_now(from, to)?;
        Ok(self.event(stream))
    }

    fn copy_rows(
        &mut self,
        _: StreamId,
        _: LocalSlice,
        _: LocalSlice,
        _: &Rows,
    ) -> Result<StreamEvent> {
        Err(DeviceErrorKind::Unsupported)
    }

    fn fill(&mut self, stream: StreamId, to: LocalSlice, byte: u8) -> Result<StreamEvent> {
        check_stream(stream)?;
        self.bytes(to)?.fill(byte);
        Ok(self.event(stream))
    }

    fn copy_now(&mut self, from: LocalSlice, to: LocalSlice) -> Result<()> {
        self.known(to)?;
        let bytes = self.bytes(from)?.to_vec();
        let overlap = from.key == to.key && from.span.overlaps(to.span);
        if from.span.len() != to.span.len() || overlap {
            return Err(DeviceErrorKind::Range);
        }
        self.bytes(to)?.copy_from_slice(&bytes);
        Ok(())
    }
}

impl Streams for HostDevice {
    fn open_stream(&mut self) -> Result<StreamId> {
        Err(DeviceErrorKind::NoSpace)
    }

    fn close_stream(&mut self, _: StreamId) -> Result<()> {
        Err(DeviceErrorKind::Stream)
    }

    fn record(&mut self, stream: StreamId) -> Result<StreamEvent> {
        check_stream(stream)?;
        Ok(self.event(stream))
    }

    fn passed(&mut self, event: StreamEvent) -> Result<bool> {
        let known = event.stream == StreamId::FIRST && (1..=self.submitted).contains(&event.number);
        if known { Ok(true) } else { Err(DeviceErrorKind::Stream) }
    }

    fn wait(&mut self, stream: StreamId, event: StreamEvent) -> Result<()> {
        check_stream(stream)?;
        self.passed(event).map(|_| ())
    }
}

impl Device for HostDevice {
    fn id(&self) -> DeviceId {
        DeviceId::CPU
    }

    fn name(&self) -> &str {
        "host memory"
    }

    fn attributes(&self) -> &DeviceAttributes {
        &ATTRIBUTES
    }
}
