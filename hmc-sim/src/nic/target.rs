//! The memory of an end, its windows, and those of the peer.

use std::convert::Infallible;

use hmc_core::region::{Epoch, LocalSlice, WindowDesc, WindowId};
use hmc_core::transport::{Fence, Note, PeerWindows, Registration, Served, Target};
use hmc_core::window::{WindowEntry, WindowTable};

use super::SimNic;
use super::fault::NicFault;
use super::process_memory::{ProcessMemory, RegisteredMemory};
use super::wire::Wire;

impl Registration for SimNic {
    type Memory = ProcessMemory;
    /// The NIC knows the memory until they are dropped.
    type Released = Vec<RegisteredMemory>;

    fn add_memory(&mut self, memory: &ProcessMemory) {
        let region = memory.region();
        let is_known = |m: &RegisteredMemory| m.memory().region().key == region.key;
        let registered = &mut self.host.registered;
        if registered.iter().any(is_known) {
            return;
        }
        // It was released and is used again, before the host dropped it.
        let released = &mut self.host.released;
        if let Some(at) = released.iter().position(is_known) {
            registered.push(released.swap_remove(at));
        } else if self.serves(region.place.kind()) == Served::Direct {
            self.host.registered.push(RegisteredMemory::new(memory));
        }
    }

    fn release_memory(&mut self, all: bool) {
        let wire = self.wire();
        let is_kept = |m: &RegisteredMemory| {
            let key = m.memory().region().key;
            !(all || m.is_unused()) || wire.any(|work| work.local.key == key)
        };
        let (kept, released): (Vec<_>, Vec<_>) = self.host.registered.drain(..).partition(is_kept);
        self.host.registered = kept;
        self.host.released.extend(released);
    }

    fn take_released(&mut self) -> Vec<RegisteredMemory> {
        std::mem::take(&mut self.host.released)
    }
}

impl Target for SimNic {
    type Windows = Box<[WindowEntry]>;
    type Gate = Infallible;
    type Fault = NicFault;

    /// The table of the host. The NIC has its own, which it checks; [`Self::open`] enters each window that the host has named.
    fn windows(&mut self) -> &mut WindowTable<Box<[WindowEntry]>> {
        &mut self.host.windows
    }

    /// The name of a window is all that the peer needs.
    fn open<'a>(
        &mut self,
        memory: &ProcessMemory,
        local: LocalSlice,
        window: &WindowDesc,
        _buf: &'a mut [u8],
    ) -> Result<Option<Note<'a>>, NicFault> {
        let wire = self.wire();
        // The NIC enters what it refuses as well: its table remains in step with the host's.
        if !wire.open_window(local, window) {
            return Err(NicFault::TakenName);
        }
        let is_its = memory.region().key == local.key;
        if is_its && wire.with_memory(|memory| memory.knows(local)) {
            return Ok(None);
        }
        self.forget_window(window.window, window.epoch);
        Err(NicFault::UnknownMemory)
    }

    /// The fence is the acknowledgement of this end's NIC, which takes up to `Faults::fence_max_ns`.
    fn close_window(&mut self, id: WindowId, epoch: Epoch) -> Fence<Infallible> {
        self.begin_revoke(id, epoch);
        if self.is_released(id, epoch) { Fence::Passed } else { Fence::PeerAck }
    }

    fn is_released(&self, id: WindowId, epoch: Epoch) -> bool {
        match &self.wire() {
            Wire::ZeroLatency(..) => true,
            Wire::Net(fabric, port) => fabric.borrow().is_fenced(*port, (id, epoch)),
        }
    }

    fn forget_window(&mut self, id: WindowId, epoch: Epoch) {
        match &self.wire() {
            Wire::ZeroLatency(fabric, side) => {
                fabric.borrow_mut().end(*side).forget_window(id, epoch);
            }
            Wire::Net(fabric, port) => fabric.borrow_mut().forget_window(*port, (id, epoch)),
        }
    }
}

impl PeerWindows for SimNic {
    /// Pages of the peer are not mapped.
    type Mapped = Infallible;

    /// The target's NIC refuses at zero latency; otherwise this end does before.
    fn remove_window(&mut self, id: WindowId, epoch: Epoch) -> bool {
        let is_used = match &self.wire() {
            Wire::ZeroLatency(..) => false,
            Wire::Net(fabric, port) => fabric.borrow_mut().remove_window(*port, (id, epoch)),
        };
        if is_used {
            self.host.releases.retain(|(other, _)| other.index() != id.index());
            self.host.releases.push((id, epoch));
        }
        !is_used
    }
}
