//! Pipelines over a work queue: the window is kept, every byte is posted once, a notify comes last, and a
//! failure is told with the truth about the memory.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    reason = "tests may panic"
)]

mod data_support;

use core::num::NonZeroU64;

use data_support::{ScriptedTransport, transfer};
use hmc_core::pipeline::{MAX_CHUNKS, Pipeline, PipelineStatus};
use hmc_core::queue::{Transfer, WorkQueue};
use hmc_core::slots::Slot;
use hmc_core::time::Instant;
use hmc_core::transport::PostErrorKind;
use hmc_core::work::{CompleteWhen, Failure, Opcode};
use proptest::prelude::*;

const NOW: Instant = Instant::ZERO;

type TestQueue = WorkQueue<ScriptedTransport, [Slot; 8]>;

fn queue() -> TestQueue {
    WorkQueue::new(ScriptedTransport::new(), [Slot::FREE; 8])
}

fn pipeline(t: &Transfer, chunk: u64, window: usize) -> Pipeline {
    Pipeline::new(t, NonZeroU64::new(chunk).unwrap(), window, Instant::from_nanos(100)).unwrap()
}

/// Every byte of the transfer was posted once, pairwise at the same place.
fn assert_covered(queue: &TestQueue, t: &Transfer) {
    let mut seen: Vec<_> = queue.transport().seen.iter().collect();
    seen.sort_by_key(|w| w.local.span.offset());
    let mut at = 0;
    for w in seen {
        assert_eq!(w.local.span.offset(), t.local.span.offset() + at);
        assert_eq!(w.remote.span.offset(), t.remote.span.offset() + at);
        assert_eq!(w.local.span.len(), w.remote.span.len());
        at += w.local.span.len();
    }
    assert_eq!(at, t.local.span.len());
}

proptest! {
    #[test]
    fn any_order_of_completions_moves_every_byte_once(
        len in 0..200u64,
        chunk in 1..40u64,
        window in 1..12usize,
        notify in any::<bool>(),
        order in prop::collection::vec((any::<prop::sample::Index>(), 0..4usize), 500),
    ) {
        let opcode = if notify { Opcode::PutNotify { tag: 7 } } else { Opcode::Get };
        let t = transfer(opcode, len);
        let mut queue = queue();
        let mut pipe = pipeline(&t, chunk, window);
        let mut step = pipe.advance(&mut queue, NOW);
        for (pick, space) in order {
            if step != PipelineStatus::Pending {
                break;
            }
            prop_assert!(pipe.in_flight() <= window.min(8));
            queue.transport_mut().space = space;
            let out = queue.transport().posted.len();
            if out != 0 {
                queue.transport_mut().finish(pick.index(out));
            }
            queue.progress();
            step = pipe.advance(&mut queue, NOW);
        }
        prop_assert_eq!(step, PipelineStatus::Done(len));
        prop_assert_eq!(pipe.advance(&mut queue, NOW), PipelineStatus::Done(len), "the answer stays");
        prop_assert_eq!(queue.slots().in_use(), 0);
        assert_covered(&queue, &t);
        let seen = &queue.transport().seen;
        prop_assert!(seen.iter().all(|w| w.local.span.len() <= chunk));
        let notifies = seen.iter().filter(|w| matches!(w.opcode, Opcode::PutNotify { tag: 7 }));
        prop_assert_eq!(notifies.count(), usize::from(notify));
    }
}

#[test]
fn the_window_is_filled_and_never_exceeded() {
    let mut queue = queue();
    let mut pipe = pipeline(&transfer(Opcode::Put, 100), 10, 3);
    assert_eq!(pipe.advance(&mut queue, NOW), PipelineStatus::Pending);
    assert_eq!(queue.transport().posted.len(), 3);
    queue.transport_mut().finish(1);
    queue.progress();
    pipe.advance(&mut queue, NOW);
    assert_eq!((queue.transport().posted.len(), queue.transport().seen.len()), (3, 4));
    assert_eq!((pipe.in_flight(), pipe.bytes()), (3, 10));
    let unbounded = pipeline(&transfer(Opcode::Put, 100), 1, usize::MAX);
    let mut wide = WorkQueue::new(ScriptedTransport::new(), [Slot::FREE; 100]);
    let mut unbounded = unbounded;
    unbounded.advance(&mut wide, NOW);
    assert_eq!(unbounded.in_flight(), MAX_CHUNKS);
}

#[test]
fn the_tag_follows_when_all_bytes_are_visible() {
    for len in [25u64, 20, 10, 3, 0] {
        let mut t = transfer(Opcode::PutNotify { tag: 7 }, len);
        t.when = CompleteWhen::Local;
        let mut queue = queue();
        let mut pipe = pipeline(&t, 10, 8);
        pipe.advance(&mut queue, NOW);
        let bulk = len.saturating_sub(1) / 10;
        if bulk != 0 {
            let seen = &queue.transport().seen;
            assert_eq!(seen.len() as u64, bulk, "the last piece waits");
            assert!(
                seen.iter().all(|w| (w.opcode, w.when) == (Opcode::Put, CompleteWhen::Visible))
            );
            while queue.transport().posted.len() > 1 {
                queue.transport_mut().finish(1);
                queue.progress();
                pipe.advance(&mut queue, NOW);
                assert_eq!(queue.transport().seen.len() as u64, bulk, "one piece is out");
            }
            queue.transport_mut().finish(0);
            queue.progress();
            pipe.advance(&mut queue, NOW);
        }
        let last = queue.transport().seen.last().copied().unwrap();
        assert_eq!((last.opcode, last.when), (t.opcode, CompleteWhen::Local));
        queue.transport_mut().finish_all();
        queue.progress();
        assert_eq!(pipe.advance(&mut queue, NOW), PipelineStatus::Done(len));
        // Nor can what is done.
        pipe.cancel();
        assert_eq!(pipe.advance(&mut queue, NOW), PipelineStatus::Done(len));
        assert_covered(&queue, &t);
    }
}

#[test]
fn a_failure_is_fenced_only_when_the_last_piece_came_back() {
    let mut queue = queue();
    let mut pipe = pipeline(&transfer(Opcode::Put, 100), 10, 4);
    pipe.advance(&mut queue, NOW);
    queue.transport_mut().fail(2, Failure::Unsupported);
    queue.progress();
    let failed = |fenced| PipelineStatus::Failed { failure: Failure::Unsupported, fenced };
    assert_eq!(pipe.advance(&mut queue, NOW), failed(false));
    // What failed has failed: it cannot be cancelled any more.
    pipe.cancel();
    assert_eq!(queue.transport().cancels, 3);
    while !queue.transport().posted.is_empty() {
        assert_eq!(pipe.advance(&mut queue, NOW), failed(false));
        queue.transport_mut().finish(0);
        queue.progress();
    }
    assert_eq!(pipe.advance(&mut queue, NOW), failed(true));
    assert_eq!(queue.transport().seen.len(), 4, "nothing is posted after a failure");
    assert_eq!((queue.transport().cancels, queue.slots().in_use()), (3, 0));
}

#[test]
fn a_transport_that_withdraws_fences_at_once() {
    let mut queue = queue();
    queue.transport_mut().withdraws = true;
    let mut pipe = pipeline(&transfer(Opcode::Get, 100), 10, 4);
    pipe.advance(&mut queue, NOW);
    pipe.cancel();
    let cancelled = PipelineStatus::Failed { failure: Failure::Cancelled, fenced: true };
    assert_eq!(pipe.advance(&mut queue, NOW), cancelled);
    assert!(queue.transport().posted.is_empty());
}

#[test]
fn the_deadline_holds_even_when_nothing_can_be_posted() {
    let mut queue = queue();
    queue.transport_mut().space = 0;
    let mut pipe = pipeline(&transfer(Opcode::Put, 100), 10, 4);
    assert_eq!(pipe.advance(&mut queue, Instant::from_nanos(99)), PipelineStatus::Pending);
    assert_eq!(
        pipe.advance(&mut queue, Instant::from_nanos(100)),
        PipelineStatus::Failed { failure: Failure::DeadlineExceeded, fenced: true }
    );
}

#[test]
fn a_refusal_fails_it_and_unequal_lengths_never_begin() {
    let mut queue = queue();
    queue.transport_mut().refuse = Some(PostErrorKind::Disconnected);
    let mut pipe = pipeline(&transfer(Opcode::Put, 100), 10, 4);
    let dead = PipelineStatus::Failed { failure: Failure::PeerDead, fenced: true };
    assert_eq!(pipe.advance(&mut queue, NOW), dead);
    let mut odd = transfer(Opcode::Put, 4);
    odd.local = data_support::local(9).slice(0, 5).unwrap();
    assert!(Pipeline::new(&odd, NonZeroU64::MIN, 1, NOW).is_err());
}

#[test]
fn pieces_given_up_are_reported_and_pieces_stolen_are_never_called_free() {
    let mut queue = queue();
    let mut pipe = pipeline(&transfer(Opcode::Put, 20), 10, 4);
    pipe.advance(&mut queue, NOW);
    pipe.abandon(&mut queue);
    queue.transport_mut().finish_all();
    queue.progress();
    let told: Vec<_> = core::iter::from_fn(|| queue.next_event()).collect();
    assert!(told.len() == 2 && told.iter().all(|e| e.fenced.is_some() && !e.done));
    assert_eq!(queue.slots().in_use(), 0);

    let mut pipe = pipeline(&transfer(Opcode::Put, 20), 10, 4);
    pipe.advance(&mut queue, NOW);
    let stolen = queue.transport().posted[0].op;
    queue.abandon(stolen).unwrap();
    queue.transport_mut().finish_all();
    queue.progress();
    let failed = PipelineStatus::Failed { failure: Failure::Cancelled, fenced: false };
    assert_eq!(pipe.advance(&mut queue, NOW), failed);
}
