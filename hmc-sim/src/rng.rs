//! Seeded chance, as the suites have it.

pub use hmc_conformance::rng::Rng;
