//! All functions of libibverbs that are exported here, and the proof that they have its types.

use core::ffi::{c_char, c_int, c_uint, c_void};

use crate::abi::{
    _compat_ibv_port_attr, ibv_async_event, ibv_comp_channel, ibv_context, ibv_cq, ibv_device,
    ibv_device_attr, ibv_event_type, ibv_fork_status, ibv_gid, ibv_gid_entry, ibv_mr,
    ibv_node_type, ibv_pd, ibv_port_state, ibv_qp, ibv_qp_attr, ibv_qp_init_attr, ibv_srq,
    ibv_srq_attr, ibv_srq_init_attr, ibv_wc_status,
};
use crate::async_event::{ibv_ack_async_event, ibv_get_async_event};
use crate::channel::{ibv_create_comp_channel, ibv_destroy_comp_channel};
use crate::context::{
    ibv_close_device, ibv_fork_init, ibv_free_device_list, ibv_get_device_guid,
    ibv_get_device_list, ibv_get_device_name, ibv_is_fork_initialized, ibv_open_device,
    ibv_query_device,
};
use crate::cq::{ibv_ack_cq_events, ibv_create_cq, ibv_destroy_cq, ibv_get_cq_event};
use crate::domain::{ibv_alloc_pd, ibv_dealloc_pd};
use crate::modify::ibv_modify_qp;
use crate::port::{
    _ibv_query_gid_ex, _ibv_query_gid_table, ibv_query_gid, ibv_query_pkey, ibv_query_port,
};
use crate::qp::{ibv_create_qp, ibv_destroy_qp, ibv_query_qp};
use crate::region::{ibv_dereg_mr, ibv_reg_dmabuf_mr, ibv_reg_mr, ibv_reg_mr_iova2};
use crate::srq::{ibv_create_srq, ibv_destroy_srq, ibv_modify_srq, ibv_query_srq};
use crate::text::{ibv_event_type_str, ibv_node_type_str, ibv_port_state_str, ibv_wc_status_str};

/// A function: its name, the types of its arguments, and that of its result (`()` for none).
pub type Signature = (&'static str, &'static [&'static str], &'static str);

macro_rules! functions {
    ($(fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $result:ty)?;)*) => {
        /// All exported functions of libibverbs, as text that can be compared with other declarations.
        pub const SIGNATURES: &[Signature] = &[$((
            stringify!($name),
            &[$(stringify!($type)),*],
            functions!(@result $($result)?),
        )),*];

        $(const _: unsafe extern "C" fn($($type),*) $(-> $result)? = $name;)*
    };
    (@result) => { "()" };
    (@result $result:ty) => { stringify!($result) };
}

functions! {
    fn ibv_get_device_list(num_devices: *mut c_int) -> *mut *mut ibv_device;
    fn ibv_free_device_list(list: *mut *mut ibv_device);
    fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char;
    fn ibv_get_device_guid(device: *mut ibv_device) -> u64;
    fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context;
    fn ibv_close_device(context: *mut ibv_context) -> c_int;
    fn ibv_query_device(context: *mut ibv_context, device_attr: *mut ibv_device_attr) -> c_int;
    fn ibv_query_port(
        context: *mut ibv_context,
        port_num: u8,
        port_attr: *mut _compat_ibv_port_attr,
    ) -> c_int;
    fn ibv_query_gid(
        context: *mut ibv_context,
        port_num: u8,
        index: c_int,
        gid: *mut ibv_gid,
    ) -> c_int;
    fn _ibv_query_gid_ex(
        context: *mut ibv_context,
        port_num: u32,
        gid_index: u32,
        entry: *mut ibv_gid_entry,
        flags: u32,
        entry_size: usize,
    ) -> c_int;
    fn _ibv_query_gid_table(
        context: *mut ibv_context,
        entries: *mut ibv_gid_entry,
        max_entries: usize,
        flags: u32,
        entry_size: usize,
    ) -> isize;
    fn ibv_query_pkey(
        context: *mut ibv_context,
        port_num: u8,
        index: c_int,
        pkey: *mut u16,
    ) -> c_int;
    fn ibv_get_async_event(context: *mut ibv_context, event: *mut ibv_async_event) -> c_int;
    fn ibv_ack_async_event(event: *mut ibv_async_event);
    fn ibv_event_type_str(event: ibv_event_type) -> *const c_char;
    fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd;
    fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int;
    fn ibv_reg_mr(
        pd: *mut ibv_pd,
        addr: *mut c_void,
        length: usize,
        access: c_int,
    ) -> *mut ibv_mr;
    fn ibv_reg_mr_iova2(
        pd: *mut ibv_pd,
        addr: *mut c_void,
        length: usize,
        iova: u64,
        access: c_uint,
    ) -> *mut ibv_mr;
    fn ibv_reg_dmabuf_mr(
        pd: *mut ibv_pd,
        offset: u64,
        length: usize,
        iova: u64,
        fd: c_int,
        access: c_int,
    ) -> *mut ibv_mr;
    fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int;
    fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel;
    fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int;
    fn ibv_create_cq(
        context: *mut ibv_context,
        cqe: c_int,
        cq_context: *mut c_void,
        channel: *mut ibv_comp_channel,
        comp_vector: c_int,
    ) -> *mut ibv_cq;
    fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int;
    fn ibv_get_cq_event(
        channel: *mut ibv_comp_channel,
        cq: *mut *mut ibv_cq,
        cq_context: *mut *mut c_void,
    ) -> c_int;
    fn ibv_ack_cq_events(cq: *mut ibv_cq, nevents: c_uint);
    fn ibv_create_qp(pd: *mut ibv_pd, qp_init_attr: *mut ibv_qp_init_attr) -> *mut ibv_qp;
    fn ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, attr_mask: c_int) -> c_int;
    fn ibv_query_qp(
        qp: *mut ibv_qp,
        attr: *mut ibv_qp_attr,
        attr_mask: c_int,
        init_attr: *mut ibv_qp_init_attr,
    ) -> c_int;
    fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int;
    fn ibv_create_srq(pd: *mut ibv_pd, srq_init_attr: *mut ibv_srq_init_attr) -> *mut ibv_srq;
    fn ibv_modify_srq(
        srq: *mut ibv_srq,
        srq_attr: *mut ibv_srq_attr,
        srq_attr_mask: c_int,
    ) -> c_int;
    fn ibv_query_srq(srq: *mut ibv_srq, srq_attr: *mut ibv_srq_attr) -> c_int;
    fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int;
    fn ibv_fork_init() -> c_int;
    fn ibv_is_fork_initialized() -> ibv_fork_status;
    fn ibv_wc_status_str(status: ibv_wc_status) -> *const c_char;
    fn ibv_port_state_str(port_state: ibv_port_state) -> *const c_char;
    fn ibv_node_type_str(node_type: ibv_node_type) -> *const c_char;
}
