//! A simulated NIC as the data plane of a link: what each trait of the interface promises beyond the suite of transports.

#![allow(clippy::arithmetic_side_effects, reason = "tests may panic")]

use hmc_core::region::{LocalSlice, WindowDesc};
use hmc_core::slots::SlotId;
use hmc_core::transport::{
    Fence, PostErrorKind, Registration as _, Served, Target as _, Transport as _,
};
use hmc_core::types::{Access, MemoryKind};
use hmc_core::window::{WindowFault, WindowTransition};
use hmc_core::work::{CompleteWhen, Completion, Failure, Opcode, WorkRequest};
use hmc_sim::fault::Faults;
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
    assert_eq!((link.revoke(), link.revoke()), (Fence::PeerAck, Fence::PeerAck));
    link.put(0).expect("accepted");
    while !link.is_released() {
        link.far.advance(100);
    }
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
