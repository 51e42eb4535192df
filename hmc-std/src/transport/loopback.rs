//! A session's link to itself: copies between its own regions, checked like anybody's.

use std::collections::VecDeque;

use hmc_core::slots::SlotId;
use hmc_core::transport::{CancelOutcome, PostErrorKind, Transport};
use hmc_core::types::{Access, Caps};
use hmc_core::window::{WindowEntry, WindowFault, WindowTable};
use hmc_core::work::{Completion, Failure, Opcode, WorkRequest};

use crate::node::inbox::{Message, SharedInbox};
use crate::transport::regions::RegionCache;
use crate::transport::stream::MAX_REQUESTS;

#[derive(Debug)]
pub(crate) struct LoopbackPort {
    regions: RegionCache,
    windows: WindowTable<Box<[WindowEntry]>>,
    done: VecDeque<Completion>,
    inbox: SharedInbox,
    pub(crate) bytes: u64,
}

impl LoopbackPort {
    pub(crate) fn new(windows: usize, inbox: SharedInbox) -> Self {
        Self {
            regions: RegionCache::default(),
            windows: WindowTable::new(vec![WindowEntry::FREE; windows].into()),
            done: VecDeque::with_capacity(MAX_REQUESTS),
            inbox,
            bytes: 0,
        }
    }

    pub(crate) fn regions(&mut self) -> &mut RegionCache {
        &mut self.regions
    }

    pub(crate) fn windows(&mut self) -> &mut WindowTable<Box<[WindowEntry]>> {
        &mut self.windows
    }

    fn execute(&mut self, work: &WorkRequest) -> Result<u64, Failure> {
        let ours = self.regions.resolve(work.local).ok_or(Failure::UnknownRegion)?;
        let access = if work.opcode == Opcode::Get { Access::READ } else { Access::WRITE };
        let r = work.remote;
        let theirs = self
            .windows
            .check(r.window, r.epoch, r.span.offset(), r.span.len(), access)
            .map_err(Failure::Window)?;
        let target = self.regions.resolve(theirs);
        let target = target.ok_or(Failure::Window(WindowFault::Revoked))?;
        let (a, b) = (ours.bytes(), target.bytes());
        let copied = if work.opcode == Opcode::Get {
            b.copy_to(theirs.span, &a, work.local.span)
        } else {
            a.copy_to(work.local.span, &b, theirs.span)
        };
        copied.map_err(|_| Failure::UnknownRegion)?;
        if let Opcode::PutNotify { tag } = work.opcode
            && let Ok(mut inbox) = self.inbox.lock()
        {
            inbox.push(Message::Notify(tag));
        }
        Ok(work.local.span.len())
    }
}

impl Transport for LoopbackPort {
    type Error = PostErrorKind;

    fn caps(&self) -> Caps {
        Caps::PUT | Caps::GET | Caps::NOTIFY | Caps::TARGET_CHECKED | Caps::CANCEL
    }

    fn post(&mut self, work: &WorkRequest) -> Result<(), PostErrorKind> {
        if self.regions.get(work.local.key).is_none() {
            return Err(PostErrorKind::UnknownRegion);
        }
        let full_inbox = matches!(work.opcode, Opcode::PutNotify { .. })
            && !self.inbox.lock().is_ok_and(|i| i.has_room(1, 0));
        if self.done.len() >= MAX_REQUESTS || full_inbox {
            return Err(PostErrorKind::Busy);
        }
        let result = self.execute(work);
        self.bytes = self.bytes.saturating_add(result.unwrap_or(0));
        self.done.push_back(Completion { op: work.op, result });
        Ok(())
    }

    fn poll(&mut self, out: &mut [Completion]) -> usize {
        let mut n: usize = 0;
        for place in out {
            let Some(c) = self.done.pop_front() else {
                break;
            };
            *place = c;
            n = n.saturating_add(1);
        }
        n
    }

    fn cancel(&mut self, op: SlotId) -> CancelOutcome {
        // Everything posted is done; only its completions wait.
        if self.done.iter().any(|c| c.op == op) {
            CancelOutcome::Running
        } else {
            CancelOutcome::Withdrawn
        }
    }
}
