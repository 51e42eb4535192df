//! The rows of the table, one file each.

mod adopted;
mod batch;
mod ctrl;
mod file_put;
pub(crate) mod group;
mod idle_peers;
mod messages;
mod shm_bandwidth;
mod shm_latency;
pub(crate) mod sim_ops;
mod startup;
mod tcp_bandwidth;
mod tcp_latency;
pub(crate) mod ucx;
pub(crate) mod ucx_ops;

use crate::context::Context;
use crate::error::Res;
use crate::line::Line;

/// One row of the table: a question to the machine, answered by one or more lines.
pub(crate) trait Row {
    /// Its name, for `--only`.
    fn name(&self) -> &'static str;
    /// The unit of its values.
    fn unit(&self) -> &'static str;
    /// What it is compared with.
    fn reference(&self) -> &'static str;
    /// What is to be reached.
    fn target(&self) -> &'static str;
    /// Measures.
    ///
    /// # Errors
    /// Why it could not be measured.
    fn run(&self, context: &Context) -> Res<Vec<Line>>;
}

/// All rows, in the order of the table.
pub(crate) fn all() -> Vec<Box<dyn Row>> {
    vec![
        Box::new(shm_bandwidth::ShmBandwidth { first_size_only: false }),
        Box::new(shm_latency::ShmLatency { first_size_only: false }),
        Box::new(sim_ops::SimOps),
        Box::new(ucx_ops::UcxOps),
        Box::new(tcp_bandwidth::TcpBandwidth),
        Box::new(tcp_latency::TcpLatency { first_line_only: false }),
        Box::new(ctrl::Ctrl),
        Box::new(idle_peers::IdlePeers),
        Box::new(adopted::Adopted),
        Box::new(batch::Batches),
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

/// The rows that the self-test slows down: one of bandwidth, one of latency.
pub(crate) fn self_test_rows() -> Vec<Box<dyn Row>> {
    vec![
        Box::new(shm_bandwidth::ShmBandwidth { first_size_only: true }),
        Box::new(tcp_latency::TcpLatency { first_line_only: true }),
    ]
}

/// Remark on lines whose reference spins: the table asks for the one that blocks.
const SPINNING: &str = "a waiter of ours spins 20 us before it sleeps";

/// A size in words.
pub(crate) fn size(bytes: u64) -> String {
    if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) {
        format!("{} MiB", bytes >> 20)
    } else if bytes >= 1 << 10 && bytes.is_multiple_of(1 << 10) {
        format!("{} KiB", bytes >> 10)
    } else {
        format!("{bytes} B")
    }
}
