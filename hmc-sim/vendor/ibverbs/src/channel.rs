//! Calls of completion channels.

use core::ffi::c_int;

use crate::abi::{ibv_comp_channel, ibv_context};
use crate::faults::Call;
use crate::object::Channel;
use crate::state::{close, fail, new_eventfd, state, structure};

// SAFETY: the name is libibverbs' own, and a process has one. The pointers are valid, as libibverbs asks.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_create_comp_channel(
    context: *mut ibv_context,
) -> *mut ibv_comp_channel {
    let mut w = state();
    let call = Call::CreateCompChannel;
    let Some(id) = w.known(call, |w| &w.contexts, context) else { return fail(libc::EINVAL) };
    let device = w.contexts.get(id).map(|c| c.device);
    if let Some(errno) = w.set_up(call, device) {
        return fail(errno);
    }
    let fd = new_eventfd();
    if fd < 0 {
        return fail(libc::EMFILE);
    }
    let new = structure(ibv_comp_channel { context, fd, refcnt: 0 });
    let events = std::collections::VecDeque::with_capacity(16);
    w.channels.insert(new, Channel { context: id, fd, events, users: 0 });
    new
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    let mut w = state();
    let call = Call::DestroyCompChannel;
    if let Some(errno) = w.script.refused(call) {
        return errno;
    }
    let Some(id) = w.known(call, |w| &w.channels, channel) else { return libc::EINVAL };
    if w.channels.get(id).is_some_and(|c| c.users != 0) {
        return libc::EBUSY;
    }
    if let Some(gone) = w.channels.remove(id) {
        close(gone.fd);
    }
    0
}
