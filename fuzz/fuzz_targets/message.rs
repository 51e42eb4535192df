//! See `hmc_fuzz::bodies::message`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hmc_fuzz::bodies::message(bytes));
