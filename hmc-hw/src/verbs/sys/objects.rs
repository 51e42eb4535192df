//! The types of `infiniband/verbs.h`, libibverbs 44.0 (rdma-core): objects and work requests, which name each other.
//!
//! - Two members of a C union with the same type are one field here: `imm_data` is also the key to invalidate.
//! - The mutexes and conditions are the library's own. They have another size on other processors.
#![allow(non_camel_case_types, reason = "the names of the C header")]
#![allow(dead_code, reason = "declared as a whole, whether used or not")]

use super::attrs::{ibv_qp_cap, ibv_send_wr_wr, ibv_sge, ibv_srq_attr, ibv_wc};
use super::types::{
    ibv_device, ibv_event_type, ibv_mw_type, ibv_qp_state, ibv_qp_type, ibv_wr_opcode,
};
use core::ffi::{c_int, c_uint, c_void};
use libc::{pthread_cond_t, pthread_mutex_t};

/// The providers' functions. A slot may be null; those of `_compat` are never called from here.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ibv_context_ops {
    pub(crate) _compat_query_device: *mut c_void,
    pub(crate) _compat_query_port: *mut c_void,
    pub(crate) _compat_alloc_pd: *mut c_void,
    pub(crate) _compat_dealloc_pd: *mut c_void,
    pub(crate) _compat_reg_mr: *mut c_void,
    pub(crate) _compat_rereg_mr: *mut c_void,
    pub(crate) _compat_dereg_mr: *mut c_void,
    pub(crate) alloc_mw:
        Option<unsafe extern "C" fn(pd: *mut ibv_pd, kind: ibv_mw_type) -> *mut ibv_mw>,
    pub(crate) bind_mw: Option<
        unsafe extern "C" fn(qp: *mut ibv_qp, mw: *mut ibv_mw, mw_bind: *mut ibv_mw_bind) -> c_int,
    >,
    pub(crate) dealloc_mw: Option<unsafe extern "C" fn(mw: *mut ibv_mw) -> c_int>,
    pub(crate) _compat_create_cq: *mut c_void,
    pub(crate) poll_cq:
        Option<unsafe extern "C" fn(cq: *mut ibv_cq, num_entries: c_int, wc: *mut ibv_wc) -> c_int>,
    pub(crate) req_notify_cq:
        Option<unsafe extern "C" fn(cq: *mut ibv_cq, solicited_only: c_int) -> c_int>,
    pub(crate) _compat_cq_event: *mut c_void,
    pub(crate) _compat_resize_cq: *mut c_void,
    pub(crate) _compat_destroy_cq: *mut c_void,
    pub(crate) _compat_create_srq: *mut c_void,
    pub(crate) _compat_modify_srq: *mut c_void,
    pub(crate) _compat_query_srq: *mut c_void,
    pub(crate) _compat_destroy_srq: *mut c_void,
    pub(crate) post_srq_recv: Option<
        unsafe extern "C" fn(
            srq: *mut ibv_srq,
            recv_wr: *mut ibv_recv_wr,
            bad_recv_wr: *mut *mut ibv_recv_wr,
        ) -> c_int,
    >,
    pub(crate) _compat_create_qp: *mut c_void,
    pub(crate) _compat_query_qp: *mut c_void,
    pub(crate) _compat_modify_qp: *mut c_void,
    pub(crate) _compat_destroy_qp: *mut c_void,
    pub(crate) post_send: Option<
        unsafe extern "C" fn(
            qp: *mut ibv_qp,
            wr: *mut ibv_send_wr,
            bad_wr: *mut *mut ibv_send_wr,
        ) -> c_int,
    >,
    pub(crate) post_recv: Option<
        unsafe extern "C" fn(
            qp: *mut ibv_qp,
            wr: *mut ibv_recv_wr,
            bad_wr: *mut *mut ibv_recv_wr,
        ) -> c_int,
    >,
    pub(crate) _compat_create_ah: *mut c_void,
    pub(crate) _compat_destroy_ah: *mut c_void,
    pub(crate) _compat_attach_mcast: *mut c_void,
    pub(crate) _compat_detach_mcast: *mut c_void,
    pub(crate) _compat_async_event: *mut c_void,
}

#[repr(C)]
pub(crate) struct ibv_context {
    pub(crate) device: *mut ibv_device,
    pub(crate) ops: ibv_context_ops,
    pub(crate) cmd_fd: c_int,
    pub(crate) async_fd: c_int,
    pub(crate) num_comp_vectors: c_int,
    pub(crate) mutex: pthread_mutex_t,
    pub(crate) abi_compat: *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) union ibv_async_event_element {
    pub(crate) cq: *mut ibv_cq,
    pub(crate) qp: *mut ibv_qp,
    pub(crate) srq: *mut ibv_srq,
    pub(crate) port_num: c_int,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_async_event {
    pub(crate) element: ibv_async_event_element,
    pub(crate) event_type: ibv_event_type,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ibv_pd {
    pub(crate) context: *mut ibv_context,
    pub(crate) handle: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ibv_mr {
    pub(crate) context: *mut ibv_context,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) addr: *mut c_void,
    pub(crate) length: usize,
    pub(crate) handle: u32,
    pub(crate) lkey: u32,
    pub(crate) rkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ibv_mw {
    pub(crate) context: *mut ibv_context,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) rkey: u32,
    pub(crate) handle: u32,
    pub(crate) r#type: ibv_mw_type,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ibv_mw_bind_info {
    pub(crate) mr: *mut ibv_mr,
    pub(crate) addr: u64,
    pub(crate) length: u64,
    pub(crate) mw_access_flags: c_uint,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ibv_mw_bind {
    pub(crate) wr_id: u64,
    pub(crate) send_flags: c_uint,
    pub(crate) bind_info: ibv_mw_bind_info,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ibv_comp_channel {
    pub(crate) context: *mut ibv_context,
    pub(crate) fd: c_int,
    pub(crate) refcnt: c_int,
}

#[repr(C)]
pub(crate) struct ibv_cq {
    pub(crate) context: *mut ibv_context,
    pub(crate) channel: *mut ibv_comp_channel,
    pub(crate) cq_context: *mut c_void,
    pub(crate) handle: u32,
    pub(crate) cqe: c_int,
    pub(crate) mutex: pthread_mutex_t,
    pub(crate) cond: pthread_cond_t,
    pub(crate) comp_events_completed: u32,
    pub(crate) async_events_completed: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ibv_srq_init_attr {
    pub(crate) srq_context: *mut c_void,
    pub(crate) attr: ibv_srq_attr,
}

#[repr(C)]
pub(crate) struct ibv_srq {
    pub(crate) context: *mut ibv_context,
    pub(crate) srq_context: *mut c_void,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) handle: u32,
    pub(crate) mutex: pthread_mutex_t,
    pub(crate) cond: pthread_cond_t,
    pub(crate) events_completed: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ibv_qp_init_attr {
    pub(crate) qp_context: *mut c_void,
    pub(crate) send_cq: *mut ibv_cq,
    pub(crate) recv_cq: *mut ibv_cq,
    pub(crate) srq: *mut ibv_srq,
    pub(crate) cap: ibv_qp_cap,
    pub(crate) qp_type: ibv_qp_type,
    pub(crate) sq_sig_all: c_int,
}

#[repr(C)]
pub(crate) struct ibv_qp {
    pub(crate) context: *mut ibv_context,
    pub(crate) qp_context: *mut c_void,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) send_cq: *mut ibv_cq,
    pub(crate) recv_cq: *mut ibv_cq,
    pub(crate) srq: *mut ibv_srq,
    pub(crate) handle: u32,
    pub(crate) qp_num: u32,
    pub(crate) state: ibv_qp_state,
    pub(crate) qp_type: ibv_qp_type,
    pub(crate) mutex: pthread_mutex_t,
    pub(crate) cond: pthread_cond_t,
    pub(crate) events_completed: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ibv_send_wr_bind_mw {
    pub(crate) mw: *mut ibv_mw,
    pub(crate) rkey: u32,
    pub(crate) bind_info: ibv_mw_bind_info,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_send_wr {
    pub(crate) wr_id: u64,
    pub(crate) next: *mut ibv_send_wr,
    pub(crate) sg_list: *mut ibv_sge,
    pub(crate) num_sge: c_int,
    pub(crate) opcode: ibv_wr_opcode,
    pub(crate) send_flags: c_uint,
    /// Big endian; `invalidate_rkey` with `IBV_WR_LOCAL_INV` and `IBV_WR_SEND_WITH_INV`.
    pub(crate) imm_data: u32,
    pub(crate) wr: ibv_send_wr_wr,
    /// In C a union of one: the shared receive queue of an XRC target.
    pub(crate) qp_type: u32,
    /// In C a union with the header of a segmented send, which is smaller.
    pub(crate) bind_mw: ibv_send_wr_bind_mw,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ibv_recv_wr {
    pub(crate) wr_id: u64,
    pub(crate) next: *mut ibv_recv_wr,
    pub(crate) sg_list: *mut ibv_sge,
    pub(crate) num_sge: c_int,
}
