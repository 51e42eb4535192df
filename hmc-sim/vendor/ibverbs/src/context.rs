//! Calls of devices: their list, contexts, limits, and the mode of fork.

use core::ffi::{c_char, c_int};

use crate::abi::{
    IBV_ATOMIC_NONE, IBV_DEVICE_MEM_MGT_EXTENSIONS, IBV_DEVICE_MEM_WINDOW,
    IBV_DEVICE_MEM_WINDOW_TYPE_2B, ibv_context, ibv_device, ibv_device_attr, ibv_fork_status,
};
use crate::device::{Windows, chars};
use crate::faults::Call;
use crate::object::Context;
use crate::ops::operations;
use crate::state::{FakeIbv, close, fail, new_eventfd, state, structure};

impl FakeIbv {
    fn device_of(&mut self, call: Call, device: *const ibv_device) -> Option<usize> {
        let at = self.devices.iter().position(|d| core::ptr::eq(d.structure, device));
        let is_open = self.contexts.values().any(|c| Some(c.device) == at);
        if at.is_none() || self.lists.is_empty() && !is_open {
            self.misuse(call, "the list of this device was freed, or never made");
        }
        at
    }
}

// SAFETY: the name is libibverbs' own, and a process has one. The pointers are null or valid, as libibverbs asks.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_get_device_list(
    num_devices: *mut c_int,
) -> *mut *mut ibv_device {
    let mut w = state();
    if let Some(errno) = w.script.refused(Call::GetDeviceList) {
        return fail(errno);
    }
    let count = usize::try_from(w.script.knobs.devices).unwrap_or(0);
    let mut list: Vec<_> = w.devices.iter().take(count).map(|d| d.structure).collect();
    list.push(core::ptr::null_mut());
    let list = Box::leak(list.into_boxed_slice());
    w.lists.push((list.as_ptr().addr(), list.len()));
    if !num_devices.is_null() {
        // SAFETY: the caller's, to be written.
        unsafe { num_devices.write(count as c_int) };
    }
    list.as_mut_ptr()
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    let mut w = state();
    w.script.count(Call::FreeDeviceList);
    let Some(at) = w.lists.iter().position(|(address, _)| *address == list.addr()) else {
        w.misuse(Call::FreeDeviceList, "this list was freed already, or never made");
        return;
    };
    let (_, len) = w.lists.swap_remove(at);
    // SAFETY: made by `ibv_get_device_list` with that length, and freed once.
    drop(unsafe { Box::from_raw(core::ptr::slice_from_raw_parts_mut(list, len)) });
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char {
    if state().device_of(Call::OpenDevice, device).is_none() {
        return core::ptr::null();
    }
    // SAFETY: the structure of a device lives as long as the process.
    let name = unsafe { &raw const (*device).name };
    name.cast()
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_get_device_guid(device: *mut ibv_device) -> u64 {
    let mut w = state();
    let at = w.device_of(Call::OpenDevice, device);
    at.map_or(0, |at| w.devices[at].guid.to_be())
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    let mut w = state();
    let call = Call::OpenDevice;
    let Some(at) = w.device_of(call, device) else { return fail(libc::ENODEV) };
    if let Some(errno) = w.set_up(call, Some(at)) {
        return fail(errno);
    }
    let fd = new_eventfd();
    if fd < 0 {
        return fail(libc::EMFILE);
    }
    let id = w.contexts.next_id() as usize;
    let windows = w.devices[at].windows;
    let (slot, ops) = operations(id, !matches!(windows, Windows::None | Windows::NoCall));
    let new = structure(ibv_context {
        device,
        ops,
        cmd_fd: -1,
        async_fd: fd,
        num_comp_vectors: 1,
        mutex: libc::PTHREAD_MUTEX_INITIALIZER,
        abi_compat: core::ptr::null_mut(),
    });
    let events = std::collections::VecDeque::with_capacity(16);
    w.contexts.insert(new, Context { device: at, slot, fd, events });
    new
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    let mut w = state();
    let call = Call::CloseDevice;
    if let Some(errno) = w.script.refused(call) {
        return errno;
    }
    let Some(id) = w.known(call, |w| &w.contexts, context) else { return libc::EINVAL };
    let is_used = w.pds.values().any(|p| p.context == id)
        || w.cqs.values().any(|c| c.context == id)
        || w.channels.values().any(|c| c.context == id);
    if is_used {
        w.misuse(call, "objects of this context are left");
    }
    if let Some(gone) = w.contexts.remove(id) {
        close(gone.fd);
    }
    0
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_device(
    context: *mut ibv_context,
    attr: *mut ibv_device_attr,
) -> c_int {
    let mut w = state();
    let call = Call::QueryDevice;
    let Some(id) = w.known(call, |w| &w.contexts, context) else { return libc::EINVAL };
    let at = w.contexts.get(id).map_or(0, |c| c.device);
    if let Some(errno) = w.set_up(call, Some(at)) {
        return errno;
    }
    let device = &w.devices[at];
    let l = device.limits;
    let int = |number: u64| c_int::try_from(number).unwrap_or(c_int::MAX);
    let has_windows = device.windows != Windows::None;
    let flags = IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
    let out = ibv_device_attr {
        fw_ver: chars("fake"),
        node_guid: device.guid.to_be(),
        sys_image_guid: device.guid.to_be(),
        max_mr_size: l.max_mr_size,
        page_size_cap: 4096,
        vendor_id: 0,
        vendor_part_id: 0,
        hw_ver: 0,
        max_qp: int(l.max_qp),
        max_qp_wr: int(l.max_qp_wr),
        device_cap_flags: IBV_DEVICE_MEM_MGT_EXTENSIONS | if has_windows { flags } else { 0 },
        max_sge: int(l.max_sge),
        max_sge_rd: int(l.max_sge),
        max_cq: int(l.max_cq),
        max_cqe: int(l.max_cqe),
        max_mr: int(l.max_mr),
        max_pd: int(l.max_pd),
        max_qp_rd_atom: int(l.max_qp_rd_atom),
        max_ee_rd_atom: 0,
        max_res_rd_atom: int(l.max_qp_rd_atom.saturating_mul(l.max_qp)),
        max_qp_init_rd_atom: int(l.max_qp_init_rd_atom),
        max_ee_init_rd_atom: 0,
        atomic_cap: IBV_ATOMIC_NONE,
        max_ee: 0,
        max_rdd: 0,
        max_mw: if has_windows { int(l.max_mw) } else { 0 },
        max_raw_ipv6_qp: 0,
        max_raw_ethy_qp: 0,
        max_mcast_grp: 0,
        max_mcast_qp_attach: 0,
        max_total_mcast_qp_attach: 0,
        max_ah: 0,
        max_fmr: 0,
        max_map_per_fmr: 0,
        max_srq: int(l.max_srq),
        max_srq_wr: int(l.max_srq_wr),
        max_srq_sge: int(l.max_srq_sge),
        max_pkeys: 1,
        local_ca_ack_delay: 15,
        phys_port_cnt: u8::try_from(device.ports.len()).unwrap_or(u8::MAX),
    };
    // SAFETY: the caller's, to be written.
    unsafe { attr.write(out) };
    0
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_fork_init() -> c_int {
    state().script.refused(Call::ForkInit).unwrap_or(0)
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_is_fork_initialized() -> ibv_fork_status {
    u32::try_from(state().script.knobs.fork_status).unwrap_or(0)
}
