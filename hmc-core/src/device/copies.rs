//! [`Copies`]: bytes move to, from and within a device.

use super::{DeviceMemory, StreamEvent, StreamId};
use crate::region::LocalSlice;

/// Rows of equal length at equal distances, as the rows of a part of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    /// How many.
    pub count: u32,
    /// Bytes of a row.
    pub len: u64,
    /// Bytes from the start of a row to the start of the next one, where bytes are read; at least `len`.
    pub from_stride: u64,
    /// The same where bytes are written.
    pub to_stride: u64,
}

impl Rows {
    /// The bytes from the first byte of the first row to the last byte of the last one, where bytes are read and where they are
    /// written. `None` if a stride is shorter than a row, or a sum exceeds 64 bits.
    #[must_use]
    pub const fn extents(&self) -> Option<(u64, u64)> {
        match (self.covered(self.from_stride), self.covered(self.to_stride)) {
            (Some(from), Some(to)) => Some((from, to)),
            _ => None,
        }
    }

    const fn covered(&self, stride: u64) -> Option<u64> {
        if stride < self.len {
            return None;
        }
        let Some(gaps) = self.count.checked_sub(1) else {
            return Some(0);
        };
        // A u32 as a u64: `From` is not const.
        #[allow(clippy::as_conversions, reason = "it loses nothing")]
        match stride.checked_mul(gaps as u64) {
            Some(before) => before.checked_add(self.len),
            None => None,
        }
    }
}

/// Submits copies. One runs after all that was submitted to its stream before, and is over once an event behind it has passed.
pub trait Copies: DeviceMemory {
    /// Submits a copy between two ranges of equal length that do not overlap, at least one of them on the device. The event
    /// lies behind it.
    ///
    /// # Errors
    /// `Busy`, `Region`, `Range`, `Stream`, `Unsupported` between two ranges of host memory, `Lost`, `Other`.
    fn copy(
        &mut self,
        stream: StreamId,
        from: LocalSlice,
        to: LocalSlice,
    ) -> Result<StreamEvent, Self::Error>;

    /// Submits a copy of rows. Each slice reaches from its first row's first byte to its last row's last byte
    /// ([`Rows::extents`]). The bytes between rows stay as they are. The event lies behind all rows.
    ///
    /// # Errors
    /// As for `copy`; `Range` if a slice is shorter or longer than the rows. `Unsupported` without
    /// [`DeviceFeatures::ROWS`](super::DeviceFeatures::ROWS): copy row after row.
    fn copy_rows(
        &mut self,
        stream: StreamId,
        from: LocalSlice,
        to: LocalSlice,
        rows: &Rows,
    ) -> Result<StreamEvent, Self::Error>;

    /// Submits that each byte of the range becomes `byte`. The event lies behind it.
    ///
    /// # Errors
    /// As for `copy`; `Unsupported` for host memory.
    fn fill(
        &mut self,
        stream: StreamId,
        to: LocalSlice,
        byte: u8,
    ) -> Result<StreamEvent, Self::Error>;

    /// Copies, and returns when it is done: it blocks for as long as the copy takes. It is ordered with no stream.
    ///
    /// # Errors
    /// As for `copy`. After `Other` and `Lost` the destination holds anything; it is fenced unless the kind is `Lost`.
    fn copy_now(&mut self, from: LocalSlice, to: LocalSlice) -> Result<(), Self::Error>;
}

#[cfg(test)]
mod tests {
    use super::Rows;

    #[test]
    fn rows_reach_from_the_first_byte_to_the_last() {
        let rows = Rows { count: 3, len: 10, from_stride: 10, to_stride: 100 };
        assert_eq!(rows.extents(), Some((30, 210)));
        assert_eq!(Rows { count: 1, ..rows }.extents(), Some((10, 10)));
        assert_eq!(Rows { count: 0, ..rows }.extents(), Some((0, 0)));
        assert_eq!(Rows { from_stride: 9, ..rows }.extents(), None);
        assert_eq!(Rows { to_stride: u64::MAX, ..rows }.extents(), None);
        assert_eq!(Rows { to_stride: u64::MAX / 2, ..rows }.extents(), None);
    }
}
