//! Calls of protection domains.

use core::ffi::c_int;

use crate::abi::{ibv_context, ibv_pd};
use crate::faults::Call;
use crate::object::Pd;
use crate::state::{fail, state, structure};

// SAFETY: the name is libibverbs' own, and a process has one. The pointers are valid, as libibverbs asks.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    let mut w = state();
    let call = Call::AllocPd;
    let Some(id) = w.known(call, |w| &w.contexts, context) else { return fail(libc::EINVAL) };
    let device = w.contexts.get(id).map_or(0, |c| c.device);
    if let Some(errno) = w.set_up(call, Some(device)) {
        return fail(errno);
    }
    let count = w.pds.values().filter(|p| p.device == device).count();
    if count as u64 >= w.devices[device].limits.max_pd {
        return fail(libc::ENOMEM);
    }
    let handle = w.pds.next_id();
    let new = structure(ibv_pd { context, handle });
    w.pds.insert(new, Pd { context: id, device, users: 0 });
    new
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    let mut w = state();
    let call = Call::DeallocPd;
    if let Some(errno) = w.script.refused(call) {
        return errno;
    }
    let Some(id) = w.known(call, |w| &w.pds, pd) else { return libc::EINVAL };
    if w.pds.get(id).is_some_and(|p| p.users != 0) {
        return libc::EBUSY;
    }
    w.pds.remove(id);
    0
}
