//! A device whose memory the host cannot reach.
//!
//! Commands run in streams, in virtual time, which passes with each call of [`Streams::passed`](hmc_core::device::Streams::passed)
//! and [`FakeDevice::advance`]. From the start of a command to its end its destination has garbage, and bytes
//! for the host arrive only when an event behind them was asked for. So a read that is too early gets wrong bytes.

mod commands;
mod interface;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hmc_core::device::{DeviceAttributes, DeviceErrorKind, DeviceFeatures, StreamEvent, StreamId};
use hmc_core::place::{DeviceId, Place};
use hmc_core::range::{Extent, Side};
use hmc_core::region::{LocalRegion, LocalSlice, RegionKey};
use hmc_core::types::MemoryKind;

use super::stream::Streams;
use crate::fault::Rate;
use crate::memory::{Corruption, Memory};
use crate::rng::Rng;

/// Parameters of a fake device.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The seed of all random numbers.
    pub seed: u64,
    /// The device that it simulates; not the processor.
    pub id: DeviceId,
    /// Memory that it has. Row 43 (out of memory, which is no loss: free something and try again).
    pub capacity_bytes: u64,
    /// Streams that it can have at a time.
    pub streams: u16,
    /// Commands that wait in each stream.
    pub depth: usize,
    /// Longest time that a command takes, in virtual nanoseconds.
    pub delay_max_ns: u64,
    /// Condition: a command is refused as `Busy` though the queue is not full.
    pub busy: Rate,
    /// Condition: memory is refused as `NoSpace` although some is free. Row 43.
    pub no_space: Rate,
    /// Fault: a command fails with `Other`, and so does each later event of its stream.
    pub failed: Rate,
    /// Fault: a command never ends, and so does none behind it in its stream.
    pub never: Rate,
    /// Fault: the device is lost when this many commands were accepted. Row 43 (a sticky error).
    pub lost_after: Option<u64>,
}

impl Config {
    /// An NVIDIA GPU of 1 MiB in ideal conditions.
    pub const FAIR: Self = Self {
        seed: 1,
        id: DeviceId { kind: MemoryKind::NvidiaGpu, index: 0 },
        capacity_bytes: 1 << 20,
        streams: 3,
        depth: 64,
        delay_max_ns: 5_000,
        busy: Rate::NEVER,
        no_space: Rate::NEVER,
        failed: Rate::NEVER,
        never: Rate::NEVER,
        lost_after: None,
    };
}

/// A handle of memory of a simulated machine, to add it to a device of that machine.
#[derive(Clone, Debug)]
pub struct FakeMemory {
    machine: Arc<Mutex<Memory>>,
    /// Its key in the machine.
    key: RegionKey,
    extent: Extent,
    place: Place,
}

/// A region in the table of a device.
#[derive(Clone, Debug)]
struct Known {
    region: LocalRegion,
    memory: FakeMemory,
    /// It was allocated here, and goes back when it is freed.
    is_own: bool,
}

/// A fake device.
#[derive(Debug)]
pub struct FakeDevice {
    config: Config,
    attributes: DeviceAttributes,
    rng: Rng,
    /// The bytes of the machine: those of the host, and of all devices.
    machine: Arc<Mutex<Memory>>,
    regions: HashMap<RegionKey, Known>,
    used_bytes: u64,
    streams: Streams,
    /// What completed commands brought to the host, until an event behind it is asked for.
    landing: Vec<(StreamEvent, LocalSlice, Vec<u8>)>,
    now_ns: u64,
    accepted: u64,
    lost: bool,
    misuse: Vec<String>,
}

impl FakeDevice {
    /// A device on a machine of its own.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self::of_machine(config, Arc::default())
    }

    /// A device on the machine of this one.
    #[must_use]
    pub fn beside(&self, config: Config) -> Self {
        Self::of_machine(config, Arc::clone(&self.machine))
    }

    fn of_machine(config: Config, machine: Arc<Mutex<Memory>>) -> Self {
        Self {
            config,
            attributes: DeviceAttributes {
                total_bytes: config.capacity_bytes,
                pci: None,
                features: DeviceFeatures::PINNED | DeviceFeatures::ROWS,
            },
            rng: Rng::new(config.seed),
            machine,
            regions: HashMap::new(),
            used_bytes: 0,
            streams: Streams::new(config.depth),
            landing: Vec::new(),
            now_ns: 0,
            accepted: 0,
            lost: false,
            misuse: Vec::new(),
        }
    }

    fn machine(&self) -> MutexGuard<'_, Memory> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// New host memory of its machine, in the device's table under `key`. `None` if there is no memory or the key is in use.
    #[must_use]
    pub fn host(&mut self, key: RegionKey, len_bytes: u64) -> Option<LocalRegion> {
        if self.regions.contains_key(&key) {
            return None;
        }
        self.allocate(key, len_bytes, Place::HOST)
    }

    fn allocate(&mut self, key: RegionKey, len_bytes: u64, place: Place) -> Option<LocalRegion> {
        let LocalRegion { key: of_machine, extent, .. } = self.machine().register(len_bytes)?;
        let machine = Arc::clone(&self.machine);
        let memory = FakeMemory { machine, key: of_machine, extent, place };
        Some(self.know(key, memory, true))
    }

    fn know(&mut self, key: RegionKey, memory: FakeMemory, is_own: bool) -> LocalRegion {
        let region = LocalRegion { key, extent: memory.extent, place: memory.place };
        self.regions.insert(key, Known { region, memory, is_own });
        region
    }

    /// Writes host memory. Returns `false` for an unknown range and for memory of the device.
    pub fn host_write(&mut self, region: LocalRegion, offset: u64, bytes: &[u8]) -> bool {
        let Some(range) = self.host_range(region, offset, bytes.len(), "written") else {
            return false;
        };
        self.store(range, bytes)
    }

    /// Reads host memory. Returns `false` for an unknown range and for memory of the device.
    pub fn host_read(&mut self, region: LocalRegion, offset: u64, out: &mut [u8]) -> bool {
        let range = self.host_range(region, offset, out.len(), "read");
        let Some(bytes) = range.and_then(|range| self.load(range)) else {
            return false;
        };
        out.copy_from_slice(&bytes);
        true
    }

    /// Returns the event after all submitted commands of a stream.
    #[must_use]
    pub fn last_event(&self, stream: StreamId) -> Option<StreamEvent> {
        self.streams.last(stream)
    }

    /// The device is lost: each call fails from now on, and no event is a fence any more. Commands that
    /// were accepted may still run.
    pub const fn lose(&mut self) {
        self.lost = true;
    }

    /// Bytes of the device that are allocated. A lost device gives none back.
    #[must_use]
    pub const fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// What the host did with memory that a command was using.
    #[must_use]
    pub fn misuse(&self) -> &[String] {
        &self.misuse
    }

    /// Looks for bytes of the machine that nobody may write and somebody wrote.
    ///
    /// # Errors
    /// The first [`Corruption`].
    pub fn check(&self) -> Result<(), Corruption> {
        self.machine().check()
    }

    fn host_range(
        &mut self,
        region: LocalRegion,
        offset: u64,
        len: usize,
        verb: &str,
    ) -> Option<LocalSlice> {
        let known = self.regions.get(&region.key).filter(|k| k.region.place.is_host())?;
        let len = u64::try_from(len).ok()?;
        let span = known.region.extent.span(Side::Local, offset, len).ok()?;
        let range = LocalSlice { key: region.key, span };
        let meets = |other: LocalSlice| self.same_memory(other, range) && other.span.overlaps(span);
        let early = self.landing.iter().any(|(_, to, _)| meets(*to));
        if early || self.streams.slices().any(meets) {
            let key = (region.key.index, region.key.generation);
            self.misuse.push(format!(
                "{len} bytes at {offset} of host region {key:?} were {verb} while a command used them"
            ));
        }
        Some(range)
    }

    /// Returns `true` if both are in one memory, under one key or two.
    fn same_memory(&self, a: LocalSlice, b: LocalSlice) -> bool {
        let of_machine = |slice: LocalSlice| self.regions.get(&slice.key).map(|k| k.memory.key);
        of_machine(a) == of_machine(b)
    }

    /// A command under way uses the memory, under this key or another.
    fn in_use(&self, key: RegionKey) -> bool {
        let Some(known) = self.regions.get(&key) else { return false };
        let whole = LocalSlice { key, span: known.region.extent.whole() };
        let mut landing = self.landing.iter().map(|(_, to, _)| *to);
        landing.any(|slice| self.same_memory(slice, whole))
            || self.streams.slices().any(|slice| self.same_memory(slice, whole))
    }

    /// The place of a slice that lies in its region.
    fn known(&self, slice: LocalSlice) -> Result<Place, DeviceErrorKind> {
        let known = self.regions.get(&slice.key).ok_or(DeviceErrorKind::Region)?;
        let inside = known.region.extent.contains(slice.span);
        if inside { Ok(known.region.place) } else { Err(DeviceErrorKind::Range) }
    }

    const fn live(&self) -> Result<(), DeviceErrorKind> {
        if self.lost { Err(DeviceErrorKind::Lost) } else { Ok(()) }
    }
}
