//! The other end of a request: its queue pair, and the check of an access there.

use crate::abi::{
    IBV_LINK_LAYER_INFINIBAND, IBV_PORT_ACTIVE, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD, ibv_ah_attr,
};
use crate::device::{Gid, Port};
use crate::object::{Binding, KeyOwner};
use crate::queue_pair::Qp;
use crate::state::FakeIbv;
use crate::table::Id;

/// Memory of a target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) mr: Id,
    pub(crate) at: *mut u8,
}

/// Returns the GID that an address vector names.
pub(crate) const fn gid_of(ah: &ibv_ah_attr) -> [u8; 16] {
    // SAFETY: all bytes of the union are set, by either member.
    unsafe { ah.grh.dgid.raw }
}

/// Returns `true` if the address vector leads from the one port to the other.
fn leads(ah: &ibv_ah_attr, from: &Port, own: Option<Gid>, to: &Port, theirs: Option<Gid>) -> bool {
    if from.link_layer != to.link_layer {
        return false;
    }
    let by_gid = || match (own, theirs) {
        (Some(own), Some(theirs)) => own.kind == theirs.kind && gid_of(ah) == theirs.raw,
        _ => false,
    };
    let is_global = ah.is_global != 0;
    if from.link_layer == IBV_LINK_LAYER_INFINIBAND {
        ah.dlid == to.lid && (!is_global || by_gid())
    } else {
        is_global && by_gid()
    }
}

impl FakeIbv {
    fn port_of(&self, qp: &Qp) -> Option<(&Port, Option<Gid>)> {
        let port = self.devices[qp.device].port(qp.attr.port_num.into())?;
        let gid = port.gid(qp.attr.ah_attr.grh.sgid_index);
        (port.state == IBV_PORT_ACTIVE).then_some((port, gid))
    }

    /// Returns the queue pair that answers the requests of another, if either has the address and number of the other
    /// and the next packet has the number that is expected.
    pub(crate) fn peer_of(&self, id: Id) -> Option<Id> {
        let own = self.qps.get(id)?;
        let (own_port, own_gid) = self.port_of(own)?;
        self.qps.iter().find_map(|(at, other)| {
            let answers = matches!(other.state, IBV_QPS_RTR | IBV_QPS_RTS | IBV_QPS_SQD);
            if !answers
                || other.qp_num != own.attr.dest_qp_num
                || other.attr.dest_qp_num != own.qp_num
                || other.rq_psn != own.sq_psn
            {
                return None;
            }
            let (port, gid) = self.port_of(other)?;
            let there = leads(&own.attr.ah_attr, own_port, own_gid, port, gid);
            let back = leads(&other.attr.ah_attr, port, gid, own_port, own_gid);
            (there && back).then_some(at)
        })
    }

    /// Returns the memory that a remote access means, if the responder allows it.
    pub(crate) fn target(
        &self,
        responder: Id,
        (rkey, addr, len): (u32, u64, u64),
        right: u32,
    ) -> Option<Target> {
        let qp = self.qps.get(responder)?;
        if qp.attr.qp_access_flags & right == 0 {
            return None;
        }
        let (id, offset) = match *self.keys.get(&(rkey >> 8))? {
            KeyOwner::Mr(id) => {
                let mr = self.mrs.get(id)?;
                let allowed = mr.rkey == rkey && mr.pd == qp.pd && mr.access & right != 0;
                (id, allowed.then(|| mr.offset(addr, len)).flatten()?)
            }
            KeyOwner::Mw(id) => {
                let mw = self.mws.get(id).filter(|mw| mw.rkey == rkey && mw.pd == qp.pd)?;
                self.in_window(responder, mw.binding.as_ref()?, (addr, len), right)?
            }
            KeyOwner::FreedMw(window, key) if key == rkey => {
                self.in_window(responder, &window, (addr, len), right)?
            }
            KeyOwner::FreedMw(..) => return None,
        };
        self.mrs.get(id).map(|mr| Target { mr: id, at: mr.at(offset) })
    }

    /// Returns the region and offset that an access through a window means, if the window allows it.
    fn in_window(
        &self,
        responder: Id,
        window: &Binding,
        (addr, len): (u64, u64),
        right: u32,
    ) -> Option<(Id, u64)> {
        let device = &self.devices[self.qps.get(responder)?.device];
        let is_own = window.qp == responder || !device.checks_window_qp;
        let inside = addr
            .checked_sub(window.iova)
            .is_some_and(|at| at <= window.len && len <= window.len - at);
        let has_right = window.access & right != 0 || !device.checks_window_rights;
        if !is_own || !has_right || !inside && device.checks_window_range {
            return None;
        }
        let mr = self.mrs.get(window.mr)?;
        let offset = addr.wrapping_sub(window.iova).wrapping_add(window.offset);
        Some((window.mr, mr.offset(mr.iova.wrapping_add(offset), len)?))
    }
}
