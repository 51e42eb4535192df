//! See `hmc_fuzz::bodies::control_stream`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hmc_fuzz::bodies::control_stream(bytes));
