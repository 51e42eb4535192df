//! How HMC finds and configures RDMA verbs.

use std::path::PathBuf;

use hmc_hw::verbs::gid_choice::Want;
use hmc_hw::verbs::nic_list::NicList;

/// How RDMA verbs are found and set up.
#[derive(Clone, Debug)]
pub(crate) struct Rdma {
    pub(crate) library: Option<PathBuf>,
    /// The ports, as far as the user names them.
    pub(crate) nics: NicList,
    /// Queue pairs of each link, if there are no more NICs.
    pub(crate) lanes: usize,
}

impl Rdma {
    /// What the environment says of them; one queue pair for each link and NIC.
    pub(super) fn new(library: Option<PathBuf>, nics: Option<NicList>, gid: Option<u8>) -> Self {
        let gid = Want { index: gid, ..Want::default() };
        Self { library, nics: nics.unwrap_or_default().with_gid(gid), lanes: 1 }
    }
}
