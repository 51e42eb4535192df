//! The simulator of HMC, for tests: memory, a NIC and network conditions that a test can script.
//!
//! No release imports this crate. It needs no hardware, no thread, no socket and no clock:
//! time is virtual, random numbers are seeded, and a failure reports its seed, so each run is reproducible.
//!
//! - [`memory`]: region memory with guard bytes and poison; [`rng`] and [`fault`]: seeded random numbers and faults.
//! - [`reference`](mod@reference): the smallest correct transport, and the base of broken ones.
//! - [`world`]: a cluster of ranks from one seed, with crashes and partitions, and its oracle.
//! - [`nic`]: two ends of a simulated NIC with delays, reordering, loss, duplicates and death; [`sim_net`]
//!   has more ends than two; [`access_checker`] reports each access without a right.
//! - [`device`]: devices with an address space of their own, and streams that take time.
//! - [`vendor`]: fake shared libraries with a vendor's C API over such devices, built by the tests.
//! - [`conformance`]: the suites that every transport and every device must pass. Start at
//!   [`conformance::transport::run`] and [`conformance::device::run`].

pub mod access_checker;
pub mod conformance;
pub mod device;
mod fabric;
pub mod fault;
pub mod memory;
pub mod nic;
pub mod reference;
mod ring;
pub mod rng;
pub mod sim_net;
pub mod vendor;
pub mod world;
