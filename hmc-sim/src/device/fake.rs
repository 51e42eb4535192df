//! A device whose memory the host cannot reach.
//!
//! Its bytes are in its own vectors, behind keys. Copies run in streams, in virtual time, which passes with each call of
//! [`Device::passed`] and [`FakeDevice::advance`]. From the start of a copy to its end the destination has garbage, and bytes
//! for the host arrive only with a query of the copy. So a read that is too early gets wrong bytes.

use std::collections::HashMap;

use hmc_core::device::{Device, DeviceErrorKind, StreamEvent, StreamId};
use hmc_core::place::{DeviceId, Place};
use hmc_core::range::Side;
use hmc_core::region::{LocalRegion, LocalSlice, RegionKey};
use hmc_core::types::MemoryKind;

use crate::fault::Rate;
use crate::memory::{Corruption, Memory};
use crate::rng::Rng;
use crate::stream::{EventStatus, Job, StreamStep, Streams};

/// Virtual time of one query, in nanoseconds.
const POLL_NS: u64 = 100;
/// The bytes of the destination of a running copy.
const GARBAGE: u8 = 0xBB;

/// Parameters of a fake device.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The seed of all random numbers.
    pub seed: u64,
    /// The kind that it simulates; not `Cpu`.
    pub kind: MemoryKind,
    /// Memory that it has. Row 43 (out of memory, which is no loss: free something and try again).
    pub capacity_bytes: u64,
    /// Streams that it has at first.
    pub streams: u16,
    /// Copies that wait in each stream.
    pub depth: usize,
    /// Longest time that a copy takes, in virtual nanoseconds.
    pub delay_max_ns: u64,
    /// Condition: a copy is refused as `Busy` though the queue is not full.
    pub busy: Rate,
    /// Condition: memory is refused as `NoSpace` although some is free. Row 43.
    pub no_space: Rate,
    /// Fault: a copy fails with `Other`, and so does each later event of its stream.
    pub failed: Rate,
    /// Fault: the device is lost when this many copies were accepted. Row 43 (a sticky error).
    pub lost_after: Option<u64>,
}

impl Config {
    /// An NVIDIA GPU of 1 MiB in ideal conditions.
    pub const FAIR: Self = Self {
        seed: 1,
        kind: MemoryKind::NvidiaGpu,
        capacity_bytes: 1 << 20,
        streams: 3,
        depth: 64,
        delay_max_ns: 5_000,
        busy: Rate::NEVER,
        no_space: Rate::NEVER,
        failed: Rate::NEVER,
        lost_after: None,
    };
}

/// A fake device.
pub struct FakeDevice {
    config: Config,
    rng: Rng,
    memory: Memory,
    regions: HashMap<RegionKey, LocalRegion>,
    used_bytes: u64,
    streams: Streams,
    /// Completed copies to the host without a query, by stream and number.
    landing: Vec<(StreamEvent, LocalSlice, Vec<u8>)>,
    now_ns: u64,
    accepted: u64,
    lost: bool,
    misuse: Vec<String>,
}

impl core::fmt::Debug for FakeDevice {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("FakeDevice")
            .field("config", &self.config)
            .field("used_bytes", &self.used_bytes)
            .field("now_ns", &self.now_ns)
            .field("lost", &self.lost)
            .finish_non_exhaustive()
    }
}

impl FakeDevice {
    /// A device of its own.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            config,
            rng: Rng::new(config.seed),
            memory: Memory::new(),
            regions: HashMap::new(),
            used_bytes: 0,
            streams: Streams::new(config.streams.max(1), config.depth),
            landing: Vec::new(),
            now_ns: 0,
            accepted: 0,
            lost: false,
            misuse: Vec::new(),
        }
    }

    /// Host memory that the device can reach.
    #[must_use]
    pub fn host(&mut self, len_bytes: u64) -> Option<LocalRegion> {
        let region = self.memory.register(len_bytes)?;
        self.regions.insert(region.key, region);
        Some(region)
    }

    /// Removes host memory. Returns `true` if it was registered and no copy in flight uses it.
    pub fn remove(&mut self, key: RegionKey) -> bool {
        let is_host = self.regions.get(&key).is_some_and(|r| r.place.is_host());
        if !is_host || self.in_use(key) {
            return false;
        }
        self.regions.remove(&key);
        self.memory.deregister(key)
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

    /// One more stream.
    #[must_use]
    pub fn open_stream(&mut self) -> Option<StreamId> {
        self.streams.open()
    }

    /// Returns the event after all submitted copies of a stream.
    #[must_use]
    pub fn last_mark(&self, stream: StreamId) -> Option<StreamEvent> {
        self.streams.last(stream)
    }

    /// Lets virtual time pass.
    pub fn advance(&mut self, by_ns: u64) {
        self.now_ns = self.now_ns.saturating_add(by_ns);
        while let Some((stream, what)) = self.streams.next(self.now_ns) {
            match what {
                StreamStep::Begins(job) => self.spoil(job),
                StreamStep::Ends(job) => self.end(stream, job),
            }
        }
    }

    /// The device is lost: each call fails from now on, and no event is a fence any more. Copies that
    /// were accepted may still run.
    pub const fn lose(&mut self) {
        self.lost = true;
    }

    /// Bytes of the device that are allocated. A lost device gives none back.
    #[must_use]
    pub const fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// What the host did with memory that a copy was using.
    #[must_use]
    pub fn misuse(&self) -> &[String] {
        &self.misuse
    }

    /// Looks for bytes that nobody may write and somebody wrote.
    ///
    /// # Errors
    /// The first [`Corruption`].
    pub fn check(&self) -> Result<(), Corruption> {
        self.memory.check()
    }

    const fn place(&self) -> Place {
        Place::on(DeviceId { kind: self.config.kind, index: 0 })
    }

    fn host_range(
        &mut self,
        region: LocalRegion,
        offset: u64,
        len: usize,
        verb: &str,
    ) -> Option<LocalSlice> {
        let known = self.regions.get(&region.key).filter(|r| r.place.is_host())?;
        let len = u64::try_from(len).ok()?;
        let span = known.extent.span(Side::Local, offset, len).ok()?;
        let range = LocalSlice { key: region.key, span };
        let early =
            self.landing.iter().any(|(_, to, _)| to.key == range.key && to.span.overlaps(span));
        if early || self.streams.jobs().any(|job| job.meets(range)) {
            let key = (region.key.index, region.key.generation);
            self.misuse.push(format!(
                "{len} bytes at {offset} of host region {key:?} were {verb} while a copy used them"
            ));
        }
        Some(range)
    }

    fn load(&self, range: LocalSlice) -> Option<Vec<u8>> {
        self.memory.get(range).map(<[u8]>::to_vec)
    }

    fn store(&mut self, range: LocalSlice, bytes: &[u8]) -> bool {
        match self.memory.get_mut(range) {
            Some(to) if to.len() == bytes.len() => {
                to.copy_from_slice(bytes);
                true
            }
            _ => false,
        }
    }

    fn spoil(&mut self, job: Job) {
        let len = usize::try_from(job.to.span.len()).unwrap_or(0);
        self.store(job.to, &vec![GARBAGE; len]);
    }

    fn end(&mut self, stream: StreamId, job: Job) {
        if job.fails {
            return;
        }
        // What the same stream brought to the host before must be there to be read.
        self.land(StreamEvent { stream, number: job.number });
        let Some(bytes) = self.load(job.from) else {
            return;
        };
        let to_host = self.regions.get(&job.to.key).is_some_and(|r| r.place.is_host());
        if to_host {
            self.landing.push((StreamEvent { stream, number: job.number }, job.to, bytes));
        } else {
            self.store(job.to, &bytes);
        }
    }

    /// What came to the host before the mark becomes visible.
    fn land(&mut self, mark: StreamEvent) {
        let (now, later) = core::mem::take(&mut self.landing)
            .into_iter()
            .partition(|(m, _, _)| m.stream == mark.stream && m.number <= mark.number);
        self.landing = later;
        let now: Vec<(StreamEvent, LocalSlice, Vec<u8>)> = now;
        for (_, to, bytes) in now {
            self.store(to, &bytes);
        }
    }

    fn in_use(&self, key: RegionKey) -> bool {
        self.streams.uses(key) || self.landing.iter().any(|(_, to, _)| to.key == key)
    }

    fn known(&self, slice: LocalSlice) -> Result<MemoryKind, DeviceErrorKind> {
        let region = self.regions.get(&slice.key).ok_or(DeviceErrorKind::Region)?;
        let inside = region.extent.contains(slice.span);
        if inside { Ok(region.place.kind()) } else { Err(DeviceErrorKind::Range) }
    }

    const fn live(&self) -> Result<(), DeviceErrorKind> {
        if self.lost { Err(DeviceErrorKind::Lost) } else { Ok(()) }
    }
}

impl Device for FakeDevice {
    type Error = DeviceErrorKind;

    fn kind(&self) -> MemoryKind {
        self.config.kind
    }

    fn name(&self) -> &str {
        "fake device"
    }

    fn alloc(&mut self, len_bytes: u64) -> Result<LocalRegion, DeviceErrorKind> {
        self.live()?;
        let used = self.used_bytes.checked_add(len_bytes).ok_or(DeviceErrorKind::NoSpace)?;
        if used > self.config.capacity_bytes || self.config.no_space.hits(&mut self.rng) {
            return Err(DeviceErrorKind::NoSpace);
        }
        let region = self.memory.register(len_bytes).ok_or(DeviceErrorKind::NoSpace)?;
        let region = LocalRegion { place: self.place(), ..region };
        self.used_bytes = used;
        self.regions.insert(region.key, region);
        Ok(region)
    }

    fn free(&mut self, key: RegionKey) -> Result<(), DeviceErrorKind> {
        self.live()?;
        let region = self.regions.get(&key).filter(|r| r.place == self.place()).copied();
        let region = region.ok_or(DeviceErrorKind::Region)?;
        if self.in_use(key) || !self.memory.deregister(key) {
            return Err(DeviceErrorKind::Region);
        }
        self.regions.remove(&key);
        self.used_bytes = self.used_bytes.saturating_sub(region.extent.len());
        Ok(())
    }

    fn region(&self, key: RegionKey) -> Option<LocalRegion> {
        self.regions.get(&key).copied()
    }

    fn copy(
        &mut self,
        stream: StreamId,
        from: LocalSlice,
        to: LocalSlice,
    ) -> Result<StreamEvent, DeviceErrorKind> {
        self.live()?;
        let kinds = (self.known(from)?, self.known(to)?);
        let overlap = from.key == to.key && from.span.overlaps(to.span);
        if from.span.len() != to.span.len() || overlap {
            return Err(DeviceErrorKind::Range);
        }
        if kinds == (MemoryKind::Cpu, MemoryKind::Cpu) || !self.streams.knows(stream) {
            return Err(DeviceErrorKind::Unsupported);
        }
        if self.streams.is_full(stream) || self.config.busy.hits(&mut self.rng) {
            return Err(DeviceErrorKind::Busy);
        }
        let takes_ns = self.rng.below(self.config.delay_max_ns.saturating_add(1));
        let fails = self.config.failed.hits(&mut self.rng);
        let mark = self.streams.submit(stream, (from, to), self.now_ns, takes_ns, fails);
        let mark = mark.ok_or(DeviceErrorKind::Other)?;
        self.accepted = self.accepted.saturating_add(1);
        if self.config.lost_after.is_some_and(|n| n == self.accepted) {
            self.lose();
        }
        Ok(mark)
    }

    fn passed(&mut self, mark: StreamEvent) -> Result<bool, DeviceErrorKind> {
        self.advance(POLL_NS);
        self.live()?;
        match self.streams.status(mark) {
            EventStatus::Unknown => Err(DeviceErrorKind::Other),
            EventStatus::Ahead => Ok(false),
            EventStatus::Failed => {
                self.land(mark);
                Err(DeviceErrorKind::Other)
            }
            EventStatus::Passed => {
                self.land(mark);
                Ok(true)
            }
        }
    }
}
