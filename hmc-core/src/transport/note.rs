//! Bytes that one data plane sends to its counterpart on the other end.

/// Bytes from one data plane to its counterpart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note<'a> {
    /// What the bytes are, as [`wire::advert`](crate::wire::advert) numbers it.
    pub kind: u8,
    /// At most [`MAX_ENDPOINT_BYTES`](crate::limits::MAX_ENDPOINT_BYTES).
    pub bytes: &'a [u8],
}
