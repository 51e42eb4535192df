//! Rendezvous messages between the two ends.

use hmc_core::rndv::{RndvId, RndvMsg};
use hmc_core::wire::message::ControlMessage;

/// A note of a message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Note {
    /// A step of its rendezvous.
    Step(RndvMsg),
    /// The offer of a short one, with its bytes.
    Eager {
        /// The rendezvous.
        id: RndvId,
        /// The message.
        bytes: Box<[u8]>,
    },
}

impl Note {
    /// What is sent.
    pub(super) fn frame(&self) -> ControlMessage<'_> {
        match self {
            Self::Step(note) => ControlMessage::Rndv(*note),
            Self::Eager { id, bytes } => ControlMessage::Eager { id: *id, bytes },
        }
    }

    pub(super) const fn is_eager(&self) -> bool {
        matches!(self, Self::Eager { .. })
    }
}

impl From<RndvMsg> for Note {
    fn from(note: RndvMsg) -> Self {
        Self::Step(note)
    }
}
