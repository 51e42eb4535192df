//! Memory of a simulated process: handles of its application, and registrations with its NIC.

use std::cell::Cell;
use std::rc::Rc;

use hmc_core::region::LocalRegion;

use super::wire::Wire;

/// Memory of a simulated process, as its application holds it. Clones are handles of the same memory; with the last one it is
/// freed, and its bytes are poisoned.
#[derive(Clone, Debug)]
pub struct ProcessMemory(Rc<Allocation>);

#[derive(Debug)]
struct Allocation {
    region: LocalRegion,
    process: Wire,
    /// Handles that are those of registrations.
    registrations: Cell<usize>,
}

impl Drop for Allocation {
    fn drop(&mut self) {
        self.process.deregister(self.region.key);
    }
}

impl ProcessMemory {
    pub(super) fn new(process: Wire, region: LocalRegion) -> Self {
        Self(Rc::new(Allocation { region, process, registrations: Cell::new(0) }))
    }

    /// Returns its key, its length and its kind.
    #[must_use]
    pub fn region(&self) -> LocalRegion {
        self.0.region
    }
}

/// A data plane's registration of memory: its NIC knows the memory until the last registration is dropped.
#[derive(Debug)]
pub struct RegisteredMemory(ProcessMemory);

impl RegisteredMemory {
    pub(super) fn new(memory: &ProcessMemory) -> Self {
        let Allocation { region, process, registrations } = &*memory.0;
        process.with_memory(|memory| memory.pin(region.key));
        registrations.set(registrations.get().saturating_add(1));
        Self(memory.clone())
    }

    /// The memory.
    #[must_use]
    pub fn memory(&self) -> &ProcessMemory {
        &self.0
    }

    /// Returns `true` if all handles of the memory are those of registrations.
    #[must_use]
    pub fn is_unused(&self) -> bool {
        Rc::strong_count(&self.0.0) <= self.0.0.registrations.get()
    }
}

impl Drop for RegisteredMemory {
    fn drop(&mut self) {
        let Allocation { region, process, registrations } = &*self.0.0;
        registrations.set(registrations.get().saturating_sub(1));
        if registrations.get() == 0 {
            process.with_memory(|memory| memory.unpin(region.key));
        }
    }
}
