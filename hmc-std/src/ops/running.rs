//! What an operation that was started is: a transfer that has a slot of its link, or a message.

use std::sync::Arc;
use std::task::{Context, Poll};

use crate::base::error::Result;
use crate::base::op_name::OpName;
use crate::base::wait_limit::{WaitLimit, WaitStopped};
use crate::link::op_resources::OpResources;
use crate::ops::message_op::MessageOp;
use crate::ops::peer_handle::Peer;
use crate::ops::posted::Posted;
use crate::state::wait_pool::{LinkOp, WaitedFor};

/// The owner of an operation that was started. Dropped, it detaches the operation.
#[derive(Debug)]
pub enum Running {
    #[doc(hidden)]
    Posted(Posted),
    #[doc(hidden)]
    Message(MessageOp),
}

/// Both are asked alike.
macro_rules! either {
    ($self:ident, $op:ident => $ask:expr) => {
        match $self {
            Self::Posted($op) => $ask,
            Self::Message($op) => $ask,
        }
    };
}

impl Running {
    pub(crate) fn peer(&self) -> &Peer {
        either!(self, op => &op.peer)
    }

    /// It as a wait for several sees it.
    pub(crate) fn link_op(&self) -> LinkOp {
        let link = Arc::clone(&self.peer().link);
        let what = match self {
            Self::Posted(op) => WaitedFor::Slot(op.slot()),
            Self::Message(op) => WaitedFor::Message(Arc::clone(op.handle())),
        };
        LinkOp { link, what }
    }

    /// The name of a transfer.
    pub(crate) fn name(&self) -> Option<OpName> {
        match self {
            Self::Posted(op) => Some(op.name()),
            Self::Message(_) => None,
        }
    }

    /// Its bytes, or why it failed, after one poll of its link if it runs.
    pub(crate) fn polled_result(&self) -> Option<Result<u64>> {
        either!(self, op => op.polled_result())
    }

    /// Whether its result is known without a look at its link.
    pub(crate) fn outcome_here(&self) -> bool {
        match self {
            Self::Posted(op) => op.outcome_here(),
            Self::Message(op) => op.peer.shared.check_process().is_ok() && op.result().is_some(),
        }
    }

    /// Whether it has ended, after one poll of its link if it runs.
    pub(crate) fn has_ended(&self) -> bool {
        match self {
            Self::Posted(op) => op.has_ended(),
            Self::Message(op) => op.polled_result().is_some(),
        }
    }

    pub(crate) fn wait_until(
        &self,
        until: WaitLimit,
    ) -> std::result::Result<Result<u64>, WaitStopped> {
        either!(self, op => op.wait_until(until))
    }

    /// Waits until it has ended, which is at its deadline.
    pub(crate) fn finish(&self) -> Result<u64> {
        match self {
            Self::Posted(op) => op.finish(),
            Self::Message(op) => op.finish(|| Ok(())),
        }
    }

    /// The result as a future has it. The waker of the last call is woken.
    pub(crate) fn poll_result(&self, cx: &Context<'_>) -> Poll<Result<u64>> {
        either!(self, op => op.poll_result(cx))
    }

    /// Whether nothing touches its memory any more. The waker of the last call is woken.
    pub(crate) fn poll_fenced(&self, cx: &Context<'_>) -> Poll<()> {
        either!(self, op => op.poll_fenced(cx))
    }

    pub(crate) fn wait_fenced(&self, until: WaitLimit) -> std::result::Result<(), WaitStopped> {
        either!(self, op => op.wait_fenced(until))
    }

    /// Takes what it still holds, if nothing touches that any more.
    pub(crate) fn take_held(&self) -> Option<OpResources> {
        either!(self, op => op.take_held())
    }

    pub(crate) fn cancel(&self) {
        either!(self, op => op.cancel());
    }
}
