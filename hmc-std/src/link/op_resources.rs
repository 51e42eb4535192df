//! Resources of one operation, which its record owns until its fence: its memory, its waiting threads, and the
//! transfers for which the transport has no space yet. Each link has a record for each of its slots, so a record is
//! small.

use std::sync::Arc;

use hmc_core::queue::{self, Transfer};
use hmc_core::range::{ByteRange, Extent, Side};
use hmc_core::region::{Epoch, LocalSlice, WindowId, WindowSlice};
use hmc_core::work::{CompleteWhen, Opcode};

use super::transfer_list::{Cursor, TransferList};
use crate::callbacks::wakers::Notice;
use crate::memory::{Region, Span};

/// What the one transfer of an operation does, if it waits.
#[derive(Clone, Copy, Debug)]
enum Kind {
    None,
    Put(CompleteWhen),
    PutNotify(CompleteWhen),
    Get,
}

/// The memory of an operation, and what has space beside it of a transfer that waits: what it does, and its window's epoch.
#[derive(Debug, Default)]
enum Memory {
    #[default]
    None,
    /// A region, and the range of it that a transfer that waits reads or writes.
    Region(Region, ByteRange, Kind, Epoch),
    Span(Span, Kind, Epoch),
    /// A list, and its transfer that was posted last.
    List(Arc<TransferList>, Cursor),
    /// The same of a list whose last transfer carries the tag.
    NotifyingList(Arc<TransferList>, Cursor),
}

/// What one operation keeps alive until its fence.
#[derive(Debug, Default)]
pub struct OpResources {
    memory: Memory,
    /// The rest of the transfer that waits: its tag, its window, the offset in that and what it expects there.
    tag: u64,
    window: u64,
    offset: u64,
    expected: Option<u32>,
    pub(crate) waker: Option<Notice>,
}

const _: () = assert!(size_of::<OpResources>() <= 88, "of each record");

impl OpResources {
    /// A region, and with it the bytes that the operation reads or writes.
    #[inline]
    pub(crate) fn region(region: Region) -> Self {
        let whole = region.local().extent.whole();
        Self { memory: Memory::Region(region, whole, Kind::None, Epoch(0)), ..Self::default() }
    }

    /// A range of its region, which nobody else has.
    pub(crate) fn span(span: Span) -> Self {
        Self { memory: Memory::Span(span, Kind::None, Epoch(0)), ..Self::default() }
    }

    /// Transfers, and with them the regions that they read or write.
    pub(crate) fn list(list: Arc<TransferList>) -> Self {
        Self { memory: Memory::List(list, Cursor::default()), ..Self::default() }
    }

    /// The same of puts, the last of which carries a tag.
    pub(crate) fn notifying_list(list: Arc<TransferList>, tag: u64) -> Self {
        let memory = Memory::NotifyingList(list, Cursor::default());
        Self { memory, tag, ..Self::default() }
    }

    pub(crate) fn waker(waker: Option<Notice>) -> Self {
        Self { waker, ..Self::default() }
    }

    pub(crate) fn held_regions(&self) -> &[Region] {
        match &self.memory {
            Memory::None => &[],
            Memory::Region(region, ..) => std::slice::from_ref(region),
            Memory::List(list, _) | Memory::NotifyingList(list, _) => list.regions(),
            Memory::Span(span, ..) => std::slice::from_ref(span.region()),
        }
    }

    pub(crate) fn take_span(&mut self) -> Option<Span> {
        match std::mem::take(&mut self.memory) {
            Memory::Span(span, ..) => Some(span),
            other => {
                self.memory = other;
                None
            }
        }
    }

    /// Whether letting go of it does nothing.
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self.memory, Memory::None) && self.waker.is_none()
    }

    /// The transfer that waits, if the operation has but one.
    fn one(&self) -> Option<Transfer> {
        let (local, kind, epoch) = match &self.memory {
            Memory::Region(region, span, kind, epoch) => {
                (LocalSlice { key: region.key(), span: *span }, *kind, *epoch)
            }
            Memory::Span(span, kind, epoch) => (span.slice(), *kind, *epoch),
            Memory::None | Memory::List(..) | Memory::NotifyingList(..) => return None,
        };
        let (opcode, when) = match kind {
            Kind::None => return None,
            Kind::Put(when) => (Opcode::Put, when),
            Kind::PutNotify(when) => (Opcode::PutNotify { tag: self.tag }, when),
            Kind::Get => (Opcode::Get, CompleteWhen::Visible),
        };
        // It was a range, and is as long as the one here.
        let all = Extent::new(u64::MAX);
        let span = all.span(Side::Remote, self.offset, local.span.len()).ok()?;
        let (window, expected) = (WindowId(self.window), self.expected);
        let remote = WindowSlice { window, epoch, span, expected };
        Some(Transfer { opcode, when, local, remote })
    }
}

impl queue::Hold for OpResources {
    fn transfer(&mut self, left: u32) -> Option<Transfer> {
        let (list, cursor, notifies) = match &mut self.memory {
            Memory::List(list, cursor) => (list, cursor, false),
            Memory::NotifyingList(list, cursor) => (list, cursor, left == 1),
            Memory::None | Memory::Region(..) | Memory::Span(..) => {
                return self.one().filter(|_| left == 1);
            }
        };
        let t = list.transfer(cursor, left)?;
        match &self.memory {
            // The tag waits for the parts before it: they are complete when their bytes are there.
            Memory::NotifyingList(..) => {
                let opcode = if notifies { Opcode::PutNotify { tag: self.tag } } else { t.opcode };
                Some(Transfer { opcode, when: CompleteWhen::Visible, ..t })
            }
            _ => Some(t),
        }
    }

    fn keep(&mut self, t: &Transfer) -> bool {
        let kind = match t.opcode {
            Opcode::Put => Kind::Put(t.when),
            Opcode::PutNotify { tag } => {
                self.tag = tag;
                Kind::PutNotify(t.when)
            }
            Opcode::Get => Kind::Get,
        };
        (self.window, self.offset) = (t.remote.window.0, t.remote.span.offset());
        self.expected = t.remote.expected;
        match &mut self.memory {
            Memory::Region(_, span, does, epoch) => {
                (*span, *does, *epoch) = (t.local.span, kind, t.remote.epoch);
            }
            Memory::Span(_, does, epoch) => (*does, *epoch) = (kind, t.remote.epoch),
            Memory::None | Memory::List(..) | Memory::NotifyingList(..) => {}
        }
        // All do: each operation holds the memory that it reads or writes.
        self.one() == Some(*t)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "tests may panic")]

    use std::sync::Arc;

    use hmc_core::queue::{Hold as _, Transfer};
    use hmc_core::range::{Extent, Side};
    use hmc_core::region::{Epoch, WindowDesc, WindowId, WindowSlice};
    use hmc_core::types::{Access, MemoryKind};
    use hmc_core::work::{CompleteWhen, Opcode};

    use super::OpResources;
    use crate::link::transfer_list::{Blocks, ListBuilder};
    use crate::memory::RegionTable;

    #[test]
    fn what_waits_is_given_as_it_was_kept() {
        let regions = Arc::new(RegionTable::default());
        let region = regions.allocate(64).expect("memory");
        let window = |at| {
            let span = Extent::new(64).span(Side::Remote, at, 8).expect("it fits");
            WindowSlice { window: WindowId::new(3, 4), epoch: Epoch(5), span, expected: None }
        };
        let transfer = |opcode, when, at| {
            let local = region.slice(at, 8).expect("it fits");
            let expected = (at == 8).then_some(u32::MAX);
            Transfer { opcode, when, local, remote: WindowSlice { expected, ..window(56 - at) } }
        };
        let all = [
            transfer(Opcode::Put, CompleteWhen::Visible, 8),
            transfer(Opcode::PutNotify { tag: u64::MAX }, CompleteWhen::Visible, 16),
            transfer(Opcode::Get, CompleteWhen::Visible, 24),
        ];
        let kept = |mut hold: OpResources, t: &Transfer| {
            assert_eq!(hold.transfer(1), None);
            assert!(hold.keep(t));
            assert_eq!([0, 1, 2].map(|left| hold.transfer(left)), [None, Some(*t), None]);
        };
        let early = transfer(Opcode::Put, CompleteWhen::Local, 8);
        for t in all.iter().chain([&early]) {
            kept(OpResources::region(region.clone()), t);
        }
        let span = regions.allocate(64).expect("memory").take(16, 8).expect("free");
        let (local, remote) = (span.slice(), window(0));
        kept(OpResources::span(span), &Transfer { local, remote, ..all[2] });
        let list = || {
            let (access, kind) = (Access::all(), MemoryKind::Cpu);
            let window = WindowDesc {
                window: WindowId::new(3, 4),
                epoch: Epoch(5),
                extent: Extent::new(64),
                access,
                kind,
            };
            let mut list = ListBuilder::new(Opcode::Put, CompleteWhen::Visible, &window, 3);
            for t in &all {
                let (here, there) = (t.local.span, t.remote.span.offset());
                let one = Blocks::one(here.offset(), there, here.len());
                list.push(&region, Blocks { expected: t.remote.expected, ..one }).expect("it fits");
            }
            Arc::new(list.finish().expect("few"))
        };
        let puts = all.map(|t| Transfer { opcode: Opcode::Put, ..t });
        assert_eq!((list().regions().len(), list().bytes()), (1, 24));
        let mut hold = OpResources::list(list());
        assert_eq!([3, 2, 2, 1].map(|left| hold.transfer(left).expect("one"))[2..], puts[1..]);
        assert_eq!([3, 2, 1].map(|left| hold.transfer(left)), puts.map(Some));
        let mut notifies = OpResources::notifying_list(list(), 9);
        let last = Transfer { opcode: Opcode::PutNotify { tag: 9 }, ..all[2] };
        assert_eq!(
            [3, 2, 1].map(|left| notifies.transfer(left)),
            [puts[0], puts[1], last].map(Some)
        );
        assert_eq!((hold.transfer(4), hold.transfer(0)), (None, None));
        // What it could not give again.
        assert!(!OpResources::default().keep(&all[0]));
        let other = regions.allocate(64).expect("memory");
        assert!(!OpResources::region(other).keep(&all[0]));
    }
}
