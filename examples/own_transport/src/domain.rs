//! A session's part in the transport: there is nothing that its links share.

use hmc_core::types::ConnType;
use hmc_core::wire::advert::EndpointBlob;
use hmc_std::Result;
use hmc_std::transport::{AnyDataPlane, DataPlaneParams, Domain, PeerFacts, Side};

use crate::name::{ENDPOINT, MEMFILE};
use crate::plane::MemfilePlane;

/// A session's part in the transport.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemfileDomain;

impl Domain for MemfileDomain {
    fn kind(&self) -> ConnType {
        MEMFILE
    }

    fn endpoint(&self) -> u8 {
        ENDPOINT
    }

    /// The kernel names the process at the other end of a local socket, whose end is a fence.
    fn side(&self) -> Side {
        Side::Local
    }

    fn announcement(&self) -> Option<EndpointBlob<'static>> {
        Some(EndpointBlob { kind: ENDPOINT, bytes: &[] })
    }

    fn unfit(&self, peer: &PeerFacts<'_>, _by_name: bool) -> Option<String> {
        let why = if !peer.same_host {
            "the peer runs on another host"
        } else if !peer.has_local_socket {
            "the peer has no local socket: start its session with `uds()`"
        } else if !peer.endpoints.contains(&ENDPOINT) {
            "the peer does not have the transport: start its session with `transport()`"
        } else {
            return None;
        };
        Some(why.to_owned())
    }

    fn fit(&self) -> &'static str {
        "asked for by name"
    }

    fn shares_pages(&self) -> bool {
        true
    }

    fn data_plane(&self, params: DataPlaneParams<'_>) -> Result<AnyDataPlane> {
        Ok(AnyDataPlane::new(MemfilePlane::new(&params)))
    }
}
