//! Simulated region memory: plain vectors with guard bytes around them and poison after them.
//!
//! Keys are resolved in a table as a backend does it: the one of a NIC, in which memory is once it is pinned. The owner reaches
//! memory that is not pinned as well. [`Memory::check`] finds every byte that was written beside a region or into a region that was
//! deregistered. No key ever names two regions.

use hmc_core::limits::MAX_REGIONS;
use hmc_core::place::Place;
use hmc_core::range::{ByteRange, Extent, Side};
use hmc_core::region::{LocalRegion, LocalSlice, RegionKey};

/// Guard bytes on each side of a region.
const GUARD_LEN: usize = 64;
const GUARD: u8 = 0xA5;
/// What fresh memory holds.
pub(crate) const FRESH: u8 = 0xCD;
/// What memory holds after its deregistration.
pub(crate) const POISON: u8 = 0xDD;

#[derive(Debug)]
struct Block {
    /// Guard, `extent` bytes, guard.
    bytes: Vec<u8>,
    extent: Extent,
    body: core::ops::Range<usize>,
}

impl Block {
    fn new(len: u64) -> Option<Self> {
        let size = usize::try_from(len).ok()?;
        let end = GUARD_LEN.checked_add(size)?;
        let mut bytes = vec![GUARD; end.checked_add(GUARD_LEN)?];
        bytes.get_mut(GUARD_LEN..end)?.fill(FRESH);
        Some(Self { bytes, extent: Extent::new(len), body: GUARD_LEN..end })
    }

    /// The places of a range, if it lies in the body.
    #[inline]
    fn at(&self, span: ByteRange) -> Option<core::ops::Range<usize>> {
        let (from, to) = (usize::try_from(span.offset()).ok()?, usize::try_from(span.end()).ok()?);
        // Cannot wrap: both lie within `bytes`, whose length counts the guards.
        self.extent.contains(span).then(|| from.wrapping_add(GUARD_LEN)..to.wrapping_add(GUARD_LEN))
    }

    #[inline]
    fn get(&self, span: ByteRange) -> Option<&[u8]> {
        self.bytes.get(self.at(span)?)
    }

    #[inline]
    fn get_mut(&mut self, span: ByteRange) -> Option<&mut [u8]> {
        let at = self.at(span)?;
        self.bytes.get_mut(at)
    }

    fn broken_guard(&self) -> Option<usize> {
        let outside = (0..self.body.start).chain(self.body.end..self.bytes.len());
        outside.into_iter().find(|at| self.bytes.get(*at) != Some(&GUARD))
    }
}

#[derive(Debug)]
struct RegionSlot {
    generation: u32,
    block: Option<Block>,
}

/// A byte was written without a right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Corruption {
    /// Beside a region: the byte's distance from the start of its guards.
    Guard {
        /// The region.
        key: RegionKey,
        /// Bytes from the start of the guard before it.
        at: usize,
    },
    /// In a region that was deregistered.
    UseAfterFree {
        /// How many regions had been deregistered before it.
        nth: usize,
    },
}

impl core::fmt::Display for Corruption {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Guard { key, at } => {
                write!(f, "guard byte {at} of region {}:{} was written", key.index, key.generation)
            }
            Self::UseAfterFree { nth } => write!(f, "deregistered region {nth} was written"),
        }
    }
}

impl core::error::Error for Corruption {}

/// The memory of one simulated process.
#[derive(Debug, Default)]
pub struct Memory {
    slots: Vec<RegionSlot>,
    /// Memory that no NIC knows. It is not in `slots`, so that a NIC looks up one table.
    unpinned: Vec<(RegionKey, Block)>,
    deregistered: Vec<(RegionKey, Block)>,
}

impl Memory {
    /// An empty table.
    #[must_use]
    pub const fn new() -> Self {
        Self { slots: Vec::new(), unpinned: Vec::new(), deregistered: Vec::new() }
    }

    /// Allocates and pins `len` fresh bytes (each 0xCD). Slots of deregistered regions are reused, under a new generation.
    /// `None` if the table is full or the memory cannot be allocated.
    pub fn register(&mut self, len: u64) -> Option<LocalRegion> {
        let region = self.allocate(len)?;
        self.pin(region.key).then_some(region)
    }

    /// As [`Self::register`], without pinning: no NIC knows the bytes yet.
    pub fn allocate(&mut self, len: u64) -> Option<LocalRegion> {
        let block = Block::new(len)?;
        let extent = block.extent;
        let is_reserved = |at| self.unpinned.iter().any(|(key, _)| usize::from(key.index) == at);
        let mut slots = self.slots.iter().enumerate();
        let free = slots.position(|(at, p)| p.block.is_none() && !is_reserved(at));
        let at = free.unwrap_or(self.slots.len());
        if at >= MAX_REGIONS {
            return None;
        }
        if free.is_none() {
            self.slots.push(RegionSlot { generation: 0, block: None });
        }
        let slot = self.slots.get_mut(at)?;
        slot.generation = slot.generation.checked_add(1)?;
        let key = RegionKey { index: u16::try_from(at).ok()?, generation: slot.generation };
        self.unpinned.push((key, block));
        Some(LocalRegion { key, extent, place: Place::HOST })
    }

    /// Makes a region known to NICs. Returns `false` if there is no such region, or if they know it.
    pub fn pin(&mut self, key: RegionKey) -> bool {
        let block = self.take_unpinned(key);
        match self.slots.get_mut(usize::from(key.index)) {
            Some(slot) if block.is_some() => slot.block = block,
            _ => return false,
        }
        true
    }

    /// Removes a region from what NICs know; its bytes stay. Returns `false` if they do not know it.
    pub fn unpin(&mut self, key: RegionKey) -> bool {
        let block = self.take_pinned(key);
        let is_pinned = block.is_some();
        self.unpinned.extend(block.map(|block| (key, block)));
        is_pinned
    }

    fn take_pinned(&mut self, key: RegionKey) -> Option<Block> {
        let slot = self.slots.get_mut(usize::from(key.index))?;
        if slot.generation == key.generation { slot.block.take() } else { None }
    }

    fn take_unpinned(&mut self, key: RegionKey) -> Option<Block> {
        let at = self.unpinned.iter().position(|(k, _)| *k == key)?;
        Some(self.unpinned.swap_remove(at).1)
    }

    /// Removes the region from the table and poisons its bytes. Returns `true` if there was one.
    pub fn deregister(&mut self, key: RegionKey) -> bool {
        let Some(mut block) = self.take_pinned(key).or_else(|| self.take_unpinned(key)) else {
            return false;
        };
        let body = block.body.clone();
        if let Some(body) = block.bytes.get_mut(body) {
            body.fill(POISON);
        }
        self.deregistered.push((key, block));
        true
    }

    #[inline]
    fn block(&self, key: RegionKey) -> Option<&Block> {
        let slot = self.slots.get(usize::from(key.index))?;
        slot.block.as_ref().filter(|_| slot.generation == key.generation)
    }

    /// Whether the range lies in a pinned region.
    #[must_use]
    #[inline]
    pub fn knows(&self, slice: LocalSlice) -> bool {
        self.block(slice.key).is_some_and(|b| b.extent.contains(slice.span))
    }

    /// The bytes of a range, if it lies in a pinned region.
    #[must_use]
    #[inline]
    pub fn get(&self, slice: LocalSlice) -> Option<&[u8]> {
        self.block(slice.key)?.get(slice.span)
    }

    /// As [`Self::get`], to write.
    #[must_use]
    #[inline]
    pub fn get_mut(&mut self, slice: LocalSlice) -> Option<&mut [u8]> {
        let slot = self.slots.get_mut(usize::from(slice.key.index))?;
        let block = slot.block.as_mut();
        block.filter(|_| slot.generation == slice.key.generation)?.get_mut(slice.span)
    }

    /// Copies bytes out of a region. Whether the range was known; if not, `out` does not change.
    pub fn read(&self, region: LocalRegion, offset: u64, out: &mut [u8]) -> bool {
        let Some(slice) = slice(region, offset, out.len()) else {
            return false;
        };
        let block = self.block(slice.key).or_else(|| of_key(&self.unpinned, slice.key));
        let Some(from) = block.and_then(|b| b.get(slice.span)) else {
            return false;
        };
        out.copy_from_slice(from);
        true
    }

    /// Copies bytes into a region. Whether the range was known; if not, nothing is written.
    pub fn write(&mut self, region: LocalRegion, offset: u64, bytes: &[u8]) -> bool {
        let Some(to) = slice(region, offset, bytes.len()).and_then(|s| self.own_mut(s)) else {
            return false;
        };
        to.copy_from_slice(bytes);
        true
    }

    /// As [`Self::get_mut`], also for a region that is not pinned: for its owner.
    pub(crate) fn own_mut(&mut self, slice: LocalSlice) -> Option<&mut [u8]> {
        live(&mut self.slots, &mut self.unpinned, slice.key)?.get_mut(slice.span)
    }

    /// As [`Self::own_mut`], also for a deregistered region: for rogue NICs.
    pub(crate) fn raw(&mut self, slice: LocalSlice) -> Option<&mut [u8]> {
        self.anywhere(slice.key)?.get_mut(slice.span)
    }

    /// The byte at that distance from a region's start, guards included.
    pub(crate) fn raw_byte(&mut self, key: RegionKey, at: u64) -> Option<&mut u8> {
        let at = usize::try_from(at).ok()?.checked_add(GUARD_LEN)?;
        self.anywhere(key)?.bytes.get_mut(at)
    }

    fn anywhere(&mut self, key: RegionKey) -> Option<&mut Block> {
        let live = live(&mut self.slots, &mut self.unpinned, key);
        live.or_else(|| of_key_mut(&mut self.deregistered, key))
    }

    /// All bytes of a region; of one that was deregistered too.
    pub(crate) fn all(&self, key: RegionKey) -> Option<&[u8]> {
        let pinned = self.block(key).or_else(|| of_key(&self.unpinned, key));
        let block = pinned.or_else(|| of_key(&self.deregistered, key))?;
        block.bytes.get(block.body.clone())
    }

    /// Checks all guards and all bytes of deregistered regions.
    ///
    /// # Errors
    /// The first [`Corruption`].
    pub fn check(&self) -> Result<(), Corruption> {
        for (index, slot) in (0..=u16::MAX).zip(&self.slots) {
            if let Some(at) = slot.block.as_ref().and_then(Block::broken_guard) {
                let key = RegionKey { index, generation: slot.generation };
                return Err(Corruption::Guard { key, at });
            }
        }
        for (key, block) in &self.unpinned {
            if let Some(at) = block.broken_guard() {
                return Err(Corruption::Guard { key: *key, at });
            }
        }
        for (nth, (_, block)) in self.deregistered.iter().enumerate() {
            let body = block.bytes.get(block.body.clone()).unwrap_or_default();
            if block.broken_guard().is_some() || body.iter().any(|b| *b != POISON) {
                return Err(Corruption::UseAfterFree { nth });
            }
        }
        Ok(())
    }
}

/// The region of that key, pinned or not.
fn live<'m>(
    slots: &'m mut [RegionSlot],
    unpinned: &'m mut [(RegionKey, Block)],
    key: RegionKey,
) -> Option<&'m mut Block> {
    let slot = slots.get_mut(usize::from(key.index));
    let pinned = slot.filter(|p| p.generation == key.generation).and_then(|p| p.block.as_mut());
    pinned.or_else(|| of_key_mut(unpinned, key))
}

fn of_key(blocks: &[(RegionKey, Block)], key: RegionKey) -> Option<&Block> {
    blocks.iter().find(|(k, _)| *k == key).map(|(_, block)| block)
}

fn of_key_mut(blocks: &mut [(RegionKey, Block)], key: RegionKey) -> Option<&mut Block> {
    blocks.iter_mut().find(|(k, _)| *k == key).map(|(_, block)| block)
}

fn slice(region: LocalRegion, offset: u64, len: usize) -> Option<LocalSlice> {
    let span = region.extent.span(Side::Local, offset, u64::try_from(len).ok()?).ok()?;
    Some(LocalSlice { key: region.key, span })
}

/// Copies `from` one memory `to` another; the ranges must be of equal length. Whether both were
/// known; if not, nothing is written.
#[inline]
pub fn copy(src: &Memory, from: LocalSlice, dst: &mut Memory, to: LocalSlice) -> bool {
    match (src.get(from), dst.get_mut(to)) {
        (Some(from), Some(to)) if from.len() == to.len() => {
            to.copy_from_slice(from);
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{Corruption, FRESH, Memory};
    use hmc_core::range::Extent;
    use hmc_core::region::LocalSlice;

    #[test]
    fn bytes_go_in_and_out_within_the_region_only() {
        let mut m = Memory::new();
        let r = m.register(10).expect("memory");
        assert!(m.write(r, 3, &[1, 2, 3]));
        let mut out = [0; 5];
        assert!(m.read(r, 2, &mut out));
        assert_eq!(out, [FRESH, 1, 2, 3, FRESH]);
        assert!(!m.write(r, 8, &[1, 2, 3]) && !m.read(r, 6, &mut out));
        let foreign = LocalSlice { key: r.key, span: Extent::new(99).whole() };
        assert!(!m.knows(foreign) && m.get(foreign).is_none() && m.get_mut(foreign).is_none());
        assert_eq!(m.check(), Ok(()));
    }

    #[test]
    fn a_dead_key_stays_dead_when_its_place_is_used_again() {
        let mut m = Memory::new();
        let old = m.register(8).expect("memory");
        assert!(m.deregister(old.key) && !m.deregister(old.key));
        let new = m.register(8).expect("memory");
        assert_eq!(new.key.index, old.key.index);
        assert!(!m.write(old, 0, &[1]) && m.write(new, 0, &[1]));
    }

    #[test]
    fn only_the_owner_reaches_memory_that_is_not_pinned() {
        let mut m = Memory::new();
        let (a, b) = (m.allocate(8).expect("memory"), m.register(8).expect("memory"));
        assert_ne!(a.key.index, b.key.index, "a slot of memory that is not pinned is in use");
        let whole = a.slice(0, 8).expect("all of it");
        assert!(m.write(a, 0, &[1; 8]) && !m.knows(whole) && m.get_mut(whole).is_none());
        assert!(m.pin(a.key) && !m.pin(a.key));
        assert!(m.get(whole) == Some([1; 8].as_slice()));
        assert!(m.unpin(a.key) && !m.unpin(a.key) && m.get(whole).is_none());
        let mut out = [0; 8];
        assert!(m.read(a, 0, &mut out) && out == [1; 8]);
        assert!(m.deregister(a.key) && !m.write(a, 0, &[1]) && !m.pin(a.key));
        assert_eq!(m.check(), Ok(()));
    }

    #[test]
    fn damage_is_found() {
        let mut m = Memory::new();
        let r = m.register(4).expect("memory");
        let live = m.slots.first_mut().and_then(|p| p.block.as_mut()).expect("a block");
        *live.bytes.last_mut().expect("a guard") = 0;
        assert_eq!(m.check(), Err(Corruption::Guard { key: r.key, at: 131 }));

        let mut m = Memory::new();
        let r = m.register(4).expect("memory");
        assert!(m.deregister(r.key));
        let (_, dead) = m.deregistered.first_mut().expect("a block");
        *dead.bytes.get_mut(65).expect("a byte") = 7;
        assert_eq!(m.check(), Err(Corruption::UseAfterFree { nth: 0 }));
    }
}
