//! The model of a work queue: plain facts about each operation, no states, and a world that drives a work queue
//! and the model side by side and compares them after each step.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::collections::VecDeque;

use hmc_core::queue::{QueueError, WorkQueue};
use hmc_core::slots::{Outcome, Slot, SlotId, Stale};
use hmc_core::time::Instant;
use hmc_core::transport::PostErrorKind;
use hmc_core::work::{Completion, Failure, Opcode};

use super::data_support::{Kept, ScriptedTransport, transfer};

/// One step of a script. Numbers pick among what there is, modulo how many there are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    /// With space for none, it waits.
    Post {
        len: u64,
        lasts: u64,
        space: usize,
    },
    Refused(PostErrorKind),
    /// A list that waits as far as there is no space.
    List {
        parts: u32,
        lasts: u64,
        space: usize,
        refuse: bool,
    },
    Finish {
        pick: usize,
        ok: bool,
    },
    Ghost {
        pick: usize,
    },
    Progress {
        space: usize,
        refuse: bool,
    },
    Take {
        pick: usize,
    },
    Cancel {
        pick: usize,
        withdraws: bool,
    },
    Abandon {
        pick: usize,
    },
    Expire {
        passes: u64,
        withdraws: bool,
    },
    PeerGone {
        fenced: bool,
    },
    Events,
}

/// An operation as the model sees it: plain facts, no states.
#[derive(Debug)]
struct Op {
    id: SlotId,
    deadline: u64,
    unposted: u32,
    due: u32,
    bytes: u64,
    failure: Option<Failure>,
    known: bool,
    fenced: bool,
    /// Taken or abandoned.
    left: bool,
    done_told: bool,
    /// How often somebody learned that the memory is free.
    fence_told: usize,
}

impl Op {
    fn slot_is_free(&self) -> bool {
        self.left && self.fence_told > 0
    }

    fn outcome(&self) -> Result<Option<Outcome>, Stale> {
        if self.left {
            return Err(Stale { op: self.id });
        }
        let result = self.failure.map_or(Ok(self.bytes), Err);
        Ok(self.known.then_some(Outcome { result, fenced: self.fenced }))
    }

    fn finish_if_done(&mut self) {
        if self.due == 0 && self.unposted == 0 {
            self.known = true;
            self.fenced = true;
        }
    }

    fn end(&mut self, failure: Failure, fence: bool) {
        if self.fenced {
            return;
        }
        if !self.known && !self.left {
            self.failure = self.failure.or(Some(failure));
            self.known = true;
            self.unposted = 0;
        }
        if fence {
            self.due = 0;
            self.unposted = 0;
        }
        self.finish_if_done();
    }
}

struct World<const N: usize> {
    queue: WorkQueue<ScriptedTransport, [Slot<Kept>; N], Kept>,
    ops: Vec<Op>,
    /// Places in the list of those that wait, the oldest first. An operation that has ended leaves its own behind.
    waiting: VecDeque<u16>,
    now: u64,
    stale: u64,
}

impl<const N: usize> World<N> {
    fn new(transport: ScriptedTransport) -> Self {
        let queue = WorkQueue::new(transport, [(); N].map(|()| Slot::free(Kept::default())));
        Self { queue, ops: Vec::new(), waiting: VecDeque::new(), now: 0, stale: 0 }
    }

    fn used(&self) -> usize {
        self.ops.iter().filter(|op| !op.slot_is_free()).count()
    }

    /// Whether there was a slot.
    fn begun(&mut self, got: Result<SlotId, QueueError<PostErrorKind>>, mut op: Op) -> bool {
        if self.used() == N {
            assert_eq!(got, Err(QueueError::Full { limit: N }));
            return false;
        }
        op.id = got.unwrap();
        assert!(self.ops.iter().all(|o| o.id != op.id), "a name is given out once");
        if op.unposted != 0 && !self.waiting.contains(&op.id.index) {
            self.waiting.push_back(op.id.index);
        }
        op.finish_if_done();
        self.ops.push(op);
        true
    }

    /// Sets what the transport does with posts, until [`World::post_waiting`] or [`reset_transport`].
    fn limit(&mut self, space: usize, refuse: bool) {
        let transport = self.queue.transport_mut();
        transport.space = space;
        transport.refuse = refuse.then_some(PostErrorKind::Unsupported);
    }

    /// What waits is posted as far as the transport takes it.
    fn post_waiting(&mut self, mut space: usize, refuse: bool) {
        while let Some(index) = self.waiting.front() {
            let holder = |op: &&mut Op| op.id.index == *index && !op.slot_is_free();
            if let Some(op) = self.ops.iter_mut().find(holder) {
                if refuse && op.unposted != 0 {
                    op.unposted = 0;
                    op.failure = op.failure.or(Some(Failure::Unsupported));
                    op.finish_if_done();
                }
                let taken = space.min(op.unposted as usize);
                space -= taken;
                op.unposted -= taken as u32;
                op.due += taken as u32;
                if op.unposted != 0 {
                    break;
                }
            }
            self.waiting.pop_front();
        }
        reset_transport(&mut self.queue);
    }

    fn blank(&self, lasts: u64) -> Op {
        Op {
            id: SlotId { index: 0, generation: 0 },
            deadline: self.now + lasts,
            unposted: 0,
            due: 0,
            bytes: 0,
            failure: None,
            known: false,
            fenced: false,
            left: false,
            done_told: false,
            fence_told: 0,
        }
    }

    fn pick(&self, pick: usize) -> Option<usize> {
        (!self.ops.is_empty()).then(|| pick % self.ops.len())
    }

    fn step(&mut self, step: Action) {
        match step {
            Action::Post { len, lasts, space } => {
                let waits = space == 0 || !self.waiting.is_empty();
                let (due, unposted) = if waits { (0, 1) } else { (1, 0) };
                let (due, unposted) = if len == 0 { (0, 0) } else { (due, unposted) };
                let op = Op { due, unposted, ..self.blank(lasts) };
                self.limit(space, false);
                let by = Instant::from_nanos(op.deadline);
                let got =
                    self.queue.post_holding(&transfer(Opcode::Put, len), by, &mut Kept::default());
                reset_transport(&mut self.queue);
                self.begun(got, op);
            }
            Action::Refused(kind) => {
                let t = transfer(Opcode::Get, 1);
                let mut hold = Kept::label("refused");
                self.queue.transport_mut().refuse = Some(kind);
                let got = self.queue.post_holding(&t, Instant::from_nanos(self.now), &mut hold);
                self.queue.transport_mut().refuse = None;
                let full = self.used() == N;
                if !full && (kind == PostErrorKind::Busy || !self.waiting.is_empty()) {
                    let op = Op { unposted: 1, ..self.blank(0) };
                    self.begun(got, op);
                } else {
                    let expected = if full {
                        QueueError::Full { limit: N }
                    } else {
                        QueueError::Transport(kind)
                    };
                    assert_eq!((got, hold), (Err(expected), Kept::label("refused")));
                }
            }
            Action::List { parts, lasts, space, refuse } => {
                let op = Op { unposted: parts, ..self.blank(lasts) };
                let mut list = Kept::list(vec![transfer(Opcode::Put, 5); parts as usize]);
                self.limit(space, refuse);
                let by = Instant::from_nanos(op.deadline);
                let got = self.queue.post_list(parts, by, &mut list);
                if self.begun(got, op) && parts != 0 {
                    self.post_waiting(space, refuse);
                }
                reset_transport(&mut self.queue);
            }
            Action::Finish { pick, ok } => {
                let transport = self.queue.transport_mut();
                if !transport.posted.is_empty() {
                    let nth = pick % transport.posted.len();
                    if ok {
                        transport.finish(nth);
                    } else {
                        transport.fail(nth, Failure::Transport(pick as i32));
                    }
                }
            }
            Action::Ghost { pick } => {
                // A completion that is not due: late, or for the second time.
                let Some(i) = self.pick(pick) else { return };
                let (id, transport) = (self.ops[i].id, self.queue.transport_mut());
                if self.ops[i].due == 0 {
                    let result = Ok(999);
                    transport.ready.push_back(Completion { op: id, result });
                }
            }
            Action::Progress { space, refuse } => self.progress(space, refuse),
            Action::Take { pick } => {
                let Some(i) = self.pick(pick) else { return };
                let op = &mut self.ops[i];
                assert_eq!(self.queue.test(op.id), op.outcome().map(|o| o.is_some()));
                let got = self.queue.try_wait(op.id);
                assert_eq!(got, op.outcome());
                if let Ok(Some(outcome)) = got {
                    op.left = true;
                    op.done_told = true;
                    if outcome.fenced {
                        // The taker knows; the event may have come before.
                        op.fence_told = 1;
                    }
                }
            }
            Action::Cancel { pick, withdraws } => {
                let Some(i) = self.pick(pick) else { return };
                self.queue.transport_mut().withdraws = withdraws;
                let op = &mut self.ops[i];
                let got = self.queue.cancel(op.id);
                assert_eq!(got.is_err(), op.left);
                if !op.left {
                    op.end(Failure::Cancelled, withdraws);
                }
            }
            Action::Abandon { pick } => {
                let Some(i) = self.pick(pick) else { return };
                let op = &mut self.ops[i];
                assert_eq!(self.queue.abandon(op.id).is_err(), op.left);
                if !op.left {
                    op.left = true;
                    op.done_told = true;
                    op.unposted = 0;
                    op.finish_if_done();
                }
            }
            Action::Expire { passes, withdraws } => {
                self.now += passes;
                self.queue.transport_mut().withdraws = withdraws;
                self.queue.expire(Instant::from_nanos(self.now));
                for op in &mut self.ops {
                    if !op.left && !op.known && op.deadline <= self.now {
                        op.end(Failure::DeadlineExceeded, withdraws);
                    }
                }
                assert!(self.queue.next_deadline() > Instant::from_nanos(self.now));
            }
            Action::PeerGone { fenced } => {
                self.queue.fail_all(Failure::PeerDead, fenced);
                for op in &mut self.ops {
                    op.end(Failure::PeerDead, fenced);
                }
            }
            Action::Events => self.events(),
        }
        self.compare();
    }

    fn progress(&mut self, space: usize, refuse: bool) {
        self.limit(space, refuse);
        let ready: Vec<_> = self.queue.transport().ready.iter().copied().collect();
        assert_eq!(self.queue.progress(), ready.len());
        for done in ready {
            let op = self.ops.iter_mut().find(|op| op.id == done.op).unwrap();
            if op.due == 0 {
                self.stale += 1;
                continue;
            }
            op.due -= 1;
            match done.result {
                Ok(bytes) => op.bytes += bytes,
                Err(failure) => op.failure = op.failure.or(Some(failure)),
            }
            op.finish_if_done();
        }
        self.post_waiting(space, refuse);
        assert!(self.queue.transport().ready.is_empty());
        assert_eq!(self.queue.has_waiting(), !self.waiting.is_empty());
    }

    fn events(&mut self) {
        while let Some(event) = self.queue.next_event() {
            let op = self.ops.iter_mut().find(|op| op.id == event.op).unwrap();
            assert!(event.done || event.fenced.is_some(), "an event says something");
            if event.done {
                assert!(op.known && !op.done_told, "{event:?} {op:?}");
                op.done_told = true;
            }
            if event.fenced.is_some() {
                assert!(op.fenced && op.fence_told == 0, "{event:?} {op:?}");
                op.fence_told += 1;
            }
        }
        for op in &self.ops {
            assert!(!op.known || op.done_told, "untold: {op:?}");
            assert!(!op.fenced || op.fence_told == 1, "memory kept for ever: {op:?}");
        }
    }

    fn compare(&self) {
        for op in &self.ops {
            assert_eq!(self.queue.outcome(op.id), op.outcome(), "{op:?}");
        }
        let in_flight = self.ops.iter().filter(|op| !op.fenced).count();
        assert_eq!(self.queue.in_flight(), in_flight);
        assert_eq!(self.queue.slots().in_use(), self.used());
        assert_eq!(self.queue.stale(), self.stale);
        let next = self.queue.next_deadline();
        let pending = self.ops.iter().filter(|op| !op.known && !op.left);
        assert!(pending.clone().all(|op| next <= Instant::from_nanos(op.deadline)));
        assert!(in_flight != 0 || next == Instant::NEVER, "an idle work queue wakes nobody");
    }

    /// Brings everything to its end and shows that nothing is left.
    fn finish(mut self) {
        // First what was posted, then what has waited.
        for _ in 0..2 {
            self.queue.transport_mut().finish_all();
            self.progress(usize::MAX, false);
        }
        assert!(!self.queue.has_waiting(), "nothing waits for ever");
        self.step(Action::Expire { passes: 1 << 20, withdraws: false });
        self.events();
        assert_eq!(self.queue.in_flight(), 0);
        for i in 0..self.ops.len() {
            if !self.ops[i].left {
                self.step(Action::Take { pick: i });
                assert!(self.ops[i].left, "every operation ends");
            }
        }
        assert_eq!(self.queue.slots().in_use(), 0);
        for _ in 0..N {
            self.queue.post(&transfer(Opcode::Put, 1), Instant::NEVER).unwrap();
        }
        assert!(!self.queue.has_waiting());
    }
}

fn reset_transport<const N: usize>(
    queue: &mut WorkQueue<ScriptedTransport, [Slot<Kept>; N], Kept>,
) {
    queue.transport_mut().space = usize::MAX;
    queue.transport_mut().refuse = None;
}

pub(crate) fn run<const N: usize>(script: &[Action]) {
    run_on::<N>(ScriptedTransport::new(), script);
}

/// The same over a transport that was prepared.
pub(crate) fn run_on<const N: usize>(transport: ScriptedTransport, script: &[Action]) {
    let mut world = World::<N>::new(transport);
    for step in script {
        world.step(*step);
    }
    world.finish();
}
