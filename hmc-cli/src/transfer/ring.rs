//! The ring of slots in the receiver's window. A slot is a page with a note at its end, then bytes of
//! the file: note and bytes arrive by one put, and the bytes start at a page.

use hmc_std::{Access, Peer, Region, Session, Window};
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Result};
use crate::units::{short, size};

/// Bytes of a slot before those of the file.
pub(crate) const HEAD: u64 = 4096;
/// The end of the head that holds the note.
pub(crate) const NOTE: u64 = 64;
/// The smallest slot.
const MIN_SLOT: u64 = 2 * HEAD;
/// The largest slot: a put of it is one copy (limits.rs of the core, MAX_CHUNK_BYTES).
const MAX_SLOT: u64 = 1 << 20;
/// The most slots.
const MAX_SLOTS: u32 = 256;
/// The slot of a ring that has several.
pub(crate) const USUAL_SLOT: u64 = 512 << 10;
/// The smallest ring: two of the smallest slots.
const MIN_RING: u64 = 2 * MIN_SLOT;
/// The largest ring: as many slots of the usual size as there may be.
const MAX_RING: u64 = 128 << 20;

/// Reads the size of a ring, as [`size`] does.
pub(crate) fn bytes(text: &str) -> std::result::Result<u64, String> {
    let bytes = size(text)?;
    if (MIN_RING..=MAX_RING).contains(&bytes) {
        return Ok(bytes);
    }
    Err(format!("choose {} to {}", short(MIN_RING), short(MAX_RING)))
}

/// How a window is cut into slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Layout {
    /// Number of slots.
    pub(crate) slots: u32,
    /// Bytes of each, head included: a multiple of 4096.
    pub(crate) slot_bytes: u64,
}

impl Layout {
    /// A ring of about `ring` bytes, no larger than a file of `size` bytes needs.
    pub(crate) fn for_file(ring: u64, size: u64) -> Self {
        let whole = size.div_ceil(HEAD).saturating_mul(HEAD).saturating_add(HEAD);
        // At least two slots, so that both ends work at once.
        let usual = USUAL_SLOT.min(ring / 2 / HEAD * HEAD);
        let slot_bytes = usual.min(whole).clamp(MIN_SLOT, MAX_SLOT);
        let needed = size.div_ceil(slot_bytes - HEAD).max(1);
        let slots = (ring / slot_bytes).max(2).min(needed).min(u64::from(MAX_SLOTS));
        Self { slots: u32::try_from(slots).unwrap_or(MAX_SLOTS), slot_bytes }
    }

    /// Refuses a layout that this program would not make.
    pub(crate) fn check(self) -> Result<Self> {
        let sizes = MIN_SLOT..=MAX_SLOT;
        if self.slots == 0
            || self.slots > MAX_SLOTS
            || !sizes.contains(&self.slot_bytes)
            || !self.slot_bytes.is_multiple_of(HEAD)
        {
            return Err(Failure::new(format!(
                "the peer's ring of {} slots of {} bytes is not one (1 to {MAX_SLOTS} slots of \
                 {MIN_SLOT} to {MAX_SLOT} bytes)",
                self.slots, self.slot_bytes
            )));
        }
        Ok(self)
    }

    /// Bytes of the file that a slot holds.
    pub(crate) fn data_bytes(self) -> u64 {
        self.slot_bytes - HEAD
    }

    /// Bytes of all slots.
    pub(crate) fn bytes(self) -> u64 {
        u64::from(self.slots) * self.slot_bytes
    }

    /// Where the note of a sequence number's slot starts.
    pub(crate) fn note_at(self, seq: u64) -> u64 {
        seq % u64::from(self.slots) * self.slot_bytes + HEAD - NOTE
    }

    /// Where the bytes of a sequence number's slot start.
    pub(crate) fn data_at(self, seq: u64) -> u64 {
        self.note_at(seq) + NOTE
    }
}

/// What the sender writes before the bytes of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotHeader {
    /// Where they belong in the file.
    pub(crate) offset: u64,
    /// How many they are.
    pub(crate) len: u64,
    /// Their CRC-32C, computed in the sender's memory.
    pub(crate) crc: u32,
}

impl SlotHeader {
    pub(crate) fn to_bytes(self) -> [u8; 20] {
        let mut out = [0; 20];
        let fields =
            [&self.offset.to_le_bytes()[..], &self.len.to_le_bytes(), &self.crc.to_le_bytes()];
        for (to, from) in out.iter_mut().zip(fields.concat()) {
            *to = from;
        }
        out
    }

    pub(crate) fn from_bytes(b: [u8; 20]) -> Self {
        let [a0, a1, a2, a3, a4, a5, a6, a7, l0, l1, l2, l3, l4, l5, l6, l7, c0, c1, c2, c3] = b;
        Self {
            offset: u64::from_le_bytes([a0, a1, a2, a3, a4, a5, a6, a7]),
            len: u64::from_le_bytes([l0, l1, l2, l3, l4, l5, l6, l7]),
            crc: u32::from_le_bytes([c0, c1, c2, c3]),
        }
    }
}

/// A ring of ours, exposed to one peer.
#[derive(Debug)]
pub(crate) struct Ring {
    window: Window<hmc_std::Span>,
    layout: Layout,
    _region: Region,
}

impl Ring {
    /// Allocates a ring and lets `peer` write into it.
    pub(crate) fn expose(
        session: &Session,
        peer: &Peer,
        layout: Layout,
        label: u64,
    ) -> Result<Self> {
        let region = session.memory().allocate(layout.bytes())?;
        let window = peer.expose(region.take_all()?, Access::WRITE, label).map_err(|(e, _)| e)?;
        Ok(Self { window, layout, _region: region })
    }

    pub(crate) fn window(&self) -> &Window<hmc_std::Span> {
        &self.window
    }

    pub(crate) fn layout(&self) -> Layout {
        self.layout
    }
}

#[cfg(test)]
mod tests {
    use super::{HEAD, Layout, MAX_RING, SlotHeader, USUAL_SLOT, bytes};

    #[test]
    fn sizes_of_rings_are_read() {
        assert_eq!((bytes("16K"), bytes("128M")), (Ok(16 << 10), Ok(128 << 20)));
        for bad in ["0", "1", "16383", "129M", "1T", "X"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn rings_fit_their_files_and_pass_their_own_check() {
        for ring in [1, 8192, 100_000, MAX_RING, 1 << 30, u64::MAX] {
            for size in [0, 1, 4095, 4096, 1 << 20, 5 << 30, u64::MAX] {
                let l = Layout::for_file(ring, size).check().expect("our own");
                let last = l.data_at(u64::from(l.slots) - 1) + l.data_bytes();
                assert_eq!(last, l.bytes(), "ring {ring}, file {size}: {l:?}");
            }
        }
        let small = Layout::for_file(MAX_RING, 10);
        assert_eq!((small.slots, small.slot_bytes), (1, 2 * HEAD));
        let large = Layout::for_file(MAX_RING, 1 << 30);
        assert_eq!(large.bytes(), MAX_RING);
        assert_eq!(large.slot_bytes, USUAL_SLOT);
        // A slot holds no more than its bytes without the head.
        let full = Layout::for_file(MAX_RING, 100 * (USUAL_SLOT - HEAD));
        assert_eq!((full.slots, full.slot_bytes), (100, USUAL_SLOT));
        let more = Layout::for_file(MAX_RING, 100 * (USUAL_SLOT - HEAD) + 1);
        assert_eq!(more.slots, 101);
    }

    /// Slots and bytes of each, by the bytes of the ring and of the file.
    #[test]
    fn a_ring_is_cut_into_two_slots_or_more_of_whole_pages() {
        let large = 1 << 30;
        for (ring, size, slots, slot_bytes) in [
            (16 << 10, large, 2, 8 << 10),
            (24_575, large, 2, 8 << 10),
            (40_000, large, 2, 16 << 10),
            (64 << 10, large, 2, 32 << 10),
            (1 << 20, large, 2, 512 << 10),
            (3 << 19, large, 3, 512 << 10),
            (128 << 20, large, 256, 512 << 10),
            (1 << 20, 0, 1, 8 << 10),
            (1 << 20, 4096, 1, 8 << 10),
            (1 << 20, 4097, 1, 12 << 10),
            (1 << 20, (512 << 10) - 4096, 1, 512 << 10),
            (1 << 20, (512 << 10) - 4095, 2, 512 << 10),
        ] {
            let want = Layout { slots, slot_bytes };
            assert_eq!(Layout::for_file(ring, size), want, "ring {ring}, file {size}");
        }
    }

    #[test]
    fn slots_are_used_again_in_turn() {
        let l = Layout { slots: 3, slot_bytes: 12 << 10 };
        assert_eq!((l.bytes(), l.data_bytes()), (36 << 10, 8 << 10));
        for (seq, slot) in [(0, 0), (1, 1), (2, 2), (3, 0), (7, 1)] {
            assert_eq!(l.data_at(seq), slot * (12 << 10) + 4096, "{seq}");
            assert_eq!(l.note_at(seq), l.data_at(seq) - 64, "{seq}");
        }
    }

    #[test]
    fn foreign_layouts_are_refused() {
        for (slots, slot_bytes) in
            [(0, 8192), (257, 8192), (1, 4096), (1, 8193), (1, (1 << 20) + 4096), (1, 1 << 40)]
        {
            Layout { slots, slot_bytes }.check().expect_err("no ring of ours");
        }
        for (slots, slot_bytes) in [(1, 8192), (256, 8192), (1, 1 << 20)] {
            Layout { slots, slot_bytes }.check().expect("one that another version may make");
        }
    }

    #[test]
    fn notes_survive_the_wire() {
        let note = SlotHeader { offset: u64::MAX - 1, len: 1 << 40, crc: 0xdead_beef };
        assert_eq!(SlotHeader::from_bytes(note.to_bytes()), note);
    }
}
