//! Calls of memory windows, which only a table of operations has.

use core::ffi::c_int;

use crate::abi::{
    IBV_MW_TYPE_1, IBV_MW_TYPE_2, IBV_QPS_ERR, IBV_WR_BIND_MW, ibv_mw, ibv_mw_type, ibv_pd, ibv_qp,
};
use crate::device::Windows;
use crate::faults::Call;
use crate::object::{KeyOwner, Mw};
use crate::state::{FakeIbv, fail, state, structure};
use crate::table::Id;

/// `ibv_alloc_mw` of the context in a slot.
///
/// # Safety
/// As for `ibv_alloc_mw`.
pub(crate) unsafe fn alloc_mw(slot: usize, pd: *mut ibv_pd, kind: ibv_mw_type) -> *mut ibv_mw {
    let mut w = state();
    let call = Call::AllocMw;
    let Some(domain) = w.known(call, |w| &w.pds, pd) else { return fail(libc::EINVAL) };
    let (parent, device) = w.pds.get(domain).map_or((0, 0), |p| (p.context, p.device));
    if !w.came_through(call, parent, slot) {
        return fail(libc::EINVAL);
    }
    if let Some(errno) = w.set_up(call, Some(device)) {
        return fail(errno);
    }
    let count = w.mws.values().filter(|m| m.device == device).count() as u64;
    let windows = w.devices[device].windows;
    if windows == Windows::NoAlloc {
        return fail(libc::EOPNOTSUPP);
    }
    if !matches!(kind, IBV_MW_TYPE_1 | IBV_MW_TYPE_2) {
        return fail(libc::EINVAL);
    }
    if count >= w.devices[device].limits.max_mw {
        return fail(libc::ENOMEM);
    }
    let id = w.mws.next_id();
    let rkey = w.new_key(KeyOwner::Mw(id));
    // SAFETY: the structure of a domain that is alive.
    let context = unsafe { (*pd).context };
    let new = structure(ibv_mw { context, pd, rkey, handle: id, r#type: kind });
    w.mws.insert(new, Mw { pd: domain, device, rkey, binding: None, users: 0, is_refused: false });
    if let Some(pd) = w.pds.get_mut(domain) {
        pd.users += 1;
    }
    new
}

impl FakeIbv {
    /// Returns `true` if a queue pair may still carry out a bind of that window. One in its error state carries out none.
    fn may_bind(&self, mw: Id) -> bool {
        self.qps.values().filter(|qp| qp.state != IBV_QPS_ERR).any(|qp| {
            let names = |number| {
                let request = &qp.queue[qp.at(number)];
                request.opcode == IBV_WR_BIND_MW && request.bind.mw == mw
            };
            (qp.freed..qp.posted).any(names)
        })
    }
}

/// `ibv_dealloc_mw` of the context in a slot: it frees a window in every state.
pub(crate) fn dealloc_mw(slot: usize, mw: *mut ibv_mw) -> c_int {
    let mut w = state();
    let call = Call::DeallocMw;
    let refused = w.script.refused(call);
    let Some(id) = w.known(call, |w| &w.mws, mw) else { return libc::EINVAL };
    if let Some(errno) = refused {
        if let Some(mw) = w.mws.get_mut(id) {
            mw.is_refused = true;
        }
        return errno;
    }
    let Some(window) = w.mws.get(id) else { return libc::EINVAL };
    let (domain, device, rkey) = (window.pd, window.device, window.rkey);
    let (users, binding) = (window.users, window.binding);
    let parent = w.pds.get(domain).map_or(0, |p| p.context);
    if !w.came_through(call, parent, slot) {
        return libc::EINVAL;
    }
    if users != 0 && w.may_bind(id) {
        w.misuse(call, "a posted bind still names this window: its completion was not polled");
    }
    w.unbind(id);
    w.mws.remove(id);
    w.keys.remove(&(rkey >> 8));
    if let Some(binding) = binding.filter(|_| !w.devices[device].frees_windows) {
        w.keys.insert(rkey >> 8, KeyOwner::FreedMw(binding, rkey));
    }
    if let Some(pd) = w.pds.get_mut(domain) {
        pd.users -= 1;
    }
    0
}

/// `ibv_bind_mw` of the context in a slot, which is for windows of type 1: this library binds type 2 alone.
pub(crate) fn bind_mw(slot: usize, qp: *mut ibv_qp) -> c_int {
    let mut w = state();
    let call = Call::BindMw;
    w.script.count(call);
    if let Some(id) = w.known(call, |w| &w.qps, qp) {
        let context = w.qps.get(id).map_or(0, |q| q.context);
        w.came_through(call, context, slot);
    }
    libc::EINVAL
}
