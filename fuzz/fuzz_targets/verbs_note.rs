//! See `hmc_fuzz::verbs_note`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hmc_fuzz::drive(
    hmc_fuzz::verbs_note::verbs_note,
    bytes
));
