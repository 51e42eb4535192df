//! Transfers that are posted as one operation, and the memory here that they read or write.
//!
//! They are stored as runs of blocks at equal distances, and computed when they are posted: a list takes memory for each run, not
//! for each block. Each block is checked against its region and its window once more when it is computed.

use hmc_core::queue::Transfer;
use hmc_core::range::{ByteRange, Extent, RangeError, Side};
use hmc_core::region::{Epoch, LocalRegion, LocalSlice, WindowDesc, WindowId, WindowSlice};
use hmc_core::work::{CompleteWhen, Opcode};

use crate::memory::Region;

/// Blocks of one length, at equal distances here and there. All in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Blocks {
    /// Of block 0, in its region.
    pub(crate) here: u64,
    /// Of block 0, in the window.
    pub(crate) there: u64,
    /// Of each block.
    pub(crate) len: u64,
    /// How many there are.
    pub(crate) times: u32,
    /// From the first byte of a block to that of the next, here.
    pub(crate) here_stride: u64,
    /// The same in the window.
    pub(crate) there_stride: u64,
    /// The generation that blocks of the window must have.
    pub(crate) expected: Option<u32>,
}

impl Blocks {
    /// One block.
    pub(crate) const fn one(here: u64, there: u64, len: u64) -> Self {
        Self { here, there, len, times: 1, here_stride: 0, there_stride: 0, expected: None }
    }
}

/// Why blocks do not become part of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotPushed {
    Range(RangeError),
    /// All of them are more than an operation can have.
    TooMany,
}

/// Length and distances of the blocks of runs that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    len: u64,
    here_stride: u64,
    there_stride: u64,
    /// The blocks expect the generation of their run.
    expects: bool,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    here: u64,
    there: u64,
    times: u32,
    /// Index of its shape.
    shape: u32,
    /// Index of its region.
    region: u32,
    generation: u32,
}

/// Where a walk through the transfers of a list is: at a block of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cursor {
    run: u32,
    block: u32,
    /// Transfers from there to the end; 0 before the first step.
    left: u32,
}

/// The transfers, in their order. All of them put into one window, or get from it.
#[derive(Debug)]
pub(crate) struct TransferList {
    opcode: Opcode,
    when: CompleteWhen,
    window: WindowId,
    epoch: Epoch,
    extent: Extent,
    regions: Vec<Region>,
    shapes: Vec<Shape>,
    runs: Vec<Run>,
    transfers: u32,
    /// In all of them; saturating.
    bytes: u64,
}

/// A list that is being made.
#[derive(Debug)]
pub(crate) struct ListBuilder {
    list: TransferList,
    /// One block, with its region and what it expects, which the next may continue on both sides; it is not in the list yet.
    last: Option<((u32, Option<u32>), ByteRange, ByteRange)>,
}

impl ListBuilder {
    /// A list for so many runs.
    pub(crate) fn new(
        opcode: Opcode,
        when: CompleteWhen,
        window: &WindowDesc,
        runs: usize,
    ) -> Self {
        let list = TransferList {
            opcode,
            when,
            window: window.window,
            epoch: window.epoch,
            extent: window.extent,
            regions: Vec::new(),
            shapes: Vec::new(),
            runs: Vec::with_capacity(runs),
            transfers: 0,
            bytes: 0,
        };
        Self { list, last: None }
    }

    /// Adds a transfer for each block from or to `region`: one for blocks that are adjacent on both sides, and none for blocks
    /// without bytes.
    ///
    /// # Errors
    /// If a block exceeds the region or the window, or there are too many in all.
    pub(crate) fn push(&mut self, region: &Region, b: Blocks) -> Result<(), NotPushed> {
        let last = u64::from(b.times.saturating_sub(1));
        let extent = region.local().extent;
        let here = extent.blocks(Side::Local, (b.here, b.len), b.here_stride, last)?;
        let extent = self.list.extent;
        let there = extent.blocks(Side::Remote, (b.there, b.len), b.there_stride, last)?;
        if b.times == 0 || b.len == 0 {
            return Ok(());
        }
        let bytes = b.len.saturating_mul(b.times.into());
        self.list.bytes = self.list.bytes.saturating_add(bytes);
        let region = self.region(region)?;
        let is_dense = b.len == b.here_stride && b.len == b.there_stride;
        if b.times > 1 && !is_dense {
            self.flush()?;
            return self.list.add(region, b);
        }
        let region = (region, b.expected);
        if let Some((r, h, t)) = &mut self.last
            && *r == region
            && let (Some(longer_here), Some(longer_there)) = (h.join(here), t.join(there))
        {
            (*h, *t) = (longer_here, longer_there);
            return Ok(());
        }
        self.flush()?;
        self.last = Some((region, here, there));
        Ok(())
    }

    /// The list.
    ///
    /// # Errors
    /// As [`Self::push`].
    pub(crate) fn finish(mut self) -> Result<TransferList, NotPushed> {
        self.flush()?;
        self.list.runs.shrink_to_fit();
        Ok(self.list)
    }

    fn flush(&mut self) -> Result<(), NotPushed> {
        let Some(((region, expected), here, there)) = self.last.take() else { return Ok(()) };
        let one = Blocks::one(here.offset(), there.offset(), here.len());
        self.list.add(region, Blocks { expected, ..one })
    }

    /// The index of a region in the list.
    fn region(&mut self, region: &Region) -> Result<u32, NotPushed> {
        // Most lists have one region, and the runs of the others follow each other.
        let known = self.list.regions.iter().rposition(|r| r.key() == region.key());
        let index = known.unwrap_or_else(|| {
            self.list.regions.push(region.clone());
            self.list.regions.len().saturating_sub(1)
        });
        u32::try_from(index).map_err(|_| NotPushed::TooMany)
    }
}

impl TransferList {
    fn add(&mut self, region: u32, b: Blocks) -> Result<(), NotPushed> {
        let Blocks { here, there, len, times, here_stride, there_stride, expected } = b;
        let shape = Shape { len, here_stride, there_stride, expects: expected.is_some() };
        if self.shapes.last() != Some(&shape) {
            self.shapes.push(shape);
        }
        let shape = self.shapes.len().saturating_sub(1);
        let shape = u32::try_from(shape).map_err(|_| NotPushed::TooMany)?;
        self.transfers = self.transfers.checked_add(times).ok_or(NotPushed::TooMany)?;
        let generation = expected.unwrap_or(0);
        self.runs.push(Run { here, there, times, shape, region, generation });
        Ok(())
    }

    /// How many transfers there are.
    pub(crate) fn len(&self) -> u32 {
        self.transfers
    }

    /// Whether some transfers expect generations.
    pub(crate) fn expects(&self) -> bool {
        self.shapes.iter().any(|s| s.expects)
    }

    pub(crate) fn regions(&self) -> &[Region] {
        &self.regions
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The first of the last `left` transfers. It is found at once if `cursor` was used for the same or the one before.
    pub(crate) fn transfer(&self, cursor: &mut Cursor, left: u32) -> Option<Transfer> {
        let from_start = self.transfers.checked_sub(left).filter(|_| left != 0)?;
        let (mut at, mut block) = match cursor.left.checked_sub(left) {
            // Both lie within the list, and so does their sum.
            Some(on) => (cursor.run, cursor.block.saturating_add(on)),
            None => (0, from_start),
        };
        let run = loop {
            let run = self.runs.get(usize::try_from(at).ok()?)?;
            match block.checked_sub(run.times) {
                Some(beyond) => block = beyond,
                None => break run,
            }
            at = at.saturating_add(1);
        };
        *cursor = Cursor { run: at, block, left };
        self.block(run, block).map(|(_, t)| t)
    }

    /// All transfers, each with its region.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Region, Transfer)> {
        let all = self.runs.iter().flat_map(|run| (0..run.times).map(move |n| (run, n)));
        all.filter_map(|(run, n)| self.block(run, n))
    }

    /// The transfer of the `n`-th block of a run.
    #[inline]
    fn block(&self, run: &Run, n: u32) -> Option<(&Region, Transfer)> {
        let shape = self.shapes.get(usize::try_from(run.shape).ok()?)?;
        let region = self.regions.get(usize::try_from(run.region).ok()?)?;
        let LocalRegion { extent, key, .. } = region.local();
        let (len, n) = (shape.len, n.into());
        // Both were proven for the whole run.
        let here = extent.block(Side::Local, (run.here, len), shape.here_stride, n).ok()?;
        let there =
            self.extent.block(Side::Remote, (run.there, len), shape.there_stride, n).ok()?;
        let local = LocalSlice { key, span: here };
        let expected = shape.expects.then_some(run.generation);
        let remote = WindowSlice { window: self.window, epoch: self.epoch, span: there, expected };
        let opcode = self.opcode;
        // A transfer that expects a generation reports another one, so the target has to answer.
        let when = if shape.expects { CompleteWhen::Visible } else { self.when };
        Some((region, Transfer { opcode, when, local, remote }))
    }
}

impl From<RangeError> for NotPushed {
    fn from(e: RangeError) -> Self {
        Self::Range(e)
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::cast_possible_truncation,
        clippy::indexing_slicing,
        reason = "tests may panic, and their numbers are small"
    )]

    use std::sync::Arc;

    use hmc_core::queue::Transfer;
    use hmc_core::range::{Extent, RangeError, Side};
    use hmc_core::region::{Epoch, WindowDesc, WindowId};
    use hmc_core::types::{Access, MemoryKind};
    use hmc_core::work::{CompleteWhen, Opcode};

    use super::{Blocks, Cursor, ListBuilder, NotPushed, Run, Shape, TransferList};
    use crate::memory::{Region, RegionTable};

    impl TransferList {
        /// No transfers.
        pub(crate) fn empty() -> Self {
            builder(0, 0).finish().expect("nothing exceeds nothing")
        }
    }

    fn builder(window_bytes: u64, runs: usize) -> ListBuilder {
        let (window, epoch, extent) = (WindowId(7), Epoch(3), Extent::new(window_bytes));
        let (access, kind) = (Access::all(), MemoryKind::Cpu);
        ListBuilder::new(
            Opcode::Get,
            CompleteWhen::Visible,
            &WindowDesc { window, epoch, extent, access, kind },
            runs,
        )
    }

    /// Index of the region with what is expected, offset here, offset there and length.
    type Copy = ((usize, Option<u32>), u64, u64, u64);
    /// A copy, and whether the next may continue it.
    type Item = (Copy, bool);

    fn copies(list: &TransferList, regions: &[Region]) -> Vec<Copy> {
        let index = |r: &Region| regions.iter().position(|known| known.key() == r.key());
        let copy = |(r, t): (&Region, Transfer)| {
            assert_eq!(t.local.key, r.key());
            assert_eq!(t.local.span.len(), t.remote.span.len());
            assert_eq!(
                (t.remote.window, t.remote.epoch, t.opcode),
                (WindowId(7), Epoch(3), Opcode::Get)
            );
            let (here, there) = (t.local.span, t.remote.span);
            let region = (index(r).expect("a known region"), t.remote.expected);
            (region, here.offset(), there.offset(), here.len())
        };
        list.iter().map(copy).collect()
    }

    /// Random lists, against all their blocks written out, in which those that continue the one before on both sides are joined.
    #[test]
    fn a_list_has_the_blocks_of_its_runs() {
        let table = Arc::new(RegionTable::default());
        let regions = [(); 3].map(|()| table.allocate(1 << 16).expect("memory"));
        let mut seed = 1_u64;
        let mut random = |below: u64| {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        for round in 0..2000 {
            let (mut list, mut want) = (builder(1 << 16, 8), Vec::<Item>::new());
            let mut bytes = 0;
            for _ in 0..random(8) {
                let (region, len) = (usize::try_from(random(2)).expect("small"), random(4) * 8);
                let strides = [0; 2].map(|_| [0, len, len, len + 8, 56][random(5) as usize]);
                let (here, there, times) = (random(4) * 8, random(4) * 8, random(6) as u32);
                let [here_stride, there_stride] = strides;
                let expected = [None, Some(0), Some(7)][random(3) as usize];
                let b = Blocks { here, there, len, times, here_stride, there_stride, expected };
                list.push(&regions[region], b).expect("in range");
                bytes += len * u64::from(times);
                let region = (region, expected);
                let item =
                    |n: u64, len| (region, here + n * here_stride, there + n * there_stride, len);
                match (times, len) {
                    (0, _) | (_, 0) => {}
                    _ if times == 1 || strides == [len; 2] => {
                        let one = item(0, len * u64::from(times));
                        match want.last_mut() {
                            Some(((r, h, t, l), true))
                                if (*r, *h + *l, *t + *l) == (one.0, one.1, one.2) =>
                            {
                                *l += one.3
                            }
                            _ => want.push((one, true)),
                        }
                    }
                    _ => want.extend((0..u64::from(times)).map(|n| (item(n, len), false))),
                }
            }
            let list = list.finish().expect("few");
            let want: Vec<Copy> = want.into_iter().map(|(copy, _)| copy).collect();
            assert_eq!(copies(&list, &regions), want, "round {round}");
            assert_eq!((list.len() as usize, list.bytes()), (want.len(), bytes), "round {round}");
            // In any order.
            let mut cursor = Cursor::default();
            for _ in 0..20 {
                let left = random(u64::from(list.len()) + 2) as u32;
                let at = list.len().checked_sub(left).filter(|_| left != 0);
                let want = at.map(|at| list.iter().nth(at as usize).expect("in it").1);
                assert_eq!(list.transfer(&mut cursor, left), want, "round {round}, {left} left");
            }
        }
    }

    /// The blocks of a cache of 6.5 million, as 100 runs that differ in their counts.
    #[test]
    fn a_list_takes_memory_for_its_runs_alone() {
        let table = Arc::new(RegionTable::default());
        let region = table.allocate(1 << 20).expect("memory");
        let mut list = builder(1 << 20, 100);
        for n in 0..100 {
            let (len, times) = (8, 65_000 + n);
            let b = Blocks {
                here: 8,
                there: 8,
                len,
                times,
                here_stride: 12,
                there_stride: 0,
                expected: None,
            };
            list.push(&region, b).expect("in range");
        }
        let list = list.finish().expect("few");
        assert!(list.len() > 6_500_000);
        let bytes = size_of::<TransferList>()
            + list.regions.capacity() * size_of::<Region>()
            + list.shapes.capacity() * size_of::<Shape>()
            + list.runs.capacity() * size_of::<Run>();
        assert!(bytes <= 4096, "{bytes}");
    }

    #[test]
    fn blocks_beyond_their_memory_are_refused_and_so_are_too_many() {
        let table = Arc::new(RegionTable::default());
        let region = table.allocate(64).expect("memory");
        let run = Blocks {
            here: 0,
            there: 8,
            len: 8,
            times: 4,
            here_stride: 16,
            there_stride: 8,
            expected: None,
        };
        let pushed = |b| builder(40, 1).push(&region, b);
        let range = |side, offset, len, limit| {
            Err(NotPushed::Range(RangeError { side, offset, len, limit }))
        };
        assert_eq!(pushed(run), Ok(()));
        assert_eq!(pushed(Blocks { here: 9, ..run }), range(Side::Local, 9, 56, 64));
        assert_eq!(pushed(Blocks { here_stride: 19, ..run }), range(Side::Local, 0, 65, 64));
        assert_eq!(
            pushed(Blocks { here_stride: u64::MAX, ..run }),
            range(Side::Local, 0, u64::MAX, 64)
        );
        assert_eq!(pushed(Blocks { there: 9, ..run }), range(Side::Remote, 9, 32, 40));
        assert_eq!(pushed(Blocks { there_stride: 9, ..run }), range(Side::Remote, 8, 35, 40));
        assert_eq!(pushed(Blocks { times: 5, ..run }), range(Side::Local, 0, 72, 64));
        assert_eq!(pushed(Blocks { times: 0, here: 65, ..run }), range(Side::Local, 65, 8, 64));
        // The same bytes, again and again.
        let all = Blocks { here_stride: 0, there_stride: 0, times: u32::MAX, ..run };
        let mut list = builder(40, 2);
        assert_eq!(list.push(&region, all), Ok(()));
        assert_eq!(list.push(&region, Blocks { times: 2, ..all }), Err(NotPushed::TooMany));
        assert_eq!(list.push(&region, Blocks { times: 1, ..all }), Ok(()));
        assert_eq!(list.finish().map(|_| ()), Err(NotPushed::TooMany));
    }
}
