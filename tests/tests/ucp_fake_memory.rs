//! Memory of UCX's data plane, over the fake libucp: what is registered, how often, of which kind, and when it is let go.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::ptr::NonNull;
use std::sync::Arc;

use hmc_core::place::{DeviceId, Place};
use hmc_core::range::Extent;
use hmc_core::region::{Epoch, LocalRegion, RegionKey, WindowDesc, WindowId};
use hmc_core::transport::{
    DataCloseReason, DataPlane as _, PeerWindows as _, PostErrorKind, Progress as _,
    Registration as _, Transport as _,
};
use hmc_core::types::{Access, MemoryKind};
use hmc_core::work::{CompleteWhen, Failure, Opcode, Transfer};
use hmc_hw::ucx::context::Context;
use hmc_hw::ucx::memory::Memory;
use hmc_hw::ucx::result::Status;
use hmc_hw::ucx::settings::Settings;
use hmc_mem::os::memfd::Mapping;
use hmc_tests::fake_ucp::{CallResult, FakeUcp, NO_MEMORY};
use hmc_tests::ucx_pair::Built;
use hmc_tests::ucx_planes::{
    End, HostCall, LEN, MESSAGES, NIC, Pages, RecordingHost, SHARED_MEMORY, TURNS, connect, pair,
};

/// Lanes of a NIC, and of shared memory.
const BOTH: &str = "rc_mlx5/mlx5_0:1+posix/memory";

fn key(index: u16) -> RegionKey {
    RegionKey { index, generation: 1 }
}

/// A NIC reaches what is registered, and as long as it is.
#[test]
fn a_window_has_a_registration_of_its_own_where_a_nic_may_reach_it() {
    let fake_ucp = FakeUcp::take();
    let (whole, part) = ((0, LEN), (1024, 512));
    for (lanes, same_system, (at, len), registrations) in [
        (NIC, true, whole, 2),
        (NIC, false, whole, 2),
        (NIC, true, part, 2),
        (SHARED_MEMORY, true, whole, 1),
        (SHARED_MEMORY, true, part, 1),
        (SHARED_MEMORY, false, whole, 1),
        (MESSAGES, false, part, 1),
        (BOTH, true, whole, 1),
        (BOTH, true, part, 2),
        (BOTH, false, whole, 2),
    ] {
        fake_ucp.lane(lanes);
        let mut end = End::new(&fake_ucp, same_system);
        let _ = (end.expose_part(at, len), end.expose_part(at, len));
        let by_name = (lanes.contains("rc_mlx5"), lanes.contains("posix"));
        assert_eq!((end.domain.has_nic(), end.domain.shares_memory()), by_name, "{lanes}");
        let made = end.domain.registrations();
        assert_eq!(made, registrations, "{lanes}, {same_system}, {len} bytes at {at}");
        drop(end);
        fake_ucp.assert_clean();
        fake_ucp.restart();
    }
}

#[test]
fn a_window_begins_where_it_begins_in_its_region() {
    let fake_ucp = FakeUcp::take();
    for (lanes, maps) in
        [(NIC, 0), (SHARED_MEMORY, 0), (SHARED_MEMORY, 1), (MESSAGES, 0), (BOTH, 0)]
    {
        fake_ucp.set("maps", maps);
        fake_ucp.lane(lanes);
        let (mut near, mut far, _whole) = pair(&fake_ucp, false);
        let (window, kind, note) = far.expose_part(1024, 512);
        near.receive((kind, &note));
        near.fill(7);
        near.plane.post(&near.put(0, &window, 64)).unwrap();
        let done = (0..TURNS).find_map(|_| {
            far.plane.poll_peer(true);
            near.poll().pop()
        });
        assert_eq!(done.map(|c| c.result), Some(Ok(64)), "{lanes}");
        assert_eq!((far.count(7), far.count(0), far.count_from(1024, 7)), (0, 1024, 64), "{lanes}");
        drop((near, far));
        fake_ucp.assert_clean();
        fake_ucp.restart();
    }
}

#[test]
fn a_region_is_registered_once_as_long_as_it_is_used() {
    let fake_ucp = FakeUcp::take();
    let end = End::new(&fake_ucp, false);
    let domain = &end.domain;
    let (a, b) = (Pages::new(key(1)), Pages::new(key(2)));
    let (of_a, of_b) = (domain.memory_of(&a).unwrap(), domain.memory_of(&b).unwrap());
    for _ in 0..3 {
        assert!(Arc::ptr_eq(&of_a, &domain.memory_of(&a).unwrap()));
        assert!(Arc::ptr_eq(&of_b, &domain.memory_of(&b).unwrap()));
    }
    assert_eq!(domain.registrations(), 2);
    // Memory of UCX's own is registered by being made.
    let made = domain.allocate(4096).unwrap();
    domain.add_memory(key(3), &made);
    assert!(Arc::ptr_eq(&made, &domain.memory_of(&Pages::new(key(3))).unwrap()));
    assert_eq!(domain.registrations(), 3);
    drop(of_a);
    drop((domain.memory_of(&a).unwrap(), of_b, made));
    assert_eq!(domain.registrations(), 4, "nobody used it any more");
    drop((a, b, end));
    fake_ucp.assert_clean();
}

#[test]
fn memory_that_ucx_makes_and_does_not_describe_is_given_back() {
    let fake_ucp = FakeUcp::take();
    let end = End::new(&fake_ucp, false);
    let (memories, made) = (fake_ucp.count("memories"), end.domain.registrations());
    fake_ucp.rule("ucp_mem_query", 1, CallResult::Refused(NO_MEMORY));
    let e = end.domain.allocate(8192).expect_err("scripted").to_string();
    assert!(e.contains("asking where memory is (8192 bytes): Out of memory"), "{e}");
    assert_eq!((fake_ucp.count("memories"), end.domain.registrations()), (memories, made));
    drop(end);
    fake_ucp.assert_clean();
}

#[test]
fn a_put_whose_memory_cannot_be_registered_is_refused_with_the_reason() {
    let fake_ucp = FakeUcp::take();
    let host: Arc<RecordingHost> = Arc::default();
    let (near, far) = (End::with_host(&fake_ucp, false, &host, true), End::new(&fake_ucp, false));
    let (mut near, far, window) = connect(near, far);
    fake_ucp.rule("ucp_mem_map", 1, CallResult::Refused(NO_MEMORY));
    let put = near.put(0, &window, 8);
    assert_eq!(near.plane.post(&put), Err(PostErrorKind::Other));
    assert_eq!(host.take(), [HostCall::NotRegistered]);
    let why = near.plane.take_refusal().unwrap().to_string();
    assert!(why.contains("registering memory (4096 bytes): Out of memory"), "{why}");
    assert!(near.plane.take_refusal().is_none());
    near.plane.post(&put).unwrap();
    assert_eq!((0..TURNS).find_map(|_| near.poll().pop()).unwrap().result, Ok(8));
    drop((near, far));
    fake_ucp.assert_clean();
}

#[test]
fn memory_that_only_a_data_plane_has_is_released_on_request() {
    let fake_ucp = FakeUcp::take();
    for (all, kept) in [(false, false), (true, true)] {
        let (mut near, far, window) = pair(&fake_ucp, false);
        near.plane.release_memory(false);
        assert!(near.plane.take_released().is_empty(), "it is in use");
        near.plane.post(&near.put(0, &window, 8)).unwrap();
        assert!((0..TURNS).any(|_| !near.poll().is_empty()));
        near.plane.release_memory(false);
        assert!(near.plane.take_released().is_empty(), "it is in use");
        let before = near.memory.clone();
        near.memory = Pages::new(key(1));
        let before = Some(before).filter(|_| kept);
        near.plane.release_memory(all);
        // Its handle, and its registration.
        assert_eq!(near.plane.take_released().len(), 2);
        near.plane.release_memory(all);
        assert!(near.plane.take_released().is_empty());
        drop((before, near, far));
        fake_ucp.assert_clean();
        fake_ucp.restart();
    }
}

#[test]
fn only_some_bytes_of_a_mapped_window_are_copied_in_the_call() {
    let fake_ucp = FakeUcp::take();
    for (maps, copies) in [(1, true), (0, false)] {
        fake_ucp.set("maps", maps);
        fake_ucp.lane(SHARED_MEMORY);
        let (mut near, far, window) = pair(&fake_ucp, true);
        // It registers its memory.
        let _ = (near.plane.post(&near.put(0, &window, 8)), near.poll());
        let tries = |near: &mut End, len| {
            let (put, when) = (near.put(1, &window, len), CompleteWhen::Visible);
            let (local, remote) = (put.local, put.remote);
            let list = [Transfer { opcode: Opcode::Put, when, local, remote }];
            let alone = near.plane.try_transfer(Opcode::Put, local, remote);
            (alone, near.plane.try_transfer_list(&list))
        };
        assert_eq!(tries(&mut near, 8), (copies, copies));
        assert!(!tries(&mut near, 0).0, "there is nothing to copy");
        near.plane.close(DataCloseReason::Silent);
        assert_eq!(tries(&mut near, 8), (false, false), "it is closed");
        drop((near, far));
        fake_ucp.assert_clean();
        fake_ucp.restart();
    }
}

/// Pages that are registered as memory of that kind.
fn of_kind(context: &Arc<Context>, kind: MemoryKind) -> Result<Arc<Memory>, Status> {
    let pages = Mapping::create(LEN).unwrap();
    let start = NonNull::new(pages.bytes().as_ptr()).unwrap();
    let len = usize::try_from(LEN).unwrap();
    // SAFETY: the pages stay where they are as long as the mapping, which the registration keeps; UCX alone accesses them.
    let memory = unsafe { Memory::register(context, start, len, kind, Some(Box::new(pages))) };
    memory.map(Arc::new).map_err(|e| {
        assert!(e.to_string().contains("this UCX has no module for it here"), "{e}");
        e.status
    })
}

#[test]
fn memory_of_a_kind_that_ucx_does_not_reach_is_refused() {
    use MemoryKind::{AmdGpu, CambriconMlu, Cpu, HygonDcu, NvidiaGpu};
    let fake_ucp = FakeUcp::take();
    for (kinds, reached) in [
        (1, &[Cpu][..]),
        (2, &[NvidiaGpu]),
        (8, &[AmdGpu, HygonDcu]),
        (0b1011, &[Cpu, NvidiaGpu, AmdGpu, HygonDcu]),
    ] {
        fake_ucp.set("memory_types", kinds);
        let context = Context::new(fake_ucp.library(), &Settings::default()).unwrap();
        assert_eq!(context.memory_kinds(), kinds);
        for kind in [Cpu, NvidiaGpu, AmdGpu, HygonDcu, CambriconMlu] {
            let memory = of_kind(&context, kind).map(|memory| memory.kind());
            let expected =
                if reached.contains(&kind) { Ok(kind) } else { Err(Status::UNSUPPORTED) };
            assert_eq!(memory, expected, "{kinds:b}");
        }
    }
    fake_ucp.assert_clean();
}

/// CPUs copy what messages move, and what a lane maps.
#[test]
fn memory_of_a_device_is_moved_by_lanes_that_reach_it_and_not_by_messages() {
    let fake_ucp = FakeUcp::take();
    for (lane, reaches) in [(NIC, true), (MESSAGES, false)] {
        fake_ucp.lane(lane);
        fake_ucp.set("memory_types", 3);
        fake_ucp.set("maps", 1);
        let mut pair = Built::new(fake_ucp.library(), LEN, LEN, Access::all(), 1).unwrap();
        let context = Arc::clone(pair.near.0.worker().context());
        let device = of_kind(&context, MemoryKind::NvidiaGpu).unwrap();
        pair.near.0.add_local(key(7), Arc::clone(&device));
        let extent = Extent::new(LEN);
        let gpu = DeviceId { kind: MemoryKind::NvidiaGpu, index: 0 };
        let here = LocalRegion { key: key(7), extent, place: Place::on(gpu) };
        let sends = fake_ucp.calls("ucp_am_send_nbx");
        for opcode in [Opcode::Put, Opcode::Get] {
            let mut work = pair.request(0, opcode, 0, 0, 64);
            work.local = here.slice(0, 64).unwrap();
            let (local, remote) = (work.local, work.remote);
            let list = [Transfer { opcode, when: work.when, local, remote }];
            assert!(!pair.near.0.try_transfer(opcode, local, remote), "{lane} {opcode:?}");
            assert!(!pair.near.0.try_transfer_list(&list), "{lane} {opcode:?}");
            pair.near.post(&work).unwrap();
            let expected = if reaches { Ok(64) } else { Err(Failure::Unsupported) };
            assert_eq!(pair.wait(1).first().unwrap().result, expected, "{lane} {opcode:?}");
        }
        assert_eq!(fake_ucp.calls("ucp_am_send_nbx"), sends, "there is nothing to send");
        // A window of such memory, which no CPU of the target may touch.
        let window = WindowDesc {
            window: WindowId::new(5, 1 << 16),
            epoch: Epoch(1),
            extent,
            access: Access::all(),
            kind: MemoryKind::NvidiaGpu,
        };
        fake_ucp.set("maps", 0);
        let there = u64::try_from(device.start().as_ptr().expose_provenance()).unwrap();
        pair.near.0.add_remote(window, there, &device.pack().unwrap()).unwrap();
        pair.am_target.open(window, Arc::clone(&device), extent.whole());
        for opcode in [Opcode::Put, Opcode::Get] {
            let mut work = pair.request(0, opcode, 0, 0, 64);
            work.remote = window.slice(0, 64).unwrap();
            pair.near.post(&work).unwrap();
            let expected = if reaches { Ok(64) } else { Err(Failure::Unsupported) };
            assert_eq!(pair.wait(1).first().unwrap().result, expected, "{lane} {opcode:?}");
        }
        drop((device, context, pair));
        fake_ucp.assert_clean();
        fake_ucp.restart();
    }
}
