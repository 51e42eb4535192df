//! UCX's transport between two workers, over the fake libucp: what is copied at once, what is queued, whom it notifies, and what it
//! keeps until UCX has ended it.

#![allow(clippy::arithmetic_side_effects, clippy::unwrap_used, reason = "tests may panic")]

use std::sync::Arc;

use hmc_core::queue::Transfer;
use hmc_core::range::Extent;
use hmc_core::region::{Epoch, LocalRegion, RegionKey, WindowDesc, WindowId};
use hmc_core::slots::SlotId;
use hmc_core::transport::{PostErrorKind, Transport as _};
use hmc_core::types::{Access, MemoryKind};
use hmc_core::work::{CompleteWhen, Completion, Opcode};
use hmc_hw::ucx::context::Context;
use hmc_hw::ucx::memory::Memory;
use hmc_hw::ucx::result::Status;
use hmc_hw::ucx::settings::Settings;
use hmc_hw::ucx::transport::MAX_REQUESTS;
use hmc_mem::shared::SharedBytes;
use hmc_tests::fake_ucp::FakeUcp;
use hmc_tests::ucx_pair::Built;

const LEN: u64 = 4096;
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
    (LocalRegion { key, extent, kind: MemoryKind::Cpu }, window, [here, there])
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

#[test]
fn a_library_says_which_it_is_and_what_a_status_means() {
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
