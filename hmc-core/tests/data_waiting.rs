//! Transfers that the transport has no space for wait in the records of their operations: none is lost, the oldest goes first,
//! and what ends meanwhile is not posted any more.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "tests may panic"
)]

mod data_support;

use data_support::{Kept, ScriptedTransport, local, transfer};
use hmc_core::queue::{QueueError, Transfer, WorkQueue};
use hmc_core::slots::{Outcome, Slot, SlotId};
use hmc_core::time::Instant;
use hmc_core::transport::PostErrorKind;
use hmc_core::work::{Failure, Opcode};

type Queue = WorkQueue<ScriptedTransport, Vec<Slot<Kept>>, Kept>;

fn queue(slots: usize, space: usize) -> Queue {
    let storage = std::iter::repeat_with(|| Slot::free(Kept::default())).take(slots).collect();
    let mut queue = Queue::new(ScriptedTransport::new(), storage);
    queue.transport_mut().space = space;
    queue
}

fn put(len: u64) -> Transfer {
    transfer(Opcode::Put, len)
}

fn post(queue: &mut Queue, len: u64) -> SlotId {
    queue.post_holding(&put(len), Instant::NEVER, &mut Kept::label("one")).unwrap()
}

fn list(queue: &mut Queue, lens: &[u64]) -> SlotId {
    let list: Vec<_> = lens.iter().map(|len| put(*len)).collect();
    let parts = list.len().try_into().unwrap();
    queue.post_list(parts, Instant::NEVER, &mut Kept::list(list)).unwrap()
}

/// The lengths of what the transport was given.
fn seen(queue: &Queue) -> Vec<u64> {
    queue.transport().seen.iter().map(|w| w.local.span.len()).collect()
}

fn done(bytes: u64) -> Outcome {
    Outcome { result: Ok(bytes), fenced: true }
}

/// Gives the transport space and lets it work until nothing waits.
fn drain(queue: &mut Queue) {
    while queue.has_waiting() {
        queue.transport_mut().space = 1;
        queue.progress();
        queue.transport_mut().finish_all();
    }
    queue.progress();
}

#[test]
fn a_post_that_finds_the_transport_full_waits_in_its_record() {
    let mut queue = queue(4, 1);
    let ops = [1, 2, 3].map(|len| post(&mut queue, len));
    assert!(queue.has_waiting());
    assert_eq!((seen(&queue), queue.slots().in_flight()), (vec![1], 3));
    assert_eq!(queue.slots().parts(ops[1]), Ok((1, 0)));
    // There is space again, but others are older.
    queue.transport_mut().space = 1;
    let last = post(&mut queue, 4);
    assert_eq!(seen(&queue), [1]);
    queue.progress();
    assert_eq!(seen(&queue), [1, 2], "as far as there is space");
    assert_eq!(queue.test(ops[1]), Ok(false));
    drain(&mut queue);
    assert_eq!(seen(&queue), [1, 2, 3, 4]);
    for (op, bytes) in ops.into_iter().chain([last]).zip(1..) {
        let event = queue.next_event().unwrap();
        let held = event.fenced.unwrap();
        assert_eq!((event.op, event.done, held.label), (op, true, "one"));
        assert_eq!(queue.take(op), Ok(Some((done(bytes), Kept::default()))));
    }
    // Nothing waits: no way round.
    queue.transport_mut().space = 1;
    post(&mut queue, 5);
    assert_eq!(seen(&queue).last(), Some(&5));
}

#[test]
fn a_holder_that_cannot_keep_a_transfer_gets_busy() {
    let mut queue = WorkQueue::new(ScriptedTransport::new(), [Slot::FREE; 1]);
    queue.transport_mut().space = 0;
    assert_eq!(queue.post(&put(1), Instant::NEVER), Err(QueueError::Busy));
    assert_eq!((queue.slots().in_use(), queue.has_waiting()), (0, false));
}

#[test]
fn what_a_refused_operation_was_to_hold_comes_back() {
    let mut queue = queue(1, 9);
    let refuse = |queue: &mut Queue, t| {
        let mut hold = Kept::label("back");
        let refused = queue.post_holding(&t, Instant::NEVER, &mut hold).unwrap_err();
        assert_eq!(hold, Kept::label("back"));
        refused
    };
    let mut odd = put(4);
    odd.local = local(9).slice(0, 5).unwrap();
    let length = QueueError::Length { local: 5, remote: 4 };
    assert_eq!(refuse(&mut queue, odd), length);
    queue.transport_mut().refuse = Some(PostErrorKind::Disconnected);
    let refused = QueueError::Transport(PostErrorKind::Disconnected);
    assert_eq!(refuse(&mut queue, put(1)), refused);
    queue.transport_mut().refuse = None;
    post(&mut queue, 1);
    let full = QueueError::Full { limit: 1 };
    assert_eq!(refuse(&mut queue, put(1)), full);
    let mut kept = Kept { label: "back", list: vec![put(1)] };
    assert_eq!(queue.post_list(1, Instant::NEVER, &mut kept), Err(full));
    assert_eq!(kept, Kept { label: "back", list: vec![put(1)] });
}

#[test]
fn a_list_waits_in_its_record_until_all_of_it_is_posted() {
    let mut queue = queue(4, 2);
    let op = list(&mut queue, &[1, 0, 2, 3, 0]);
    assert_eq!(seen(&queue), [1, 2], "what has no bytes needs no transport");
    assert_eq!(queue.slots().parts(op), Ok((2, 2)));
    drain(&mut queue);
    assert_eq!(seen(&queue), [1, 2, 3]);
    let event = queue.next_event().unwrap();
    assert_eq!((event.op, event.fenced.unwrap().label), (op, "list"));
    assert_eq!(queue.try_wait(op), Ok(Some(done(6))));
    // One without transfers is over at once.
    let op = list(&mut queue, &[]);
    assert_eq!(queue.try_wait(op), Ok(Some(done(0))));
}

#[test]
fn a_long_list_does_not_keep_others_waiting() {
    let mut queue = queue(4, 0);
    let long = list(&mut queue, &[1; 100]);
    let short = post(&mut queue, 7);
    let second = list(&mut queue, &[2; 20]);
    queue.transport_mut().space = 120;
    queue.progress();
    let seen = seen(&queue);
    let nth = |len, nth| seen.iter().enumerate().filter(|(_, l)| **l == len).nth(nth).unwrap().0;
    assert_eq!((nth(7, 0), nth(1, 16), nth(2, 15), nth(2, 16)), (16, 33, 32, 49));
    assert!(queue.has_waiting(), "one transfer has no space yet");
    drain(&mut queue);
    for (op, bytes) in [(long, 100), (short, 7), (second, 40)] {
        assert_eq!(queue.try_wait(op), Ok(Some(done(bytes))));
    }
}

#[test]
fn a_transfer_that_is_refused_when_its_turn_comes_fails_its_operation() {
    let mut queue = queue(4, 1);
    let first = list(&mut queue, &[1, 2, 3]);
    let second = post(&mut queue, 4);
    queue.transport_mut().refuse = Some(PostErrorKind::Disconnected);
    queue.progress();
    assert!(!queue.has_waiting());
    let failed = Outcome { result: Err(Failure::PeerDead), fenced: true };
    assert_eq!(queue.try_wait(second), Ok(Some(failed)));
    assert_eq!(queue.test(first), Ok(false), "one part is still out");
    queue.transport_mut().finish_all();
    queue.progress();
    assert_eq!(queue.try_wait(first), Ok(Some(failed)));
    // A list that is shorter than was said, and ranges that do not fit, are never posted.
    queue.transport_mut().refuse = None;
    let mut kept = Kept { label: "short", list: vec![put(1)] };
    let short = queue.post_list(2, Instant::NEVER, &mut kept).unwrap();
    let mut odd = put(4);
    odd.local = local(9).slice(0, 5).unwrap();
    let mut kept = Kept { label: "odd", list: vec![odd, odd] };
    let unequal = queue.post_list(2, Instant::NEVER, &mut kept).unwrap();
    let failed = Outcome { result: Err(Failure::Unsupported), fenced: true };
    assert_eq!(queue.try_wait(short), Ok(Some(failed)));
    assert_eq!(queue.try_wait(unequal), Ok(Some(failed)));
}

/// The ways in which an operation ends while it waits. Its memory is free at once, its place in the list is nobody's.
#[test]
fn what_ends_while_it_waits_is_not_posted() {
    let at = Instant::from_nanos;
    for (end, expected) in [
        (0, Some(Failure::Cancelled)),
        (1, Some(Failure::DeadlineExceeded)),
        (2, Some(Failure::PeerDead)),
        (3, None),
    ] {
        let mut queue = queue(3, 1);
        post(&mut queue, 1);
        let op = queue.post_holding(&put(2), at(5), &mut Kept::label("ends")).unwrap();
        match end {
            0 => queue.cancel(op).unwrap(),
            1 => queue.expire(at(5)),
            2 => queue.fail_all(Failure::PeerDead, false),
            _ => assert_eq!(queue.abandon(op), Ok(None)),
        }
        let event = std::iter::from_fn(|| queue.next_event()).find(|e| e.op == op).unwrap();
        assert_eq!(event.fenced.map(|held| held.label), Some("ends"));
        let outcome = expected.map(|why| Outcome { result: Err(why), fenced: true });
        assert_eq!(queue.try_wait(op).ok().flatten(), outcome);
        assert_eq!(queue.transport().cancels, 0, "the transport has nothing of it");
        // The record is used again while its place in the list is left.
        queue.transport_mut().space = 1;
        let next = post(&mut queue, 3);
        assert_eq!(next.index, op.index);
        drain(&mut queue);
        assert_eq!(seen(&queue), [1, 3]);
        assert_eq!(queue.try_wait(next), Ok(Some(done(3))));
    }
}

/// Lists need no memory but the caller's.
#[test]
fn a_slice_serves_as_a_list() {
    let (one, two) = ([put(1), put(2), put(3)], [put(4)]);
    let storage = [Slot::free(&[][..]); 2];
    let mut queue = WorkQueue::<_, _, &[Transfer]>::new(ScriptedTransport::new(), storage);
    queue.transport_mut().space = 1;
    let first = queue.post_list(3, Instant::NEVER, &mut &one[..]).unwrap();
    let second = queue.post_list(1, Instant::NEVER, &mut &two[..]).unwrap();
    assert_eq!(queue.slots().parts(first), Ok((2, 1)));
    queue.transport_mut().space = usize::MAX;
    queue.progress();
    queue.transport_mut().finish_all();
    queue.progress();
    assert_eq!(queue.take(first), Ok(Some((done(6), &one[..]))));
    assert_eq!(queue.next_event().unwrap().fenced, Some(&two[..]));
    assert_eq!(queue.take(second), Ok(Some((done(4), &[][..]))));
    // A single transfer does not wait in one.
    queue.transport_mut().space = 0;
    assert_eq!(queue.post(&put(1), Instant::NEVER), Err(QueueError::Busy));
}

/// Whatever refuses a part of a list, the list fails with the reason.
#[test]
fn a_refused_part_fails_its_list_with_the_reason() {
    for (kind, failure) in [
        (PostErrorKind::Disconnected, Failure::PeerDead),
        (PostErrorKind::Unsupported, Failure::Unsupported),
        (PostErrorKind::UnknownRegion, Failure::UnknownRegion),
        (PostErrorKind::Other, Failure::Transport(0)),
    ] {
        let mut queue = queue(2, 0);
        // A part without bytes is done by itself.
        let op = list(&mut queue, &[0, 3, 3]);
        assert_eq!((queue.test(op), queue.slots().parts(op)), (Ok(false), Ok((2, 0))));
        queue.transport_mut().refuse = Some(kind);
        queue.progress();
        let failed = Outcome { result: Err(failure), fenced: true };
        assert_eq!(queue.try_wait(op), Ok(Some(failed)));
    }
}

/// A list of puts, of which the last has a tag.
fn notified(queue: &mut Queue, lens: &[u64]) -> SlotId {
    let mut list: Vec<_> = lens.iter().map(|len| put(*len)).collect();
    list.last_mut().unwrap().opcode = Opcode::PutNotify { tag: 7 };
    let parts = list.len().try_into().unwrap();
    queue.post_list(parts, Instant::NEVER, &mut Kept::list(list)).unwrap()
}

#[test]
fn a_tag_is_posted_when_all_before_it_are_complete() {
    let mut queue = queue(5, usize::MAX);
    let ops = [notified(&mut queue, &[1, 2, 3]), notified(&mut queue, &[4, 5])];
    assert_eq!(seen(&queue), [1, 2, 4]);
    // Others pass by.
    post(&mut queue, 6);
    let passes = list(&mut queue, &[7, 8]);
    queue.progress();
    assert_eq!(seen(&queue), [1, 2, 4, 6, 7, 8]);
    queue.transport_mut().finish(1);
    queue.progress();
    assert_eq!(queue.slots().parts(ops[0]), Ok((1, 1)), "one part is still out");
    queue.transport_mut().finish(1);
    queue.progress();
    assert_eq!(seen(&queue).split_off(6), [5]);
    queue.transport_mut().finish_all();
    queue.progress();
    assert_eq!(seen(&queue).split_off(6), [5, 3]);
    queue.transport_mut().finish_all();
    queue.progress();
    assert!(!queue.has_waiting());
    for (op, bytes) in [(ops[0], 6), (ops[1], 9), (passes, 15)] {
        assert_eq!(queue.try_wait(op), Ok(Some(done(bytes))));
    }
    // Without anything before it there is nothing to wait for.
    let alone = notified(&mut queue, &[9]);
    assert_eq!(seen(&queue).last(), Some(&9));
    assert_eq!(queue.slots().parts(alone), Ok((0, 1)));
}

#[test]
fn a_tag_does_not_follow_bytes_that_failed() {
    let mut queue = queue(2, usize::MAX);
    let op = notified(&mut queue, &[1, 2, 3]);
    queue.transport_mut().fail(0, Failure::PeerDead);
    queue.transport_mut().finish(0);
    queue.progress();
    assert_eq!(seen(&queue), [1, 2]);
    let failed = Outcome { result: Err(Failure::PeerDead), fenced: true };
    assert_eq!(queue.try_wait(op), Ok(Some(failed)));
    assert!(!queue.has_waiting());
}
