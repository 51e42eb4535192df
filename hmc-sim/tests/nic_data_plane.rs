//! A simulated NIC as the data plane of a link: what each trait of the interface promises beyond the suite of transports.

#![allow(clippy::arithmetic_side_effects, reason = "tests may panic")]

use hmc_core::region::{LocalSlice, WindowDesc};
use hmc_core::slots::SlotId;
use hmc_core::transport::{
    DataCloseReason, DataPlane as _, Fence, Note, Notes as _, PeerWindows as _, PostErrorKind,
    Progress as _, Registration as _, Served, Target as _, Transport as _,
};
use hmc_core::types::{Access, MemoryKind};
use hmc_core::window::{WindowFault, WindowTransition};
use hmc_core::work::{CompleteWhen, Completion, Failure, Opcode, WorkRequest};
use hmc_sim::fault::{Faults, Rate};
use hmc_sim::nic::{Config, NicFault, ProcessMemory, SimNic};

const LEN: u64 = 4096;
const NONE: Completion = Completion { op: SlotId { index: 0, generation: 0 }, result: Ok(0) };
const SLOW: Faults = Faults { delay_max_ns: 2_000, fence_max_ns: 100_000, ..Faults::NONE };

/// Two ends with memory that is registered, and a window over the memory of the second.
struct Link {
    near: SimNic,
    far: SimNic,
    local: ProcessMemory,
    target: ProcessMemory,
    window: WindowDesc,
}

fn pair(faults: Faults) -> (SimNic, SimNic) {
    SimNic::pair(Config { seed: 3, faults, depth: 16 })
}

fn memory(nic: &mut SimNic) -> ProcessMemory {
    let memory = nic.allocate(MemoryKind::Cpu, LEN).expect("memory");
    nic.add_memory(&memory);
    memory
}

fn all_of(memory: &ProcessMemory) -> LocalSlice {
    memory.region().slice(0, LEN).expect("all of it")
}

fn expose(nic: &mut SimNic, memory: &ProcessMemory) -> Result<WindowDesc, NicFault> {
    let range = all_of(memory);
    let window = nic.windows().expose(range, MemoryKind::Cpu, Access::all(), 1 << 20);
    let window = window.expect("an entry is free");
    match nic.open(memory, range, &window, &mut []) {
        Ok(note) => assert_eq!(note, None, "the name is enough"),
        Err(fault) => {
            let (id, epoch) = (window.window, window.epoch);
            nic.windows().apply(id, epoch, WindowTransition::Revoke).expect("it was exposed");
            nic.free_window(id, epoch);
            return Err(fault);
        }
    }
    Ok(window)
}

fn put(index: u16, local: LocalSlice, window: &WindowDesc) -> WorkRequest {
    WorkRequest {
        op: SlotId { index, generation: 1 },
        opcode: Opcode::Put,
        when: CompleteWhen::Visible,
        local,
        remote: window.slice(0, LEN).expect("all of it"),
    }
}

fn drain(nic: &mut SimNic, turns: u32) -> Vec<Result<u64, Failure>> {
    let mut all = Vec::new();
    for _ in 0..turns {
        let mut out = [NONE; 4];
        let n = nic.poll(&mut out);
        all.extend(out.iter().take(n).map(|c| c.result));
    }
    all
}

impl Link {
    fn new(faults: Faults) -> Self {
        let (mut near, mut far) = pair(faults);
        let (local, target) = (memory(&mut near), memory(&mut far));
        let window = expose(&mut far, &target).expect("it is registered");
        Self { near, far, local, target, window }
    }

    fn put(&mut self, index: u16) -> Result<(), PostErrorKind> {
        self.near.post(&put(index, all_of(&self.local), &self.window))
    }

    fn revoke(&mut self) -> Fence<std::convert::Infallible> {
        self.far.revoke(self.window.window, self.window.epoch).expect("it is not freed")
    }

    fn is_released(&self) -> bool {
        self.far.is_released(self.window.window, self.window.epoch)
    }
}

#[test]
fn a_request_needs_memory_that_is_registered() {
    for faults in [Faults::NONE, SLOW] {
        let mut link = Link::new(faults);
        let other = link.near.allocate(MemoryKind::Cpu, LEN).expect("memory");
        assert!(link.near.write(other.region(), 0, &[7; 8]), "its process has it");
        let work = put(0, all_of(&other), &link.window);
        assert_eq!(link.near.post(&work), Err(PostErrorKind::UnknownRegion));
        link.near.add_memory(&other);
        link.near.add_memory(&other);
        link.near.post(&work).expect("registered");
        assert_eq!(drain(&mut link.near, 300), [Ok(LEN)]);
        let mut got = [0; 8];
        assert!(link.far.read(link.target.region(), 0, &mut got) && got == [7; 8]);
        // The application has a handle: nothing is released, unless the link ends.
        link.near.release_memory(false);
        assert!(link.near.take_released().is_empty());
        link.near.release_memory(true);
        let released = link.near.take_released();
        assert_eq!(released.len(), 2);
        link.near.post(&work).expect("known until the registration is dropped");
        drop(released);
        let unknown = [PostErrorKind::UnknownRegion].map(Err);
        assert_eq!([link.near.post(&work)], unknown);
    }
}

#[test]
fn memory_is_freed_with_its_last_handle_and_not_while_a_request_uses_it() {
    let mut link = Link::new(SLOW);
    let other = memory(&mut link.near);
    let (region, range) = (other.region(), all_of(&other));
    link.near.post(&put(0, range, &link.window)).expect("registered");
    drop(other);
    link.near.release_memory(false);
    assert!(link.near.take_released().is_empty(), "a request uses it");
    assert_eq!(drain(&mut link.near, 300), [Ok(LEN)]);
    assert!(link.near.write(region, 0, &[1]), "the data plane holds it");
    link.near.release_memory(false);
    drop(link.near.take_released());
    assert!(!link.near.write(region, 0, &[1]), "it is freed");
    link.near.check().expect("no damage");
}

#[test]
fn memory_of_a_device_is_staged() {
    let mut link = Link::new(Faults::NONE);
    assert_eq!(link.near.serves(MemoryKind::Cpu), Served::Direct);
    assert_eq!(link.near.serves(MemoryKind::NvidiaGpu), Served::Staged);
    let device = link.near.allocate(MemoryKind::NvidiaGpu, LEN).expect("memory");
    link.near.add_memory(&device);
    let work = put(0, all_of(&device), &link.window);
    assert_eq!(link.near.post(&work), Err(PostErrorKind::UnknownRegion));
}

#[test]
fn a_window_needs_registered_memory_and_its_entry_is_free_again() {
    for faults in [Faults::NONE, SLOW] {
        let mut link = Link::new(faults);
        let other = link.far.allocate(MemoryKind::Cpu, LEN).expect("memory");
        assert_eq!(expose(&mut link.far, &other), Err(NicFault::UnknownMemory));
        assert_eq!(link.far.windows().in_use().count(), 1);
        link.far.add_memory(&other);
        let opened = expose(&mut link.far, &other).expect("it is registered");
        assert_eq!(
            (opened.window.index(), opened.epoch.0),
            (1, 2),
            "the refused one was the first"
        );
        // A host that names a window and does not open it is out of step with its NIC.
        let range = all_of(&other);
        let unopened = link.far.windows().expose(range, MemoryKind::Cpu, Access::all(), 1);
        link.far.free_window(unopened.expect("free").window, unopened.expect("free").epoch);
        assert_eq!(expose(&mut link.far, &other), Err(NicFault::TakenName));
    }
}

#[test]
fn a_fence_takes_time_and_is_the_acknowledgement_of_the_nic() {
    let mut link = Link::new(Faults::NONE);
    assert_eq!(link.revoke(), Fence::Passed);
    link.put(0).expect("the target refuses it");
    assert_eq!(drain(&mut link.near, 1), [Err(Failure::Window(WindowFault::Revoked))]);

    let mut link = Link::new(SLOW);
    assert!(!link.far.interest().work);
    assert_eq!((link.revoke(), link.revoke()), (Fence::PeerAck, Fence::PeerAck));
    assert!(link.far.interest().work, "the fence has not passed");
    link.put(0).expect("accepted");
    let mut landed = false;
    while !link.is_released() {
        link.far.poll_peer(false);
        landed |= link.far.bytes_moved() == (0, LEN);
    }
    assert!(landed, "bytes land until the fence");
    assert_eq!((link.near.bytes_moved(), link.near.bytes_offloaded()), ((LEN, 0), LEN));
    assert_eq!(drain(&mut link.near, 300), [Ok(LEN)]);
    link.put(1).expect("accepted");
    assert_eq!(drain(&mut link.near, 300), [Err(Failure::Window(WindowFault::Revoked))]);
    assert_eq!(link.revoke(), Fence::Passed);
    link.far.free_window(link.window.window, link.window.epoch);
    let next = expose(&mut link.far, &link.target).expect("its entry is free");
    assert_eq!(next.window.index(), link.window.window.index());
    link.put(2).expect("accepted");
    assert_eq!(drain(&mut link.near, 300), [Err(Failure::Window(WindowFault::StaleEpoch))]);
}

#[test]
fn a_window_that_the_peer_revokes_is_released_after_the_requests_that_use_it() {
    let mut link = Link::new(Faults { fence_max_ns: 1_000_000, ..SLOW });
    let name = (link.window.window, link.window.epoch);
    link.put(0).expect("accepted");
    assert_eq!(link.revoke(), Fence::PeerAck);
    assert!(!link.near.remove_window(name.0, name.1), "a request uses it");
    // Later requests are refused here, although the NIC of the peer does not refuse them yet.
    link.put(1).expect("accepted");
    assert!(link.near.has_releases());
    let op = SlotId { index: 0, generation: 1 };
    while link.near.uses_memory_of(op) {
        assert_eq!(link.near.next_release(), None, "a request uses it");
        link.near.poll_peer(false);
    }
    while !link.near.are_requests_fenced() {
        link.near.poll_peer(false);
    }
    assert!(!link.is_released(), "the NIC of the peer has not refused it");
    assert_eq!((link.near.next_release(), link.near.next_release()), (Some(name), None));
    assert!(!link.near.has_releases());
    let mut results = drain(&mut link.near, 1);
    results.sort_by_key(Result::is_err);
    assert_eq!(results, [Ok(LEN), Err(Failure::Window(WindowFault::Revoked))]);
    assert!(link.near.remove_window(name.0, name.1), "nothing is in flight");
}

#[test]
fn an_end_is_ready_when_the_greeting_of_its_peer_has_come() {
    let config = Config { seed: 3, faults: SLOW, depth: 16 };
    let (mut near, mut far) = SimNic::unconnected_pair(config);
    let (local, target) = (memory(&mut near), memory(&mut far));
    let window = expose(&mut far, &target).expect("it is registered");
    let work = put(0, all_of(&local), &window);
    assert_eq!((near.is_ready(), near.post(&work)), (false, Err(PostErrorKind::Busy)));
    let mut buf = [[0; 8]; 2];
    let [first, second] = &mut buf;
    let own = near.greeting(first).expect("it has an address").expect("a note");
    let note = far.greeting(second).expect("it has an address").expect("a note");
    assert_eq!(near.receive_note(own), Err(NicFault::OtherPeer));
    let short = Note { bytes: &[1], ..note };
    assert_eq!(near.receive_note(short), Err(NicFault::OtherPeer));
    let other = Note { kind: note.kind + 1, ..note };
    assert_eq!((near.receive_note(other), near.is_ready()), (Ok(()), false));
    assert_eq!((near.receive_note(note), near.is_ready()), (Ok(()), true));
    near.post(&work).expect("it is ready");
    assert_eq!(drain(&mut near, 500), [], "the peer accepts nothing yet");
    far.receive_note(own).expect("the address of its peer");
    assert_eq!(drain(&mut near, 500), [Ok(LEN)]);
}

#[test]
fn tags_are_reported_once_and_a_full_inbox_pauses() {
    for faults in [Faults::NONE, Faults { delay_max_ns: 100, ..Faults::NONE }] {
        let mut link = Link::new(faults);
        for tag in 0..1024 {
            let local = link.local.region().slice(0, 0).expect("nothing");
            let remote = link.window.slice(0, 0).expect("nothing");
            let opcode = Opcode::PutNotify { tag };
            let work = WorkRequest { opcode, remote, ..put(0, local, &link.window) };
            link.near.post(&work).expect("there is space");
            while drain(&mut link.near, 1).is_empty() {}
            link.far.advance(10_000);
        }
        assert!(link.far.take_delivered() && !link.far.take_delivered());
        assert!(link.far.is_paused());
        assert!(link.far.take_tag().is_some());
        assert!(!link.far.is_paused() && !link.far.take_delivered());
    }
}

#[test]
fn a_closed_end_moves_nothing_and_its_requests_complete() {
    // Also those whose completion was lost.
    for lost in [Rate::NEVER, Rate::ALWAYS] {
        let mut link = Link::new(Faults { lost, ..SLOW });
        let life = link.near.peer_life();
        let back = memory(&mut link.near);
        let window = expose(&mut link.near, &back).expect("it is registered");
        for index in 0..4 {
            link.put(index).expect("accepted");
        }
        let work = put(9, all_of(&link.target), &window);
        link.far.post(&work).expect("accepted");
        link.near.close(DataCloseReason::Silent);
        link.near.close(DataCloseReason::Protocol("a second call changes nothing"));
        assert_eq!(link.near.close_reason(), Some(DataCloseReason::Silent));
        assert_eq!(link.far.close_reason(), Some(DataCloseReason::Eof));
        assert!(link.far.peer_has_ended() && !life.has_ended() && !link.near.is_ready());
        assert_eq!(link.put(5), Err(PostErrorKind::Disconnected));
        let moved = link.near.bytes_moved().0;
        assert!(!link.near.is_fenced(), "its window is open until the fence");
        let mut done = drain(&mut link.near, 300);
        while !link.near.is_fenced() {
            link.near.poll_peer(false);
        }
        done.extend(drain(&mut link.near, 100));
        assert_eq!(done, [Err(Failure::PeerDead); 4]);
        assert_eq!(link.near.bytes_moved().0, moved);
        assert!(link.near.are_requests_fenced());
        assert_eq!(drain(&mut link.far, 300).len(), 1);
        assert_eq!(link.far.post(&work), Err(PostErrorKind::Disconnected));
    }
}

#[test]
fn an_end_reports_why_it_is_down() {
    let mut link = Link::new(Faults::NONE);
    assert_eq!((link.near.close_reason(), link.near.is_ready()), (None, true));
    link.far.kill();
    assert_eq!(link.near.close_reason(), Some(DataCloseReason::Eof));
    assert!(link.near.peer_life().has_ended() && !link.near.is_ready() && link.near.is_fenced());

    let mut link = Link::new(Faults { flush_on_error: true, ..SLOW });
    link.window.epoch.0 += 1;
    link.put(0).expect("accepted");
    assert_eq!(drain(&mut link.near, 300).len(), 1);
    let failed = DataCloseReason::Failed(Faults::FLUSHED);
    assert_eq!((link.near.close_reason(), link.near.is_ready()), (Some(failed), false));
}
