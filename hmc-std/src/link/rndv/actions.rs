//! Effects of a poll of the rendezvous state, performed after its lock was released.

use hmc_core::region::{Epoch, WindowId};

use super::state::{PostedRecv, RecvOp, SendOp};
use crate::callbacks::wakers::Notice;
use crate::memory::Region;

/// What a poll of the rendezvous state leads to, once its lock is free.
#[derive(Debug, Default)]
pub(super) struct RndvActions {
    pub(super) notices: Vec<Notice>,
    pub(super) events: bool,
    /// A caller has bytes to copy from or to its borrowed memory.
    pub(super) borrow_ready: bool,
    /// A message of ours is over: another one may be begun.
    pub(super) has_space: bool,
    pub(super) broken: Option<String>,
    pub(super) revoked: Vec<(WindowId, Epoch)>,
    /// What is over: its memory's owners may run code of theirs.
    pub(super) over: (Vec<SendOp>, Vec<RecvOp>, Vec<PostedRecv>),
    /// Memory that serves no other message. Its last handle may be here.
    pub(super) regions: Vec<Region>,
}

impl RndvActions {
    /// Whether anything is to be done.
    pub(super) const fn has_any(&self) -> bool {
        let over = !self.over.0.is_empty() || !self.over.1.is_empty() || !self.over.2.is_empty();
        let lists =
            !self.notices.is_empty() || !self.revoked.is_empty() || !self.regions.is_empty();
        let flags = self.events || self.borrow_ready || self.has_space || self.broken.is_some();
        over || lists || flags
    }
}
