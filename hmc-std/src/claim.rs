//! What a stranger's HELLO claims.

use hmc_core::kinds::{Incarnation, Rank};
use hmc_core::wire::advert::Endpoint;
use hmc_core::wire::hello::{Hello, HostId};

use crate::address::Address;
use crate::listen::Source;
use crate::shared::Shared;

/// Who a stranger says that it is.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) rank: Rank,
    pub(crate) incarnation: Incarnation,
    pub(crate) host: HostId,
    /// Where it can be dialed.
    pub(crate) route: Option<Address>,
}

impl Shared {
    pub(crate) fn claim_of(&self, h: &Hello<'_>, source: Source) -> Claim {
        let route = self.route_back(h, source);
        Claim { rank: h.rank, incarnation: h.incarnation, host: h.host, route }
    }

    /// Where the stranger itself listens, should it have to be dialed.
    fn route_back(&self, h: &Hello<'_>, source: Source) -> Option<Address> {
        h.endpoints.iter().find_map(|blob| match (blob.typed(), source) {
            (Ok(Endpoint::Shm { path }), Source::Uds { .. }) if h.host == self.host => {
                let path = std::path::PathBuf::from(std::ffi::OsString::from(
                    std::str::from_utf8(path).ok()?,
                ));
                path.parent().map(|dir| Address::Uds(dir.to_path_buf()))
            }
            (Ok(e @ Endpoint::Tcp { .. }), Source::Tcp(from)) => {
                e.port().map(|port| Address::Tcp((from.ip(), port).into()))
            }
            _ => None,
        })
    }
}
