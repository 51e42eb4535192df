//! [`OpenClDevice`]: a device as hmc-core has it.

use std::collections::HashMap;
use std::sync::Arc;

use hmc_core::device::{
    Allocation, Copies, Device, DeviceAttributes, DeviceError as _, DeviceErrorKind, DeviceMemory,
    MemoryUsage, Rows, StreamEvent, StreamId, Streams,
};
use hmc_core::place::{DeviceId, MemoryClass, Place};
use hmc_core::range::{Extent, Side};
use hmc_core::region::{LocalRegion, LocalSlice, RegionKey};

use super::context::Context;
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

/// An open OpenCL device. Dropping it waits for its copies; the memory of one that is lost stays for ever.
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
    /// A call failed without which nobody knows whether commands have ended.
    lost: Option<OpenClFault>,
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
            lost: None,
            context: Arc::clone(context),
        })
    }

    /// Each call begins with it.
    fn live(&self) -> Result<()> {
        if self.context.library().is_inherited() {
            return refused(DeviceErrorKind::Forked);
        }
        self.lost.map_or(Ok(()), Err)
    }

    /// Keeps the loss of the device in mind.
    fn noted<T>(&mut self, answer: Result<T>) -> Result<T> {
        if let Err(fault) = &answer
            && fault.kind() == DeviceErrorKind::Lost
        {
            self.lost = Some(*fault);
        }
        answer
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
        // One buffer may be in the table under two keys.
        if source.is_in_the_buffer_of(target) && from.span.overlaps(to.span) {
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

    /// Copies of rows within one buffer, row by row: OpenCL's own call wants equal strides there (1.2, 5.2.4).
    fn copies_of(&self, from: LocalSlice, to: LocalSlice, rows: &Rows) -> Result<Vec<Command>> {
        let row = |slice: LocalSlice, stride: u64, n: u32| {
            let offset = stride.checked_mul(n.into())?;
            let span = slice.span.sub(Side::Local, offset, rows.len).ok()?;
            Some(LocalSlice { span, ..slice })
        };
        let copies = (0..rows.count).map(|n| {
            match (row(from, rows.from_stride, n), row(to, rows.to_stride, n)) {
                (Some(from), Some(to)) => self.copy_of(from, to),
                _ => refused(DeviceErrorKind::Range),
            }
        });
        copies.collect()
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
        commands: &[Command],
        keys: [Option<RegionKey>; 2],
    ) -> Result<StreamEvent> {
        let has_space = self.stream(id)?.has_space();
        if !self.noted(has_space)? {
            return refused(DeviceErrorKind::Busy);
        }
        // SAFETY: the ranges lie in regions of the table, which stay in it until commands that use them have ended (`free`),
        // or until the device has waited for all (`drop`). Events that are waited for are held by their streams.
        let number = unsafe { self.stream(id)?.submit(commands, keys) }?;
        Ok(StreamEvent { stream: id, number })
    }

    /// Submits a command beside all streams, and blocks until it has ended.
    fn run(&mut self, command: &Command) -> Result<()> {
        // SAFETY: as in `submit`; the call waits for it.
        let number = unsafe { self.now.submit(&[*command], [None; 2]) }?;
        let status = self.now.finish().and_then(|()| self.now.status(number));
        match self.noted(status)? {
            EventStatus::Failed(fault) => {
                // The next copy in the call has nothing to do with it.
                self.now.forgive();
                Err(fault)
            }
            _ => Ok(()),
        }
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
            return Err(fault.of_memory());
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
        let is_used = streams.try_fold(false, |used, stream| Ok(used | stream.uses(key)?));
        if self.noted(is_used)? {
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
        self.submit(stream, &[copy], [Some(from.key), Some(to.key)])
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
        let commands = match rows.len {
            _ if rows.count == 0 => vec![Command::Record],
            0 => vec![Command::Record],
            _ if source.is_in_the_buffer_of(target) => self.copies_of(from, to, rows)?,
            _ => vec![Command::CopyRows { from: source, to: target, rows: *rows }],
        };
        self.submit(stream, &commands, [Some(from.key), Some(to.key)])
    }

    fn fill(&mut self, stream: StreamId, to: LocalSlice, byte: u8) -> Result<StreamEvent> {
        self.live()?;
        let fill = self.fill_of(to, byte)?;
        self.submit(stream, &[fill], [Some(to.key), None])
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
        let is_idle = self.stream(stream)?.is_idle();
        if !self.noted(is_idle)? || stream == StreamId::FIRST {
            return refused(DeviceErrorKind::Stream);
        }
        if let Some(slot) = self.streams.get_mut(usize::from(stream.index)) {
            slot.stream = None;
        }
        Ok(())
    }

    fn record(&mut self, stream: StreamId) -> Result<StreamEvent> {
        self.live()?;
        self.submit(stream, &[Command::Record], [None; 2])
    }

    fn passed(&mut self, event: StreamEvent) -> Result<bool> {
        self.live()?;
        let status = self.stream(event.stream)?.status(event.number);
        match self.noted(status)? {
            EventStatus::Unknown => refused(DeviceErrorKind::Stream),
            EventStatus::Ahead => Ok(false),
            EventStatus::Passed => Ok(true),
            EventStatus::Failed(fault) => Err(fault),
        }
    }

    fn wait(&mut self, stream: StreamId, event: StreamEvent) -> Result<()> {
        self.live()?;
        self.stream(stream)?;
        let status = self.stream(event.stream)?.status(event.number);
        match self.noted(status)? {
            EventStatus::Unknown => return refused(DeviceErrorKind::Stream),
            EventStatus::Ahead => {}
            EventStatus::Passed | EventStatus::Failed(_) => return Ok(()),
        }
        if stream == event.stream {
            // It is behind the event already.
            return Ok(());
        }
        match self.stream(event.stream)?.event(event.number) {
            Some(awaited) => self.submit(stream, &[Command::Wait(awaited)], [None; 2]).map(|_| ()),
            None => Ok(()),
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
        if self.context.library().is_inherited() {
            return;
        }
        let mut streams = self.streams.iter_mut().filter_map(|slot| slot.stream.as_mut());
        let ended = streams.try_for_each(Stream::finish).and_then(|()| self.now.finish());
        if ended.is_err() {
            // A command may still use it.
            std::mem::forget(std::mem::take(&mut self.regions));
        }
    }
}
