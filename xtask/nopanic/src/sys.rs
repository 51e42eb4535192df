//! The panic handler, and the symbol that must not be needed.

// SAFETY: declared for the linker to miss. The function is never called: the program that would
// call it does not link, and the one that links is never run.
unsafe extern "C" {
    fn hmc_core_contains_a_panic_path() -> !;
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: never reached, see the declaration.
    unsafe { hmc_core_contains_a_panic_path() }
}
