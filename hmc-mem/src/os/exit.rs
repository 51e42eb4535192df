//! Actions at an orderly exit of the process.

/// Registers `call` to run when the process ends by exit(3) or by a return from `main`, after handlers that are
/// registered later and before those that were registered earlier (atexit(3)). It runs in the thread that ends the
/// process, and also in children forked after the registration. Returns `false` if the system refused.
#[must_use]
pub fn at_exit(call: extern "C" fn()) -> bool {
    // SAFETY: atexit(3) takes a function without arguments, which stays as long as the library that it is part of.
    unsafe { libc::atexit(call) == 0 }
}
