//! The rendezvous state of a link by itself: what it matches, what it knows, what it holds.

use std::sync::Arc;

use hmc_core::limits::MAX_RNDV;
use hmc_core::range::{Extent, Side};
use hmc_core::region::{Epoch, WindowDesc, WindowId, WindowSlice};
use hmc_core::rndv::receiver::{CopyOut, Receiver};
use hmc_core::rndv::sender::{PutChunk, SenderPhase};
use hmc_core::rndv::{AbortReason, RndvError, RndvId, RndvMsg};
use hmc_core::time::Instant;
use hmc_core::work::Failure;

use super::{
    BounceBuffers, ChunkedPut, MessageBuffer, PostedRecv, RecvOp, RndvState, half_for, local,
    smallest,
};
use crate::base::error::ErrorKind;
use crate::link::ends::pair;
use crate::memory::{Region, RegionTable};
use hmc_core::types::ConnType;

fn region(len: u64) -> Region {
    Arc::new(RegionTable::default()).allocate(len).expect("memory")
}

fn remote(len: u64) -> WindowDesc {
    pair(ConnType::Tcp).0.expose(len).1
}

fn staging(len: u64) -> BounceBuffers {
    BounceBuffers { region: region(len), remote: remote(len) }
}

fn owned(len: u64) -> MessageBuffer {
    let region = region(len);
    let range = region.slice(0, len).expect("all of it").span;
    MessageBuffer::Registered { region, range, span: None }
}

fn want(space: u64) -> PostedRecv {
    PostedRecv::new(MessageBuffer::Borrowed(None), space, Ok(staging(8192)), Instant::NEVER)
}

fn inbound(id: u32, len: u64, want: Option<PostedRecv>) -> RecvOp {
    RecvOp {
        machine: Receiver::new(RndvId(id), len),
        want,
        has_ended: false,
        eager: Box::default(),
    }
}

#[test]
fn halves_are_as_long_as_the_message_within_limits() {
    let lens = [0, 1, 4096, 4097, 65_536, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, u64::MAX];
    let halves = [4096, 4096, 4096, 8192, 65_536, 1 << 20, 1 << 20, 1 << 20, 1 << 20];
    assert_eq!(lens.map(half_for), halves);
}

#[test]
fn the_shortest_buffer_that_is_long_enough_serves() {
    let lens = [1 << 20, 8192, 16_384];
    let best = |half| smallest(lens.into_iter(), half);
    assert_eq!([4096, 8192, 8193, 1 << 19].map(best), [Some(1), Some(2), Some(0), Some(0)]);
    assert_eq!(best((1 << 19) + 1), None);
}

#[test]
fn buffers_that_served_serve_again_once() {
    let mut state = RndvState::default();
    assert!(state.take_staging(1).is_none() && state.take_bounce(1).is_none());
    for len in [16_384, 8192] {
        state.spare.push(staging(len));
        state.bounces.push(region(len));
    }
    let staging = |state: &mut RndvState| state.take_staging(4096).map(|s| s.region.len());
    assert_eq!([(); 3].map(|()| staging(&mut state)), [Some(8192), Some(16_384), None]);
    let bounce = |state: &mut RndvState| state.take_bounce(4096).map(|r| r.len());
    assert_eq!([(); 3].map(|()| bounce(&mut state)), [Some(8192), Some(16_384), None]);
}

#[test]
fn no_more_messages_than_the_limit_are_under_way() {
    let mut state = RndvState::default();
    let handles: Vec<_> = (0..MAX_RNDV)
        .map(|_| {
            state
                .send(MessageBuffer::Borrowed(None), 7, Instant::NEVER)
                .map_err(|_| ())
                .expect("space")
        })
        .collect();
    let Err((e, bytes)) = state.send(owned(3), 3, Instant::NEVER) else { panic!("one too many") };
    assert_eq!(e.kind(), ErrorKind::Full);
    assert_eq!(e.limit().map(|l| (l.need, l.have)), Some((65, 64)), "{e}");
    assert!(matches!(bytes, MessageBuffer::Registered { .. }), "its bytes come back");
    // Each has a number of its own.
    let numbers: std::collections::BTreeSet<_> =
        state.outbound.iter().map(|m| m.machine.id().0).collect();
    assert_eq!(numbers.len(), handles.len());
}

#[test]
fn a_message_goes_to_the_oldest_receive_and_is_refused_if_it_does_not_fit() {
    // Bytes, space, whether just those are wanted; whether it is taken.
    for (len, space, exact, fits) in [
        (8, 8, false, true),
        (7, 8, false, true),
        (9, 8, false, false),
        (8, 8, true, true),
        (7, 8, true, false),
        (9, 8, true, false),
    ] {
        let mut state = RndvState::default();
        state.inbound.push(inbound(0, len, None));
        state.inbound.push(inbound(1, len, None));
        let first = if exact { want(space).exactly() } else { want(space) };
        let handle = state.receive(first);
        state.match_recvs();
        let [m, other] = state.inbound.as_slice() else { panic!("two messages") };
        let taken = m.want.as_ref().expect("it is matched");
        assert!(Arc::ptr_eq(&taken.handle, &handle) && other.want.is_none());
        // A place that no message named to the peer serves again.
        assert_eq!((taken.staging.is_some(), state.spare.len()), (fits, usize::from(!fits)));
        assert!(!taken.untold);
        assert!(state.posted_recvs.is_empty());
        let (refused, open) = (m.machine.is_failed(), other.machine.is_open());
        assert_eq!((refused, open), (!fits, true), "{len} into {space}, exact {exact}");
    }
    // Straight into a window.
    for (len, fits) in [(8, true), (9, false)] {
        let mut state = RndvState::default();
        state.inbound.push(inbound(0, len, None));
        state.receive(PostedRecv::new(owned(8), 8, Err(remote(8)), Instant::NEVER));
        state.match_recvs();
        let want = state.inbound.first().and_then(|m| m.want.as_ref()).expect("it is matched");
        assert_eq!((want.untold, state.spare.len()), (!fits, 0));
    }
}

#[test]
fn even_pieces_lie_in_the_first_half_and_odd_ones_in_the_second() {
    let want = want(20_000);
    let piece = Extent::new(20_000).span(Side::Local, 0, 100).expect("a piece");
    for (seq, at) in [(0, 0), (1, 4096), (2, 0), (3, 4096), (7, 4096)] {
        let (_, range) = want.half(&CopyOut { seq, to: piece }).expect("a half");
        assert_eq!((range.offset(), range.len()), (at, 100), "piece {seq}");
    }
}

#[test]
fn a_put_is_cut_from_its_front() {
    let source = Extent::new(10).span(Side::Local, 2, 8).expect("in it");
    let span = Extent::new(100).span(Side::Remote, 50, 8).expect("in it");
    let target = WindowSlice { window: WindowId(1), epoch: Epoch(2), span, expected: None };
    let mut run = ChunkedPut::new(&PutChunk { seq: 3, source, target });
    assert!(run.has_more() && run.seq == 3);
    for (at_most, at, len, more) in [(3, 0, 3, true), (4, 3, 4, true), (9, 7, 1, false)] {
        let (from, to) = run.cut(at_most);
        assert_eq!((from.offset(), from.len()), (2 + at, len));
        assert_eq!((to.span.offset(), to.span.len()), (50 + at, len));
        assert_eq!((to.window, to.epoch), (target.window, target.epoch));
        assert_eq!(run.has_more(), more);
    }
    let mut run = ChunkedPut::new(&PutChunk { seq: 0, source, target });
    run.failed = Some(Failure::Cancelled);
    assert!(!run.has_more(), "nothing follows a failure");
}

#[test]
fn a_handle_finds_its_message() {
    let mut state = RndvState::default();
    let other = Arc::default();
    let sent = state.send(owned(8), 8, Instant::NEVER).map_err(|_| ()).expect("space");
    let received = state.receive(want(8));
    for handle in [&sent, &received] {
        assert!(state.is_unmatched(handle) && state.knows(handle));
    }
    assert!(!state.is_unmatched(&other) && !state.knows(&other));
    state.inbound.push(inbound(0, 8, None));
    state.match_recvs();
    assert!(!state.is_unmatched(&received) && state.knows(&received), "its message came");
    // Nothing but these.
    state.outbound.clear();
    assert!(!state.knows(&sent) && !state.is_unmatched(&sent) && state.knows(&received));
    state.inbound.clear();
    assert!(!state.knows(&received));
}

#[test]
fn a_receive_that_is_cancelled_ends_at_its_next_look() {
    let mut state = RndvState::default();
    let handles = [(); 2].map(|()| state.receive(want(8)));
    state.end(&handles[0], RndvError::Here(AbortReason::DeadlineExceeded));
    let seen = |state: &RndvState| {
        let of = |w: &PostedRecv| (w.deadline, w.early.as_ref().map(|e| e.kind()));
        state.posted_recvs.iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(seen(&state), [(Instant::ZERO, None), (Instant::NEVER, None)]);
    state.end(&handles[1], RndvError::Here(AbortReason::Cancelled));
    let cancelled = (Instant::ZERO, Some(ErrorKind::Cancelled));
    assert_eq!(seen(&state), [(Instant::ZERO, None), cancelled]);
    state.leave();
    assert_eq!(seen(&state), [(Instant::ZERO, Some(ErrorKind::Closed)), cancelled], "first why");
}

#[test]
fn the_end_of_one_message_is_not_that_of_another() {
    let mut state = RndvState::default();
    let sent =
        [(); 2].map(|()| state.send(owned(8), 8, Instant::NEVER).map_err(|_| ()).expect("space"));
    state.end(&sent[1], RndvError::Here(AbortReason::Cancelled));
    let phases: Vec<_> = state.outbound.iter().map(|m| m.machine.phase()).collect();
    assert_eq!(phases.first(), Some(&SenderPhase::Offered));
    assert_ne!(phases.last(), Some(&SenderPhase::Offered));
    let got = [(); 2].map(|()| state.receive(want(8)));
    state.inbound.extend([inbound(0, 8, None), inbound(1, 8, None), inbound(2, 8, None)]);
    state.match_recvs();
    state.end(&got[0], RndvError::Here(AbortReason::Cancelled));
    let failed =
        |state: &RndvState| state.inbound.iter().map(|m| m.machine.is_failed()).collect::<Vec<_>>();
    assert_eq!(failed(&state), [true, false, false]);
    // Who leaves ends what was not matched.
    state.leave();
    assert_eq!(failed(&state), [true, false, true]);
    assert!(state.outbound.iter().all(|m| m.machine.phase() != SenderPhase::Offered));
}

#[test]
fn a_lender_is_wanted_for_bytes_of_its_own_alone() {
    let source = Extent::new(8).span(Side::Local, 0, 8).expect("in it");
    let span = Extent::new(8).span(Side::Remote, 0, 8).expect("in it");
    let target = WindowSlice { window: WindowId(1), epoch: Epoch(2), span, expected: None };
    for (bytes, borrowed) in [(MessageBuffer::Borrowed(None), true), (owned(8), false)] {
        assert_eq!(bytes.is_borrowed(), borrowed);
        let mut state = RndvState::default();
        let _ = state.send(bytes, 8, Instant::NEVER).map_err(|_| ()).expect("space");
        assert!(!state.needs_borrowed_copy(), "nothing can be sent yet");
        let run = ChunkedPut::new(&PutChunk { seq: 0, source, target });
        state
            .outbound
            .iter_mut()
            .for_each(|m| m.runs.push(ChunkedPut::new(&PutChunk { seq: 0, source, target })));
        assert_eq!(state.needs_borrowed_copy(), borrowed);
        assert!(run.has_more());
    }
    let mut state = RndvState::default();
    let mut came = want(8);
    state.inbound.push(inbound(0, 8, None));
    assert!(!state.needs_borrowed_copy());
    came.copy = Some(CopyOut { seq: 0, to: source });
    state.inbound.push(inbound(1, 8, Some(came)));
    assert!(state.needs_borrowed_copy());
}

#[test]
fn what_is_under_way_and_what_is_held_is_counted_by_all_its_places() {
    type Fill = fn(&mut RndvState);
    // What there is; whether nothing is under way, nothing at all is there, memory waits for a fence, and how much.
    let cases: [(Fill, bool, bool, bool, u64); 8] = [
        (|_| (), true, true, false, 0),
        (|d| _ = d.send(owned(10), 10, Instant::NEVER), false, false, true, 10),
        (
            |d| _ = d.send(MessageBuffer::Borrowed(Some(region(20))), 10, Instant::NEVER),
            false,
            false,
            true,
            20,
        ),
        (|d| d.inbound.push(inbound(0, 8, None)), false, false, true, 0),
        (
            |d| d.inbound.push(inbound(0, 8, Some(PostedRecv { bytes: owned(10), ..want(8) }))),
            false,
            false,
            true,
            8202,
        ),
        (
            |d| d.outgoing.push_back(RndvMsg::Credit { id: RndvId(0), seq: 0 }.into()),
            false,
            false,
            false,
            0,
        ),
        (|d| d.fencing_recvs.push(want(8)), true, false, true, 8192),
        (|d| d.fencing_buffers.push((staging(4096), None)), true, false, true, 4096),
    ];
    for (at, (fill, quiet, empty, holds, bytes)) in cases.into_iter().enumerate() {
        let mut state = RndvState::default();
        fill(&mut state);
        assert_eq!((state.is_idle(), state.is_empty()), (quiet, empty), "case {at}");
        assert_eq!((state.holds(), state.held_bytes()), (holds, bytes), "case {at}");
    }
    let mut state = RndvState::default();
    state.receive(want(8));
    assert_eq!((state.is_idle(), state.is_empty(), state.holds()), (true, false, false));
}

#[test]
fn a_part_of_a_message_lies_in_its_range() {
    let region = region(100);
    let range = region.slice(10, 50).expect("in it").span;
    let part = Extent::new(50).span(Side::Local, 5, 20).expect("in it");
    let slice = local(&region, range, part).expect("in it");
    assert_eq!((slice.key, slice.span.offset(), slice.span.len()), (region.key(), 15, 20));
    let beyond = Extent::new(100).span(Side::Local, 40, 20).expect("a span");
    assert!(local(&region, range, beyond).is_none());
}
