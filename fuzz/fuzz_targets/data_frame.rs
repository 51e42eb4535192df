//! See `hmc_fuzz::bodies::data_frame`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hmc_fuzz::bodies::data_frame(bytes));
