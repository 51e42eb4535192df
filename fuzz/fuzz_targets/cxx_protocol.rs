//! See `hmc_fuzz::bodies::cxx::cxx`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hmc_fuzz::drive(hmc_fuzz::bodies::cxx::cxx, bytes));
