//! Ports, their GID tables, and the texts of the library.

use core::ffi::CStr;
use core::ptr::null;

use super::rig::{Turn, device, open, port, set};
use crate::abi::*;
use crate::context::{ibv_close_device, ibv_fork_init, ibv_is_fork_initialized};
use crate::port::{
    _ibv_query_gid_ex, _ibv_query_gid_table, ibv_query_gid, ibv_query_pkey, ibv_query_port,
};
use crate::script::hmc_fake_ibv_gid;
use crate::text::{ibv_event_type_str, ibv_node_type_str, ibv_port_state_str, ibv_wc_status_str};

const ENTRY: usize = size_of::<ibv_gid_entry>();

fn entry_of(context: *mut ibv_context, port: u32, index: u32) -> Result<ibv_gid_entry, i32> {
    // SAFETY: numbers, for which zero is a value.
    let mut entry: ibv_gid_entry = unsafe { core::mem::zeroed() };
    // SAFETY: the context is open, the entry may be written.
    match unsafe { _ibv_query_gid_ex(context, port, index, &raw mut entry, 0, ENTRY) } {
        0 => Ok(entry),
        errno => Err(errno),
    }
}

fn state_of(context: *mut ibv_context, port: u8) -> Result<_compat_ibv_port_attr, i32> {
    // SAFETY: numbers, for which zero is a value.
    let mut attr: _compat_ibv_port_attr = unsafe { core::mem::zeroed() };
    // SAFETY: the context is open, the attributes may be written.
    match unsafe { ibv_query_port(context, port, &raw mut attr) } {
        0 => Ok(attr),
        errno => Err(errno),
    }
}

#[test]
fn a_device_may_have_two_ports() {
    let turn = Turn::new();
    device(0, "ports", 2);
    port(0, 2, "link_layer", 1);
    let context = open(0);
    let ports = [1, 2].map(|port| state_of(context, port).expect("there are two"));
    assert_eq!(ports.map(|p| p.link_layer), [IBV_LINK_LAYER_ETHERNET, IBV_LINK_LAYER_INFINIBAND]);
    assert_eq!((ports[0].lid, ports[1].lid != 0), (0, true));
    assert_eq!(state_of(context, 3).err(), Some(libc::EINVAL));
    let mut key = 0;
    // SAFETY: the context is open, the key may be written.
    assert_eq!(unsafe { ibv_query_pkey(context, 2, 0, &raw mut key) }, 0);
    // SAFETY: as above.
    assert_eq!((key, unsafe { ibv_query_pkey(context, 2, 1, &raw mut key) }), (0xFFFF, -1));
    // SAFETY: numbers, for which zero is a value.
    let mut table: [ibv_gid_entry; 8] = unsafe { core::mem::zeroed() };
    // SAFETY: the context is open, that many entries may be written.
    let read = |table: &mut [ibv_gid_entry], max| unsafe {
        _ibv_query_gid_table(context, table.as_mut_ptr(), max, 0, ENTRY)
    };
    assert_eq!((read(&mut table, 4), read(&mut table, 8)), (-(libc::EINVAL as isize), 5));
    let seen: Vec<_> = table[..5].iter().map(|e| (e.port_num, e.gid_index, e.gid_type)).collect();
    assert_eq!(seen, [(1, 0, 1), (1, 1, 2), (1, 2, 1), (1, 3, 2), (2, 0, 0)]);
    assert!(table[0].ndev_ifindex != 0 && table[4].ndev_ifindex == 0);
    // SAFETY: open, closed once.
    assert_eq!(unsafe { ibv_close_device(context) }, 0);
    drop(turn);
}

#[test]
fn a_script_writes_gid_tables() {
    let turn = Turn::new();
    let context = open(0);
    port(0, 1, "gids", 6);
    assert_eq!(state_of(context, 1).map(|p| p.gid_tbl_len), Ok(6));
    // SAFETY: 16 bytes, or null.
    let set_gid = |index, raw: *const u8| unsafe { hmc_fake_ibv_gid(0, 1, index, 2, raw) };
    assert_eq!([set_gid(5, [9; 16].as_ptr()), set_gid(0, null()), set_gid(6, null())], [0, 0, -1]);
    // SAFETY: all bytes of the union are set.
    assert_eq!(entry_of(context, 1, 5).map(|e| unsafe { e.gid.raw }), Ok([9; 16]));
    assert_eq!(entry_of(context, 1, 0).err(), Some(libc::ENODATA), "empty");
    assert_eq!(entry_of(context, 1, 6).err(), Some(libc::EINVAL));
    let mut gid = ibv_gid { raw: [1; 16] };
    // SAFETY: the context is open, the GID may be written.
    assert_eq!(unsafe { ibv_query_gid(context, 1, 0, &raw mut gid) }, 0);
    // SAFETY: all bytes of the union are set.
    assert_eq!(unsafe { gid.raw }, [0; 16], "an empty entry reads as zeros");
    // SAFETY: open, closed once.
    assert_eq!(unsafe { ibv_close_device(context) }, 0);
    drop(turn);
}

#[test]
fn texts_are_those_of_libibverbs() {
    let turn = Turn::new();
    // SAFETY: no pointers.
    let status = unsafe { ibv_wc_status_str(IBV_WC_RETRY_EXC_ERR) };
    // SAFETY: as above.
    let event = unsafe { ibv_event_type_str(IBV_EVENT_GID_CHANGE) };
    // SAFETY: as above.
    let state = unsafe { ibv_port_state_str(IBV_PORT_ACTIVE) };
    // SAFETY: as above.
    let node = unsafe { ibv_node_type_str(IBV_NODE_CA) };
    // SAFETY: as above.
    let none = unsafe { ibv_wc_status_str(99) };
    let seen = [status, event, state, node, none].map(|text| {
        // SAFETY: the library's texts are C strings.
        unsafe { CStr::from_ptr(text) }
    });
    let wanted = [
        c"transport retry counter exceeded",
        c"GID table change",
        c"active",
        c"InfiniBand channel adapter",
        c"unknown",
    ];
    assert_eq!(seen, wanted);
    for status in [2, 0] {
        set("fork_status", status);
        // SAFETY: no arguments.
        assert_eq!(u64::from(unsafe { ibv_is_fork_initialized() }), status);
        // SAFETY: no arguments.
        assert_eq!(unsafe { ibv_fork_init() }, 0);
    }
    drop(turn);
}
