//! Data of a peer that a reconnect needs.

use hmc_core::types::ConnType;

use crate::base::address::Address;

/// How a lost peer can be reached again.
#[derive(Clone, Debug)]
pub(crate) struct ReconnectInfo {
    pub(crate) address: Address,
    pub(crate) conn: ConnType,
    pub(crate) redial: bool,
}
