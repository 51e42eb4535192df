//! Transfers over shared memory that end in the middle, by a cancellation or a deadline: from when their memory is free not a
//! byte of them is copied any more, and each request of a cancelled operation completes or was withdrawn.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may panic"
)]

use hmc_testkit::buffers::{BufferTransfers as _, Copy, Direction, wait};
use std::time::{Duration, Instant};

use hmc_core::region::{LocalRegion, WindowDesc};
use hmc_core::slots;
use hmc_core::transport::{CancelOutcome, Transport as _};
use hmc_core::types::Access;
use hmc_core::work::{CompleteWhen, Completion, Failure, Opcode, WorkRequest};
use hmc_std::config::Progress;
use hmc_std::{ConnType, ErrorKind, Op, Peer, Session, want::Wanted};
use hmc_testkit::ends::{self, End};
use hmc_testkit::wire::Wire;
use hmc_tests::env::{TempDir, until};

const LONG: Duration = Duration::from_secs(20);
const MIB: u64 = 1 << 20;
/// A call copies four pieces of 1 MiB, so that most of it is queued when the call returns.
const LEN: u64 = 12 * MIB;
const OURS: u8 = 7;
const REUSED: u8 = 9;

/// An initiator that copies in calls of the test only, and a target.
struct Ends {
    source: Session,
    target: Session,
    peer: Peer,
    _dir: TempDir,
}

impl Ends {
    fn new() -> Self {
        Self::driven_by(Progress::Manual)
    }

    fn driven_by(progress: Progress) -> Self {
        let dir = TempDir::new();
        let target = Session::builder(1).uds(dir.path()).buffer(2 * LEN).start().unwrap();
        let source = Session::builder(0).buffer(2 * LEN).progress(progress);
        let source = source.start().unwrap();
        let peer =
            source.connect(&dir.address()).rank(1).over(ConnType::Shm).within(LONG).wait().unwrap();
        source.buffer().fill(0, LEN, OURS).unwrap();
        Self { source, target, peer, _dir: dir }
    }

    /// Nothing of the ended transfer is copied after its memory is used again, although all that was queued after it is.
    fn assert_still(&self, what: &str, session: &Session) {
        let before = bytes_of(session);
        let ends = (before[0] != 0, before[before.len() - 1] != 0);
        assert_eq!(ends, (true, false), "{what}: it did not end in the middle");
        self.assert_unchanged(what, session, &before);
    }

    /// As [`Self::assert_still`], from a moment at which the bytes were those.
    fn assert_unchanged(&self, what: &str, session: &Session, before: &[u8]) {
        let other = if std::ptr::eq(session, &self.target) { &self.source } else { &self.target };
        other.buffer().fill(0, LEN, REUSED).unwrap();
        // Queued transfers are copied in their order.
        self.peer.put_at(LEN, LEN, LEN).unwrap();
        self.peer.get_at(LEN, LEN, LEN).unwrap();
        let after = bytes_of(session);
        let late = || before.iter().zip(&after).position(|(b, a)| b != a);
        assert!(before == after.as_slice(), "{what}: byte {:?} was copied after the end", late());
        self.target.buffer().fill(0, LEN, 0).unwrap();
        self.source.buffer().fill(0, LEN, OURS).unwrap();
    }
}

/// Cancels an operation. How it ended.
fn cancel(op: Op) -> ErrorKind {
    op.cancel();
    wait(op).unwrap_err().kind()
}

fn bytes_of(session: &Session) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(LEN).unwrap()];
    session.buffer().read_at(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_cancelled_put_copies_nothing_more() {
    let e = Ends::new();
    let op = e.peer.start_put_at(0, 0, LEN).unwrap();
    assert_eq!(cancel(op), ErrorKind::Cancelled);
    e.assert_still("put", &e.target);
    let copies: Vec<Copy> = (0..4)
        .map(|i| Copy { local_offset: i * 3 * MIB, remote_offset: i * 3 * MIB, len: 3 * MIB })
        .collect();
    let op = e.peer.prepare_at(Direction::Put, &copies).unwrap().start().unwrap();
    assert_eq!(cancel(op), ErrorKind::Cancelled);
    e.assert_still("list", &e.target);
    assert_eq!(e.source.stats().peers[0].in_flight, 0);
}

#[test]
fn a_cancelled_put_with_a_tag_delivers_none() {
    let e = Ends::new();
    let op = e.peer.start_put_notify_at(0, 0, LEN, 1).unwrap();
    assert_eq!(cancel(op), ErrorKind::Cancelled);
    e.assert_still("put with a tag", &e.target);
    e.peer.put_notify_at(0, LEN, 8, 2).unwrap();
    let first = e.target.peer(0).unwrap().recv(Wanted::Notify).within(LONG).wait().unwrap();
    assert_eq!(first, hmc_std::Message::Notify(2));
}

#[test]
fn a_put_whose_deadline_has_passed_copies_nothing_more() {
    let e = Ends::new();
    let copy = Copy { local_offset: 0, remote_offset: 0, len: LEN };
    let op = e.peer.start_within(Direction::Put, copy, Duration::from_nanos(1)).unwrap();
    let error = wait(op).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeadlineExceeded, "{error}");
    e.assert_still("put with a time of its own", &e.target);
}

#[test]
fn a_cancelled_put_gives_its_span_back_and_reads_it_no_more() {
    let e = Ends::new();
    let window = e.peer.buffer().unwrap();
    let region = e.source.memory().allocate(LEN).unwrap();
    let mut span = region.take_all().unwrap();
    span.fill(OURS);
    let op = window.put(0, span).start().unwrap();
    op.cancel();
    let failed = op.wait().expect_err("it was cancelled");
    assert_eq!(failed.kind(), ErrorKind::Cancelled, "{failed}");
    // The span is back: its owner writes other bytes there.
    let back = failed.reclaim().within(Duration::ZERO).wait();
    back.expect("nothing was under way").fill(REUSED);
    e.assert_still("put of a span", &e.target);
    drop(region.take_all().expect("nobody holds the range"));
}

#[test]
fn a_cancelled_get_writes_nothing_more() {
    let e = Ends::new();
    e.source.buffer().fill(0, LEN, 0).unwrap();
    e.target.buffer().fill(0, LEN, OURS).unwrap();
    let op = e.peer.start_get_at(0, 0, LEN).unwrap();
    assert_eq!(cancel(op), ErrorKind::Cancelled);
    e.assert_still("get", &e.source);
}

/// The session's own thread copies while another one cancels: who waits learns the end when no piece is under way.
#[test]
fn a_put_that_another_thread_copies_is_cancelled_after_its_piece() {
    let e = Ends::driven_by(Progress::Thread);
    let mut cancelled = 0;
    for round in 0..60 {
        let op = e.peer.start_put_at(0, 0, LEN).unwrap();
        // The call has copied four pieces; the thread copies the others from some time on, for about a millisecond.
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_micros(round * 15) {
            std::hint::spin_loop();
        }
        op.cancel();
        match wait(op) {
            Ok(len) => assert_eq!(len, LEN),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
                assert_eq!(e.source.stats().peers[0].in_flight, 0, "its memory is in use");
                cancelled += 1;
            }
        }
        e.assert_unchanged("put", &e.target, &bytes_of(&e.target));
    }
    assert!(cancelled > 0, "each was over before it was cancelled");
    assert_eq!(e.source.stats().peers[0].in_flight, 0);
}

/// One end's port with two windows of the other: one that is mapped, and one that is reached through the socket.
struct Ports {
    near: End,
    far: End,
    local: LocalRegion,
    mapped: WindowDesc,
    unmapped: WindowDesc,
    _regions: [hmc_std::Region; 3],
}

/// The operation of all requests below.
const OP: slots::SlotId = slots::SlotId { index: 0, generation: 1 };

impl Ports {
    fn new() -> Self {
        let (mut near, far) = ends::pair(Wire::Shm { cma: true }).unwrap();
        let mut far = far.unwrap();
        let ours = near.allocate(LEN).unwrap();
        let local = near.add_memory(&ours);
        let theirs = far.allocate(LEN).unwrap();
        let adopted = far.adopt(usize::try_from(LEN).unwrap()).unwrap();
        let mapped = far.expose(&theirs, 0, LEN, Access::all()).unwrap();
        let unmapped = far.expose(&adopted, 0, LEN, Access::all()).unwrap();
        until("the window is mapped", LONG, || {
            near.service();
            far.service();
            near.is_settled(&mapped).then_some(())
        });
        Self { near, far, local, mapped, unmapped, _regions: [ours, theirs, adopted] }
    }

    fn post(&mut self, to: WindowDesc, len: u64) {
        let work = WorkRequest {
            op: OP,
            opcode: Opcode::Put,
            when: CompleteWhen::Visible,
            local: self.local.slice(0, len).unwrap(),
            remote: to.slice(0, len).unwrap(),
        };
        self.near.post(&work).unwrap();
    }

    /// The results of `count` completions.
    fn results(&mut self, count: usize) -> Vec<Result<u64, Failure>> {
        let mut got = Vec::new();
        until("each request completes", LONG, || {
            let mut out = [Completion { op: OP, result: Ok(0) }; 16];
            self.near.service();
            self.far.service();
            let n = self.near.poll(&mut out);
            got.extend(out[..n].iter().map(|c| c.result));
            (got.len() >= count).then_some(())
        });
        got
    }
}

/// Of an operation of several requests some may be done, or run on at the target, when it is cancelled. The others are not
/// forgotten: who counts completions would wait for them for ever.
#[test]
fn requests_that_are_withdrawn_beside_others_complete_too() {
    let mut p = Ports::new();
    // One is over and not reported, one is queued.
    p.post(p.mapped, 64);
    p.post(p.mapped, LEN);
    assert_eq!(p.near.cancel(OP), CancelOutcome::Running);
    assert_eq!(p.results(2), [Ok(64), Err(Failure::Cancelled)]);
    // One runs on at the target, one is queued.
    p.post(p.unmapped, 4096);
    p.near.service();
    let mut out = [Completion { op: OP, result: Ok(0) }; 16];
    assert_eq!(p.near.poll(&mut out), 0, "the target has not answered");
    p.post(p.mapped, LEN);
    assert_eq!(p.near.cancel(OP), CancelOutcome::Running);
    let mut results = p.results(2);
    results.sort_by_key(Result::is_ok);
    assert_eq!(results[0], Err(Failure::Cancelled));
    // Alone they are withdrawn, and none completes.
    p.post(p.mapped, LEN);
    assert_eq!(p.near.cancel(OP), CancelOutcome::Withdrawn);
    assert_eq!(p.near.poll(&mut out), 0);
}
