//! Memory layer of HMC: the only crate that reads and writes shared host bytes.
//!
//! Bytes that another thread, process or device may write at any moment are never behind a Rust reference here.
//! They are copied in and out by [`hmc_core::range::ByteRange`], with instructions that the optimiser cannot see
//! through, and ordered by the atomic words of [`flag`], [`slot`], [`leader`] and [`gate`]. This crate takes no
//! access decisions: `hmc-core` does.
//!
//! Reading order: [`shared`], [`copy`], [`slot`], [`leader`], [`gate`], then `os`.
//!
//! Without the feature `std` the crate is `no_std`: there are no mappings, and a wait is a spin. Under `cfg(loom)`
//! only [`sync`] changes.
#![cfg_attr(not(any(feature = "std", test, loom)), no_std)]

#[cfg(all(feature = "std", not(target_os = "linux")))]
compile_error!(
    "hmc-mem needs Linux for its feature `std` (memfd, seals, futex). \
     Build with `--no-default-features` for the portable part."
);
#[cfg(all(
    feature = "std",
    target_os = "linux",
    not(any(target_arch = "x86_64", target_arch = "aarch64"))
))]
compile_error!(
    "hmc-mem supports Linux on x86_64 and aarch64 for its feature `std`. \
     Build with `--no-default-features` for the portable part."
);

pub mod copy;
pub mod crc;
pub mod error;
pub mod flag;
pub mod gate;
pub mod gates;
pub mod generations;
pub mod leader;
mod length;
#[cfg(all(
    feature = "std",
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(loom)
))]
pub mod os;
#[cfg(feature = "std")]
pub mod registered;
pub mod ring;
pub mod shared;
pub mod slot;
pub mod sync;
pub mod watch;
