//! Actions at an orderly exit of the process.

/// Has `call` called when the process ends by exit(3) or because `main` returns, before its libraries are taken down: after
/// the handlers that are registered later, before those that were earlier (atexit(3)). It runs in the thread that ends the
/// process, and in children forked since then, too. Whether the system took it.
#[must_use]
pub fn at_exit(call: extern "C" fn()) -> bool {
    // SAFETY: atexit(3) takes a function without arguments, which stays as long as the library that it is part of.
    unsafe { libc::atexit(call) == 0 }
}
