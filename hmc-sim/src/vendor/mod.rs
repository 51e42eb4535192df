//! Where the fake vendor libraries are.
//!
//! A fake library is a package of its own in `hmc-sim/vendor/`, of type `cdylib`, with the vendor's C symbols: `vendor/ucp`
//! replaces libucp, `vendor/ibverbs` libibverbs. Completions are late, failed, out of order or never, and misuse ends the process. It
//! is a dependency of the tests that load it by dlopen. Nothing of it may be used outside of tests.

pub mod library;
