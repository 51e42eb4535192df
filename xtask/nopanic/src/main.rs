//! Calls every public function of hmc-core with values that the optimiser cannot know.
//!
//! The program is linked, never run: [`sys`] holds a panic handler that calls a function which
//! nobody defines, so that a reachable panic is an error of the linker. See
//! `xtask/src/cmd/nopanic.rs`, which also checks that no public function is forgotten here.
#![no_std]
#![no_main]

mod memory;
mod rooms;
mod sys;
mod values;

/// The program's entry; it must be one that the linker keeps.
// SAFETY: the name is the one that ld(1) looks for; no other object of this program defines it.
#[unsafe(no_mangle)]
pub extern "C" fn _start() -> ! {
    rooms::all();
    #[cfg(seeded_panic)]
    rooms::seeded::call();
    loop {
        core::hint::spin_loop();
    }
}
