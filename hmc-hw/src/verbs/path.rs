//! The path from a local port to a remote one, in the form that queue pairs need.

use super::gid::Gid;
use super::port::LinkLayer;
use super::select::Port;
use super::sys::{ibv_ah_attr, ibv_gid, ibv_global_route};

/// How long an acknowledgement may take: 4.096 us times 2^14, which is 67 ms. With the retries a peer that is gone is known as such
/// within the time after which silence makes it dead.
pub(super) const ACK_TIMEOUT: u8 = 14;

/// Hops of a packet across routers: as many as there can be.
const HOP_LIMIT: u8 = 255;

/// The way from `port` to the port of these addresses.
pub(super) fn address_of(port: &Port, gid: Gid, lid: u16) -> ibv_ah_attr {
    // On Ethernet the GID is the address. Within an InfiniBand subnet the LID is.
    let is_global = port.link() == LinkLayer::Ethernet;
    let grh = ibv_global_route {
        dgid: ibv_gid { raw: gid.0 },
        sgid_index: port.gid_index(),
        hop_limit: HOP_LIMIT,
        ..ibv_global_route::default()
    };
    ibv_ah_attr {
        grh,
        dlid: lid,
        is_global: u8::from(is_global),
        port_num: port.number(),
        ..ibv_ah_attr::default()
    }
}
