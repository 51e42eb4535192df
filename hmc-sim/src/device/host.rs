//! The smallest correct device: host memory, copied when a copy is submitted.
//!
//! Read it as the reference of [`Device`]'s rules.

use hmc_core::device::{Device, DeviceErrorKind, StreamEvent, StreamId};
use hmc_core::region::{LocalRegion, LocalSlice, RegionKey};
use hmc_core::types::MemoryKind;

use crate::memory::{Corruption, Memory};

/// Host memory as a device.
#[derive(Debug, Default)]
pub struct HostDevice {
    memory: Memory,
    regions: Vec<LocalRegion>,
    submitted: u64,
}

impl HostDevice {
    /// Copies bytes into a region. Whether the range was known.
    pub fn write(&mut self, region: LocalRegion, offset: u64, bytes: &[u8]) -> bool {
        self.memory.write(region, offset, bytes)
    }

    /// Copies bytes out of a region. Whether the range was known.
    pub fn read(&mut self, region: LocalRegion, offset: u64, out: &mut [u8]) -> bool {
        self.memory.read(region, offset, out)
    }

    /// Looks for bytes that nobody may write and somebody wrote.
    ///
    /// # Errors
    /// The first [`Corruption`].
    pub fn check(&self) -> Result<(), Corruption> {
        self.memory.check()
    }

    fn known(&self, slice: LocalSlice) -> Result<(), DeviceErrorKind> {
        let region = self.region(slice.key).ok_or(DeviceErrorKind::Region)?;
        let inside = region.extent.contains(slice.span);
        if inside { Ok(()) } else { Err(DeviceErrorKind::Range) }
    }
}

impl Device for HostDevice {
    type Error = DeviceErrorKind;

    fn kind(&self) -> MemoryKind {
        MemoryKind::Cpu
    }

    fn name(&self) -> &str {
        "host memory"
    }

    fn alloc(&mut self, len_bytes: u64) -> Result<LocalRegion, DeviceErrorKind> {
        let region = self.memory.register(len_bytes).ok_or(DeviceErrorKind::NoSpace)?;
        self.regions.push(region);
        Ok(region)
    }

    fn free(&mut self, key: RegionKey) -> Result<(), DeviceErrorKind> {
        if !self.memory.deregister(key) {
            return Err(DeviceErrorKind::Region);
        }
        self.regions.retain(|region| region.key != key);
        Ok(())
    }

    fn region(&self, key: RegionKey) -> Option<LocalRegion> {
        self.regions.iter().find(|region| region.key == key).copied()
    }

    fn copy(
        &mut self,
        stream: StreamId,
        from: LocalSlice,
        to: LocalSlice,
    ) -> Result<StreamEvent, DeviceErrorKind> {
        if stream != StreamId(0) {
            return Err(DeviceErrorKind::Unsupported);
        }
        self.known(from)?;
        self.known(to)?;
        let overlap = from.key == to.key && from.span.overlaps(to.span);
        if from.span.len() != to.span.len() || overlap {
            return Err(DeviceErrorKind::Range);
        }
        let bytes = self.memory.get(from).ok_or(DeviceErrorKind::Region)?.to_vec();
        self.memory.get_mut(to).ok_or(DeviceErrorKind::Region)?.copy_from_slice(&bytes);
        self.submitted = self.submitted.saturating_add(1);
        Ok(StreamEvent { stream, number: self.submitted })
    }

    fn passed(&mut self, mark: StreamEvent) -> Result<bool, DeviceErrorKind> {
        let known = mark.stream == StreamId(0) && mark.number <= self.submitted;
        if known { Ok(true) } else { Err(DeviceErrorKind::Other) }
    }
}
