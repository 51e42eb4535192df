//! TCP: a stream without additions.

use hmc_core::types::ConnType;
use hmc_core::wire::advert::ENDPOINT_TCP;

use crate::base::error::Result;
use crate::transport::data_plane::AnyDataPlane;
use crate::transport::domain::{DataPlaneParams, Domain, PeerFacts, Side};

/// TCP needs nothing that links share.
pub(crate) struct TcpDomain;

impl Domain for TcpDomain {
    fn kind(&self) -> ConnType {
        ConnType::Tcp
    }

    fn endpoint(&self) -> u8 {
        ENDPOINT_TCP
    }

    fn side(&self) -> Side {
        Side::Remote
    }

    fn unfit(&self, _peer: &PeerFacts<'_>, _by_name: bool) -> Option<String> {
        None
    }

    fn fit(&self) -> &'static str {
        "what is left"
    }

    fn data_plane(&self, params: DataPlaneParams<'_>) -> Result<AnyDataPlane> {
        Ok(AnyDataPlane::new(params.stream(Side::Remote)))
    }
}
