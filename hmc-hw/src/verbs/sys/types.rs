//! The types of `infiniband/verbs.h`, libibverbs 44.0 (rdma-core): enumerations, GIDs, devices and ports.
//!
//! - The layouts are those of 44.0, 56.1 and 65.0, but for `ibv_port_attr`, which has grown at its end: the exported
//!   `ibv_query_port` never writes behind the fields that are declared here.
//! - An enumeration is an integer: the library may return values that no list has.
#![allow(non_camel_case_types, reason = "the names of the C header")]
#![allow(dead_code, reason = "declared as a whole, whether used or not")]

use core::ffi::{c_char, c_int, c_uint, c_void};

pub(crate) type ibv_node_type = c_int;
pub(crate) type ibv_transport_type = c_int;
pub(crate) type ibv_gid_type = c_uint;
pub(crate) type ibv_fork_status = c_uint;
pub(crate) type ibv_atomic_cap = c_uint;
pub(crate) type ibv_mtu = c_uint;
pub(crate) type ibv_port_state = c_uint;
pub(crate) type ibv_event_type = c_uint;
pub(crate) type ibv_wc_status = c_uint;
pub(crate) type ibv_wc_opcode = c_uint;
pub(crate) type ibv_mw_type = c_uint;
pub(crate) type ibv_qp_type = c_uint;
pub(crate) type ibv_qp_state = c_uint;
pub(crate) type ibv_mig_state = c_uint;
pub(crate) type ibv_wr_opcode = c_uint;

/// In C a union: 16 bytes, or two big-endian halves (subnet prefix, interface id), which give it its alignment.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ibv_gid {
    pub(crate) raw: [u8; 16],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ibv_gid_entry {
    pub(crate) gid: ibv_gid,
    pub(crate) gid_index: u32,
    pub(crate) port_num: u32,
    /// An [`ibv_gid_type`].
    pub(crate) gid_type: u32,
    /// 0: no network interface.
    pub(crate) ndev_ifindex: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ibv_device {
    pub(crate) _ops: [*mut c_void; 2],
    pub(crate) node_type: ibv_node_type,
    pub(crate) transport_type: ibv_transport_type,
    pub(crate) name: [c_char; 64],
    pub(crate) dev_name: [c_char; 64],
    pub(crate) dev_path: [c_char; 256],
    pub(crate) ibdev_path: [c_char; 256],
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ibv_device_attr {
    pub(crate) fw_ver: [c_char; 64],
    /// Big endian.
    pub(crate) node_guid: u64,
    /// Big endian.
    pub(crate) sys_image_guid: u64,
    pub(crate) max_mr_size: u64,
    pub(crate) page_size_cap: u64,
    pub(crate) vendor_id: u32,
    pub(crate) vendor_part_id: u32,
    pub(crate) hw_ver: u32,
    pub(crate) max_qp: c_int,
    pub(crate) max_qp_wr: c_int,
    pub(crate) device_cap_flags: c_uint,
    pub(crate) max_sge: c_int,
    pub(crate) max_sge_rd: c_int,
    pub(crate) max_cq: c_int,
    pub(crate) max_cqe: c_int,
    pub(crate) max_mr: c_int,
    pub(crate) max_pd: c_int,
    pub(crate) max_qp_rd_atom: c_int,
    pub(crate) max_ee_rd_atom: c_int,
    pub(crate) max_res_rd_atom: c_int,
    pub(crate) max_qp_init_rd_atom: c_int,
    pub(crate) max_ee_init_rd_atom: c_int,
    pub(crate) atomic_cap: ibv_atomic_cap,
    pub(crate) max_ee: c_int,
    pub(crate) max_rdd: c_int,
    pub(crate) max_mw: c_int,
    pub(crate) max_raw_ipv6_qp: c_int,
    pub(crate) max_raw_ethy_qp: c_int,
    pub(crate) max_mcast_grp: c_int,
    pub(crate) max_mcast_qp_attach: c_int,
    pub(crate) max_total_mcast_qp_attach: c_int,
    pub(crate) max_ah: c_int,
    pub(crate) max_fmr: c_int,
    pub(crate) max_map_per_fmr: c_int,
    pub(crate) max_srq: c_int,
    pub(crate) max_srq_wr: c_int,
    pub(crate) max_srq_sge: c_int,
    pub(crate) max_pkeys: u16,
    pub(crate) local_ca_ack_delay: u8,
    pub(crate) phys_port_cnt: u8,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ibv_port_attr {
    pub(crate) state: ibv_port_state,
    pub(crate) max_mtu: ibv_mtu,
    pub(crate) active_mtu: ibv_mtu,
    pub(crate) gid_tbl_len: c_int,
    pub(crate) port_cap_flags: u32,
    pub(crate) max_msg_sz: u32,
    pub(crate) bad_pkey_cntr: u32,
    pub(crate) qkey_viol_cntr: u32,
    pub(crate) pkey_tbl_len: u16,
    pub(crate) lid: u16,
    pub(crate) sm_lid: u16,
    pub(crate) lmc: u8,
    pub(crate) max_vl_num: u8,
    pub(crate) sm_sl: u8,
    pub(crate) subnet_timeout: u8,
    pub(crate) init_type_reply: u8,
    pub(crate) active_width: u8,
    pub(crate) active_speed: u8,
    pub(crate) phys_state: u8,
    pub(crate) link_layer: u8,
    pub(crate) flags: u8,
    /// The exported `ibv_query_port` does not set it.
    pub(crate) port_cap_flags2: u16,
}
