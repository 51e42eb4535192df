//! The slot table by itself: its states as a stored text, names that are stale, deadlines, orders.
//! Scripts against a model are in `data_queue.rs`.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "tests may panic"
)]

use std::fmt::Write as _;

use hmc_core::limits::MAX_SLOTS;
use hmc_core::slots::state::{SlotState, SlotTransition};
use hmc_core::slots::{CompletionEffect, Full, Outcome, Slot, SlotEvent, SlotId, Slots, Stale};
use hmc_core::time::Instant;
use hmc_core::work::Failure;

const STATES: [SlotState; 7] = [
    SlotState::Free,
    SlotState::Pending,
    SlotState::Draining,
    SlotState::Done,
    SlotState::Reported,
    SlotState::Abandoned,
    SlotState::AbandonedDone,
];
const TRANSITIONS: [SlotTransition; 8] = [
    SlotTransition::Begin,
    SlotTransition::Reject,
    SlotTransition::Partial,
    SlotTransition::Fail,
    SlotTransition::Fence,
    SlotTransition::Report,
    SlotTransition::Take,
    SlotTransition::Abandon,
];

#[test]
fn the_whole_life_is_the_stored_table() {
    let mut text = String::new();
    for state in STATES {
        for transition in TRANSITIONS {
            match state.next(transition) {
                Ok(next) => writeln!(text, "{state:?} {transition:?} {next:?}").unwrap(),
                Err(bad) => {
                    assert_eq!((bad.state, bad.transition), (state, transition));
                    writeln!(text, "{state:?} {transition:?} -").unwrap();
                }
            }
        }
    }
    assert_eq!(text, include_str!("slot_table.txt"));
}

#[test]
fn memory_that_is_not_fenced_never_becomes_a_free_slot() {
    for from in [SlotState::Draining, SlotState::Abandoned] {
        for transition in TRANSITIONS {
            let unfenced = |state| matches!(state, SlotState::Draining | SlotState::Abandoned);
            let next = from.next(transition).unwrap_or(from);
            assert!(
                unfenced(next) || transition == SlotTransition::Fence,
                "{from:?} {transition:?} {next:?}"
            );
        }
    }
}

fn at(ns: u64) -> Instant {
    Instant::from_nanos(ns)
}

#[test]
fn a_name_is_stale_after_its_slot_was_given_out_again() {
    let mut slots = Slots::new([Slot::FREE; 1]);
    let old = slots.acquire(at(9), 1).unwrap();
    assert_eq!(slots.acquire(at(9), 1), Err(Full { limit: 1 }));
    slots.complete(old, Ok(5)).unwrap();
    assert_eq!(slots.complete(old, Ok(5)), Err(Stale { op: old }), "a second completion");
    slots.take(old).unwrap().unwrap();
    let new = slots.acquire(at(9), 1).unwrap();
    assert_eq!((new.index, new.generation), (old.index, old.generation + 1));
    let stale = Stale { op: old };
    assert_eq!(slots.complete(old, Ok(5)), Err(stale));
    assert_eq!(slots.take(old), Err(stale));
    assert_eq!(slots.outcome(old), Err(stale));
    assert_eq!(slots.fail(old, Failure::Cancelled), Err(stale));
    assert_eq!(slots.fence(old, Failure::Cancelled), Err(stale));
    assert_eq!(slots.abandon(old), Err(stale));
    assert_eq!(slots.unpost(old), Err(stale));
    assert_eq!(slots.reduce(old, 1, None), Err(stale));
    assert_eq!(slots.mark_posted(old, 1), Err(stale));
    assert_eq!(slots.parts(old), Err(stale));
    assert_eq!(slots.outcome(new), Ok(None), "the new operation did not notice");
    for op in [SlotId { index: 0, generation: 0 }, SlotId { index: 1, generation: 1 }] {
        assert_eq!(slots.take(op), Err(Stale { op }), "never given out");
    }
}

#[test]
fn the_parts_of_an_operation_are_summed_and_the_first_failure_stays() {
    let mut slots = Slots::new([Slot::FREE; 2]);
    let op = slots.acquire(at(9), 3).unwrap();
    assert_eq!(slots.complete(op, Ok(5)), Ok(CompletionEffect::Waiting));
    assert_eq!(
        slots.complete(op, Ok(u64::MAX)),
        Ok(CompletionEffect::Waiting),
        "the sum saturates"
    );
    assert_eq!(slots.complete(op, Ok(7)), Ok(CompletionEffect::Fenced));
    let all = Outcome { result: Ok(u64::MAX), fenced: true };
    assert_eq!(slots.take(op), Ok(Some(all)));

    let op = slots.acquire(at(9), 3).unwrap();
    slots.complete(op, Ok(5)).unwrap();
    slots.complete(op, Err(Failure::Unsupported)).unwrap();
    assert_eq!(slots.outcome(op), Ok(None));
    slots.complete(op, Err(Failure::PeerDead)).unwrap();
    let failed = Outcome { result: Err(Failure::Unsupported), fenced: true };
    assert_eq!(slots.take(op), Ok(Some(failed)));
}

/// What has no parts is over from its first moment: named once, reported once, taken once.
#[test]
fn an_operation_without_parts_is_over_at_once() {
    let mut slots = Slots::new([Slot::FREE; 2]);
    let first = slots.acquire(at(9), 0).unwrap();
    let second = slots.acquire_unposted(at(9), 0).unwrap();
    assert_eq!(slots.acquire(at(9), 0), Err(Full { limit: 2 }));
    assert_eq!((slots.in_use(), slots.in_flight()), (2, 0));
    let outcome = |bytes| Some(Outcome { result: Ok(bytes), fenced: true });
    assert_eq!(slots.outcome(first), Ok(outcome(0)));
    // Nothing can come for it.
    assert_eq!(slots.complete(first, Ok(1)), Err(Stale { op: first }));
    assert_eq!(slots.outcome(first), Ok(outcome(0)));
    // The one that is later in the list of events is taken before its event was reported.
    assert_eq!(slots.take(second), Ok(outcome(0)));
    assert_eq!(slots.take(second), Err(Stale { op: second }));
    let third = slots.acquire(at(9), 0).unwrap();
    assert_eq!(third.index, second.index);
    assert_eq!(slots.next_event(), Some(SlotEvent { op: first, done: true, fenced: Some(()) }));
    assert_eq!(slots.next_event(), Some(SlotEvent { op: third, done: true, fenced: Some(()) }));
    assert_eq!(slots.next_event(), None);
    assert_eq!(slots.take(first), Ok(outcome(0)));
    slots.abandon(third).unwrap();
    assert_eq!(slots.next_event(), None);
    assert_eq!((slots.in_use(), slots.in_flight()), (0, 0));
}

#[test]
fn parts_can_be_struck_but_not_more_than_there_are() {
    let mut slots = Slots::new([Slot::FREE; 1]);
    let op = slots.acquire_unposted(at(9), 4).unwrap();
    slots.mark_posted(op, 2).unwrap();
    assert_eq!(slots.mark_posted(op, 3), Err(Stale { op }));
    assert_eq!(slots.parts(op), Ok((2, 2)));
    assert_eq!(slots.reduce(op, 5, None), Err(Stale { op }));
    assert_eq!(slots.reduce(op, 3, None), Ok(CompletionEffect::Waiting));
    assert_eq!(slots.parts(op), Ok((0, 1)), "unposted parts are struck first");
    assert_eq!(slots.reduce(op, 1, Some(Failure::Cancelled)), Ok(CompletionEffect::Fenced));
    let failed = Outcome { result: Err(Failure::Cancelled), fenced: true };
    assert_eq!(slots.take(op), Ok(Some(failed)));
}

#[test]
fn a_failure_is_known_at_once_and_the_memory_is_free_later() {
    let mut slots = Slots::new([Slot::FREE; 1]);
    let op = slots.acquire(at(9), 1).unwrap();
    assert_eq!(slots.fail(op, Failure::DeadlineExceeded), Ok(CompletionEffect::Waiting));
    assert_eq!(slots.next_event(), Some(SlotEvent { op, done: true, fenced: None }));
    let failed = Outcome { result: Err(Failure::DeadlineExceeded), fenced: false };
    assert_eq!(slots.take(op), Ok(Some(failed)));
    assert_eq!((slots.in_use(), slots.in_flight()), (1, 1), "the memory is still held");
    assert_eq!(slots.acquire(at(9), 1), Err(Full { limit: 1 }));
    assert_eq!(slots.take(op), Err(Stale { op }));
    assert_eq!(slots.complete(op, Ok(5)), Ok(CompletionEffect::Fenced));
    assert_eq!((slots.in_use(), slots.in_flight()), (1, 0), "until somebody was told");
    assert_eq!(slots.next_event(), Some(SlotEvent { op, done: false, fenced: Some(()) }));
    assert_eq!(slots.next_event(), None);
    assert_eq!(slots.in_use(), 0);
}

#[test]
fn events_come_in_the_order_in_which_they_happened() {
    let mut slots = Slots::new([Slot::FREE; 4]);
    let ops: Vec<_> = (0..4).map(|_| slots.acquire(at(9), 1).unwrap()).collect();
    for i in [2, 0, 3, 1] {
        slots.complete(ops[i], Ok(1)).unwrap();
    }
    slots.take(ops[0]).unwrap();
    let told: Vec<_> = core::iter::from_fn(|| slots.next_event()).collect();
    let expected = [2, 3, 1].map(|i| SlotEvent { op: ops[i], done: true, fenced: Some(()) });
    assert_eq!(told, expected, "the one that was taken is not told");
}

#[test]
fn deadlines_are_found_once_they_passed_and_not_before() {
    let mut slots = Slots::new([Slot::FREE; 8]);
    assert_eq!(slots.next_deadline(), Instant::NEVER);
    let ops: Vec<_> =
        [50, 20, 40, 20].map(|ns| slots.acquire(at(ns), 1).unwrap()).into_iter().collect();
    let endless = slots.acquire(Instant::NEVER, 1).unwrap();
    assert_eq!(slots.next_deadline(), at(20));
    assert_eq!(slots.next_expired(at(19), 0), None);
    assert_eq!(slots.next_expired(at(20), 0), Some(ops[1]));
    assert_eq!(slots.next_expired(at(20), ops[1].index + 1), Some(ops[3]));
    assert_eq!(slots.next_expired(at(20), ops[3].index + 1), None);
    assert_eq!(slots.next_deadline(), at(20), "they were not failed yet");
    slots.fail(ops[1], Failure::DeadlineExceeded).unwrap();
    slots.complete(ops[3], Ok(1)).unwrap();
    assert_eq!(slots.next_expired(at(20), 0), None);
    assert_eq!(slots.next_deadline(), at(40));
    slots.fail_all(Failure::PeerDead, true);
    assert_eq!(slots.next_deadline(), Instant::NEVER, "idle");
    let again = slots.acquire(Instant::NEVER, 1).unwrap();
    assert_eq!(slots.next_expired(Instant::NEVER, 0), None, "never is never reached");
    assert!(slots.outcome(endless).unwrap().is_some() && slots.outcome(again).unwrap().is_none());
}

#[test]
fn no_more_slots_are_used_than_the_limit() {
    let mut slots = Slots::new(vec![Slot::FREE; MAX_SLOTS + 5]);
    assert_eq!(slots.capacity(), MAX_SLOTS);
    for _ in 0..MAX_SLOTS {
        slots.acquire(at(9), 1).unwrap();
    }
    assert_eq!(slots.acquire(at(9), 1), Err(Full { limit: MAX_SLOTS }));
    slots.fail_all(Failure::PeerDead, true);
    assert_eq!(core::iter::from_fn(|| slots.next_event()).count(), MAX_SLOTS);
}

/// Operations and events stay, the new slots are used once the old ones are, and no more than the limit.
#[test]
fn a_table_that_grows_keeps_its_operations() {
    let mut slots = Slots::new(vec![Slot::FREE; 2]);
    let first = [1, 2].map(|t| slots.acquire(at(t), 1).unwrap());
    assert_eq!(slots.acquire(at(9), 1), Err(Full { limit: 2 }));
    slots.complete(first[1], Ok(7)).unwrap();
    slots.grow(|entries| entries.extend([Slot::FREE; 3]));
    assert_eq!((slots.capacity(), slots.in_use(), slots.in_flight()), (5, 2, 1));
    let more: Vec<_> = (0..3).map(|_| slots.acquire(at(9), 1).unwrap().index).collect();
    assert_eq!(more, [2, 3, 4]);
    assert_eq!(slots.acquire(at(9), 1), Err(Full { limit: 5 }));
    assert_eq!(slots.next_expired(at(1), 0), Some(first[0]));
    assert_eq!(slots.next_event().unwrap().op, first[1]);
    assert_eq!(slots.outcome(first[1]).unwrap().unwrap().result, Ok(7));
    slots.grow(|entries| entries.resize(MAX_SLOTS + 1, Slot::FREE));
    assert_eq!(slots.capacity(), MAX_SLOTS);
    let left = core::iter::from_fn(|| slots.acquire(at(9), 1).ok()).count();
    assert_eq!(left, MAX_SLOTS - 5, "a slot whose outcome nobody took is in use");
}

/// Only what is pending can be given back as never posted; then its name is over.
#[test]
fn an_operation_that_ended_cannot_be_given_back() {
    let mut slots = Slots::new([Slot::FREE; 2]);
    let op = slots.acquire(Instant::NEVER, 1).unwrap();
    slots.fail(op, Failure::Cancelled).unwrap();
    assert_eq!(slots.unpost(op), Err(Stale { op }));
    let op = slots.acquire(Instant::NEVER, 1).unwrap();
    assert_eq!(slots.unpost(op), Ok(()));
    assert_eq!(slots.unpost(op), Err(Stale { op }));
}

/// What an operation holds comes out of its record once, at the fence: with the event, or with the outcome if that is
/// taken first.
#[test]
fn what_an_operation_holds_comes_out_at_its_fence() {
    let mut slots = Slots::<_, Option<&str>>::new([Slot::free(None); 2]);
    let holding = |slots: &mut Slots<[Slot<Option<&'static str>>; 2], _>, what| {
        let op = slots.acquire(at(9), 1).unwrap();
        *slots.hold_mut(op).unwrap() = Some(what);
        op
    };
    let outcome = |result, fenced| Outcome { result, fenced };

    // The event comes first; what is put back goes with the outcome.
    let op = holding(&mut slots, "first");
    slots.complete(op, Ok(5)).unwrap();
    let event = SlotEvent { op, done: true, fenced: Some(Some("first")) };
    assert_eq!(slots.next_event(), Some(event));
    assert_eq!(slots.hold(op), Ok(&None));
    *slots.hold_mut(op).unwrap() = Some("put back");
    assert_eq!(slots.take_held(op), Ok(Some((outcome(Ok(5), true), Some("put back")))));
    assert_eq!(slots.hold(op), Err(Stale { op }));
    assert_eq!(slots.hold_mut(op), Err(Stale { op }));

    // The outcome is taken before the event.
    let op = holding(&mut slots, "second");
    assert_eq!(slots.take_held(op), Ok(None));
    slots.complete(op, Ok(5)).unwrap();
    assert_eq!(slots.take_held(op), Ok(Some((outcome(Ok(5), true), Some("second")))));
    assert_eq!(slots.next_event(), None);

    // Failed and taken, but not fenced: the record holds on.
    let op = holding(&mut slots, "third");
    slots.fail(op, Failure::Cancelled).unwrap();
    assert_eq!(slots.next_event(), Some(SlotEvent { op, done: true, fenced: None }));
    let taken = (outcome(Err(Failure::Cancelled), false), None);
    assert_eq!(slots.take_held(op), Ok(Some(taken)));
    assert_eq!(slots.unfenced().flatten().collect::<Vec<_>>(), [&"third"]);
    slots.complete(op, Ok(5)).unwrap();
    let event = SlotEvent { op, done: false, fenced: Some(Some("third")) };
    assert_eq!(slots.next_event(), Some(event));

    // Abandoned: while it runs, when it is done, and after its event.
    let op = holding(&mut slots, "fourth");
    assert_eq!(slots.abandon(op), Ok(None));
    slots.complete(op, Ok(5)).unwrap();
    let event = |op, held| SlotEvent { op, done: false, fenced: Some(Some(held)) };
    assert_eq!(slots.next_event(), Some(event(op, "fourth")));
    let op = holding(&mut slots, "fifth");
    slots.complete(op, Ok(5)).unwrap();
    assert_eq!(slots.abandon(op), Ok(None));
    assert_eq!(slots.next_event(), Some(event(op, "fifth")));
    let op = holding(&mut slots, "sixth");
    slots.complete(op, Ok(5)).unwrap();
    assert!(slots.next_event().is_some());
    *slots.hold_mut(op).unwrap() = Some("put back");
    assert_eq!(slots.abandon(op), Ok(Some(Some("put back"))));

    // Refused by the transport.
    let op = holding(&mut slots, "seventh");
    assert_eq!(slots.unpost(op), Ok(Some("seventh")));
    assert_eq!((slots.unfenced().flatten().count(), slots.in_use()), (0, 0));
}
