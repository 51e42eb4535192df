//! Lists of copies, checked once and posted as one operation.

use std::sync::Arc;

use hmc_core::work::Opcode;

use crate::base::op_id::LinkId;
use crate::link::transfer_list::TransferList;

/// Which way the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From our memory to the peer's.
    Put,
    /// From the peer's memory to ours.
    Get,
}

impl Direction {
    /// The operation that moves bytes this way.
    pub(crate) fn opcode(self) -> Opcode {
        match self {
            Self::Put => Opcode::Put,
            Self::Get => Opcode::Get,
        }
    }
}

/// One copy between our buffer and the peer's. All in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Copy {
    /// First byte in our buffer.
    pub local_offset: u64,
    /// First byte in the peer's buffer.
    pub remote_offset: u64,
    /// Bytes.
    pub len: u64,
}

/// A list of copies that was checked against both ends and can be posted again and again
/// ([`crate::peer::Peer::prepare`]).
#[derive(Clone, Debug)]
pub struct Batch {
    pub(crate) list: Arc<TransferList>,
    pub(crate) direction: Direction,
    pub(crate) link: LinkId,
}

impl Batch {
    /// Copies in the list.
    #[must_use]
    pub fn len(&self) -> usize {
        self.list.transfers().len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.transfers().is_empty()
    }
}
