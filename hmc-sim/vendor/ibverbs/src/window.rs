//! Memory windows: bind and invalidation.

use crate::abi::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_MW_BIND, IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_READ,
    IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_ZERO_BASED, IBV_WC_LOC_QP_OP_ERR, IBV_WC_MW_BIND_ERR,
};
use crate::completion::{SUCCESS, failure};
use crate::device::Windows;
use crate::faults::{Call, Outcome};
use crate::object::{Binding, KeyOwner};
use crate::queue_pair::Bind;
use crate::state::FakeIbv;
use crate::table::Id;

/// What a window may allow.
const RIGHTS: u32 = IBV_ACCESS_REMOTE_WRITE
    | IBV_ACCESS_REMOTE_READ
    | IBV_ACCESS_REMOTE_ATOMIC
    | IBV_ACCESS_ZERO_BASED;

impl FakeIbv {
    /// Carries out the bind of a type 2 window.
    pub(crate) fn bind(&mut self, id: Id, bind: &Bind) -> Outcome {
        let Some(binding) = self.binding(id, bind) else { return failure(IBV_WC_MW_BIND_ERR) };
        if let Some(mw) = self.mws.get_mut(bind.mw) {
            mw.binding = Some(binding);
            mw.rkey = bind.rkey;
        }
        self.count_window(&binding, 1);
        SUCCESS
    }

    /// What a window will be bound to, if the bind is allowed.
    fn binding(&self, id: Id, bind: &Bind) -> Option<Binding> {
        let (qp, mw, mr) = (self.qps.get(id)?, self.mws.get(bind.mw)?, self.mrs.get(bind.mr)?);
        let writes = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
        let offset = mr.offset(bind.addr, bind.len)?;
        let is_zero_based = bind.access & IBV_ACCESS_ZERO_BASED != 0;
        let allowed = self.devices[qp.device].windows == Windows::Full
            && mw.binding.is_none_or(|b| b.is_invalidated)
            && mw.pd == qp.pd
            && mr.pd == qp.pd
            && bind.len != 0
            && bind.access & !RIGHTS == 0
            && mr.access & IBV_ACCESS_MW_BIND != 0
            && (bind.access & writes == 0 || mr.access & IBV_ACCESS_LOCAL_WRITE != 0)
            // The provider names the window by what its structure says, which the caller updates.
            && bind.old_rkey == mw.rkey
            && bind.rkey >> 8 == mw.rkey >> 8
            && bind.rkey != mw.rkey;
        allowed.then_some(Binding {
            qp: id,
            mr: bind.mr,
            offset,
            iova: if is_zero_based { 0 } else { bind.addr },
            len: bind.len,
            access: bind.access,
            is_invalidated: false,
        })
    }

    fn count_window(&mut self, binding: &Binding, change: i32) {
        if let Some(mr) = self.mrs.get_mut(binding.mr) {
            mr.windows = mr.windows.saturating_add_signed(change);
        }
    }

    /// Invalidates the window of a key for the queue pair to which it is bound. Returns `false` if it is not so.
    pub(crate) fn invalidate(&mut self, id: Id, rkey: u32) -> bool {
        let Some(KeyOwner::Mw(mw)) = self.keys.get(&(rkey >> 8)).copied() else { return false };
        let Some(window) = self.mws.get(mw).filter(|m| m.rkey == rkey) else { return false };
        let Some(binding) = window.binding.filter(|b| b.qp == id && !b.is_invalidated) else {
            return false;
        };
        if self.qps.get(id).is_some_and(|q| self.devices[q.device].invalidates) {
            self.unbind(mw);
        } else if let Some(window) = self.mws.get_mut(mw) {
            window.binding = Some(Binding { is_invalidated: true, ..binding });
            self.count_window(&binding, -1);
        }
        true
    }

    /// Carries out a local invalidation.
    pub(crate) fn invalidate_local(&mut self, id: Id, rkey: u32) -> Outcome {
        if let Some(KeyOwner::Mw(mw)) = self.keys.get(&(rkey >> 8)).copied()
            && self.mws.get(mw).is_some_and(|m| m.binding.is_none_or(|b| b.is_invalidated))
        {
            self.misuse(Call::LocalInv, "this window is free; rxe stops the kernel here");
        }
        if self.invalidate(id, rkey) { SUCCESS } else { failure(IBV_WC_LOC_QP_OP_ERR) }
    }

    /// Frees a window. Nothing comes through it from now on, and what came through it is visible.
    pub(crate) fn unbind(&mut self, mw: Id) {
        let Some(binding) = self.mws.get_mut(mw).and_then(|m| m.binding.take()) else { return };
        if !binding.is_invalidated {
            self.count_window(&binding, -1);
        }
        self.deliver_to(binding.mr);
    }
}
