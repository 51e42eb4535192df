//! The number of a guest among the guests of a run.

/// The number of a guest, and how many guests the run has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GuestId {
    /// The number, from 0.
    pub(super) number: u8,
    /// The number of guests, 1 or 2.
    pub(super) count: u8,
}

impl GuestId {
    /// Returns the ids of all guests of a run.
    pub(super) fn all(count: u8) -> impl Iterator<Item = Self> {
        (0..count).map(move |number| Self { number, count })
    }

    /// Returns `true` if another guest is connected to this one.
    pub(super) const fn has_peer(self) -> bool {
        self.count > 1
    }

    /// Returns the number by which addresses are told apart: that of the guest, from 1.
    pub(super) const fn host_number(self) -> u8 {
        self.number.saturating_add(1)
    }
}
