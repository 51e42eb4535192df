//! A fake device with one flaw.

use hmc_core::device::{
    Allocation, Copies, Device, DeviceAttributes, DeviceErrorKind, DeviceMemory, MemoryUsage, Rows,
    StreamEvent, StreamId, Streams,
};
use hmc_core::place::{DeviceId, MemoryClass, Place};
use hmc_core::region::{LocalRegion, LocalSlice, RegionKey};
use hmc_core::types::MemoryKind;
use hmc_sim::conformance::device::Call;
use hmc_sim::device::fake::{Config, FakeDevice, FakeMemory};

macro_rules! flaws {
    ($($(#[$doc:meta])+ $flaw:ident of $call:ident;)+) => {
        /// What is wrong with a device, by the call that is wrong.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Flaw {
            /// The control: the wrapper itself is correct.
            None,
            $($(#[$doc])+ $flaw,)+
        }

        impl Flaw {
            /// All of them, each with its call.
            pub(crate) const ALL: &[(Self, Call)] = &[$((Self::$flaw, Call::$call)),+];
        }
    };
}

flaws! {
    /// Says another device.
    WrongId of Id;
    /// Has no name.
    NoName of Name;
    /// Says more memory than it has.
    WrongTotal of Attributes;
    /// Says `Other` when memory has run out.
    WrongShortage of Alloc;
    /// Leaves what was in the memory.
    LeavesOldBytes of Alloc;
    /// Takes a key again that is in use.
    TakesUsedKeys of Alloc;
    /// Gives pinned memory as memory of the device.
    PinnedElsewhere of Alloc;
    /// Adds new memory in place of the one that it was given.
    AddsOther of Add;
    /// Knows memory of freed keys.
    KeepsHandles of Memory;
    /// Takes any generation of a key for the newest.
    IgnoresGeneration of Region;
    /// Says that freed memory is free, and keeps it.
    LeaksFreed of Free;
    /// Frees under a running copy: says `Ok` whatever runs.
    FreesInFlight of Free;
    /// Frees memory of a lost device.
    FreesWhenLost of Free;
    /// Says what was free at first.
    UsageStandsStill of Usage;
    /// Copies one byte less.
    OneByteShort of Copy;
    /// Copies of one stream run in several.
    ForgetsOrder of Copy;
    /// Says `Busy` to every fifth copy, and does it all the same.
    BusyButDone of Copy;
    /// Cuts unequal ranges to the shorter one.
    CutsUnequal of Copy;
    /// Bends a range that leaves its region.
    BendsRange of Copy;
    /// Copies ranges that overlap, as far as they do not.
    TakesOverlaps of Copy;
    /// Gives memory of the device for any class.
    AnyClass of Alloc;
    /// Copies once more after the event has passed.
    CopiesAgain of Copy;
    /// Events do not grow.
    EventsStandStill of Copy;
    /// Accepts streams that there are not.
    AnyStream of Copy;
    /// Copies rows as if nothing were between them where they are written.
    RowsWithoutGaps of CopyRows;
    /// Copies rows as far as the slices reach.
    RowsOfAnyLength of CopyRows;
    /// Fills one byte less.
    FillsOneShort of Fill;
    /// Submits the copy, and does not wait.
    ReturnsEarly of CopyNow;
    /// Gives the first stream in place of a new one.
    OpensNoStream of OpenStream;
    /// Closes a stream while a copy runs, which is then lost.
    ClosesInFlight of CloseStream;
    /// Gives the event before the last command.
    RecordsTooEarly of Record;
    /// Says that an event was passed when it was submitted.
    PassedAtOnce of Passed;
    /// Every seventh event is never passed.
    NeverPassed of Passed;
    /// An event that was passed once is not passed when asked again.
    ForgetsPassed of Passed;
    /// Works again some time after its loss.
    ForgetsLoss of Passed;
    /// Does not wait.
    WaitsForNothing of Wait;
}

pub(crate) struct Broken {
    fake: FakeDevice,
    flaw: Flaw,
    counted: u64,
    passed: Vec<StreamEvent>,
    newest: Vec<RegionKey>,
    freed: Vec<(RegionKey, FakeMemory)>,
    /// Copies to be made again.
    again: Vec<(u32, LocalSlice, LocalSlice)>,
    /// Events as told, and as they are.
    named: Vec<(StreamEvent, StreamEvent)>,
    copies: Vec<(StreamEvent, LocalSlice, LocalSlice)>,
    /// Streams that an unordered device uses for one.
    hidden: Vec<StreamId>,
    first_usage: Option<MemoryUsage>,
    attributes: DeviceAttributes,
    losses: u32,
}

impl AsMut<FakeDevice> for Broken {
    fn as_mut(&mut self) -> &mut FakeDevice {
        self.tick();
        &mut self.fake
    }
}

type Result<T> = core::result::Result<T, DeviceErrorKind>;

impl Broken {
    fn tick(&mut self) {
        for (wait, _, _) in &mut self.again {
            *wait -= 1;
        }
        while let Some(at) = self.again.iter().position(|(wait, _, _)| *wait == 0) {
            let (_, from, to) = self.again.swap_remove(at);
            // What is refused by now does no harm.
            let _ = self.fake.copy(StreamId::FIRST, from, to);
        }
    }

    pub(crate) fn new(fake: FakeDevice, flaw: Flaw) -> Self {
        let mut attributes = *fake.attributes();
        if flaw == Flaw::WrongTotal {
            attributes.total_bytes += 1;
        }
        Self {
            fake,
            flaw,
            counted: 0,
            passed: Vec::new(),
            newest: Vec::new(),
            freed: Vec::new(),
            again: Vec::new(),
            named: Vec::new(),
            copies: Vec::new(),
            hidden: Vec::new(),
            first_usage: None,
            attributes,
            losses: 0,
        }
    }

    fn every(&mut self, n: u64) -> bool {
        self.counted += 1;
        self.counted.is_multiple_of(n)
    }

    fn cut(&self, slice: LocalSlice, len: u64) -> LocalSlice {
        let region = self.fake.region(slice.key);
        let cut = region.and_then(|r| r.slice(slice.span.offset(), len).ok());
        cut.unwrap_or(slice)
    }

    /// Unordered streams in turn.
    fn any_stream(&mut self) -> StreamId {
        if self.hidden.is_empty() {
            self.hidden.push(StreamId::FIRST);
            self.hidden.extend(self.fake.open_stream());
        }
        self.hidden[self.named.len() % self.hidden.len()]
    }
}

impl DeviceMemory for Broken {
    type Error = DeviceErrorKind;
    type Memory = FakeMemory;

    fn alloc(&mut self, key: RegionKey, what: &Allocation) -> Result<LocalRegion> {
        if self.flaw == Flaw::TakesUsedKeys && self.fake.region(key).is_some() {
            let _ = self.fake.free(key);
        }
        let mut what = *what;
        if self.flaw == Flaw::AnyClass && what.class != MemoryClass::Pinned {
            what.class = MemoryClass::Device;
        }
        let mut region = self.fake.alloc(key, &what).map_err(|e| match self.flaw {
            Flaw::WrongShortage if e == DeviceErrorKind::NoSpace => DeviceErrorKind::Other,
            _ => e,
        })?;
        match self.flaw {
            Flaw::LeavesOldBytes if what.class == MemoryClass::Device => {
                let all = LocalSlice { key, span: region.extent.whole() };
                let _ = self.fake.fill(StreamId::FIRST, all, 0xCD);
            }
            Flaw::PinnedElsewhere => region.place = Place::on(self.fake.id()),
            _ => {}
        }
        self.newest.push(region.key);
        Ok(region)
    }

    fn add(&mut self, key: RegionKey, memory: FakeMemory) -> Result<LocalRegion> {
        let added = self.fake.add(key, memory)?;
        if self.flaw == Flaw::AddsOther {
            self.fake.free(key)?;
            self.fake.alloc(key, &Allocation::device(added.extent.len()))?;
        }
        Ok(added)
    }

    fn memory(&self, key: RegionKey) -> Option<FakeMemory> {
        let freed = self.freed.iter().find(|(k, _)| *k == key && self.flaw == Flaw::KeepsHandles);
        self.fake.memory(key).or(freed.map(|(_, memory)| memory.clone()))
    }

    fn free(&mut self, key: RegionKey) -> Result<()> {
        self.freed.extend(self.fake.memory(key).map(|memory| (key, memory)));
        match (self.flaw, self.fake.free(key)) {
            (Flaw::FreesInFlight, Err(DeviceErrorKind::Region))
                if self.fake.region(key).is_some() =>
            {
                Ok(())
            }
            (Flaw::FreesWhenLost, Err(DeviceErrorKind::Lost)) => Ok(()),
            (Flaw::LeaksFreed, Ok(())) => {
                // As much as was freed stays away.
                let key = RegionKey { generation: 99, ..key };
                let _ = self.fake.alloc(key, &Allocation::device(Config::FAIR.capacity_bytes / 8));
                Ok(())
            }
            (_, answer) => answer,
        }
    }

    fn region(&self, key: RegionKey) -> Option<LocalRegion> {
        let same = self.newest.iter().rev().find(|k| k.index == key.index);
        match (self.flaw, same) {
            (Flaw::IgnoresGeneration, Some(newest)) => self.fake.region(*newest),
            _ => self.fake.region(key),
        }
    }

    fn usage(&mut self) -> Result<MemoryUsage> {
        let usage = self.fake.usage()?;
        let first = *self.first_usage.get_or_insert(usage);
        Ok(if self.flaw == Flaw::UsageStandsStill { first } else { usage })
    }
}

impl Copies for Broken {
    fn copy(
        &mut self,
        stream: StreamId,
        mut from: LocalSlice,
        mut to: LocalSlice,
    ) -> Result<StreamEvent> {
        let mut used = stream;
        let len = from.span.len().min(to.span.len());
        match self.flaw {
            Flaw::OneByteShort if len > 0 && from.span.len() == to.span.len() => {
                (from, to) = (self.cut(from, len - 1), self.cut(to, len - 1));
            }
            Flaw::CutsUnequal => (from, to) = (self.cut(from, len), self.cut(to, len)),
            Flaw::BendsRange => {
                for slice in [&mut from, &mut to] {
                    let region = self.fake.region(slice.key);
                    if let Some(region) = region.filter(|r| !r.extent.contains(slice.span)) {
                        let len = len.min(region.extent.len());
                        *slice = region.slice(0, len).expect("it fits");
                    }
                }
                let len = from.span.len().min(to.span.len());
                (from, to) = (self.cut(from, len), self.cut(to, len));
            }
            Flaw::TakesOverlaps if from.key == to.key && from.span.overlaps(to.span) => {
                (from, to) = (self.cut(from, 0), self.cut(to, 0));
            }
            Flaw::ForgetsOrder => used = self.any_stream(),
            Flaw::AnyStream if stream.index >= Config::FAIR.streams => used = StreamId::FIRST,
            _ => {}
        }
        let real = self.fake.copy(used, from, to)?;
        if self.flaw == Flaw::BusyButDone && self.every(5) {
            return Err(DeviceErrorKind::Busy);
        }
        let told = match self.flaw {
            Flaw::EventsStandStill => StreamEvent { stream, number: real.number / 2 },
            Flaw::ForgetsOrder => {
                self.counted += 1;
                StreamEvent { stream, number: self.counted }
            }
            _ => StreamEvent { stream, ..real },
        };
        self.named.push((told, real));
        self.copies.push((told, from, to));
        Ok(told)
    }

    fn copy_rows(
        &mut self,
        stream: StreamId,
        from: LocalSlice,
        mut to: LocalSlice,
        rows: &Rows,
    ) -> Result<StreamEvent> {
        let mut rows = *rows;
        match self.flaw {
            Flaw::RowsWithoutGaps => {
                rows.to_stride = rows.len;
                to = self.cut(to, rows.extents().map_or(0, |(_, to)| to));
            }
            Flaw::RowsOfAnyLength => {
                if let Some((len, _)) = rows.extents().filter(|(len, _)| *len <= from.span.len()) {
                    return self.fake.copy_rows(stream, self.cut(from, len), to, &rows);
                }
            }
            _ => {}
        }
        self.fake.copy_rows(stream, from, to, &rows)
    }

    fn fill(&mut self, stream: StreamId, to: LocalSlice, byte: u8) -> Result<StreamEvent> {
        let len = to.span.len();
        let short = self.flaw == Flaw::FillsOneShort && len > 0;
        self.fake.fill(stream, if short { self.cut(to, len - 1) } else { to }, byte)
    }

    fn copy_now(&mut self, from: LocalSlice, to: LocalSlice) -> Result<()> {
        if self.flaw == Flaw::ReturnsEarly {
            return self.fake.copy(StreamId::FIRST, from, to).map(|_| ());
        }
        self.fake.copy_now(from, to)
    }
}

impl Streams for Broken {
    fn open_stream(&mut self) -> Result<StreamId> {
        if self.flaw == Flaw::OpensNoStream {
            return Ok(StreamId::FIRST);
        }
        self.fake.open_stream()
    }

    fn close_stream(&mut self, stream: StreamId) -> Result<()> {
        let closed = self.fake.close_stream(stream);
        if self.flaw == Flaw::ClosesInFlight && closed == Err(DeviceErrorKind::Stream) {
            return Ok(());
        }
        closed
    }

    fn record(&mut self, stream: StreamId) -> Result<StreamEvent> {
        let event = self.fake.record(stream)?;
        if self.flaw == Flaw::RecordsTooEarly {
            return Ok(StreamEvent { number: event.number.saturating_sub(2).max(1), ..event });
        }
        Ok(event)
    }

    fn passed(&mut self, event: StreamEvent) -> Result<bool> {
        let real = self.named.iter().rev().find(|(told, _)| *told == event).map(|(_, real)| *real);
        let answer = self.fake.passed(real.unwrap_or(event));
        match (self.flaw, answer) {
            (Flaw::PassedAtOnce, Ok(false)) => Ok(true),
            (Flaw::NeverPassed, Ok(true)) if event.number.is_multiple_of(7) => Ok(false),
            (Flaw::ForgetsPassed, Ok(true)) if self.passed.contains(&event) => Ok(false),
            (Flaw::ForgetsLoss, Err(DeviceErrorKind::Lost)) => {
                self.losses += 1;
                if self.losses > 4 { Ok(true) } else { Err(DeviceErrorKind::Lost) }
            }
            (_, Ok(true)) => {
                self.passed.push(event);
                let copy = self.copies.iter().position(|(told, _, _)| *told == event);
                if let (Flaw::CopiesAgain, Some(at)) = (self.flaw, copy) {
                    let (_, from, to) = self.copies.swap_remove(at);
                    self.again.push((2, from, to));
                }
                Ok(true)
            }
            (_, answer) => answer,
        }
    }

    fn wait(&mut self, stream: StreamId, event: StreamEvent) -> Result<()> {
        if self.flaw == Flaw::WaitsForNothing {
            return Ok(());
        }
        self.fake.wait(stream, event)
    }
}

impl Device for Broken {
    fn id(&self) -> DeviceId {
        match self.flaw {
            Flaw::WrongId => DeviceId { kind: MemoryKind::AmdGpu, ..self.fake.id() },
            _ => self.fake.id(),
        }
    }

    fn name(&self) -> &str {
        if self.flaw == Flaw::NoName { "" } else { self.fake.name() }
    }

    fn attributes(&self) -> &DeviceAttributes {
        &self.attributes
    }
}
