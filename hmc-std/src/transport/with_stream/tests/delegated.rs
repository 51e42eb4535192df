//! What the layer leaves to the data plane, to the stream, or to both.

use std::io::Write as _;

use hmc_core::transport::{
    DataPlane as _, Interest, Progress as _, Readiness, Registration as _, Served, Target as _,
};
use hmc_core::types::ConnType;
use hmc_core::wire::data::DataFrame;

use super::*;
use crate::base::error::{Error, ErrorKind};

fn bench() -> Bench {
    Bench::new(PeerAccess::Remote, false, false)
}

/// The window and epoch that releases and questions name.
const OF: (WindowId, Epoch) = (WindowId(3), Epoch(5));

#[test]
fn facts_are_those_of_the_data_plane() {
    let mut bench = bench();
    let layer = &mut bench.layer;
    assert_eq!(layer.serves(MemoryKind::NvidiaGpu), Served::Direct);
    assert_eq!((layer.kind(), layer.trust()), (Some(ConnType::Rdma), "scripted"));
    assert_eq!(layer.unfenced_reason(), "the script may use it");
    assert_eq!(layer.unfenced_window_reason(), Some("the script may write it"));
    let mut said = Vec::new();
    layer.lanes(&mut |lane| said.push(lane.to_owned()));
    layer.degraded(&mut |why| said.push(why.to_string()));
    assert_eq!(said, ["one", "two", "scripted: 3"]);
    let mut words = String::new();
    layer.describe_close(DataCloseReason::Eof, &mut words).expect("a string");
    assert_eq!(words, DataCloseReason::Eof.to_string());
    layer.plane.refusal = Some(Error::new(ErrorKind::NoSpace, "no memory"));
    let refusals = [(); 2].map(|()| layer.take_refusal().map(|e| e.kind()));
    assert_eq!(refusals, [Some(ErrorKind::NoSpace), None]);
    for is_so in [false, true] {
        let plane = &mut layer.plane;
        (plane.is_ready, plane.has_posted, plane.checks) = (is_so, is_so, is_so);
        (plane.is_released, plane.uses_window) = (is_so, !is_so);
        assert_eq!(
            (layer.is_ready(), layer.take_posted(), layer.checks_accesses()),
            (is_so, is_so, is_so)
        );
        assert!(!layer.take_posted(), "it is told once");
        assert_eq!(
            (layer.is_released(OF.0, OF.1), layer.remove_window(OF.0, OF.1)),
            (is_so, is_so)
        );
    }
}

#[test]
fn notes_and_releases_are_those_of_the_data_plane() {
    let mut bench = bench();
    let layer = &mut bench.layer;
    let mut buf = [0; MAX_ENDPOINT_BYTES];
    let greeting = layer.greeting(&mut buf).expect("a note");
    assert_eq!(greeting, Some(Note { kind: 8, bytes: &[2; 3] }));
    layer.plane.notes.push_back(9);
    let notes = [(); 2].map(|()| {
        (layer.has_notes(), layer.next_note(&mut buf).map(|note| (note.kind, note.bytes.len())))
    });
    assert_eq!(notes, [(true, Some((9, 1))), (false, None)]);
    assert_eq!((layer.has_releases(), layer.next_release()), (false, None));
    layer.plane.releases.push_back(OF);
    assert!(layer.has_releases());
    assert_eq!([layer.next_release(), layer.next_release()], [Some(OF), None]);
    layer.receive_release(OF.0, OF.1);
    assert_eq!(layer.plane.releases_heard, [OF]);
}

/// Whoever waits for the peer is told of what came by either.
#[test]
fn something_happened_if_it_did_at_either() {
    let mut bench = bench();
    for is_busy in [false, true] {
        bench.layer.plane.is_busy = is_busy;
        assert_eq!(bench.layer.poll_peer(true), is_busy);
        let none = bench.work(0, TAGGED, 0);
        assert_eq!(bench.layer.post(&none), Ok(()));
        assert_eq!(bench.poll(), []);
        (&bench.peer).write_all(&DataFrame::ack(u32::from(is_busy), 1).emit()).expect("space");
        assert!(bench.layer.poll_peer(true), "an acknowledgement came");
        assert_eq!(bench.poll(), [(0, Ok(0))]);
    }
}

#[test]
fn the_stream_is_waited_for_and_work_is_that_of_either() {
    let mut bench = bench();
    let waits = |work| {
        let connection = Readiness { read: true, ..Readiness::default() };
        Interest { connection, work }
    };
    assert_eq!(bench.layer.interest(), waits(false));
    bench.layer.plane.has_work = true;
    assert_eq!(bench.layer.interest(), waits(true));
    let none = bench.work(0, TAGGED, 0);
    assert_eq!(bench.layer.post(&none), Ok(()));
    bench.layer.flush();
    assert!(bench.received().0 != 0, "the stream's");
    assert_eq!(bench.layer.plane.flushes, 1);
}

#[test]
fn pieces_are_copied_by_the_data_plane() {
    let mut bench = bench();
    assert!(!bench.layer.copy_piece());
    bench.layer.plane.has_work = true;
    assert!(bench.layer.copy_piece() && !bench.layer.copy_piece());
}

#[test]
fn memory_is_in_use_while_either_uses_it() {
    let mut bench = bench();
    let get = bench.work(4, Opcode::Get, 0);
    for is_idle in [true, false] {
        bench.layer.plane.is_idle = is_idle;
        assert_eq!(bench.layer.uses_memory_of(get.op), !is_idle);
    }
    bench.layer.plane.is_idle = true;
    assert_eq!(bench.layer.post(&get), Ok(()));
    bench.layer.flush();
    assert!(bench.layer.uses_memory_of(get.op), "the stream waits for its answer");
}

#[test]
fn what_either_has_released_is_handed_on() {
    let mut bench = bench();
    let kept = Arc::new(());
    bench.layer.plane.released.push(Arc::clone(&kept));
    let region = Arc::new(RegionTable::default()).allocate(64).expect("memory");
    bench.layer.add_memory(&region);
    drop(region);
    bench.layer.release_memory(false);
    let released = bench.layer.take_released();
    assert_eq!(Arc::strong_count(&kept), 2, "the caller drops it");
    drop(released);
    assert_eq!(Arc::strong_count(&kept), 1);
    assert!(format!("{:?}", bench.layer.take_released()).contains("count: 0"));
}

/// An operation runs as long as the data plane, the stream or its tag does.
#[test]
fn an_operation_is_withdrawn_if_neither_has_it() {
    use CancelOutcome::{Running, Withdrawn};
    let mut bench = bench();
    let (waits, other) = (bench.work(1, TAGGED, 64), bench.work(2, TAGGED, 64));
    assert_eq!(bench.layer.cancel(waits.op), Withdrawn);
    bench.layer.plane.cancels = Running;
    assert_eq!(bench.layer.cancel(waits.op), Running);
    bench.layer.plane.cancels = Withdrawn;
    bench.layer.late.push_back(waits);
    assert_eq!([waits, other].map(|w| bench.layer.cancel(w.op)), [Running, Withdrawn]);
}

/// What was posted first is to arrive first.
#[test]
fn puts_wait_for_company_only_while_no_tag_waits() {
    let mut bench = bench();
    let put = bench.work(1, TAGGED, 64);
    for (coalesces, is_late) in [(false, false), (true, false), (false, true), (true, true)] {
        bench.layer.plane.coalesces = coalesces;
        bench.layer.late.clear();
        bench.layer.late.extend(is_late.then_some(put));
        assert_eq!(bench.layer.can_coalesce(), coalesces && !is_late, "{coalesces} {is_late}");
    }
}
