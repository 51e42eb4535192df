//! Small things at the edge: what a borrow of a border passes on, refusals of writers, empty values.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests may panic")]

mod common;

use common::link::{acceptor, acceptor_words, at, dialer_words, hand, outputs, pair};
use hmc_core::ctrl::conn::CxxPolicy;
use hmc_core::ctrl::io::CloseReason;
use hmc_core::ctrl::ranks::Admission;
use hmc_core::device::{DeviceError as _, DeviceErrorKind};
use hmc_core::limits::{HEARTBEAT_NS, MAX_ENDPOINT_BYTES, MAX_FRAME_BYTES};
use hmc_core::place::Place;
use hmc_core::range::{Extent, Side};
use hmc_core::region::{Epoch, LocalRegion, LocalSlice, RegionKey, WindowDesc, WindowId};
use hmc_core::slots::SlotId;
use hmc_core::transport::{CancelOutcome, PostErrorKind, Transport};
use hmc_core::types::{Access, Caps, Incarnation, MemoryKind};
use hmc_core::window::{WindowEntry, WindowState, WindowTable};
use hmc_core::wire::advert::{EndpointBlob, EndpointDesc};
use hmc_core::wire::cursor::{WireErrorKind, Writer};
use hmc_core::wire::header::{FrameKind, Header};
use hmc_core::wire::hello::EndpointList;
use hmc_core::wire::message::ControlMessage;
use hmc_core::work::{Completion, WorkRequest};

const KEY: RegionKey = RegionKey { index: 1, generation: 2 };

fn region() -> LocalRegion {
    LocalRegion { key: KEY, extent: Extent::new(64), place: Place::HOST }
}

/// Answers each call with a value of its own.
struct Odd;

#[test]
fn a_plain_error_of_a_device_has_no_call_and_no_code() {
    let lost = DeviceErrorKind::Lost;
    assert_eq!((lost.kind(), lost.call(), lost.code()), (lost, "", 0));
}

impl Transport for Odd {
    type Error = PostErrorKind;

    fn caps(&self) -> Caps {
        Caps::GET
    }

    fn post(&mut self, _: &WorkRequest) -> Result<(), PostErrorKind> {
        Err(PostErrorKind::Unsupported)
    }

    fn poll(&mut self, out: &mut [Completion]) -> usize {
        out.len()
    }

    fn cancel(&mut self, op: SlotId) -> CancelOutcome {
        if op.index == 1 { CancelOutcome::Withdrawn } else { CancelOutcome::Running }
    }
}

#[test]
fn a_borrowed_transport_is_the_transport() {
    fn call(mut t: impl Transport<Error = PostErrorKind>) {
        assert_eq!(t.caps(), Caps::GET);
        let op = SlotId { index: 1, generation: 1 };
        let window = remote().slice(0, 8).unwrap();
        let work = common_work(op, region().slice(0, 8).unwrap(), window);
        assert_eq!(t.post(&work), Err(PostErrorKind::Unsupported));
        assert_eq!(t.poll(&mut [Completion { op, result: Ok(0) }; 3]), 3);
        assert_eq!(t.cancel(op), CancelOutcome::Withdrawn);
        assert_eq!(t.cancel(SlotId { index: 2, ..op }), CancelOutcome::Running);
    }
    call(Odd);
}

fn remote() -> WindowDesc {
    let mut table = WindowTable::new([WindowEntry::FREE; 1]);
    table.expose(region().slice(0, 64).unwrap(), MemoryKind::Cpu, Access::all(), 1).unwrap()
}

fn common_work(
    op: SlotId,
    local: LocalSlice,
    remote: hmc_core::region::WindowSlice,
) -> WorkRequest {
    use hmc_core::work::{CompleteWhen, Opcode};
    WorkRequest { op, opcode: Opcode::Put, when: CompleteWhen::Visible, local, remote }
}

#[test]
fn ranges_that_leave_their_region_name_its_side() {
    let e = region().slice(60, 5).unwrap_err();
    assert_eq!((e.side, e.offset, e.len, e.limit), (Side::Local, 60, 5, 64));
    let e = remote().slice(65, 0).unwrap_err();
    assert_eq!((e.side, e.offset, e.len, e.limit), (Side::Remote, 65, 0, 64));
}

#[test]
fn empty_and_whole() {
    assert!(Extent::new(0).is_empty() && !Extent::new(1).is_empty());
    let whole = Extent::new(5).whole();
    assert_eq!((whole.offset(), whole.len()), (0, 5));
    assert!(!whole.is_empty() && Extent::new(0).whole().is_empty());
    assert!(Extent::new(5).contains(whole) && !Extent::new(4).contains(whole));
    assert!(EndpointList::default().endpoints().is_empty());
    assert!(Header::new(FrameKind::Struct, 0).is_empty());
    assert!(!Header::new(FrameKind::Struct, 1).is_empty());
    assert_eq!(at(7).as_nanos(), 7);
    assert!(Admission::Accept.accepted() && Admission::Replace.accepted());
    assert!(!Admission::Duplicate.accepted());
    assert!(!Admission::Stale { seen: Incarnation(1) }.accepted());
}

#[test]
fn a_window_knows_its_range() {
    let mut table = WindowTable::new([WindowEntry::FREE; 2]);
    let slice = region().slice(8, 16).unwrap();
    let shown = table.expose(slice, MemoryKind::Cpu, Access::READ, 5).unwrap();
    let entry = table.entry(shown.window, shown.epoch).unwrap();
    assert_eq!((entry.state(), entry.local()), (WindowState::Exposed, slice));
    assert!(table.entry(WindowId(shown.window.0 ^ (1 << 30)), shown.epoch).is_err());
    assert!(table.entry(shown.window, Epoch(shown.epoch.0 + 1)).is_err());
}

#[test]
fn endpoints_of_other_kinds_come_back_as_they_were() {
    let blob = EndpointBlob { kind: 9, bytes: b"later" };
    let other = blob.decode().unwrap();
    assert_eq!((other, other.blob(), other.port()), (EndpointDesc::Other(blob), blob, None));
    assert_eq!(EndpointDesc::Shm { path: b"/p" }.port(), None);
    assert_eq!(EndpointDesc::tcp(80).port(), Some(80));
    let long = [0; MAX_ENDPOINT_BYTES + 1];
    let mut storage = [0; 2 * MAX_ENDPOINT_BYTES];
    let mut w = Writer::new(&mut storage);
    let e = EndpointBlob { kind: 9, bytes: &long }.emit(&mut w).unwrap_err();
    assert!(matches!(e.kind, WireErrorKind::TooLong { len: 8193, limit: 8192 }), "{e}");
    assert_eq!(w.written(), 0);
    assert!(EndpointBlob { kind: 9, bytes: &long[1..] }.emit(&mut w).is_ok());
}

#[test]
fn messages_that_do_not_fit_write_nothing() {
    let limit = usize::try_from(MAX_FRAME_BYTES).unwrap();
    let long = vec![7; limit + 1];
    let mut storage = vec![0; limit + 64];
    let mut w = Writer::new(&mut storage);
    let e = ControlMessage::Struct(&long).emit(&mut w).unwrap_err();
    assert_eq!(e.kind, WireErrorKind::TooLong { len: MAX_FRAME_BYTES + 1, limit: MAX_FRAME_BYTES });
    assert_eq!(w.written(), 0);
    assert_eq!(ControlMessage::Struct(&long[1..]).emit(&mut w), Ok(()));
    for (space, missing) in [(0, 12), (11, 1)] {
        let mut storage = [0xEE; 11];
        let mut w = Writer::new(&mut storage[..space]);
        let e = ControlMessage::Int32(5).emit(&mut w).unwrap_err();
        assert_eq!(e.kind, WireErrorKind::NoSpace { missing });
        assert_eq!((w.written(), storage), (0, [0xEE; 11]));
    }
}

#[test]
fn what_was_sent_counts_as_a_beat() {
    let (mut a, _) = pair(&dialer_words(), &acceptor_words(), 0);
    a.on_sent(at(HEARTBEAT_NS / 2));
    a.on_received(None, at(HEARTBEAT_NS / 2));
    a.tick(at(HEARTBEAT_NS));
    assert!(outputs(&mut a).frames.is_empty(), "what was sent counted as a beat");
    a.tick(at(HEARTBEAT_NS + HEARTBEAT_NS / 2));
    assert_eq!(outputs(&mut a).frames.len(), 1, "now it beats");
    assert_eq!(a.eof(), CloseReason::Eof);
    assert_eq!(outputs(&mut a).close, Some(CloseReason::Eof));
    let mut l = acceptor(CxxPolicy::Refused, 0);
    assert!(hand(&mut l, &common::encode(&ControlMessage::Tag(1)), 1).is_err());
}
