//! The protocol of the C++ HMC on the control connection (as its `socket_ctrl.cpp:320-415` implements it).
//!
//! The dialer sends one HELLO, which gets no reply; then both ends send integers and opaque bytes. There is no
//! version, heartbeat or BYE. It is used only if the user enabled it.

use crate::limits::FRAME_HEADER_BYTES;
use crate::types::Rank;
use crate::wire::header::{FrameKind, Header};

/// Bytes of a HELLO frame of the C++ HMC.
pub const HELLO_V1_BYTES: usize = 12;

/// The protocol of a dialer, from its first eight bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// HELLO v2 and all that follows it.
    Native,
    /// The C++ HMC.
    Cxx,
}

/// The HELLO frame of `rank`: `02 00 00 80 04 00 00 00`, then the rank.
#[must_use]
pub const fn hello_v1(rank: Rank) -> [u8; HELLO_V1_BYTES] {
    let head: [u8; FRAME_HEADER_BYTES] = Header::new(FrameKind::HelloV1, 4).to_bytes();
    let [a, b, c, d, e, f, g, h] = head;
    let [i, j, k, l] = rank.0.to_le_bytes();
    [a, b, c, d, e, f, g, h, i, j, k, l]
}

#[cfg(test)]
mod tests {
    use super::hello_v1;
    use crate::types::Rank;

    #[test]
    fn hello_has_the_bytes_of_the_cxx_hmc() {
        assert_eq!(
            hello_v1(Rank(0x0A0B_0C0D)),
            [0x02, 0, 0, 0x80, 4, 0, 0, 0, 0x0D, 0x0C, 0x0B, 0x0A]
        );
    }
}
