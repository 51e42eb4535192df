//! Parts of a window: a device binds 2^31 bytes at a time, so that a longer window is several.
//!
//! Neighbours overlap by the longest access, so that each access lies within one part.

/// Bytes that a device binds at a time (mlx5 refuses more).
const PART_BYTES: u64 = 1 << 31;
/// Bytes of an access at most.
pub(super) const MAX_ACCESS_BYTES: u64 = 256 << 10;
/// From the beginning of one part to that of the next.
const STRIDE: u64 = PART_BYTES - MAX_ACCESS_BYTES;

/// Returns of how many parts a window of `len` bytes is.
pub(super) const fn part_count(len: u64) -> u64 {
    len.saturating_sub(PART_BYTES).div_ceil(STRIDE).saturating_add(1)
}

/// Returns where a part of a window of `len` bytes begins, and how long it is.
pub(super) const fn part_at(len: u64, part: u64) -> (u64, u64) {
    let begin = part.saturating_mul(STRIDE);
    let rest = len.saturating_sub(begin);
    (begin, if rest < PART_BYTES { rest } else { PART_BYTES })
}

/// Returns the part of a window of `len` bytes that has all of an access which begins at `offset`.
#[inline]
pub(super) const fn part_of(len: u64, offset: u64) -> u64 {
    if len <= PART_BYTES {
        return 0;
    }
    let (part, last) = (offset / STRIDE, part_count(len).saturating_sub(1));
    if part < last { part } else { last }
}

#[cfg(test)]
mod tests {
    use super::{MAX_ACCESS_BYTES, PART_BYTES, STRIDE, part_at, part_count, part_of};

    #[test]
    fn parts_cover_a_window_and_are_not_too_long() {
        for len in [1, PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, 3 * STRIDE, 5 << 31, 1 << 40] {
            let count = part_count(len);
            assert_eq!(count == 1, len <= PART_BYTES, "{len}");
            let mut covered = 0;
            for part in 0..count {
                let (begin, bytes) = part_at(len, part);
                assert!(bytes != 0 && bytes <= PART_BYTES && begin <= covered, "{len} {part}");
                covered = begin + bytes;
            }
            assert_eq!(covered, len);
        }
    }

    /// Also one that begins just before the next part.
    #[test]
    fn each_access_lies_within_one_part() {
        for len in [100, PART_BYTES, PART_BYTES + 1, 2 * STRIDE + 7, 5 << 31] {
            for boundary in (0..=part_count(len)).map(|part| part * STRIDE) {
                for offset in boundary.saturating_sub(2)..boundary + 3 {
                    let bytes = MAX_ACCESS_BYTES.min(len.saturating_sub(offset));
                    let (begin, part) = part_at(len, part_of(len, offset));
                    let is_inside = begin <= offset && offset + bytes <= begin + part;
                    assert!(bytes == 0 || is_inside, "{len} {offset}");
                }
            }
        }
    }
}
