//! What ours is compared with: the shortest honest code for the same job, without this library.

pub(crate) mod cma;
pub(crate) mod ibv_perftest;
pub(crate) mod mpi;
pub(crate) mod pages;
pub(crate) mod perftest;
pub(crate) mod process;
pub(crate) mod socket;
pub(crate) mod ucx_raw;
