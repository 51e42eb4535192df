//! The rows of the table, one file each.

mod batch;
mod ctrl;
mod file_put;
mod generations;
pub(crate) mod group;
mod idle_peers;
mod messages;
pub(crate) mod mpi;
mod rdma;
pub(crate) mod session_ops;
mod shm_bandwidth;
mod shm_latency;
pub(crate) mod sim_ops;
mod startup;
mod strided;
mod tcp_bandwidth;
mod tcp_latency;
mod two_threads;
pub(crate) mod ucx;
pub(crate) mod ucx_ops;
mod user_memory;
pub(crate) mod verbs_ops;

use crate::row::Row;

/// All rows, in the order of the table.
pub(crate) fn all() -> Vec<Box<dyn Row>> {
    vec![
        Box::new(shm_bandwidth::ShmBandwidth { first_size_only: false }),
        Box::new(shm_latency::ShmLatency { first_size_only: false }),
        Box::new(session_ops::SessionOps),
        Box::new(two_threads::TwoThreads),
        Box::new(sim_ops::SimOps),
        Box::new(ucx_ops::UcxOps),
        Box::new(verbs_ops::VerbsOps),
        Box::new(tcp_bandwidth::TcpBandwidth),
        Box::new(tcp_latency::TcpLatency { first_line_only: false }),
        Box::new(ctrl::Ctrl),
        Box::new(idle_peers::IdlePeers),
        Box::new(user_memory::UserMemory),
        Box::new(batch::Batches),
        Box::new(generations::Generations),
        Box::new(strided::Strided),
        Box::new(messages::Messages),
        Box::new(group::Groups),
        Box::new(startup::Startup),
        Box::new(file_put::FilePut),
    ]
}

/// The rows over UCX, which is not everywhere, in the order of their table.
pub(crate) fn over_ucx() -> Vec<Box<dyn Row>> {
    vec![
        Box::new(ucx::bandwidth::UcxBandwidth),
        Box::new(ucx::latency::UcxLatency),
        Box::new(ucx::rate::UcxRate),
        Box::new(ucx::registration::UcxRegistration),
    ]
}

/// The rows over RDMA verbs, for machines with a device, in the order of their table.
pub(crate) fn over_rdma() -> Vec<Box<dyn Row>> {
    vec![
        Box::new(rdma::control::RdmaControl),
        Box::new(rdma::bandwidth::RdmaBandwidth),
        Box::new(rdma::latency::RdmaLatency),
        Box::new(rdma::rate::RdmaRate),
        Box::new(rdma::list::RdmaList),
    ]
}

/// The rows beside an MPI library, for machines with one.
pub(crate) fn beside_mpi() -> Vec<Box<dyn Row>> {
    vec![Box::new(mpi::Collectives { first_line_only: false })]
}

/// The row beside an MPI library that the self-test slows down.
pub(crate) fn self_test_beside_mpi() -> Vec<Box<dyn Row>> {
    vec![Box::new(mpi::Collectives { first_line_only: true })]
}

/// The rows that the self-test slows down: one of bandwidth, one of latency.
pub(crate) fn self_test_rows() -> Vec<Box<dyn Row>> {
    vec![
        Box::new(shm_bandwidth::ShmBandwidth { first_size_only: true }),
        Box::new(tcp_latency::TcpLatency { first_line_only: true }),
    ]
}
