//! What the core does if its caller breaks an assumption of use (docs/SAFETY.md): no panic, and the effect that the page names.
//! Where the caller is believed, the test shows that it is.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "tests may panic"
)]

mod common;
mod data_support;

use common::link::{acceptor, acceptor_words, at, dialer_words, hand, outputs, pair};
use common::{TOKEN, encode};
use data_support::{ScriptedTransport, transfer};
use hmc_core::ctrl::conn::{ControlConn, CxxPolicy};
use hmc_core::ctrl::framer::{Framer, Next};
use hmc_core::ctrl::io::{ControlEvent, Violation};
use hmc_core::ctrl::ranks::{Admission, Identity, RankEntry, RankStorage, RankTable};
use hmc_core::ctrl::state::ControlState;
use hmc_core::limits::{MAX_FRAME_BYTES, PEER_DEAD_NS};
use hmc_core::queue::{QueueError, WorkQueue};
use hmc_core::range::Extent;
use hmc_core::region::{Epoch, WindowId, WindowSlice};
use hmc_core::rndv::sender::Sender;
use hmc_core::rndv::{RecvTarget, RndvId, RndvMsg};
use hmc_core::slots::{Outcome, Slot, SlotId, Stale};
use hmc_core::time::Instant;
use hmc_core::transport::{CancelOutcome, PostErrorKind, Transport};
use hmc_core::types::{Access, Caps, Incarnation, MemoryKind, Rank};
use hmc_core::window::{WindowEntry, WindowFault, WindowTable};
use hmc_core::wire::hello::Hello;
use hmc_core::wire::message::ControlMessage;
use hmc_core::wire::proof::{Challenge, Proof};
use hmc_core::work::{Completion, Failure, Opcode, WorkRequest};
use std::cell::Cell;
use std::rc::Rc;

fn queue() -> WorkQueue<ScriptedTransport, [Slot; 2]> {
    WorkQueue::new(ScriptedTransport::new(), [Slot::FREE; 2])
}

#[test]
fn a_clock_that_goes_back_ends_no_operation_early_and_forgets_none() {
    let mut queue = queue();
    let first = queue.post(&transfer(Opcode::Put, 3), at(40)).unwrap();
    let second = queue.post(&transfer(Opcode::Put, 3), at(100)).unwrap();
    for now in [50, 10, 99, 0] {
        queue.expire(at(now));
        assert_eq!((queue.test(first), queue.test(second)), (Ok(true), Ok(false)));
        assert_eq!(queue.next_deadline(), at(100));
    }
    queue.expire(at(100));
    let late = Outcome { result: Err(Failure::DeadlineExceeded), fenced: false };
    assert_eq!(queue.try_wait(second), Ok(Some(late)));
    assert_eq!(queue.in_flight(), 2, "a deadline is no fence");
}

#[test]
fn a_clock_that_goes_back_makes_a_peer_silent_too_early_by_that_much() {
    let (mut a, _) = pair(&dialer_words(), &acceptor_words(), 0);
    a.on_received(None, at(1_000));
    assert_eq!(a.ends_at(), at(1_000 + PEER_DEAD_NS));
    a.on_received(None, at(400));
    assert_eq!(a.ends_at(), at(400 + PEER_DEAD_NS));
}

#[test]
fn a_deadline_that_nobody_looks_at_ends_nothing() {
    let mut queue = queue();
    let op = queue.post(&transfer(Opcode::Put, 3), at(100)).unwrap();
    queue.progress();
    assert_eq!((queue.test(op), queue.next_deadline()), (Ok(false), at(100)));
    let (mut a, _) = pair(&dialer_words(), &acceptor_words(), 0);
    let late = 2 * PEER_DEAD_NS;
    let tag = encode(&ControlMessage::Tag(3));
    assert!(a.is_due_to_end(at(late)));
    // A frame that is received first is a sign of life.
    assert_eq!(hand(&mut a, &tag, late), Ok(Some(ControlEvent::Deliver(ControlMessage::Tag(3)))));
    a.tick(at(late));
    assert_eq!(a.state(), ControlState::Ready);
}

#[test]
fn a_completion_that_comes_twice_counts_as_another_part() {
    let list = [transfer(Opcode::Put, 3); 2];
    let slots = [(); 2].map(|()| Slot::free(&list[..0]));
    let mut queue = WorkQueue::new(ScriptedTransport::new(), slots);
    let op = queue.post_list(2, Instant::NEVER, &mut list.as_slice()).unwrap();
    queue.transport_mut().finish(0);
    let twice = queue.transport().ready[0];
    queue.transport_mut().ready.push_back(twice);
    queue.progress();
    // One part runs on, and its memory is called free.
    assert_eq!(queue.transport().posted.len(), 1);
    assert_eq!(queue.outcome(op), Ok(Some(Outcome { result: Ok(6), fenced: true })));
    queue.transport_mut().finish_all();
    queue.progress();
    assert_eq!(queue.stale(), 1, "the one that was due");
}

#[test]
fn a_fence_that_is_not_true_is_believed() {
    for by_cancel in [true, false] {
        let mut queue = queue();
        let op = queue.post(&transfer(Opcode::Get, 3), Instant::NEVER).unwrap();
        queue.transport_mut().lies = true;
        if by_cancel {
            queue.cancel(op).unwrap();
        } else {
            queue.fail_all(Failure::Cancelled, true);
        }
        assert_eq!(queue.transport().posted.len(), 1, "it runs on");
        let ended = Outcome { result: Err(Failure::Cancelled), fenced: true };
        assert_eq!((queue.try_wait(op), queue.in_flight()), (Ok(Some(ended)), 0));
        queue.transport_mut().finish_all();
        queue.progress();
        assert_eq!(queue.stale(), 1);
    }
}

#[test]
fn a_request_that_the_queue_did_not_post_is_nobodys() {
    let mut queue = queue();
    let op = queue.post(&transfer(Opcode::Put, 3), Instant::NEVER).unwrap();
    let other = SlotId { generation: op.generation + 1, ..op };
    let work = WorkRequest { op: other, ..queue.transport().posted[0] };
    queue.transport_mut().post(&work).unwrap();
    queue.transport_mut().finish(1);
    assert_eq!((queue.progress(), queue.stale()), (1, 1));
    assert_eq!(queue.test(op), Ok(false));
}

/// Says that it wrote more completions than there was space for.
struct Boaster(usize);

impl Transport for Boaster {
    type Error = PostErrorKind;

    fn caps(&self) -> Caps {
        Caps::all()
    }

    fn post(&mut self, _: &WorkRequest) -> Result<(), PostErrorKind> {
        Ok(())
    }

    fn poll(&mut self, out: &mut [Completion]) -> usize {
        out.fill(Completion { op: SlotId { index: 0, generation: 1 }, result: Ok(3) });
        out.len().saturating_add(self.0)
    }

    fn cancel(&mut self, _: SlotId) -> CancelOutcome {
        CancelOutcome::Running
    }
}

#[test]
fn completions_beyond_the_space_for_them_are_lost() {
    for more in [1, usize::MAX] {
        let mut queue = WorkQueue::new(Boaster(more), [Slot::FREE; 2]);
        let op = queue.post(&transfer(Opcode::Put, 3), at(100)).unwrap();
        queue.progress();
        assert_eq!((queue.test(op), queue.stale()), (Ok(false), 0));
        queue.expire(at(100));
        assert_eq!(queue.test(op), Ok(true), "its deadline ends it");
    }
    let mut honest = WorkQueue::new(Boaster(0), [Slot::FREE; 2]);
    let op = honest.post(&transfer(Opcode::Put, 3), at(100)).unwrap();
    honest.progress();
    assert_eq!(honest.test(op), Ok(true));
}

/// Storage of which less is given out than there is.
struct Shrinking<T> {
    all: Vec<T>,
    given: Rc<Cell<usize>>,
}

impl<T: Clone> Shrinking<T> {
    fn new(value: T, len: usize) -> (Self, Rc<Cell<usize>>) {
        let given = Rc::new(Cell::new(len));
        (Self { all: vec![value; len], given: Rc::clone(&given) }, given)
    }
}

impl<T> AsRef<[T]> for Shrinking<T> {
    fn as_ref(&self) -> &[T] {
        &self.all[..self.given.get()]
    }
}

impl<T> AsMut<[T]> for Shrinking<T> {
    fn as_mut(&mut self) -> &mut [T] {
        &mut self.all[..self.given.get()]
    }
}

#[test]
fn storage_that_shrinks_loses_what_it_held_and_nothing_panics() {
    let (slots, given) = Shrinking::new(Slot::FREE, 2);
    let mut queue = WorkQueue::new(ScriptedTransport::new(), slots);
    let t = transfer(Opcode::Put, 3);
    let op = queue.post(&t, at(100)).unwrap();
    given.set(0);
    assert_eq!(queue.try_wait(op), Err(Stale { op }));
    assert_eq!(queue.post(&t, at(100)), Err(QueueError::Full { limit: 0 }));
    queue.transport_mut().finish_all();
    assert_eq!((queue.progress(), queue.stale()), (1, 1));
    queue.expire(at(100));
    queue.fail_all(Failure::PeerDead, true);
    assert_eq!(queue.next_event(), None);

    let (entries, given) = Shrinking::new(WindowEntry::FREE, 1);
    let mut windows = WindowTable::new(entries);
    let all = data_support::local(8).slice(0, 8).unwrap();
    let w = windows.expose(all, MemoryKind::Cpu, Access::all(), 1).unwrap();
    given.set(0);
    assert_eq!(windows.check(w.window, w.epoch, 0, 1, Access::READ), Err(WindowFault::Unknown));

    let (bytes, given) = Shrinking::new(0, 32);
    let mut framer = Framer::new(bytes);
    assert_eq!(framer.push(&encode(&ControlMessage::Tag(3)), at(1)), 16);
    given.set(4);
    assert_eq!(framer.next(MAX_FRAME_BYTES), Ok(Next::Need(8)));
    assert!(framer.space().is_empty());
}

/// Has one entry for all ranks, and forgets it.
#[derive(Debug)]
struct Forgetful(RankEntry);

impl RankStorage for Forgetful {
    fn limit(&self) -> u32 {
        8
    }

    fn at(&self, _: Rank) -> Option<&RankEntry> {
        Some(&RankEntry::EMPTY)
    }

    fn at_mut(&mut self, _: Rank) -> Option<&mut RankEntry> {
        self.0 = RankEntry::EMPTY;
        Some(&mut self.0)
    }
}

#[test]
fn ranks_that_are_not_kept_are_given_twice() {
    let mut ranks = RankTable::new(Rank(0), Forgetful(RankEntry::EMPTY));
    for host in [1, 2] {
        let who = Identity { host: [host; 16], proven: true };
        assert_eq!(ranks.admit(Rank(3), Incarnation(1), who, at(0)), Admission::Accept);
    }
}

/// A dialer whose HELLO promises a proof, and the acceptor that received it.
fn promised() -> (ControlConn, ControlConn) {
    let mut d = ControlConn::dial(&Hello { proves: true, ..dialer_words() }, at(0)).unwrap();
    let mut l = acceptor(CxxPolicy::Refused, 0);
    let first = outputs(&mut d).frames.remove(0);
    assert!(matches!(hand(&mut l, &first, 0), Ok(Some(ControlEvent::HelloReceived(_)))));
    (d, l)
}

#[test]
fn a_promised_proof_is_requested_by_the_owner_alone() {
    let (mut d, mut l) = promised();
    l.accept(&acceptor_words(), TOKEN, at(0)).unwrap();
    assert_eq!(l.state(), ControlState::Ready, "nobody asked");
    let welcome = outputs(&mut l).frames.remove(0);
    assert!(matches!(hand(&mut d, &welcome, 1), Err(Violation::Unexpected(_))), "the dialer does");
}

#[test]
fn a_proof_that_was_requested_is_compared() {
    let (ours, theirs) = (Proof([1; 32]), Proof([2; 32]));
    for (said, is_good) in [(theirs, true), (Proof([3; 32]), false)] {
        let (mut d, mut l) = promised();
        let challenge = Challenge { rank: Rank(1), nonce: [4; 16], proof: ours };
        l.challenge(&challenge, theirs).unwrap();
        let frame = outputs(&mut l).frames.remove(0);
        assert_eq!(hand(&mut d, &frame, 1), Ok(Some(ControlEvent::Challenged(challenge))));
        assert_eq!(d.prove(&ours, said), Ok(true));
        let frame = outputs(&mut d).frames.remove(0);
        let want = if is_good { Ok(Some(ControlEvent::Proven)) } else { Err(Violation::Unproven) };
        assert_eq!(hand(&mut l, &frame, 2), want);
    }
    let (mut d, mut l) = promised();
    l.challenge(&Challenge { rank: Rank(1), nonce: [4; 16], proof: theirs }, theirs).unwrap();
    let frame = outputs(&mut l).frames.remove(0);
    hand(&mut d, &frame, 1).unwrap();
    assert_eq!(d.prove(&ours, theirs), Ok(false), "a false acceptor gets no proof");
    assert!(outputs(&mut d).frames.is_empty());
}

#[test]
fn a_changed_byte_of_a_stream_is_not_seen_where_every_value_is_legal() {
    let (mut a, _) = pair(&dialer_words(), &acceptor_words(), 0);
    let mut frame = encode(&ControlMessage::Tag(3));
    *frame.last_mut().unwrap() ^= 0x80;
    let changed = ControlMessage::Tag(3 | 1 << 63);
    assert_eq!(hand(&mut a, &frame, 1), Ok(Some(ControlEvent::Deliver(changed))));
    assert!(outputs(&mut a).close.is_none());
}

#[test]
fn a_message_of_another_rendezvous_is_taken_for_its_own() {
    let mut sender = Sender::new(RndvId(5), 4);
    sender.poll().unwrap();
    let span = Extent::new(4).whole();
    let area = WindowSlice { window: WindowId(1), epoch: Epoch(1), span, expected: None };
    let other = RndvMsg::Ready { id: RndvId(6), target: RecvTarget::direct(area) };
    assert_eq!(sender.receive(&other), Ok(()));
}
