//! Copies in C order of arrays with gaps.

use std::ptr::NonNull;

use hmc_std::memory::SharedBytes;

use crate::errors::interrupted;

/// After so many packed bytes it looks for signals.
const ASK_EVERY: usize = 4 << 20;

/// Appends an array with gaps in C order: its elements have `item` bytes each, its strides are in bytes. False when a
/// signal's handler ended it.
///
/// # Safety
/// Each element of the shape can be read without a trap until this returns; `start` is the first. No `&mut` of Rust's to any
/// of them is used meanwhile; others may write them.
pub(crate) unsafe fn pack(
    start: *mut u8,
    shape: &[usize],
    strides: &[isize],
    item: usize,
    out: &mut Vec<u8>,
) -> bool {
    let (extent, shape) = shape.split_first().map_or((1, shape), |(first, rest)| (*first, rest));
    let (stride, strides) =
        strides.split_first().map_or((0, strides), |(first, rest)| (*first, rest));
    if shape.is_empty() {
        // SAFETY: the caller's contract.
        return unsafe { row(start, extent, stride, item, out) };
    }
    let mut at = start;
    for _ in 0..extent {
        // SAFETY: the caller's contract: what lies there has the shape that is left.
        if !unsafe { pack(at, shape, strides, item, out) } {
            return false;
        }
        at = at.wrapping_offset(stride);
    }
    true
}

/// The same of one dimension.
///
/// # Safety
/// That of [`pack`].
unsafe fn row(
    start: *mut u8,
    extent: usize,
    stride: isize,
    item: usize,
    out: &mut Vec<u8>,
) -> bool {
    if item == 0 {
        return true;
    }
    let (mut at, mut left) = (start, extent);
    while left > 0 {
        let count = left.min(ASK_EVERY.checked_div(item).unwrap_or(0).max(1));
        left = left.saturating_sub(count);
        let before = out.len();
        out.resize(before.saturating_add(count.saturating_mul(item)), 0);
        for place in out.get_mut(before..).unwrap_or_default().chunks_exact_mut(item) {
            let Some(first) = NonNull::new(at) else {
                return false;
            };
            // SAFETY: the caller's contract: an element, which is no more than an array that has an address.
            let element = unsafe { SharedBytes::new(first, item) }.read_only();
            if element.read_at(element.extent().whole(), place).is_err() {
                return false;
            }
            at = at.wrapping_offset(stride);
        }
        if before / ASK_EVERY != out.len() / ASK_EVERY && interrupted() {
            return false;
        }
    }
    true
}
