//! Header of an active message: the number of the receiving target, and a frame.

use hmc_core::wire::data::{DATA_FRAME_BYTES, DataFrame};

/// The id (ucp.h) of all active messages of HMC.
pub(super) const AM_ID: u32 = 0;
/// Bytes of the header.
pub(super) const HEADER_BYTES: usize = 8 + DATA_FRAME_BYTES;

/// Returns the header of a message to that target.
pub(super) fn header(target: u64, frame: &DataFrame) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    if let Some((number, rest)) = bytes.split_first_chunk_mut::<8>() {
        *number = target.to_le_bytes();
        rest.copy_from_slice(&frame.emit());
    }
    bytes
}

/// Parses a header. Returns `None` if it is malformed.
pub(super) fn parse_header(bytes: &[u8]) -> Option<(u64, DataFrame)> {
    let (target, rest) = bytes.split_first_chunk::<8>()?;
    let frame = DataFrame::parse(rest.try_into().ok()?).ok()?;
    Some((u64::from_le_bytes(*target), frame))
}

#[cfg(test)]
mod tests {
    use super::{HEADER_BYTES, header, parse_header};
    use hmc_core::wire::data::{DataFrame, DataKind};

    #[test]
    fn header_is_read_whole_or_not_at_all() {
        let mut frame = DataFrame::new(DataKind::Write, 7);
        (frame.len, frame.total, frame.offset) = (5, 9, 4);
        let bytes = header(0x1122_3344_5566_7788, &frame);
        assert_eq!(parse_header(&bytes), Some((0x1122_3344_5566_7788, frame)));
        for len in 0..HEADER_BYTES {
            assert_eq!(parse_header(&bytes[..len]), None, "{len} bytes");
        }
        assert_eq!(parse_header(&[&bytes[..], b"x"].concat()), None);
        let mut wrong = bytes;
        wrong[8] = 99;
        assert_eq!(parse_header(&wrong), None);
    }
}
