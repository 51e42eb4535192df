//! The head of a message: to which door it goes, and what it is.

use hmc_core::wire::data::{DATA_FRAME_BYTES, DataFrame};

/// The number of the active message (`id` in ucp.h) of all that is sent here.
pub(super) const MESSAGE: u32 = 0;
/// Bytes of a message before what follows.
pub(super) const HEAD_BYTES: usize = 8 + DATA_FRAME_BYTES;

/// The head of a message: to which door, and what.
pub(super) fn head(door: u64, frame: &DataFrame) -> [u8; HEAD_BYTES] {
    let mut bytes = [0; HEAD_BYTES];
    if let Some((number, rest)) = bytes.split_first_chunk_mut::<8>() {
        *number = door.to_le_bytes();
        rest.copy_from_slice(&frame.emit());
    }
    bytes
}

/// Reads a head; `None` when it is none.
pub(super) fn read_head(bytes: &[u8]) -> Option<(u64, DataFrame)> {
    let (door, rest) = bytes.split_first_chunk::<8>()?;
    let frame = DataFrame::parse(rest.try_into().ok()?).ok()?;
    Some((u64::from_le_bytes(*door), frame))
}

#[cfg(test)]
mod tests {
    use super::{HEAD_BYTES, head, read_head};
    use hmc_core::wire::data::{DataFrame, DataKind};

    #[test]
    fn a_head_is_read_whole_or_not_at_all() {
        let mut frame = DataFrame::new(DataKind::Write, 7);
        (frame.len, frame.total, frame.offset) = (5, 9, 4);
        let bytes = head(0x1122_3344_5566_7788, &frame);
        assert_eq!(read_head(&bytes), Some((0x1122_3344_5566_7788, frame)));
        for len in 0..HEAD_BYTES {
            assert_eq!(read_head(&bytes[..len]), None, "{len} bytes");
        }
        assert_eq!(read_head(&[&bytes[..], b"x"].concat()), None);
        let mut wrong = bytes;
        wrong[8] = 99;
        assert_eq!(read_head(&wrong), None);
    }
}
