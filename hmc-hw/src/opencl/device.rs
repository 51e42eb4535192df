//! [`OpenClDevice`]: a device as hmc-core has it.

use std::collections::HashMap;
use std::sync::Arc;

use hmc_core::device::{
    Allocation, Copies, Device, DeviceAttributes, DeviceErrorKind, DeviceMemory, MemoryUsage, Rows,
    StreamEvent, StreamId, Streams,
};
use hmc_core::place::{DeviceId, MemoryClass, Place};
use hmc_core::range::Extent;
use hmc_core::region::{LocalRegion, LocalSlice, RegionKey};

use super::context::Context;
use super::event::Event;
use super::fault::OpenClFault;
use super::memory::{Memory, Start};
use super::queue::{Command, Queue};
use super::stream::{EventStatus, Stream};
use super::sys::cl_device_id;

/// Streams that a device can have at a time.
const MAX_STREAMS: usize = 64;

/// A region in the table of a device.
#[derive(Debug)]
struct Known {
    region: LocalRegion,
    memory: Memory,
    /// It was allocated here.
    is_own: bool,
}

#[derive(Debug)]
struct Slot {
    generation: u16,
    stream: Option<Stream>,
}

/// An open OpenCL device. Dropping it waits for its copies.
#[derive(Debug)]
pub struct OpenClDevice {
    context: Arc<Context>,
    handle: cl_device_id,
    id: DeviceId,
    name: String,
    attributes: DeviceAttributes,
    /// The longest buffer.
    max_bytes: u64,
    used_bytes: u64,
    regions: HashMap<RegionKey, Known>,
    streams: Vec<Slot>,
    /// For copies in the call.
    now: Stream,
}

// SAFETY: OpenCL's calls on a device may come from any thread (OpenCL 1.2, A.2).
unsafe impl Send for OpenClDevice {}

type Result<T> = core::result::Result<T, OpenClFault>;

const fn refused<T>(kind: DeviceErrorKind) -> Result<T> {
    Err(OpenClFault::of(kind))
}

impl OpenClDevice {
    pub(super) fn new(
        context: &Arc<Context>,
        handle: cl_device_id,
        (id, name): (DeviceId, String),
        attributes: DeviceAttributes,
        max_bytes: u64,
    ) -> Result<Self> {
        let stream = || Queue::new(context, handle).map(Stream::new);
        let first = Slot { generation: 0, stream: Some(stream()?) };
        Ok(Self {
            handle,
            id,
            name,
            attributes,
            max_bytes,
            used_bytes: 0,
            regions: HashMap::new(),
            streams: vec![first],
            now: stream()?,
            context: Arc::clone(context),
        })
    }

    /// Each call begins with it.
    fn live(&self) -> Result<()> {
        if self.context.library().is_inherited() {
            return refused(DeviceErrorKind::Forked);
        }
        Ok(())
    }

    fn stream(&mut self, id: StreamId) -> Result<&mut Stream> {
        let slot = self.streams.get_mut(usize::from(id.index));
        let slot = slot.filter(|slot| slot.generation == id.generation);
        let stream = slot.and_then(|slot| slot.stream.as_mut());
        stream.ok_or_else(|| OpenClFault::of(DeviceErrorKind::Stream))
    }

    fn known(&self, slice: LocalSlice) -> Result<(Place, Start)> {
        let Some(known) = self.regions.get(&slice.key) else {
            return refused(DeviceErrorKind::Region);
        };
        if !known.region.extent.contains(slice.span) {
            return refused(DeviceErrorKind::Range);
        }
        match known.memory.start_of(slice.span) {
            Some(start) => Ok((known.region.place, start)),
            None => refused(DeviceErrorKind::Range),
        }
    }

    /// Two ranges that do not overlap, one of them on a device.
    fn pair(&self, from: LocalSlice, to: LocalSlice) -> Result<(Start, Start)> {
        let ((from_place, source), (to_place, target)) = (self.known(from)?, self.known(to)?);
        if from.key == to.key && from.span.overlaps(to.span) {
            return refused(DeviceErrorKind::Range);
        }
        if from_place.is_host() && to_place.is_host() {
            return refused(DeviceErrorKind::Unsupported);
        }
        Ok((source, target))
    }

    /// A copy, or nothing if there are no bytes: OpenCL refuses those.
    fn copy_of(&self, from: LocalSlice, to: LocalSlice) -> Result<Command> {
        let (source, target) = self.pair(from, to)?;
        match usize::try_from(from.span.len()) {
            _ if from.span.len() != to.span.len() => refused(DeviceErrorKind::Range),
            Err(_) => refused(DeviceErrorKind::Range),
            Ok(0) => Ok(Command::Record),
            Ok(len) => Ok(Command::Copy { from: source, to: target, len }),
        }
    }

    fn fill_of(&self, to: LocalSlice, byte: u8) -> Result<Command> {
        match (self.known(to)?.1, usize::try_from(to.span.len())) {
            (Start::Host(_), _) => refused(DeviceErrorKind::Unsupported),
            (_, Err(_)) => refused(DeviceErrorKind::Range),
            (_, Ok(0)) => Ok(Command::Record),
            (Start::Buffer(to, offset), Ok(len)) => Ok(Command::Fill { to, offset, len, byte }),
        }
    }

    fn submit(
        &mut self,
        id: StreamId,
        command: &Command,
        keys: [Option<RegionKey>; 2],
    ) -> Result<StreamEvent> {
        let stream = self.stream(id)?;
        if !stream.has_space() {
            return refused(DeviceErrorKind::Busy);
        }
        // SAFETY: the ranges lie in regions of the table, which stay in it until commands that use them have ended (`free`),
        // or until the device has waited for all (`drop`).
        let number = unsafe { stream.submit(command, keys) }?;
        Ok(StreamEvent { stream: id, number })
    }

    /// Submits a command beside all streams, and blocks until it has ended.
    fn run(&mut self, command: &Command) -> Result<()> {
        // SAFETY: as in `submit`; the call waits for it.
        let number = unsafe { self.now.submit(command, [None; 2]) }?;
        let waited = self.now.event(number).map_or(Ok(()), Event::wait);
        self.now.finish();
        waited
    }

    fn know(&mut self, key: RegionKey, memory: Memory, is_own: bool) -> LocalRegion {
        let region = LocalRegion { key, extent: Extent::new(memory.len), place: memory.place };
        self.regions.insert(key, Known { region, memory, is_own });
        region
    }
}

impl DeviceMemory for OpenClDevice {
    type Error = OpenClFault;
    type Memory = Memory;

    fn alloc(&mut self, key: RegionKey, what: &Allocation) -> Result<LocalRegion> {
        self.live()?;
        if self.regions.contains_key(&key) {
            return refused(DeviceErrorKind::Region);
        }
        if what.class != MemoryClass::Device {
            return refused(DeviceErrorKind::Unsupported);
        }
        let left = self.attributes.total_bytes.saturating_sub(self.used_bytes);
        if what.len_bytes > self.max_bytes.min(left) {
            return refused(DeviceErrorKind::NoSpace);
        }
        let memory = Memory::buffer(&self.context, what.len_bytes, Place::on(self.id))?;
        let region = self.know(key, memory, true);
        let all = LocalSlice { key, span: region.extent.whole() };
        // A driver may find only now that there is no memory.
        if let Err(fault) = self.fill_of(all, 0).and_then(|fill| self.run(&fill)) {
            self.regions.remove(&key);
            return Err(fault);
        }
        self.used_bytes = self.used_bytes.saturating_add(what.len_bytes);
        Ok(region)
    }

    fn add(&mut self, key: RegionKey, memory: Memory) -> Result<LocalRegion> {
        self.live()?;
        if self.regions.contains_key(&key) {
            return refused(DeviceErrorKind::Region);
        }
        if !memory.is_within_reach_of(&self.context) {
            return refused(DeviceErrorKind::Unsupported);
        }
        Ok(self.know(key, memory, false))
    }

    fn memory(&self, key: RegionKey) -> Option<Memory> {
        self.regions.get(&key).map(|known| known.memory.clone())
    }

    fn free(&mut self, key: RegionKey) -> Result<()> {
        self.live()?;
        let mut streams = self.streams.iter_mut().filter_map(|slot| slot.stream.as_mut());
        if streams.any(|stream| stream.uses(key)) {
            return refused(DeviceErrorKind::Region);
        }
        let Some(known) = self.regions.remove(&key) else {
            return refused(DeviceErrorKind::Region);
        };
        if known.is_own {
            self.used_bytes = self.used_bytes.saturating_sub(known.region.extent.len());
        }
        Ok(())
    }

    fn region(&self, key: RegionKey) -> Option<LocalRegion> {
        self.regions.get(&key).map(|known| known.region)
    }

    fn usage(&mut self) -> Result<MemoryUsage> {
        self.live()?;
        let total_bytes = self.attributes.total_bytes;
        Ok(MemoryUsage { free_bytes: total_bytes.saturating_sub(self.used_bytes), total_bytes })
    }
}

impl Copies for OpenClDevice {
    fn copy(&mut self, stream: StreamId, from: LocalSlice, to: LocalSlice) -> Result<StreamEvent> {
        self.live()?;
        let copy = self.copy_of(from, to)?;
        self.submit(stream, &copy, [Some(from.key), Some(to.key)])
    }

    fn copy_rows(
        &mut self,
        stream: StreamId,
        from: LocalSlice,
        to: LocalSlice,
        rows: &Rows,
    ) -> Result<StreamEvent> {
        self.live()?;
        let (source, target) = self.pair(from, to)?;
        if rows.extents() != Some((from.span.len(), to.span.len())) {
            return refused(DeviceErrorKind::Range);
        }
        let command = match rows.len {
            _ if rows.count == 0 => Command::Record,
            0 => Command::Record,
            _ => Command::CopyRows { from: source, to: target, rows: *rows },
        };
        self.submit(stream, &command, [Some(from.key), Some(to.key)])
    }

    fn fill(&mut self, stream: StreamId, to: LocalSlice, byte: u8) -> Result<StreamEvent> {
        self.live()?;
        let fill = self.fill_of(to, byte)?;
        self.submit(stream, &fill, [Some(to.key), None])
    }

    fn copy_now(&mut self, from: LocalSlice, to: LocalSlice) -> Result<()> {
        self.live()?;
        match self.copy_of(from, to)? {
            Command::Record => Ok(()),
            copy => self.run(&copy),
        }
    }
}

impl Streams for OpenClDevice {
    fn open_stream(&mut self) -> Result<StreamId> {
        self.live()?;
        let mut slots = self.streams.iter();
        let free = slots.position(|slot| slot.stream.is_none() && slot.generation < u16::MAX);
        let at = free.unwrap_or(self.streams.len());
        let index = match u16::try_from(at) {
            Ok(index) if at < MAX_STREAMS => index,
            _ => return refused(DeviceErrorKind::NoSpace),
        };
        let stream = Some(Stream::new(Queue::new(&self.context, self.handle)?));
        let old = self.streams.get(at).map_or(0, |slot| slot.generation);
        let generation = old.saturating_add(1);
        let slot = Slot { generation, stream };
        match self.streams.get_mut(at) {
            Some(place) => *place = slot,
            None => self.streams.push(slot),
        }
        Ok(StreamId { index, generation })
    }

    fn close_stream(&mut self, stream: StreamId) -> Result<()> {
        self.live()?;
        if !self.stream(stream)?.is_idle() || stream == StreamId::FIRST {
            return refused(DeviceErrorKind::Stream);
        }
        if let Some(slot) = self.streams.get_mut(usize::from(stream.index)) {
            slot.stream = None;
        }
        Ok(())
    }

    fn record(&mut self, stream: StreamId) -> Result<StreamEvent> {
        self.live()?;
        self.submit(stream, &Command::Record, [None; 2])
    }

    fn passed(&mut self, event: StreamEvent) -> Result<bool> {
        self.live()?;
        match self.stream(event.stream)?.status(event.number) {
            EventStatus::Unknown => refused(DeviceErrorKind::Stream),
            EventStatus::Ahead => Ok(false),
            EventStatus::Passed => Ok(true),
            EventStatus::Failed(fault) => Err(fault),
        }
    }

    fn wait(&mut self, stream: StreamId, event: StreamEvent) -> Result<()> {
        self.live()?;
        self.stream(stream)?;
        match self.stream(event.stream)?.status(event.number) {
            EventStatus::Unknown => return refused(DeviceErrorKind::Stream),
            EventStatus::Ahead => {}
            EventStatus::Passed | EventStatus::Failed(_) => return Ok(()),
        }
        let find = |id: StreamId| {
            self.streams.get(usize::from(id.index)).and_then(|slot| slot.stream.as_ref())
        };
        match (find(stream), find(event.stream).and_then(|s| s.event(event.number))) {
            (Some(waiting), Some(event)) => waiting.queue().wait_for(event),
            _ => Ok(()),
        }
    }
}

impl Device for OpenClDevice {
    fn id(&self) -> DeviceId {
        self.id
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn attributes(&self) -> &DeviceAttributes {
        &self.attributes
    }
}

impl Drop for OpenClDevice {
    fn drop(&mut self) {
        if self.live().is_ok() {
            self.streams
                .iter_mut()
                .filter_map(|slot| slot.stream.as_mut())
                .for_each(Stream::finish);
        }
    }
}
