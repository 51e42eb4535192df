//! A transport that the test holds the strings of: it keeps what was posted until the test says what
//! becomes of it, in any order, late, doubled or never.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::collections::VecDeque;

use hmc_core::place::Place;
use hmc_core::queue::{Hold, Transfer};
use hmc_core::range::Extent;
use hmc_core::region::{Epoch, LocalRegion, RegionKey, WindowDesc, WindowId};
use hmc_core::slots::SlotId;
use hmc_core::transport::{CancelOutcome, PostErrorKind, Transport};
use hmc_core::types::{Access, Caps, MemoryKind};
use hmc_core::work::{CompleteWhen, Completion, Failure, Opcode, WorkRequest};

/// The transport.
#[derive(Debug)]
pub(crate) struct ScriptedTransport {
    /// Accepted and not completed, in the order of posting.
    pub(crate) posted: Vec<WorkRequest>,
    /// Completions to be polled.
    pub(crate) ready: VecDeque<Completion>,
    /// Posts that are accepted before the answer is `Busy`.
    pub(crate) space: usize,
    /// What a post is refused with, if it is.
    pub(crate) refuse: Option<PostErrorKind>,
    /// Whether `cancel` withdraws.
    pub(crate) withdraws: bool,
    /// A bug on purpose: `cancel` says that it withdrew what runs on.
    pub(crate) lies: bool,
    /// A bug on purpose: `poll` says that there were so many.
    pub(crate) claims: Option<usize>,
    /// All requests that were ever accepted.
    pub(crate) seen: Vec<WorkRequest>,
    /// Calls of `cancel`.
    pub(crate) cancels: usize,
    /// Calls of `poll`.
    pub(crate) polls: usize,
}

impl ScriptedTransport {
    pub(crate) fn new() -> Self {
        Self {
            posted: Vec::new(),
            ready: VecDeque::new(),
            space: usize::MAX,
            refuse: None,
            withdraws: false,
            lies: false,
            claims: None,
            seen: Vec::new(),
            cancels: 0,
            polls: 0,
        }
    }

    /// The `nth` outstanding request ends, moving all its bytes.
    pub(crate) fn finish(&mut self, nth: usize) -> SlotId {
        let work = self.posted.remove(nth);
        let result = Ok(work.local.span.len());
        self.ready.push_back(Completion { op: work.op, result });
        work.op
    }

    /// The `nth` outstanding request fails.
    pub(crate) fn fail(&mut self, nth: usize, failure: Failure) -> SlotId {
        let work = self.posted.remove(nth);
        self.ready.push_back(Completion { op: work.op, result: Err(failure) });
        work.op
    }

    /// Everything outstanding ends, moving all its bytes.
    pub(crate) fn finish_all(&mut self) {
        while !self.posted.is_empty() {
            self.finish(0);
        }
    }
}

impl Transport for ScriptedTransport {
    type Error = PostErrorKind;

    fn caps(&self) -> Caps {
        Caps::all()
    }

    fn post(&mut self, work: &WorkRequest) -> Result<(), PostErrorKind> {
        if let Some(kind) = self.refuse {
            return Err(kind);
        }
        self.space = self.space.checked_sub(1).ok_or(PostErrorKind::Busy)?;
        self.posted.push(*work);
        self.seen.push(*work);
        Ok(())
    }

    fn poll(&mut self, out: &mut [Completion]) -> usize {
        self.polls += 1;
        let count = self.ready.len().min(out.len());
        for (to, from) in out.iter_mut().zip(self.ready.drain(..count)) {
            *to = from;
        }
        self.claims.unwrap_or(count)
    }

    fn cancel(&mut self, op: SlotId) -> CancelOutcome {
        self.cancels += 1;
        if self.withdraws {
            self.posted.retain(|w| w.op != op);
            self.ready.retain(|c| c.op != op);
            CancelOutcome::Withdrawn
        } else if self.lies {
            CancelOutcome::Withdrawn
        } else {
            CancelOutcome::Running
        }
    }
}

/// A region of `len` bytes here.
pub(crate) fn local(len: u64) -> LocalRegion {
    let key = RegionKey { index: 1, generation: 1 };
    LocalRegion { key, extent: Extent::new(len), place: Place::HOST }
}

/// A window of `len` bytes there.
pub(crate) fn remote(len: u64) -> WindowDesc {
    WindowDesc {
        window: WindowId::new(2, 77),
        epoch: Epoch(3),
        extent: Extent::new(len),
        access: Access::all(),
        kind: MemoryKind::Cpu,
    }
}

/// A transfer of `len` bytes between odd offsets.
pub(crate) fn transfer(opcode: Opcode, len: u64) -> Transfer {
    Transfer {
        opcode,
        when: CompleteWhen::Visible,
        local: local(len + 7).slice(7, len).unwrap(),
        remote: remote(len + 13).slice(13, len).unwrap(),
    }
}

/// What an operation holds: a label, and the transfers that may wait.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Kept {
    pub(crate) label: &'static str,
    pub(crate) list: Vec<Transfer>,
}

impl Kept {
    pub(crate) fn label(label: &'static str) -> Self {
        Self { label, list: Vec::new() }
    }

    pub(crate) fn list(list: Vec<Transfer>) -> Self {
        Self { label: "list", list }
    }
}

impl Hold for Kept {
    fn transfer(&mut self, left: u32) -> Option<Transfer> {
        (&self.list[..]).transfer(left)
    }

    fn keep(&mut self, t: &Transfer) -> bool {
        self.list = vec![*t];
        true
    }
}
