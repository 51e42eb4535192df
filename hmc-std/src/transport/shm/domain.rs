//! Shared memory of a session.

use hmc_core::types::ConnType;
use hmc_core::wire::advert::ENDPOINT_SHM;

use super::ShmDataPlane;
use crate::base::error::Result;
use crate::transport::data_plane::AnyDataPlane;
use crate::transport::domain::{DataPlaneParams, Domain, PeerFacts, Side};

/// Shared memory needs nothing that links share.
pub(crate) struct ShmDomain;

impl Domain for ShmDomain {
    fn kind(&self) -> ConnType {
        ConnType::Shm
    }

    fn endpoint(&self) -> u8 {
        ENDPOINT_SHM
    }

    fn side(&self) -> Side {
        Side::Local
    }

    fn unfit(&self, peer: &PeerFacts<'_>, _by_name: bool) -> Option<String> {
        if !peer.same_host {
            return Some("the peer is on another host".to_owned());
        }
        let none = "the peer has no local socket (start it with a UDS folder)";
        (!peer.has_local_socket).then(|| none.to_owned())
    }

    fn fit(&self) -> &'static str {
        "same host, proven by a passed descriptor"
    }

    fn shares_pages(&self) -> bool {
        true
    }

    fn data_plane(&self, params: DataPlaneParams<'_>) -> Result<AnyDataPlane> {
        let (life, features) = (params.life, params.features);
        let plane = ShmDataPlane::new(params.stream(Side::Local), life, features)?;
        let rings = plane.rings();
        Ok(AnyDataPlane::new(plane).with_rings(rings))
    }
}
