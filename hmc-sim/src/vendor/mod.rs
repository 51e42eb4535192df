//! Support for fake vendor libraries: shared libraries with a C API over fake devices.
//!
//! One file an API, in `hmc-sim/vendor/`, each an example of this crate of type `cdylib`:
//! 1. Declare it in `hmc-sim/Cargo.toml` (`[[example]]`, `crate-type = ["cdylib"]`).
//! 2. In it, one `static` [`fake_state::FakeState`] holds the state of the library (a [`gpu::Gpu`], or what the
//!    API needs), and each C function is one `extern "C" fn` that calls [`fake_state::FakeState::call`].
//! 3. Export its control function with [`export_control!`](crate::export_control): a test that has loaded the
//!    library uses it to inject errors and to query how often a function was called.
//! 4. A test gets the file from [`library::build`] and loads it with dlopen. [`library::without`] makes
//!    a copy that lacks some symbols.
//!
//! A fake library that is too large for a file is a package of its own in `hmc-sim/vendor/`, and a dependency of the tests that
//! load it; [`library::beside`] finds its file. `vendor/ucp` replaces libucp: completions late, failed, out of order or never,
//! and a check for misuse. `vendor/ibverbs` replaces libibverbs in the same way.
//!
//! Faults of each function are [`knobs`]: from the environment (`HMC_FAKE_NAME`) when the library is
//! first used, or through the control function. `vendor/fake_vendor.rs` is the smallest fake library and
//! `tests/vendor.rs` shows all of this at work. Nothing here may be used outside of tests.

pub mod fake_state;
pub mod gpu;
pub mod knobs;
pub mod library;
