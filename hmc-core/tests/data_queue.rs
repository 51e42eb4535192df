//! Scripts of operations on a work queue against a plain model: every operation ends once, every piece of
//! memory is freed once, nothing is told twice, no slot leaks.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    reason = "tests may panic"
)]

mod data_support;
#[path = "data_support/model.rs"]
mod model;

use data_support::{ScriptedTransport, transfer};
use hmc_core::limits::MAX_SLOTS;
use hmc_core::queue::{QueueError, WorkQueue};
use hmc_core::slots::{Outcome, Slot, SlotId};
use hmc_core::time::Instant;
use hmc_core::transport::PostErrorKind;
use hmc_core::work::{Completion, Opcode};
use model::{Action, run};
use proptest::prelude::*;

fn any_step() -> impl Strategy<Value = Action> {
    let pick = 0..64usize;
    prop_oneof![
        4 => (0..3u64, 1..50u64, 0..4usize)
            .prop_map(|(len, lasts, space)| Action::Post { len, lasts, space }),
        1 => prop_oneof![Just(PostErrorKind::Busy), Just(PostErrorKind::Disconnected)]
            .prop_map(Action::Refused),
        2 => (0..5u32, 1..50u64, 0..5usize, prop::bool::weighted(0.1))
            .prop_map(|(parts, lasts, space, refuse)| Action::List { parts, lasts, space, refuse }),
        4 => (pick.clone(), prop::bool::weighted(0.8))
            .prop_map(|(pick, ok)| Action::Finish { pick, ok }),
        1 => pick.clone().prop_map(|pick| Action::Ghost { pick }),
        6 => (0..5usize, prop::bool::weighted(0.1))
            .prop_map(|(space, refuse)| Action::Progress { space, refuse }),
        3 => pick.clone().prop_map(|pick| Action::Take { pick }),
        2 => (pick.clone(), any::<bool>())
            .prop_map(|(pick, withdraws)| Action::Cancel { pick, withdraws }),
        1 => pick.prop_map(|pick| Action::Abandon { pick }),
        2 => (0..20u64, any::<bool>())
            .prop_map(|(passes, withdraws)| Action::Expire { passes, withdraws }),
        1 => prop::bool::weighted(0.5).prop_map(|fenced| Action::PeerGone { fenced }),
        2 => Just(Action::Events),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]
    #[test]
    fn any_script_agrees_with_the_model(script in prop::collection::vec(any_step(), 0..60)) {
        run::<4>(&script);
    }
}

/// All scripts of up to five steps on one operation: nothing depends on the luck of a generator.
#[test]
fn every_short_script_on_one_slot_agrees_with_the_model() {
    let steps = [
        Action::Post { len: 1, lasts: 5, space: 1 },
        Action::Finish { pick: 0, ok: true },
        Action::Ghost { pick: 0 },
        Action::Progress { space: 1, refuse: false },
        Action::Take { pick: 0 },
        Action::Cancel { pick: 0, withdraws: true },
        Action::Cancel { pick: 0, withdraws: false },
        Action::Abandon { pick: 0 },
        Action::Expire { passes: 5, withdraws: false },
        Action::PeerGone { fenced: false },
        Action::PeerGone { fenced: true },
        Action::Events,
    ];
    let (lasts, refuse) = (5, false);
    for first in [
        Action::Post { len: 1, lasts, space: 1 },
        Action::Post { len: 1, lasts, space: 0 },
        Action::List { parts: 2, lasts, space: 1, refuse },
    ] {
        for number in 0..steps.len().pow(4) {
            let mut rest = number;
            let mut script = vec![first];
            for _ in 0..4 {
                script.push(steps[rest % steps.len()]);
                rest /= steps.len();
            }
            run::<1>(&script);
        }
    }
}

#[test]
fn unequal_lengths_are_refused_before_anything_happens() {
    let mut queue = WorkQueue::new(ScriptedTransport::new(), [Slot::FREE; 2]);
    let mut odd = transfer(Opcode::Put, 4);
    odd.local = data_support::local(9).slice(0, 5).unwrap();
    let refused = QueueError::Length { local: 5, remote: 4 };
    assert_eq!(queue.post(&odd, Instant::NEVER), Err(refused));
    assert_eq!(queue.slots().in_use(), 0);
}

#[test]
fn no_bytes_are_done_without_the_transport_but_a_tag_is_delivered() {
    let mut queue = WorkQueue::new(ScriptedTransport::new(), [Slot::FREE; 2]);
    let op = queue.post(&transfer(Opcode::Get, 0), Instant::NEVER).unwrap();
    assert_eq!(queue.try_wait(op), Ok(Some(Outcome { result: Ok(0), fenced: true })));
    assert!(queue.transport().seen.is_empty());
    let op = queue.post(&transfer(Opcode::PutNotify { tag: 9 }, 0), Instant::NEVER).unwrap();
    assert_eq!(queue.try_wait(op), Ok(None));
    assert_eq!(queue.transport().seen.len(), 1);
}

#[test]
fn progress_delivers_more_than_one_batch_of_completions() {
    let mut queue = WorkQueue::new(ScriptedTransport::new(), [Slot::FREE; 100]);
    let t = transfer(Opcode::Put, 1);
    let ops: Vec<_> = (0..100).map(|_| queue.post(&t, Instant::NEVER).unwrap()).collect();
    queue.transport_mut().finish_all();
    assert_eq!(queue.progress(), 100);
    assert!(ops.iter().all(|op| queue.test(*op) == Ok(true)));
}

#[test]
fn every_storage_serves() {
    let t = transfer(Opcode::Put, 1);
    let mut array = [Slot::FREE; 3];
    assert!(
        WorkQueue::new(ScriptedTransport::new(), &mut array[..]).post(&t, Instant::NEVER).is_ok()
    );
    let boxed: Box<[Slot]> = vec![Slot::FREE; 3].into();
    assert!(WorkQueue::new(ScriptedTransport::new(), boxed).post(&t, Instant::NEVER).is_ok());
    let none: [Slot; 0] = [];
    let refused = WorkQueue::new(ScriptedTransport::new(), none).post(&t, Instant::NEVER);
    assert_eq!(refused, Err(QueueError::Full { limit: 0 }));
}

#[test]
fn a_call_of_progress_ends_whatever_the_transport_does() {
    // Completions of no operation, more than a call may take.
    let late = Completion { op: SlotId { index: 0, generation: 7 }, result: Ok(1) };
    let mut transport = ScriptedTransport::new();
    transport.ready = std::iter::repeat_n(late, 3 * MAX_SLOTS).collect();
    let mut queue = WorkQueue::new(transport, [Slot::FREE; 2]);
    assert_eq!(queue.progress(), MAX_SLOTS);
    assert_eq!(queue.progress(), MAX_SLOTS);
    assert_eq!(queue.stale(), 2 * MAX_SLOTS as u64);
    // Nothing more is to be had where less came than there was space for.
    queue.transport_mut().ready.truncate(1);
    queue.transport_mut().polls = 0;
    assert_eq!((queue.progress(), queue.transport().polls), (1, 1));
    // Nor where more is said to have come.
    for claims in [17, usize::MAX] {
        queue.transport_mut().claims = Some(claims);
        queue.transport_mut().polls = 0;
        assert_eq!((queue.progress(), queue.transport().polls), (0, 1));
    }
}
