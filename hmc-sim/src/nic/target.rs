//! The memory of an end.

use hmc_core::transport::{Registration, Served};

use super::SimNic;
use super::process_memory::{ProcessMemory, RegisteredMemory};

impl Registration for SimNic {
    type Memory = ProcessMemory;
    /// The NIC knows the memory until they are dropped.
    type Released = Vec<RegisteredMemory>;

    fn add_memory(&mut self, memory: &ProcessMemory) {
        let region = memory.region();
        let is_known = |m: &RegisteredMemory| m.memory().region().key == region.key;
        let registered = &mut self.registered;
        if registered.iter().any(is_known) {
            return;
        }
        // It was released and is used again, before the host dropped it.
        let released = &mut self.released;
        if let Some(at) = released.iter().position(is_known) {
            registered.push(released.swap_remove(at));
        } else if self.serves(region.kind) == Served::Direct {
            self.registered.push(RegisteredMemory::new(memory));
        }
    }

    fn release_memory(&mut self, all: bool) {
        let wire = self.wire();
        let is_kept = |m: &RegisteredMemory| {
            let key = m.memory().region().key;
            !(all || m.is_unused()) || wire.any(|work| work.local.key == key)
        };
        let (kept, released): (Vec<_>, Vec<_>) = self.registered.drain(..).partition(is_kept);
        self.registered = kept;
        self.released.extend(released);
    }

    fn take_released(&mut self) -> Vec<RegisteredMemory> {
        std::mem::take(&mut self.released)
    }
}
