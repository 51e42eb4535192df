//! Calls every public function of hmc-core with values that the optimiser cannot know.
//!
//! The program is linked, never run: [`sys`] has a panic handler that calls an undefined function, so a reachable panic is an
//! error of the linker. See
//! `xtask/src/cmd/nopanic.rs`, which also checks that no public function is missing here.
#![no_std]
#![no_main]

mod memory;
mod modules;
mod sys;
mod values;

/// The program's entry; it must be one that the linker keeps.
// SAFETY: the name is the one that ld(1) looks for; no other object of this program defines it.
#[unsafe(no_mangle)]
pub extern "C" fn _start() -> ! {
    modules::all();
    #[cfg(planted_panic)]
    modules::planted_panic::call();
    loop {
        core::hint::spin_loop();
    }
}
