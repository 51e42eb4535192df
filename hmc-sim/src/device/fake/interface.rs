//! The interface of a device, by [`FakeDevice`].

use std::sync::Arc;

use hmc_core::device::{
    Allocation, Copies, Device, DeviceAttributes, DeviceErrorKind, DeviceMemory, MemoryUsage, Rows,
    StreamEvent, StreamId, Streams,
};
use hmc_core::place::{DeviceId, MemoryClass, Place};
use hmc_core::region::{LocalRegion, LocalSlice, RegionKey};

use super::{FakeDevice, FakeMemory};
use crate::device::stream::{Command, EventStatus};

/// Virtual time of one query, in nanoseconds.
const POLL_NS: u64 = 100;

type Result<T> = core::result::Result<T, DeviceErrorKind>;

impl DeviceMemory for FakeDevice {
    type Error = DeviceErrorKind;
    type Memory = FakeMemory;

    fn alloc(&mut self, key: RegionKey, what: &Allocation) -> Result<LocalRegion> {
        self.live()?;
        if self.regions.contains_key(&key) {
            return Err(DeviceErrorKind::Region);
        }
        let place = match what.class {
            MemoryClass::Device | MemoryClass::Pinned => Place::new(self.config.id, what.class),
            _ => None,
        };
        let place = place.ok_or(DeviceErrorKind::Unsupported)?;
        let on_device = if place.is_host() { 0 } else { what.len_bytes };
        let used = self.used_bytes.checked_add(on_device).ok_or(DeviceErrorKind::NoSpace)?;
        if used > self.config.capacity_bytes || self.config.no_space.hits(&mut self.rng) {
            return Err(DeviceErrorKind::NoSpace);
        }
        let region = self.allocate(key, what.len_bytes, place);
        let region = region.ok_or(DeviceErrorKind::NoSpace)?;
        self.execute(Command::Fill(LocalSlice { key, span: region.extent.whole() }, 0), None);
        self.used_bytes = used;
        Ok(region)
    }

    fn add(&mut self, key: RegionKey, memory: FakeMemory) -> Result<LocalRegion> {
        self.live()?;
        let slice = LocalSlice { key: memory.key, span: memory.extent.whole() };
        if !Arc::ptr_eq(&memory.machine, &self.machine) {
            return Err(DeviceErrorKind::Unsupported);
        }
        if self.regions.contains_key(&key) || !self.machine().knows(slice) {
            return Err(DeviceErrorKind::Region);
        }
        Ok(self.know(key, memory, false))
    }

    fn free(&mut self, key: RegionKey) -> Result<()> {
        self.live()?;
        let known = self.regions.get(&key).cloned().ok_or(DeviceErrorKind::Region)?;
        if self.in_use(key) || (known.is_own && !self.machine().deregister(known.memory.key)) {
            return Err(DeviceErrorKind::Region);
        }
        self.regions.remove(&key);
        if known.is_own && !known.region.place.is_host() {
            self.used_bytes = self.used_bytes.saturating_sub(known.region.extent.len());
        }
        Ok(())
    }

    fn memory(&self, key: RegionKey) -> Option<FakeMemory> {
        self.regions.get(&key).map(|known| known.memory.clone())
    }

    fn region(&self, key: RegionKey) -> Option<LocalRegion> {
        self.regions.get(&key).map(|known| known.region)
    }

    fn usage(&mut self) -> Result<MemoryUsage> {
        self.live()?;
        let total_bytes = self.config.capacity_bytes;
        Ok(MemoryUsage { free_bytes: total_bytes.saturating_sub(self.used_bytes), total_bytes })
    }
}

impl FakeDevice {
    fn check_pair(&self, from: LocalSlice, to: LocalSlice) -> Result<()> {
        let (from_host, to_host) = (self.known(from)?.is_host(), self.known(to)?.is_host());
        if self.same_memory(from, to) && from.span.overlaps(to.span) {
            return Err(DeviceErrorKind::Range);
        }
        if from_host && to_host { Err(DeviceErrorKind::Unsupported) } else { Ok(()) }
    }

    fn check_copy(&self, from: LocalSlice, to: LocalSlice) -> Result<()> {
        self.check_pair(from, to)?;
        if from.span.len() == to.span.len() { Ok(()) } else { Err(DeviceErrorKind::Range) }
    }

    fn submit(&mut self, stream: StreamId, command: Command) -> Result<StreamEvent> {
        if !self.streams.knows(stream) {
            return Err(DeviceErrorKind::Stream);
        }
        if self.streams.is_full(stream) || self.config.busy.hits(&mut self.rng) {
            return Err(DeviceErrorKind::Busy);
        }
        let takes_ns = match self.config.never.hits(&mut self.rng) {
            true => u64::MAX,
            false => self.rng.below(self.config.delay_max_ns.saturating_add(1)),
        };
        let fails = self.config.failed.hits(&mut self.rng);
        let event = self.streams.submit(stream, command, self.now_ns, takes_ns, fails);
        let event = event.ok_or(DeviceErrorKind::Other)?;
        self.accepted = self.accepted.saturating_add(1);
        if self.config.lost_after.is_some_and(|n| n == self.accepted) {
            self.lose();
        }
        Ok(event)
    }
}

impl Copies for FakeDevice {
    fn copy(&mut self, stream: StreamId, from: LocalSlice, to: LocalSlice) -> Result<StreamEvent> {
        self.live()?;
        self.check_copy(from, to)?;
        self.submit(stream, Command::Copy(from, to))
    }

    fn copy_rows(
        &mut self,
        stream: StreamId,
        from: LocalSlice,
        to: LocalSlice,
        rows: &Rows,
    ) -> Result<StreamEvent> {
        self.live()?;
        self.check_pair(from, to)?;
        if rows.extents() != Some((from.span.len(), to.span.len())) {
            return Err(DeviceErrorKind::Range);
        }
        self.submit(stream, Command::CopyRows(from, to, *rows))
    }

    fn fill(&mut self, stream: StreamId, to: LocalSlice, byte: u8) -> Result<StreamEvent> {
        self.live()?;
        if self.known(to)?.is_host() {
            return Err(DeviceErrorKind::Unsupported);
        }
        self.submit(stream, Command::Fill(to, byte))
    }

    fn copy_now(&mut self, from: LocalSlice, to: LocalSlice) -> Result<()> {
        self.live()?;
        self.check_copy(from, to)?;
        let takes_ns = self.rng.below(self.config.delay_max_ns.saturating_add(1));
        self.advance(takes_ns);
        if self.config.failed.hits(&mut self.rng) {
            return Err(DeviceErrorKind::Other);
        }
        self.execute(Command::Copy(from, to), None);
        Ok(())
    }
}

impl Streams for FakeDevice {
    fn open_stream(&mut self) -> Result<StreamId> {
        self.live()?;
        self.streams.open(self.config.streams).ok_or(DeviceErrorKind::NoSpace)
    }

    fn close_stream(&mut self, stream: StreamId) -> Result<()> {
        self.live()?;
        let is_landing = self.landing.iter().any(|(e, _, _)| e.stream == stream);
        let is_closed = !is_landing && self.streams.close(stream);
        if is_closed { Ok(()) } else { Err(DeviceErrorKind::Stream) }
    }

    fn record(&mut self, stream: StreamId) -> Result<StreamEvent> {
        self.live()?;
        self.submit(stream, Command::Record)
    }

    fn passed(&mut self, event: StreamEvent) -> Result<bool> {
        self.advance(POLL_NS);
        self.live()?;
        match self.streams.status(event) {
            EventStatus::Unknown => Err(DeviceErrorKind::Stream),
            EventStatus::Ahead => Ok(false),
            EventStatus::Failed => {
                self.land(event);
                Err(DeviceErrorKind::Other)
            }
            EventStatus::Passed => {
                self.land(event);
                Ok(true)
            }
        }
    }

    fn wait(&mut self, stream: StreamId, event: StreamEvent) -> Result<()> {
        self.live()?;
        if self.streams.status(event) == EventStatus::Unknown {
            return Err(DeviceErrorKind::Stream);
        }
        self.submit(stream, Command::Wait(event)).map(|_| ())
    }
}

impl Device for FakeDevice {
    fn id(&self) -> DeviceId {
        self.config.id
    }

    fn name(&self) -> &str {
        "fake device"
    }

    fn attributes(&self) -> &DeviceAttributes {
        &self.attributes
    }
}
