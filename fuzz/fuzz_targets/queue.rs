//! See `hmc_fuzz::bodies::queue::queue`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hmc_fuzz::drive(hmc_fuzz::bodies::queue::queue, bytes));
