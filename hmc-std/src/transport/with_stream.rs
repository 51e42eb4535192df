//! Adds a stream to a data plane that moves bytes, for tags and for the exit of the peer.
//!
//! The stream is the link's second connection, as for shared memory. It carries the tags of puts after their bytes
//! are visible, and shows each end the exit of the other. This layer has the table of windows; the data plane does
//! all else.

mod plane;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt::Debug;

use hmc_core::region::{LocalSlice, WindowSlice};
use hmc_core::slots::SlotId;
use hmc_core::transport::{
    CancelOutcome, DataPlane as _, Fence, NeedsStream, PeerAccess, PostErrorKind, Transport,
};
use hmc_core::types::Caps;
use hmc_core::work::{Completion, Failure, Opcode, WorkRequest};

use crate::base::error::Error;
use crate::memory::Region;
use crate::transport::gate::Gate;
use crate::transport::stream::StreamDataPlane;
use crate::transport::worker::Worker;

/// A data plane that the layer serves. Its opaque types are those of this crate, or none.
pub(crate) trait BareDataPlane:
    NeedsStream<
        Error = PostErrorKind,
        Memory = Region,
        Released = Vec<Box<dyn Send>>,
        Gate = Infallible,
        Mapped = Infallible,
        Fault: Into<Error>,
    > + Debug
    + Send
{
}

impl<P> BareDataPlane for P where
    P: NeedsStream<
            Error = PostErrorKind,
            Memory = Region,
            Released = Vec<Box<dyn Send>>,
            Gate = Infallible,
            Mapped = Infallible,
            Fault: Into<Error>,
        > + Debug
        + Send
{
}

/// A data plane and the stream beside it.
#[derive(Debug)]
pub(crate) struct WithStream<P> {
    // Before `stream`, which holds the regions: fields are dropped in this order.
    plane: P,
    stream: StreamDataPlane,
    /// What makes progress for the data plane, if several share it.
    worker: Option<Worker>,
    /// Puts whose tags the stream has no space for.
    late: VecDeque<WorkRequest>,
    /// The peer says that it runs on this system.
    near: bool,
    down: bool,
    /// The data plane has ended the link: it says why.
    has_failed: bool,
}

impl<P: BareDataPlane> WithStream<P> {
    pub(crate) fn new(
        plane: P,
        stream: StreamDataPlane,
        worker: Option<Worker>,
        near: bool,
    ) -> Self {
        // Space for all that may be under way: a put allocates nothing.
        let late = VecDeque::with_capacity(P::MAX_NOTIFIES);
        Self { plane, stream, worker, late, near, down: false, has_failed: false }
    }

    /// Tells the peer of a link that is over that nothing of ours is in its memory any more, as soon as that is true.
    fn say_out(&mut self) {
        if self.down && self.plane.is_idle() {
            self.stream.say_out();
        }
    }

    /// Sends the tag of a put whose bytes are there. Whether there was space.
    fn send_tag(&mut self, work: &WorkRequest) -> bool {
        let tag = WorkRequest {
            local: LocalSlice { span: work.local.span.split_at_most(0).0, ..work.local },
            remote: WindowSlice { span: work.remote.span.split_at_most(0).0, ..work.remote },
            ..*work
        };
        !matches!(self.stream.submit(&tag, false, work.local.span.len()), Err(PostErrorKind::Busy))
    }
}

/// A fence of the data plane, which has no gates.
fn of_host(fence: Fence<Infallible>) -> Fence<Gate> {
    match fence {
        Fence::Passed => Fence::Passed,
        Fence::PeerAck => Fence::PeerAck,
    }
}

impl<P: BareDataPlane> Transport for WithStream<P> {
    type Error = PostErrorKind;

    fn caps(&self) -> Caps {
        self.plane.caps() | Caps::NOTIFY | Caps::GENERATIONS
    }

    fn post(&mut self, work: &WorkRequest) -> Result<(), PostErrorKind> {
        if work.remote.expected.is_some() {
            // The peer compares generations where it copies by itself: neither a NIC nor another process does.
            return self.stream.submit(work, false, work.local.span.len());
        }
        if !work.local.span.is_empty() {
            return self.plane.post(work);
        }
        // A tag without bytes.
        match self.plane.peer_access() {
            PeerAccess::Unknown if !self.down => Err(PostErrorKind::Busy),
            _ => self.stream.submit(work, false, 0),
        }
    }

    fn poll(&mut self, out: &mut [Completion]) -> usize {
        let mut n = self.plane.poll(out);
        for c in out.iter_mut().take(n) {
            // The memory of a process that has just been killed may be gone before the connection shows its end.
            if matches!(c.result, Err(Failure::Transport(_))) && self.stream.peer_has_ended() {
                c.result = Err(Failure::PeerDead);
            }
        }
        while let Some(work) = self.plane.take_notify() {
            self.late.push_back(work);
        }
        // A caller that gets the outcome of an operation of a failed data plane finds the link closed.
        if !self.down
            && let Some(why) = self.plane.close_reason()
        {
            self.has_failed = true;
            self.close(why);
        }
        while let Some(work) = self.late.front().copied() {
            if self.down {
                // The stream has failed it, or will.
                let rest = out.get_mut(n..).unwrap_or_default();
                let Some(place) = rest.first_mut() else { break };
                *place = Completion { op: work.op, result: Err(Failure::PeerDead) };
                n = n.saturating_add(1);
            } else if !self.send_tag(&work) {
                break;
            }
            self.late.pop_front();
        }
        let rest = out.get_mut(n..).unwrap_or_default();
        n.saturating_add(self.stream.poll(rest))
    }

    fn cancel(&mut self, op: SlotId) -> CancelOutcome {
        let stream = self.stream.cancel(op);
        let plane = self.plane.cancel(op);
        let late = self.late.iter().any(|w| w.op == op && w.opcode != Opcode::Get);
        if late || stream == CancelOutcome::Running || plane == CancelOutcome::Running {
            CancelOutcome::Running
        } else {
            CancelOutcome::Withdrawn
        }
    }
}
