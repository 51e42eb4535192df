//! The model of a work queue: plain facts about each operation, no states, and a world that drives a work queue
//! and the model side by side and compares them after each step.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use hmc_core::queue::{QueueError, WorkQueue};
use hmc_core::slots::{Outcome, Slot, SlotId, Stale};
use hmc_core::time::Instant;
use hmc_core::transport::PostErrorKind;
use hmc_core::work::{Completion, Failure, Opcode};

use super::data_support::{ScriptedTransport, transfer};

/// One step of a script. Numbers pick among what there is, modulo how many there are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    Post { len: u64, lasts: u64 },
    Refused(PostErrorKind),
    Begin { parts: u32, lasts: u64 },
    Feed { pick: usize, count: u32, space: usize, refuse: bool },
    Finish { pick: usize, ok: bool },
    Ghost { pick: usize },
    Progress,
    Take { pick: usize },
    Cancel { pick: usize, withdraws: bool },
    Abandon { pick: usize },
    Expire { passes: u64, withdraws: bool },
    PeerGone { fenced: bool },
    Events,
}

/// An operation as the model sees it: plain facts, no states.
#[derive(Debug)]
struct Op {
    id: SlotId,
    deadline: u64,
    unposted: u32,
    owed: u32,
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

    fn settle(&mut self) {
        if self.owed == 0 && self.unposted == 0 {
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
            self.owed = 0;
            self.unposted = 0;
        }
        self.settle();
    }
}

struct World<const N: usize> {
    queue: WorkQueue<ScriptedTransport, [Slot; N]>,
    ops: Vec<Op>,
    now: u64,
    stale: u64,
}

impl<const N: usize> World<N> {
    fn new(transport: ScriptedTransport) -> Self {
        let queue = WorkQueue::new(transport, [Slot::FREE; N]);
        Self { queue, ops: Vec::new(), now: 0, stale: 0 }
    }

    fn used(&self) -> usize {
        self.ops.iter().filter(|op| !op.slot_is_free()).count()
    }

    fn begun(&mut self, got: Result<SlotId, QueueError<PostErrorKind>>, mut op: Op) {
        if self.used() == N {
            assert_eq!(got, Err(QueueError::Full { limit: N }));
            return;
        }
        op.id = got.unwrap();
        assert!(self.ops.iter().all(|o| o.id != op.id), "a name is given out once");
        op.settle();
        self.ops.push(op);
    }

    fn blank(&self, lasts: u64) -> Op {
        Op {
            id: SlotId { index: 0, generation: 0 },
            deadline: self.now + lasts,
            unposted: 0,
            owed: 0,
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
            Action::Post { len, lasts } => {
                let op = Op { owed: u32::from(len != 0), ..self.blank(lasts) };
                let got =
                    self.queue.post(&transfer(Opcode::Put, len), Instant::from_nanos(op.deadline));
                self.begun(got, op);
            }
            Action::Refused(kind) => {
                self.queue.transport_mut().refuse = Some(kind);
                let got = self.queue.post(&transfer(Opcode::Get, 1), Instant::from_nanos(self.now));
                self.queue.transport_mut().refuse = None;
                let expected = match kind {
                    _ if self.used() == N => QueueError::Full { limit: N },
                    PostErrorKind::Busy => QueueError::Busy,
                    _ => QueueError::Transport(kind),
                };
                assert_eq!(got, Err(expected));
            }
            Action::Begin { parts, lasts } => {
                let op = Op { unposted: parts, ..self.blank(lasts) };
                let got = self.queue.begin_batch(parts, Instant::from_nanos(op.deadline));
                self.begun(got, op);
            }
            Action::Feed { pick, count, space, refuse } => self.feed(pick, count, space, refuse),
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
                // A completion that nobody is owed: late, or for the second time.
                let Some(i) = self.pick(pick) else { return };
                let (id, transport) = (self.ops[i].id, self.queue.transport_mut());
                if self.ops[i].owed == 0 {
                    let result = Ok(999);
                    transport.ready.push_back(Completion { op: id, result });
                }
            }
            Action::Progress => self.progress(),
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
                    op.settle();
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

    fn feed(&mut self, pick: usize, count: u32, space: usize, refuse: bool) {
        let Some(i) = self.pick(pick) else { return };
        let op = &mut self.ops[i];
        let list = vec![transfer(Opcode::Put, 5); count as usize];
        let transport = self.queue.transport_mut();
        transport.space = space;
        transport.refuse = refuse.then_some(PostErrorKind::Unsupported);
        let got = self.queue.feed(op.id, &list);
        reset_transport(&mut self.queue);
        if op.left {
            assert_eq!(got, Err(QueueError::Stale(Stale { op: op.id })));
        } else if count > op.unposted {
            assert_eq!(got, Err(QueueError::Closed { left: op.unposted }));
        } else if refuse && count > 0 {
            assert_eq!(got, Err(QueueError::Transport(PostErrorKind::Unsupported)));
            op.unposted = 0;
            op.failure = op.failure.or(Some(Failure::Unsupported));
            op.settle();
        } else {
            let taken = space.min(count as usize);
            assert_eq!(got, Ok(taken));
            op.unposted -= taken as u32;
            op.owed += taken as u32;
        }
    }

    fn progress(&mut self) {
        let ready: Vec<_> = self.queue.transport().ready.iter().copied().collect();
        assert_eq!(self.queue.progress(), ready.len());
        for done in ready {
            let op = self.ops.iter_mut().find(|op| op.id == done.op).unwrap();
            if op.owed == 0 {
                self.stale += 1;
                continue;
            }
            op.owed -= 1;
            match done.result {
                Ok(bytes) => op.bytes += bytes,
                Err(failure) => op.failure = op.failure.or(Some(failure)),
            }
            op.settle();
        }
        assert!(self.queue.transport().ready.is_empty());
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
        self.queue.transport_mut().finish_all();
        self.progress();
        // What is pending now has parts that were never posted.
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
    }
}

fn reset_transport<const N: usize>(queue: &mut WorkQueue<ScriptedTransport, [Slot; N]>) {
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
