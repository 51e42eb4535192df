//! Calls of ports: attributes, partition keys, GID tables.

use core::ffi::c_int;

use crate::abi::{
    _compat_ibv_port_attr, IBV_GID_TYPE_IB, IBV_MTU_4096, IBV_PORT_ACTIVE, ibv_context, ibv_gid,
    ibv_gid_entry,
};
use crate::device::{Gid, MAX_MESSAGE};
use crate::faults::Call;
use crate::state::{FakeIbv, state};

/// The default partition, of which a port is a full member.
const PKEY: u16 = 0xFFFF;
/// What `ibv_gid_entry` has at least.
const ENTRY_BYTES: usize = size_of::<ibv_gid_entry>();

/// The index of the loopback interface (`LOOPBACK_IFINDEX` in the kernel's net.h), which every machine has.
const LOOPBACK: u32 = 1;

/// Returns the `ndev_ifindex` of a GID: an interface that is up, and none on a port of InfiniBand.
const fn interface(gid: Gid) -> u32 {
    if gid.kind == IBV_GID_TYPE_IB { 0 } else { LOOPBACK }
}

impl FakeIbv {
    fn device_in(&mut self, call: Call, context: *mut ibv_context) -> Result<usize, c_int> {
        let id = self.known(call, |w| &w.contexts, context).ok_or(libc::EINVAL)?;
        let device = self.contexts.get(id).map_or(0, |c| c.device);
        self.set_up(call, Some(device)).map_or(Ok(device), Err)
    }

    fn gid_at(&self, device: usize, port: u32, index: u32) -> Result<Gid, c_int> {
        let port = self.devices[device].port(port).ok_or(libc::EINVAL)?;
        let index = usize::try_from(index).map_err(|_| libc::EINVAL)?;
        port.gids.get(index).ok_or(libc::EINVAL)?.ok_or(libc::ENODATA)
    }
}

// SAFETY: the name is libibverbs' own, and a process has one. The pointers are valid, as libibverbs asks.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_port(
    context: *mut ibv_context,
    port_num: u8,
    port_attr: *mut _compat_ibv_port_attr,
) -> c_int {
    let mut w = state();
    let device = match w.device_in(Call::QueryPort, context) {
        Ok(device) => device,
        Err(errno) => return errno,
    };
    let Some(port) = w.devices[device].port(port_num.into()) else { return libc::EINVAL };
    let out = _compat_ibv_port_attr {
        state: port.state,
        max_mtu: IBV_MTU_4096,
        active_mtu: port.active_mtu,
        gid_tbl_len: c_int::try_from(port.gids.len()).unwrap_or(c_int::MAX),
        port_cap_flags: 0,
        max_msg_sz: u32::try_from(MAX_MESSAGE).unwrap_or(u32::MAX),
        bad_pkey_cntr: 0,
        qkey_viol_cntr: 0,
        pkey_tbl_len: 1,
        lid: port.lid,
        sm_lid: port.lid.min(1),
        lmc: 0,
        max_vl_num: 1,
        sm_sl: 0,
        subnet_timeout: 18,
        init_type_reply: 0,
        active_width: 2,
        active_speed: 32,
        // LinkUp and Disabled.
        phys_state: if port.state == IBV_PORT_ACTIVE { 5 } else { 3 },
        link_layer: port.link_layer,
        flags: 0,
    };
    // SAFETY: the caller's, to be written.
    unsafe { port_attr.write(out) };
    0
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_pkey(
    context: *mut ibv_context,
    port_num: u8,
    index: c_int,
    pkey: *mut u16,
) -> c_int {
    let mut w = state();
    let device = w.device_in(Call::QueryPkey, context);
    let found = device.is_ok_and(|d| w.devices[d].port(port_num.into()).is_some());
    if !found || index != 0 {
        return -1;
    }
    // SAFETY: the caller's, to be written.
    unsafe { pkey.write(PKEY.to_be()) };
    0
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_gid(
    context: *mut ibv_context,
    port_num: u8,
    index: c_int,
    gid: *mut ibv_gid,
) -> c_int {
    let mut w = state();
    let Ok(device) = w.device_in(Call::QueryGid, context) else { return -1 };
    let index = u32::try_from(index).unwrap_or(u32::MAX);
    let raw = match w.gid_at(device, port_num.into(), index) {
        Ok(gid) => gid.raw,
        // An empty entry reads as zeros.
        Err(libc::ENODATA) => [0; 16],
        Err(_) => return -1,
    };
    // SAFETY: the caller's, to be written.
    unsafe { gid.write(ibv_gid { raw }) };
    0
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn _ibv_query_gid_ex(
    context: *mut ibv_context,
    port_num: u32,
    gid_index: u32,
    entry: *mut ibv_gid_entry,
    flags: u32,
    entry_size: usize,
) -> c_int {
    let mut w = state();
    let device = match w.device_in(Call::QueryGidEx, context) {
        Ok(device) => device,
        Err(errno) => return errno,
    };
    if flags != 0 || entry_size < ENTRY_BYTES {
        return libc::EINVAL;
    }
    let gid = match w.gid_at(device, port_num, gid_index) {
        Ok(gid) => gid,
        Err(errno) => return errno,
    };
    let out = ibv_gid_entry {
        gid: ibv_gid { raw: gid.raw },
        gid_index,
        port_num,
        gid_type: gid.kind,
        ndev_ifindex: interface(gid),
    };
    // SAFETY: the caller's, to be written.
    unsafe { entry.write(out) };
    0
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn _ibv_query_gid_table(
    context: *mut ibv_context,
    entries: *mut ibv_gid_entry,
    max_entries: usize,
    flags: u32,
    entry_size: usize,
) -> isize {
    let mut w = state();
    let device = match w.device_in(Call::QueryGidTable, context) {
        Ok(device) => device,
        Err(errno) => return -(errno as isize),
    };
    if flags != 0 || entry_size < ENTRY_BYTES {
        return -(libc::EINVAL as isize);
    }
    let mut count = 0;
    for (port_num, port) in (1..).zip(&w.devices[device].ports) {
        for (gid_index, gid) in (0..).zip(&port.gids) {
            let Some(gid) = gid else { continue };
            if count >= max_entries {
                return -(libc::EINVAL as isize);
            }
            let out = ibv_gid_entry {
                gid: ibv_gid { raw: gid.raw },
                gid_index,
                port_num,
                gid_type: gid.kind,
                ndev_ifindex: interface(*gid),
            };
            let to = entries.wrapping_byte_add(count * entry_size);
            // SAFETY: the caller's, to be written, `max_entries` of them.
            unsafe { to.write(out) };
            count += 1;
        }
    }
    count.cast_signed()
}
