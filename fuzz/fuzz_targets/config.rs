//! See `hmc_fuzz::config::config`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hmc_fuzz::drive(hmc_fuzz::config::config, bytes));
