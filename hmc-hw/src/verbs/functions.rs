//! The functions that libibverbs exports, as far as they are wanted.
//!
//! Written by hand from `infiniband/verbs.h` of libibverbs 44.0 (rdma-core); the signatures are those of 56.1 and 65.0,
//! too. Most names have two versions with different ABIs, `IBVERBS_1.0` and `IBVERBS_1.1`: dlsym(3) returns the default
//! one, which is 1.1.
//!
//! - `ibv_query_port` is exported for the older, shorter `ibv_port_attr`. A caller zeroes the whole structure first.
//! - `ibv_reg_mr` is a macro in C: access flags of the optional range (bits 20 to 29) need `ibv_reg_mr_iova2`.
//! - Inline in C: `ibv_query_gid_ex` and `ibv_query_gid_table` (here their underscore names, with the size of an entry),
//!   and the calls of [`super::ops`].
//! - Calls that return a number return 0 or an errno value; those that return a pointer set errno.
#![allow(dead_code, reason = "declared as a whole, whether used or not")]

use super::sys::{
    ibv_async_event, ibv_comp_channel, ibv_context, ibv_cq, ibv_device, ibv_device_attr,
    ibv_event_type, ibv_fork_status, ibv_gid, ibv_gid_entry, ibv_mr, ibv_pd, ibv_port_attr, ibv_qp,
    ibv_qp_attr, ibv_qp_init_attr, ibv_srq, ibv_srq_attr, ibv_srq_init_attr, ibv_wc_status,
};
use crate::api::dyn_api;
use core::ffi::{c_char, c_int, c_uint, c_void};

dyn_api! {
    /// The functions of libibverbs.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Verbs {
        required {
            fn ibv_get_device_list(num_devices: *mut c_int) -> *mut *mut ibv_device;
            fn ibv_free_device_list(list: *mut *mut ibv_device);
            fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char;
            fn ibv_get_device_guid(device: *mut ibv_device) -> u64;
            fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context;
            fn ibv_close_device(context: *mut ibv_context) -> c_int;
            fn ibv_query_device(
                context: *mut ibv_context,
                device_attr: *mut ibv_device_attr,
            ) -> c_int;
            fn ibv_query_port(
                context: *mut ibv_context,
                port_num: u8,
                port_attr: *mut ibv_port_attr,
            ) -> c_int;
            fn ibv_query_gid(
                context: *mut ibv_context,
                port_num: u8,
                index: c_int,
                gid: *mut ibv_gid,
            ) -> c_int;
            fn ibv_get_async_event(
                context: *mut ibv_context,
                event: *mut ibv_async_event,
            ) -> c_int;
            fn ibv_ack_async_event(event: *mut ibv_async_event);
            fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd;
            fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int;
            fn ibv_reg_mr(
                pd: *mut ibv_pd,
                addr: *mut c_void,
                length: usize,
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
            fn ibv_create_srq(
                pd: *mut ibv_pd,
                srq_init_attr: *mut ibv_srq_init_attr,
            ) -> *mut ibv_srq;
            fn ibv_modify_srq(
                srq: *mut ibv_srq,
                srq_attr: *mut ibv_srq_attr,
                srq_attr_mask: c_int,
            ) -> c_int;
            fn ibv_query_srq(srq: *mut ibv_srq, srq_attr: *mut ibv_srq_attr) -> c_int;
            fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int;
            fn ibv_fork_init() -> c_int;
        }
        optional {
            fn ibv_reg_mr_iova(
                pd: *mut ibv_pd,
                addr: *mut c_void,
                length: usize,
                iova: u64,
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
            fn ibv_is_fork_initialized() -> ibv_fork_status;
            fn ibv_wc_status_str(status: ibv_wc_status) -> *const c_char;
            fn ibv_event_type_str(event: ibv_event_type) -> *const c_char;
        }
    }
}
