//! A fake device as GPU runtimes show it: addresses, streams by number, host memory by pointer.
//!
//! Addresses of device memory are numbers that no processor can follow. Host pointers are read and
//! written when a copy runs, not when it is submitted, as a device does it.

use core::ptr::NonNull;
use std::collections::BTreeMap;

use hmc_core::device::{Device, DeviceErrorKind, StreamEvent, StreamId};
use hmc_core::range::{Extent, Side};
use hmc_core::region::{LocalRegion, LocalSlice, RegionKey};
use hmc_core::types::MemoryKind;
use hmc_mem::shared::SharedBytes;

use super::knobs::Knobs;
use crate::device::fake::{Config, FakeDevice, HostBytes};
use crate::fault::Rate;

/// Where addresses of device memory begin: not canonical on x86-64, beyond 48 bits on aarch64, so to
/// follow one is a fault of the processor and never an access to something else.
const BASE: u64 = 0x00AB_0000_0000_0000;
/// Addresses between two allocations that belong to nobody, at least.
const GAP: u64 = 1 << 16;
/// Questions about a stream before it is given up.
const PATIENCE: u32 = 1 << 24;

impl HostBytes for SharedBytes<'static> {
    fn read(&self, offset: u64, out: &mut [u8]) {
        let span = self.extent().span(Side::Local, offset, u64::try_from(out.len()).unwrap_or(0));
        // The device has checked the range against the same length before.
        let _ = span.map(|span| self.read_at(span, out));
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) {
        let span = self.extent().span(Side::Local, offset, u64::try_from(bytes.len()).unwrap_or(0));
        // The device has checked the range against the same length before.
        let _ = span.map(|span| self.write_at(span, bytes));
    }
}

/// A fake device behind addresses.
#[derive(Debug)]
pub struct Gpu {
    device: FakeDevice,
    /// Allocations by their first address.
    places: BTreeMap<u64, LocalRegion>,
    next: u64,
    /// Host memory of copies that may still run.
    borrowed: Vec<(StreamEvent, RegionKey)>,
}

impl Gpu {
    /// A device of that kind. Settings: `capacity_bytes`, `delay_max_ns`, `seed`, `depth`,
    /// `lost_after` (copies), `failed_percent` (of copies).
    #[must_use]
    pub fn new(kind: MemoryKind, knobs: &Knobs) -> Self {
        let fair = Config::FAIR;
        let config = Config {
            kind,
            seed: knobs.setting("seed", fair.seed),
            capacity_bytes: knobs.setting("capacity_bytes", 64 << 20),
            delay_max_ns: knobs.setting("delay_max_ns", fair.delay_max_ns),
            depth: usize::try_from(knobs.setting("depth", 64)).unwrap_or(64),
            lost_after: Some(knobs.setting("lost_after", 0)).filter(|n| *n != 0),
            failed: Rate::percent(u32::try_from(knobs.setting("failed_percent", 0)).unwrap_or(100)),
            streams: 1,
            ..fair
        };
        let device = FakeDevice::new(config);
        Self { device, places: BTreeMap::new(), next: BASE, borrowed: Vec::new() }
    }

    /// The device itself.
    pub const fn device(&mut self) -> &mut FakeDevice {
        &mut self.device
    }

    /// New memory; its address.
    ///
    /// # Errors
    /// As [`Device::alloc`].
    pub fn malloc(&mut self, len: u64) -> Result<u64, DeviceErrorKind> {
        let region = self.device.alloc(len)?;
        let at = self.next;
        let taken = len.checked_add(GAP).and_then(|n| n.checked_next_multiple_of(GAP));
        self.next = taken.and_then(|n| at.checked_add(n)).ok_or(DeviceErrorKind::NoSpace)?;
        self.places.insert(at, region);
        Ok(at)
    }

    /// Gives memory back, after all copies that were submitted.
    ///
    /// # Errors
    /// `Region` when no memory begins at `at`; what [`Self::synchronize`] says.
    pub fn free(&mut self, at: u64) -> Result<(), DeviceErrorKind> {
        let region = self.places.get(&at).copied().ok_or(DeviceErrorKind::Region)?;
        let mut freed = self.device.free(region.key);
        for _ in 0..PATIENCE {
            if freed != Err(DeviceErrorKind::Region) {
                break;
            }
            self.device.advance(1000);
            freed = self.device.free(region.key);
        }
        freed?;
        self.places.remove(&at);
        Ok(())
    }

    /// Whether an address is of device memory; of which region, and how far within.
    #[must_use]
    pub fn find(&self, at: u64) -> Option<(LocalRegion, u64)> {
        let (from, region) = self.places.range(..=at).next_back()?;
        let within = at.checked_sub(*from)?;
        (within < region.extent.len()).then_some((*region, within))
    }

    /// Whether a number can be an address of this kind of memory at all.
    #[must_use]
    pub const fn is_device(at: u64) -> bool {
        at >> 48 == BASE >> 48
    }

    fn device_range(&self, at: u64, len: u64) -> Result<LocalSlice, DeviceErrorKind> {
        let (region, within) = self.find(at).ok_or(DeviceErrorKind::Region)?;
        region.slice(within, len).map_err(|_| DeviceErrorKind::Range)
    }

    /// Host memory that a copy will use.
    ///
    /// # Safety
    /// As [`Self::copy_async`], for this range.
    unsafe fn borrow(&mut self, at: u64, len: u64) -> Result<LocalSlice, DeviceErrorKind> {
        let bytes = usize::try_from(len).map_err(|_| DeviceErrorKind::Range)?;
        let address = usize::try_from(at).map_err(|_| DeviceErrorKind::Range)?;
        let start = NonNull::new(core::ptr::with_exposed_provenance_mut::<u8>(address));
        let start = start.ok_or(DeviceErrorKind::Region)?;
        // SAFETY: the caller vouched that the bytes stay mapped and are used by nobody else until the
        // stream has passed the copy; the device touches them no more once it was told so, and
        // `settle` drops the view then.
        let view: SharedBytes<'static> = unsafe { SharedBytes::new(start, bytes) };
        let region = self.device.adopt(len, Box::new(view)).ok_or(DeviceErrorKind::NoSpace)?;
        Ok(LocalSlice { key: region.key, span: Extent::new(len).whole() })
    }

    /// Submits a copy of `len` bytes; which of the two is on the device follows from the addresses.
    ///
    /// # Errors
    /// As [`Device::copy`]. `Unsupported` when both are on the host.
    ///
    /// # Safety
    /// A host address is that of `len` bytes which stay mapped, and which nobody else reads or writes,
    /// until [`Self::synchronize`] or [`Self::query`] has said that the copy is over.
    pub unsafe fn copy_async(
        &mut self,
        to: u64,
        from: u64,
        len: u64,
        stream: StreamId,
    ) -> Result<(), DeviceErrorKind> {
        let (from, to, borrowed) = match (Self::is_device(from), Self::is_device(to)) {
            (false, false) => return Err(DeviceErrorKind::Unsupported),
            (true, true) => (self.device_range(from, len)?, self.device_range(to, len)?, None),
            (true, false) => {
                let from = self.device_range(from, len)?;
                // SAFETY: the caller vouched for the host's range.
                let to = unsafe { self.borrow(to, len)? };
                (from, to, Some(to.key))
            }
            (false, true) => {
                let to = self.device_range(to, len)?;
                // SAFETY: the caller vouched for the host's range.
                let from = unsafe { self.borrow(from, len)? };
                (from, to, Some(from.key))
            }
        };
        let copied = self.device.copy(stream, from, to);
        match (copied, borrowed) {
            (Ok(mark), Some(key)) => self.borrowed.push((mark, key)),
            (Err(_), Some(key)) => {
                self.device.remove(key);
            }
            (_, None) => {}
        }
        copied.map(|_| ())
    }

    /// One more stream.
    ///
    /// # Errors
    /// `NoSpace` when their numbers are used up.
    pub fn stream_create(&mut self) -> Result<StreamId, DeviceErrorKind> {
        self.device.open_stream().ok_or(DeviceErrorKind::NoSpace)
    }

    /// Whether all copies of a stream are over.
    ///
    /// # Errors
    /// `Other` when there is no such stream or a copy failed, `Lost`.
    pub fn query(&mut self, stream: StreamId) -> Result<bool, DeviceErrorKind> {
        let mark = self.device.last_mark(stream).ok_or(DeviceErrorKind::Other)?;
        let passed = self.device.passed(mark);
        // A failure is a fence too, unless the device is lost: then its memory stays borrowed for ever.
        if !matches!(passed, Ok(false) | Err(DeviceErrorKind::Lost)) {
            self.finish(mark);
        }
        passed
    }

    fn finish(&mut self, mark: StreamEvent) {
        let over = |event: &StreamEvent| event.stream == mark.stream && event.number <= mark.number;
        let device = &mut self.device;
        self.borrowed.retain(|(event, key)| !(over(event) && device.remove(*key)));
    }

    /// Waits until all copies of a stream are over.
    ///
    /// # Errors
    /// As [`Self::query`].
    pub fn synchronize(&mut self, stream: StreamId) -> Result<(), DeviceErrorKind> {
        for _ in 0..PATIENCE {
            if self.query(stream)? {
                return Ok(());
            }
        }
        Err(DeviceErrorKind::Other)
    }
}
