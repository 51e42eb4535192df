//! How RDMA verbs are found and set up.

use std::path::PathBuf;

use hmc_hw::verbs::gid_choice::Want;
use hmc_hw::verbs::select::Selector;

/// How RDMA verbs are found and set up.
#[derive(Clone, Debug)]
pub(crate) struct Rdma {
    pub(crate) library: Option<PathBuf>,
    /// The port, as far as the user names it.
    pub(crate) port: Selector,
    /// Queue pairs of each link.
    pub(crate) lanes: usize,
}

impl Rdma {
    /// What the environment says of them; one queue pair for each link.
    pub(super) fn new(library: Option<PathBuf>, port: Option<Selector>, gid: Option<u8>) -> Self {
        let gid = Want { index: gid, ..Want::default() };
        Self { library, port: Selector { gid, ..port.unwrap_or_default() }, lanes: 1 }
    }
}
