//! A link as the host of its rendezvous state: posts, revokes and sends.

use std::collections::VecDeque;

use hmc_core::queue::{QueueError, Transfer};
use hmc_core::region::{LocalSlice, WindowDesc, WindowSlice};
use hmc_core::slots::SlotId;
use hmc_core::time::Instant;
use hmc_core::transport::PostErrorKind;
use hmc_core::types::{ConnType, Rank};
use hmc_core::window::WindowTransition;
use hmc_core::wire::hello::Features;
use hmc_core::work::{CompleteWhen, Failure, Opcode};
use hmc_mem::shared::SharedBytes;

use super::host::{Host, NoteOutcome};
use super::note::Note;
use crate::base::error::Error;
use crate::link::Link;
use crate::link::ctrl::machine::Ended;
use crate::link::deferred::Deferred;
use crate::link::op_resources::OpResources;
use crate::memory::Region;
use crate::transport::data_plane::Fence;

/// Notes that are sent by one call at most.
const TOGETHER: usize = 16;

/// A link, and what calls of its rendezvous state lead to, once the rendezvous state's lock is free.
pub(super) struct OnLink<'a> {
    link: &'a Link,
    /// When its calls are made, if whoever calls has looked: to look takes as long as to send a note.
    now: Option<Instant>,
    /// What puts that ended at once set free.
    pub(super) later: Vec<Deferred>,
    /// The control connection ended when a note was sent.
    pub(super) ended: Option<Ended>,
}

impl<'a> OnLink<'a> {
    pub(super) const fn new(link: &'a Link) -> Self {
        Self { link, now: None, later: Vec::new(), ended: None }
    }

    /// The same of calls that are made `now`.
    pub(super) const fn at(link: &'a Link, now: Instant) -> Self {
        Self { link, now: Some(now), later: Vec::new(), ended: None }
    }

    /// Whether calls led to anything.
    pub(super) const fn has_any(&self) -> bool {
        !self.later.is_empty() || self.ended.is_some()
    }
}

impl Host for OnLink<'_> {
    fn post(
        &mut self,
        region: &Region,
        local: LocalSlice,
        remote: WindowSlice,
    ) -> Result<Option<SlotId>, Failure> {
        let t = Transfer { opcode: Opcode::Put, when: CompleteWhen::Visible, local, remote };
        let mut hold = OpResources::region(region.clone());
        let mut after = Deferred::default();
        let posted = {
            let mut data = self.link.data();
            // The machine has the deadline, and withdraws the put.
            let posted = data.post(&t, Instant::NEVER, &mut hold);
            if posted.is_ok() {
                data.count(Opcode::Put);
                data.progress(&mut after);
                self.link.update_data_interest(&mut data);
            }
            posted
        };
        self.later.push(after);
        self.link.resume_background();
        match posted {
            Ok(op) => Ok(Some(op)),
            Err(QueueError::Full { .. }) => Ok(None),
            Err(QueueError::Transport(PostErrorKind::Disconnected)) => Err(Failure::PeerDead),
            Err(_) => Err(Failure::Unsupported),
        }
    }

    fn write_now(&mut self, bytes: &SharedBytes<'_>, target: WindowSlice) -> bool {
        let whole = bytes.extent().whole();
        self.link.data().copy_lent(Opcode::Put, *bytes, whole, target)
    }

    fn take_end(&mut self, op: SlotId) -> Option<Result<(), Failure>> {
        if self.link.is_running(op) {
            return None;
        }
        let mut data = self.link.data();
        let fenced = data.outcome(op).map(|o| o.is_some_and(|o| o.fenced));
        if fenced == Ok(false) {
            return None;
        }
        let taken = data.take(op);
        drop(data);
        Some(match taken {
            Ok(Some((outcome, _))) => outcome.result.map(drop),
            // Nobody else takes it.
            Ok(None) | Err(_) => Err(Failure::Cancelled),
        })
    }

    fn cancel(&mut self, ops: impl Iterator<Item = SlotId>) {
        let mut after = Deferred::default();
        {
            let mut data = self.link.data();
            for op in ops {
                // A stale one is found when its end is taken.
                let _ = data.cancel(op);
            }
            data.progress(&mut after);
            self.link.update_data_interest(&mut data);
        }
        self.later.push(after);
    }

    fn revoke(&mut self, window: &WindowDesc) -> Option<Fence> {
        let (id, epoch) = (window.window, window.epoch);
        let mut data = self.link.data();
        let fence = data.plane().begin_revoke(id, epoch);
        self.link.update_data_interest(&mut data);
        match fence {
            Ok(fence @ (Fence::Gate(_) | Fence::PeerAck)) => Some(fence),
            // A window that is unknown was fenced before.
            Ok(Fence::Passed) | Err(_) => {
                data.plane().free_window(id, epoch);
                None
            }
        }
    }

    fn close(&mut self, window: &WindowDesc) -> Option<Fence> {
        let (id, epoch) = (window.window, window.epoch);
        let mut data = self.link.data();
        let fence = data.plane().begin_revoke(id, epoch);
        self.link.update_data_interest(&mut data);
        match fence {
            Ok(Fence::Passed) => {
                let _ = data.plane().windows().apply(id, epoch, WindowTransition::Close);
                None
            }
            Ok(fence) => Some(fence),
            // A window that is unknown was fenced before.
            Err(_) => None,
        }
    }

    fn reopen(&mut self, window: &WindowDesc, part: (u64, u64)) -> bool {
        self.link.data().plane().reopen(window.window, window.epoch, part)
    }

    fn counts_puts(&self) -> bool {
        self.link.features.contains(Features::COUNTED) && self.link.conn() == Some(ConnType::Tcp)
    }

    fn count_puts(&mut self, window: &WindowDesc, len: u64) {
        self.link.data().plane().count_puts(window.window, window.epoch, len);
    }

    fn are_all_put(&mut self, window: &WindowDesc) -> bool {
        self.link.data().plane().are_all_put(window.window, window.epoch)
    }

    fn has_passed(&mut self, fence: &Fence, window: &WindowDesc) -> bool {
        let (id, epoch) = (window.window, window.epoch);
        let mut data = self.link.data();
        let plane = data.plane();
        let passed = plane.has_passed(fence, id, epoch) || plane.peer_has_ended();
        if passed {
            plane.free_window(id, epoch);
        }
        passed
    }

    fn send(&mut self, notes: &mut VecDeque<Note>) -> NoteOutcome {
        let link = self.link;
        if link.conn() == Some(ConnType::Loopback) {
            notes.drain(..).for_each(|note| _ = link.rndv_receive(note));
            link.rndv.mark();
            return NoteOutcome::Sent;
        }
        let now = self.now.unwrap_or_else(|| link.clock.now());
        let mut ctrl = link.ctrl();
        let frames = notes.iter().take(TOGETHER).map(Note::frame);
        let sent = ctrl.send_all_if_idle(frames, now);
        link.update_ctrl_interest(&mut ctrl);
        if sent == 0 {
            return NoteOutcome::Later;
        }
        for _ in 0..sent {
            notes.pop_front();
        }
        self.ended = ctrl.machine.ended();
        if self.ended.is_some() { NoteOutcome::Over } else { NoteOutcome::Sent }
    }

    fn peer(&self) -> Rank {
        self.link.peer
    }

    fn gone(&self) -> Error {
        self.link.gone()
    }

    fn full_inbox(&self) -> &'static str {
        self.link.full_inbox()
    }

    fn full_outcomes(&self) -> &'static str {
        self.link.full_outcomes()
    }
}

#[cfg(test)]
mod tests;
