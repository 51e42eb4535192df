//! What the data half of a link knows: windows of both ends, what is exposed, and when operations end.

use std::sync::Arc;

use hmc_core::queue::Transfer;
use hmc_core::range::{Extent, Side};
use hmc_core::region::{Epoch, WindowDesc, WindowId, WindowSlice};
use hmc_core::slots::{Outcome, SlotId};
use hmc_core::time::{Duration, Instant};
use hmc_core::types::{Access, MemoryKind};
use hmc_core::wire::advert::{RegionAdvert, WindowBacking, WindowRole};
use hmc_core::wire::held;
use hmc_core::wire::message::ControlKind;
use hmc_core::work::{CompleteWhen, Failure, Opcode};

use super::DataState;
use crate::callbacks::wakers::Notice;
use crate::io::eventfd::EventfdWaker;
use crate::link::deferred::Deferred;
use crate::link::ends::silent_peer;
use crate::link::op_resources::OpResources;
use crate::memory::{Region, RegionTable};
use crate::transport::data_plane::AnyDataPlane;
use crate::transport::with_stream::WithStream;
use crate::transport::with_stream::tests::scripted::Scripted;

/// The data half of a link whose data plane does what a test says.
fn scripted(plane: Scripted, attached: bool, wants_default: bool) -> DataState {
    let plane = WithStream::new(plane, silent_peer().0, None, false);
    DataState::new(AnyDataPlane::new(plane), 4, attached, wants_default)
}

fn plain() -> DataState {
    scripted(Scripted::default(), true, false)
}

/// A window of the peer's.
fn desc(window: u64, epoch: u32) -> WindowDesc {
    let (window, epoch, extent) = (WindowId(window), Epoch(epoch), Extent::new(64));
    WindowDesc { window, epoch, extent, access: Access::all(), kind: MemoryKind::Cpu }
}

fn add_peer_window(data: &mut DataState, role: WindowRole, region: WindowDesc) {
    data.add_peer_window(&RegionAdvert { region, backing: WindowBacking::Process, role });
}

/// Posts a get of 8 bytes.
fn post_get(data: &mut DataState, by: Instant) -> SlotId {
    let region = Arc::new(RegionTable::default()).allocate(8).expect("memory");
    let span = Extent::new(8).span(Side::Remote, 0, 8).expect("in range");
    let remote = WindowSlice { window: WindowId(0), epoch: Epoch(1), span, expected: None };
    let local = region.slice(0, 8).expect("in range");
    let get = Transfer { opcode: Opcode::Get, when: CompleteWhen::Visible, local, remote };
    data.post(&get, by, &mut OpResources::region(region)).expect("posted")
}

#[test]
fn a_waker_is_taken_off_by_its_owner_alone_and_once() {
    let (stream, _theirs) = silent_peer();
    let mut data = DataState::new(AnyDataPlane::new(stream), 4, true, false);
    let op = post_get(&mut data, Instant::ZERO.after(Duration::from_nanos(u64::MAX)));
    let [own, other] = [0; 2].map(|_| EventfdWaker::new().expect("an eventfd"));
    assert!(data.add_waker(op, Arc::clone(&own)).expect("nobody waits").is_none());
    assert!(data.take_waker(op, &other).is_none());
    let taken = data.take_waker(op, &own);
    assert!(matches!(taken, Some(Notice::Own(waker)) if Arc::ptr_eq(&waker, &own)));
    assert!(data.take_waker(op, &own).is_none());
}

#[test]
fn a_label_names_the_newest_window_of_the_peer() {
    let mut data = plain();
    for (label, region) in [(1, desc(1, 1)), (2, desc(2, 1)), (1, desc(3, 1))] {
        add_peer_window(&mut data, WindowRole::Named(label), region);
    }
    let named = |data: &DataState| [1, 2, 3].map(|label| data.named_remote(label));
    assert_eq!(named(&data), [Some(desc(3, 1)), Some(desc(2, 1)), None]);
    assert_eq!(data.default_remote(), None);
    let most = held::of_message(ControlKind::Advert).count();
    for label in 3..u64::try_from(most).expect("small") + 1 {
        add_peer_window(&mut data, WindowRole::Named(label), desc(9, 9));
        assert_eq!(data.named_remote(label), Some(desc(9, 9)), "{label}");
    }
    add_peer_window(&mut data, WindowRole::Named(u64::MAX), desc(4, 1));
    assert_eq!(data.named_remote(u64::MAX), None, "more than are kept");
    add_peer_window(&mut data, WindowRole::Named(2), desc(5, 1));
    assert_eq!(data.named_remote(2), Some(desc(5, 1)), "in the place of an older one");
}

#[test]
fn a_window_that_the_peer_takes_back_is_forgotten_and_no_other() {
    let mut data = plain();
    add_peer_window(&mut data, WindowRole::Default, desc(1, 5));
    add_peer_window(&mut data, WindowRole::Named(2), desc(2, 5));
    add_peer_window(&mut data, WindowRole::Named(3), desc(2, 6));
    for other in [(1, 6), (2, 7), (3, 5)] {
        assert!(data.remove_peer_window(WindowId(other.0), Epoch(other.1)), "nothing uses it");
    }
    assert_eq!(data.default_remote(), Some(desc(1, 5)));
    let _ = data.remove_peer_window(WindowId(2), Epoch(5));
    assert_eq!((data.named_remote(2), data.named_remote(3)), (None, Some(desc(2, 6))));
    let _ = data.remove_peer_window(WindowId(1), Epoch(5));
    assert_eq!((data.default_remote(), data.named_remote(3)), (None, Some(desc(2, 6))));
    let plane = Scripted { uses_window: true, ..Scripted::default() };
    let mut data = scripted(plane, true, false);
    assert!(!data.remove_peer_window(WindowId(1), Epoch(1)), "the data plane uses it");
}

#[test]
fn a_link_opens_once_all_that_it_waits_for_is_there() {
    for (attached, wants_default, has_window, is_ready, complete) in [
        (false, false, true, true, false),
        (true, false, false, false, true),
        (true, true, false, true, false),
        (true, true, true, false, false),
        (true, false, true, false, false),
        (true, true, true, true, true),
    ] {
        let case = format!("{attached} {wants_default} {has_window} {is_ready}");
        let plane = Scripted { is_ready, ..Scripted::default() };
        let mut data = scripted(plane, attached, wants_default);
        if has_window {
            add_peer_window(&mut data, WindowRole::Default, desc(1, 1));
        }
        assert_eq!(data.is_complete(), complete, "{case}");
        assert!(!data.take_became_ready(), "{case}: nobody has looked");
        for opened in [complete, false] {
            data.progress(&mut Deferred::default());
            assert_eq!(data.take_became_ready(), opened, "{case}");
            assert!(!data.take_became_ready(), "{case}: it is reported once");
        }
    }
}

/// A window of the data half over all of a new region.
fn expose(data: &mut DataState, len: u64) -> (Region, WindowDesc) {
    let region = Arc::new(RegionTable::default()).allocate(len).expect("memory");
    let local = region.slice(0, len).expect("all of it");
    let mut space = [0; 64];
    let exposed = data.plane().expose(&region, (local, None), Access::all(), 7, &mut space);
    (region, exposed.expect("a place").0)
}

#[test]
fn what_is_exposed_is_in_reach_until_its_fence() {
    let mut data = plain();
    let unfenced = |data: &mut DataState| {
        let mut all = Vec::new();
        data.unfenced_bytes(&mut |bytes, why| all.push((bytes, why)));
        all
    };
    assert_eq!((data.exposed_bytes(), unfenced(&mut data)), ((0, 0), vec![]));
    let (_one, window) = expose(&mut data, 64);
    let (_other, _) = expose(&mut data, 32);
    let (id, epoch) = (window.window, window.epoch);
    let why = "the script may write it";
    assert_eq!((data.exposed_bytes(), unfenced(&mut data)), ((96, 0), vec![(96, why)]));
    data.plane().begin_revoke(id, epoch).expect("exposed");
    assert_eq!(data.exposed_bytes(), (96, 0), "the peer may be in it");
    data.plane().quarantine(id, epoch);
    assert_eq!((data.exposed_bytes(), unfenced(&mut data)), ((32, 64), vec![(32, why)]));
    data.plane().free_window(id, epoch);
    assert_eq!(data.exposed_bytes(), (32, 0));
}

#[test]
fn a_put_waits_for_company_if_the_data_plane_gains_by_it() {
    for coalesces in [false, true] {
        let plane = Scripted { coalesces, ..Scripted::default() };
        assert_eq!(scripted(plane, true, false).can_wait(), coalesces);
    }
}

#[test]
fn work_and_pauses_are_those_of_the_data_plane() {
    for has_work in [false, true] {
        let plane = Scripted { has_work, ..Scripted::default() };
        let mut data = scripted(plane, true, false);
        assert_eq!((data.has_work(), data.is_paused(), data.beat()), (has_work, false, None));
        assert!(!data.is_marked());
    }
}

#[test]
fn operations_are_counted_by_their_direction() {
    let mut data = plain();
    for code in [Opcode::Put, Opcode::Get, Opcode::PutNotify { tag: 1 }] {
        data.count(code);
    }
    assert_eq!(data.counts(), (2, 1));
}

/// To the nanosecond; by a poll, and by a look at the time alone.
#[test]
fn an_operation_ends_at_its_deadline_and_not_before() {
    for by_poll in [true, false] {
        let (stream, _theirs) = silent_peer();
        let mut data = DataState::new(AnyDataPlane::new(stream), 4, true, false);
        let by = Instant::ZERO.after(Duration::from_nanos(1_000));
        let op = post_get(&mut data, by);
        for (at, ended) in [(999, false), (1_000, true)] {
            let (now, mut after) = (Instant::from_nanos(at), Deferred::default());
            if by_poll {
                assert_eq!(data.poll(now, &mut after), ended, "{at}");
            } else {
                data.expire(now, &mut after);
            }
            assert_eq!((data.test(op), after.finished), (Ok(ended), ended), "{at}");
        }
        let late = Outcome { result: Err(Failure::DeadlineExceeded), fenced: true };
        assert_eq!(data.take(op).expect("known").map(|(outcome, _)| outcome), Some(late));
        assert!(data.take(op).is_err() && data.cancel(op).is_err(), "it was taken");
        assert!(format!("{:?}", data.evict_unused()).contains("count: 1"), "its memory");
    }
}
