//! Conversion of lengths of this machine to numbers of the protocol.

/// A length as a number on the wire: lossless, as no target has a wider `usize`.
#[allow(clippy::as_conversions, reason = "usize to u64 has no const From; it cannot lose bits")]
pub(crate) const fn widen(n: usize) -> u64 {
    const _: () = assert!(size_of::<usize>() <= size_of::<u64>());
    n as u64
}
