//! UCX's transport between two workers, over the fake libucp: what is copied at once, what is queued, whom it notifies, and what it
//! keeps until UCX has ended it.

#![allow(clippy::arithmetic_side_effects, clippy::unwrap_used, reason = "tests may panic")]

use std::sync::Arc;

use hmc_core::limits::MAX_PEERS;
use hmc_core::place::Place;
use hmc_core::queue::Transfer;
use hmc_core::range::Extent;
use hmc_core::region::{Epoch, LocalRegion, RegionKey, WindowDesc, WindowId};
use hmc_core::slots::SlotId;
use hmc_core::transport::{PostErrorKind, Transport as _};
use hmc_core::types::{Access, MemoryKind};
use hmc_core::work::{CompleteWhen, Completion, Failure, Opcode};
use hmc_hw::ucx::Notify;
use hmc_hw::ucx::am::AmTarget;
use hmc_hw::ucx::context::Context;
use hmc_hw::ucx::memory::Memory;
use hmc_hw::ucx::result::Status;
use hmc_hw::ucx::settings::Settings;
use hmc_hw::ucx::transport::{MAX_REQUESTS, UcxTransport};
use hmc_hw::ucx::worker::Worker;
use hmc_mem::shared::SharedBytes;
use hmc_tests::fake_ucp::{CallResult, FakeUcp};
use hmc_tests::ucx_pair::{Built, CountingNotify};

const LEN: u64 = 4096;
const TURNS: usize = 1000;
const NOBODY: Completion = Completion { op: SlotId { index: 9, generation: 9 }, result: Ok(0) };

fn built(fake_ucp: &FakeUcp) -> Built {
    Built::new(fake_ucp.library(), LEN, LEN, Access::all(), 1).unwrap()
}

/// Completions that are there, without a turn of the other end.
fn poll(pair: &mut Built) -> Vec<Completion> {
    let mut out = [NOBODY; 300];
    let n = pair.near.poll(&mut out);
    out.into_iter().take(n).collect()
}

fn end(fake_ucp: &FakeUcp, pair: Built) {
    drop(pair);
    fake_ucp.assert_clean();
}

/// Memory of UCX's at both ends, and a window of the far one.
fn second_memory(
    pair: &mut Built,
    index: u16,
    access: Access,
) -> (LocalRegion, WindowDesc, [Arc<Memory>; 2]) {
    let context = Arc::clone(pair.near.0.worker().context());
    let [here, there] = [(); 2].map(|()| Arc::new(Memory::allocate(&context, 4096).unwrap()));
    let key = RegionKey { index, generation: 1 };
    pair.near.0.add_local(key, Arc::clone(&here));
    let extent = Extent::new(LEN);
    let window = WindowDesc {
        window: WindowId::new(index, 1 << 16),
        epoch: Epoch(1),
        extent,
        access,
        kind: MemoryKind::Cpu,
    };
    let base = u64::try_from(there.start().as_ptr().expose_provenance()).unwrap();
    pair.near.0.add_remote(window, base, &there.pack().unwrap()).unwrap();
    (LocalRegion { key, extent, place: Place::HOST }, window, [here, there])
}

fn bytes(memory: &Memory) -> SharedBytes<'_> {
    // SAFETY: registered memory lives as long as its registration, which the result borrows; it is accessed by copies.
    unsafe { SharedBytes::new(memory.start(), memory.len()) }
}

fn first_byte(memory: &Memory) -> u8 {
    let mut byte = [0];
    bytes(memory).read_at(Extent::new(1).whole(), &mut byte).unwrap();
    let [byte] = byte;
    byte
}

fn fill(memory: &Memory, byte: u8) {
    bytes(memory).fill(Extent::new(LEN).whole(), byte).unwrap();
}

#[test]
fn a_put_to_a_mapped_window_is_copied_in_the_call_while_there_is_a_record() {
    let fake_ucp = FakeUcp::take();
    fake_ucp.set("maps", 1);
    let mut pair = built(&fake_ucp);
    pair.write_local(0, &[7; 64]);
    let puts = fake_ucp.calls("ucp_put_nbx");
    let most = u16::try_from(MAX_REQUESTS).unwrap();
    for index in 0..most {
        let at = u64::from(index) * 8;
        pair.near.post(&pair.request(index, Opcode::Put, 0, at, 8)).unwrap();
    }
    assert_eq!(pair.read_remote(0, MAX_REQUESTS * 8), vec![7; MAX_REQUESTS * 8]);
    let one_more = pair.request(most, Opcode::Put, 0, LEN - 8, 8);
    assert_eq!(pair.near.post(&one_more), Err(PostErrorKind::Busy));
    assert_eq!(pair.read_remote(LEN - 8, 8), [0; 8]);
    let done = poll(&mut pair);
    assert!(done.len() == MAX_REQUESTS && done.iter().all(|c| c.result == Ok(8)));
    assert_eq!(fake_ucp.calls("ucp_put_nbx"), puts);
    assert_eq!(pair.near.0.bytes_moved(), u64::from(most) * 8);
    end(&fake_ucp, pair);
}

#[test]
fn a_put_waits_for_those_before_it_although_its_window_is_mapped() {
    let fake_ucp = FakeUcp::take();
    let mut pair = built(&fake_ucp);
    fake_ucp.set("maps", 1);
    let (_, mapped, memory) = second_memory(&mut pair, 5, Access::all());
    let worker = Arc::clone(pair.near.0.worker());
    let guard = worker.lock();
    pair.near.post(&pair.request(0, Opcode::Put, 0, 0, 8)).unwrap();
    let mut second = pair.request(1, Opcode::Put, 0, 0, 8);
    second.remote = mapped.slice(0, 8).unwrap();
    pair.near.post(&second).unwrap();
    assert_eq!(poll(&mut pair), [], "both wait for the lock");
    drop(guard);
    assert_eq!(pair.wait(2).len(), 2);
    drop((worker, memory));
    end(&fake_ucp, pair);
}

#[test]
fn nothing_is_copied_for_a_tag_or_for_a_peer_that_is_gone() {
    let fake_ucp = FakeUcp::take();
    fake_ucp.set("maps", 1);
    let mut pair = built(&fake_ucp);
    let work = pair.request(0, Opcode::Put, 0, 0, 8);
    let list =
        |opcode| [Transfer { opcode, when: work.when, local: work.local, remote: work.remote }];
    let tagged = Opcode::PutNotify { tag: 1 };
    pair.write_local(0, &[7; 8]);
    assert!(!pair.near.0.try_transfer(tagged, work.local, work.remote));
    assert!(!pair.near.0.try_transfer_list(&list(tagged)));
    assert_eq!((pair.read_remote(0, 8), pair.near.0.bytes_moved()), (vec![0; 8], 0));
    assert!(pair.near.0.try_transfer(Opcode::Put, work.local, work.remote));
    assert!(pair.near.0.try_transfer_list(&list(Opcode::Put)));
    assert_eq!((pair.read_remote(0, 8), pair.near.0.bytes_moved()), (vec![7; 8], 16));
    pair.near.0.close();
    pair.write_local(0, &[8; 8]);
    for opcode in [tagged, Opcode::Put] {
        assert!(!pair.near.0.try_transfer(opcode, work.local, work.remote), "{opcode:?}");
        assert!(!pair.near.0.try_transfer_list(&list(opcode)), "{opcode:?}");
    }
    assert_eq!((pair.read_remote(0, 8), pair.near.0.bytes_moved()), (vec![7; 8], 16));
    end(&fake_ucp, pair);
}

/// What the transfer before had in common with it is not asked for again, and what it had not is.
#[test]
fn each_transfer_of_a_list_is_between_its_own_memory_and_window() {
    let fake_ucp = FakeUcp::take();
    fake_ucp.set("maps", 1);
    let mut pair = built(&fake_ucp);
    let (region_a, window_a, memory_a) = second_memory(&mut pair, 5, Access::all());
    let (region_b, window_b, memory_b) = second_memory(&mut pair, 6, Access::all());
    let (_, read_only, memory_c) = second_memory(&mut pair, 7, Access::READ);
    let (_, write_only, memory_d) = second_memory(&mut pair, 8, Access::WRITE);
    let transfer = |opcode, local: &LocalRegion, window: &WindowDesc| Transfer {
        opcode,
        when: CompleteWhen::Visible,
        local: local.slice(0, 8).unwrap(),
        remote: window.slice(0, 8).unwrap(),
    };
    let [here_a, there_a] = &memory_a;
    let [here_b, there_b] = &memory_b;
    let reset = || {
        for (memory, byte) in [(here_a, 1), (here_b, 2), (there_a, 3), (there_b, 4)] {
            fill(memory, byte);
        }
    };
    let (put, get) = (Opcode::Put, Opcode::Get);
    for (list, expected) in [
        ([transfer(put, &region_a, &window_a), transfer(put, &region_b, &window_b)], [1, 2, 1, 2]),
        ([transfer(put, &region_a, &window_a), transfer(put, &region_a, &window_b)], [1, 2, 1, 1]),
        ([transfer(put, &region_a, &window_a), transfer(put, &region_b, &window_a)], [1, 2, 2, 4]),
        ([transfer(get, &region_a, &window_a), transfer(get, &region_b, &window_a)], [3, 3, 3, 4]),
        ([transfer(get, &region_a, &window_a), transfer(put, &region_a, &window_b)], [3, 2, 3, 3]),
        ([transfer(get, &region_a, &window_a), transfer(get, &region_a, &window_b)], [4, 2, 3, 4]),
    ] {
        reset();
        assert!(pair.near.0.try_transfer_list(&list), "{list:?}");
        let held = [here_a, here_b, there_a, there_b].map(|memory| first_byte(memory));
        assert_eq!(held, expected, "{list:?}");
    }
    let stale = WindowDesc { epoch: Epoch(2), ..window_a };
    let other = WindowDesc { window: WindowId::new(5, 2 << 16), ..window_a };
    for (first, second) in [
        (transfer(put, &region_a, &window_a), transfer(put, &region_a, &stale)),
        (transfer(put, &region_a, &window_a), transfer(put, &region_a, &other)),
        (transfer(get, &region_a, &read_only), transfer(put, &region_a, &read_only)),
        (transfer(put, &region_a, &write_only), transfer(get, &region_a, &write_only)),
    ] {
        assert!(pair.near.0.try_transfer_list(&[first, first]), "{first:?}");
        assert!(!pair.near.0.try_transfer_list(&[first, second]), "{second:?}");
        assert!(!pair.near.0.try_transfer_list(&[second]), "{second:?}");
    }
    drop((memory_a, memory_b, memory_c, memory_d));
    end(&fake_ucp, pair);
}

/// Whoever waits is told by another thread's progress, and not by its own.
#[test]
fn who_takes_the_completions_itself_is_not_notified() {
    let fake_ucp = FakeUcp::take();
    let mut pair = built(&fake_ucp);
    for knob in ["put_delay", "get_delay"] {
        fake_ucp.set(knob, 5);
    }
    let before = pair.notifications.count();
    pair.near.post(&pair.request(0, Opcode::Put, 0, 0, 8)).unwrap();
    assert_eq!(pair.wait(1).len(), 1);
    assert_eq!(pair.notifications.count(), before);
    pair.near.post(&pair.request(1, Opcode::Get, 0, 0, 8)).unwrap();
    pair.near.0.advance();
    let worker = Arc::clone(pair.near.0.worker());
    let mut guards = 0..TURNS;
    while pair.notifications.count() == before && guards.next().is_some() {
        worker.lock().progress();
    }
    assert_eq!(pair.notifications.count(), before + 1);
    assert_eq!(poll(&mut pair).len(), 1);
    worker.lock().progress();
    assert_eq!(pair.notifications.count(), before + 1, "it has taken them");
    drop(worker);
    end(&fake_ucp, pair);
}

#[test]
fn puts_without_a_flush_are_work_once_one_can_be_begun() {
    let fake_ucp = FakeUcp::take();
    let mut pair = built(&fake_ucp);
    fake_ucp.rule("ucp_ep_flush_nbx", 0, CallResult::Held);
    for index in 0..5 {
        pair.near.post(&pair.request(index, Opcode::Put, 0, 0, 8)).unwrap();
        assert_eq!(poll(&mut pair), []);
    }
    assert!(!pair.near.0.has_work(), "four flushes are in flight");
    fake_ucp.clear_rules();
    assert_eq!(fake_ucp.release(), 4);
    assert_eq!(poll(&mut pair).len(), 4);
    assert!(pair.near.0.has_work(), "the fifth put needs a flush");
    assert_eq!(pair.wait(1).len(), 1);
    assert!(!pair.near.0.has_work());
    end(&fake_ucp, pair);
}

/// The lanes tell nothing of a put before the endpoint is closed, or the flush has ended.
#[test]
fn puts_of_a_closed_endpoint_end_when_ucx_has_ended_their_flush() {
    let fake_ucp = FakeUcp::take();
    let mut pair = built(&fake_ucp);
    fake_ucp.set("close_delay", 40);
    fake_ucp.rule("ucp_ep_flush_nbx", 1, CallResult::Held);
    for index in 0..3 {
        pair.near.post(&pair.request(index, Opcode::Put, 0, 0, 8)).unwrap();
    }
    assert_eq!(poll(&mut pair), []);
    pair.near.0.close();
    for _ in 0..10 {
        assert_eq!(poll(&mut pair), [], "UCX has the flush");
    }
    assert!(!pair.near.0.is_idle());
    let done = pair.wait(3);
    assert!(done.iter().all(|c| c.result == Err(Failure::PeerDead)), "{done:?}");
    end(&fake_ucp, pair);
}

#[test]
fn operations_that_are_under_way_hold_their_memory() {
    let fake_ucp = FakeUcp::take();
    for (lane, opcode) in [
        ("rc_mlx5/mlx5_0:1", Opcode::Get),
        ("rc_mlx5/mlx5_0:1", Opcode::Put),
        ("tcp/eth0", Opcode::Get),
        ("tcp/eth0", Opcode::Put),
        ("posix/memory", Opcode::Get),
        ("posix/memory", Opcode::Put),
    ] {
        fake_ucp.lane(lane);
        let mut pair = built(&fake_ucp);
        for function in ["ucp_get_nbx", "ucp_put_nbx", "ucp_am_send_nbx"] {
            fake_ucp.rule(function, 0, CallResult::Held);
        }
        pair.near.post(&pair.request(0, opcode, 0, 0, 8)).unwrap();
        assert_eq!(poll(&mut pair), []);
        assert!(!pair.near.0.is_idle(), "{lane} {opcode:?}");
        assert!(pair.near.0.evict_locals(|_| false).is_empty(), "{lane} {opcode:?}");
        fake_ucp.clear_rules();
        assert_eq!(fake_ucp.release(), 1);
        let mut done = Vec::new();
        while done.is_empty() {
            done = pair.poll();
            if let Some(back) = &mut pair.back {
                back.advance();
            }
        }
        assert_eq!(done.first().unwrap().result, Ok(8), "{lane} {opcode:?}");
        assert!(pair.near.0.is_idle());
        assert_eq!(pair.near.0.evict_locals(|_| false).len(), 1, "{lane} {opcode:?}");
        end(&fake_ucp, pair);
        fake_ucp.restart();
    }
}

/// Tells when it is dropped.
struct Told(#[expect(dead_code, reason = "held")] Arc<()>);

impl Notify for Told {
    fn notify(&self) {}
}

/// UCX has lost a flush, and may remember it: what its callback would write to lives as long as the worker.
#[test]
fn the_queue_of_a_lost_flush_lives_as_long_as_its_worker() {
    let fake_ucp = FakeUcp::take();
    for (fate, is_kept) in [(Some(CallResult::Lost), true), (None, false)] {
        let context = Context::new(fake_ucp.library(), &Settings::default()).unwrap();
        let (near, far) = (Worker::new(&context).unwrap(), Worker::new(&context).unwrap());
        let life = Arc::new(());
        let ours = near.new_am_target(Box::new(Told(Arc::clone(&life)))).unwrap();
        let theirs = far.new_am_target(Box::new(CountingNotify::default())).unwrap();
        if let Some(fate) = fate {
            fake_ucp.rule("ucp_ep_flush_nbx", 1, fate);
        }
        let info = far.conn_info(&theirs).unwrap();
        let mut transport = UcxTransport::new(&near, &ours, &info, false).unwrap();
        (0..20).for_each(|_| transport.advance());
        assert_eq!(transport.is_wired_up(), !is_kept);
        transport.close();
        (0..20).for_each(|_| transport.advance());
        assert!(transport.is_closed());
        drop((transport, ours));
        assert_eq!(Arc::strong_count(&life) == 2, is_kept);
        drop(near);
        assert_eq!(Arc::strong_count(&life), 1);
        drop((far, theirs, context));
        fake_ucp.assert_clean();
    }
}

/// The number of a target as its peer is told it: its index, and above it a count.
fn number(worker: &Worker, target: &AmTarget) -> (u32, u32) {
    let info = worker.conn_info(target).unwrap();
    // Two lengths, then the number: `Worker::conn_info`.
    let (_, rest) = info.split_first_chunk::<4>().unwrap();
    let (index, rest) = rest.split_first_chunk::<4>().unwrap();
    let (count, _) = rest.split_first_chunk::<4>().unwrap();
    (u32::from_le_bytes(*index), u32::from_le_bytes(*count))
}

#[test]
fn an_index_of_a_peer_that_is_gone_is_used_again_under_another_number() {
    let fake_ucp = FakeUcp::take();
    let context = Context::new(fake_ucp.library(), &Settings::default()).unwrap();
    let worker = Worker::new(&context).unwrap();
    let new = || worker.new_am_target(Box::new(CountingNotify::default()));
    let mut targets: Vec<_> = (0..3).map(|_| new().unwrap()).collect();
    drop(targets.remove(1));
    targets.push(new().unwrap());
    let numbers: Vec<_> = targets.iter().map(|target| number(&worker, target)).collect();
    assert_eq!(numbers, [(0, 1), (2, 3), (1, 4)]);
    // Up to the limit, at which an error says so.
    targets.extend((3..MAX_PEERS).map(|_| new().unwrap()));
    let e = new().expect_err("one too many");
    assert_eq!(e.status, Status::NO_RESOURCE);
    assert!(e.to_string().contains("4096 peers, which is the limit"), "{e}");
    targets.pop();
    assert_eq!(number(&worker, &new().unwrap()).0, MAX_PEERS - 1);
    drop((targets, worker, context));
    fake_ucp.assert_clean();
}

#[test]
fn a_library_reports_its_version_and_the_text_of_a_status() {
    let fake_ucp = FakeUcp::take();
    let library = fake_ucp.library();
    let context = Context::new(library, &Settings::default()).unwrap();
    let text = format!("{context:?}");
    let path = format!("{:?}", library.path());
    for part in ["Context", "Library", "major: 1, minor: 22, release: 0", path.as_str()] {
        assert!(text.contains(part), "{part}: {text}");
    }
    for status in [Status::OK, Status::IO_ERROR, Status::CONNECTION_RESET] {
        assert_eq!(Some(library.text(status)), status.name());
    }
    assert_eq!(library.text(Status(-98)), "Unknown error");
    assert!(!library.is_ending());
    drop(context);
    fake_ucp.assert_clean();
}
