//! What the headers of UCX 1.22.0 declare, as far as it is wanted. Generated; never edit it.
//!
//! Written by `cargo xtask bindings` with bindgen 0.72.1 from `ucp/api/ucp.h`; the list of what is
//! wanted is in `xtask/src/cmd/bindings/wanted.rs`. `layout.rs` compares sizes and offsets with what a
//! C compiler says. There is no foreign block: nothing links against UCX.
//!
//! - Structures only ever grew at their end. A zeroed structure of this file serves an older library
//!   too, as long as no mask has a bit that it does not know.
//! - `ucs_status_t` is one byte, also as a result and in callbacks; the upper bits of the register are
//!   undefined. A wider declaration would read them.
//! - Inline or macros in C, so written by hand where they are needed: `ucp_init` (calls
//!   `ucp_init_version` with the version of the headers), `ucp_dt_make_contig` and its kin,
//!   `UCS_PTR_IS_ERR`, `UCS_PTR_RAW_STATUS`, `UCS_STATUS_IS_ERR` and the ranges of errors (`result.rs`).
//! - `ucs_status_string` is libucs's; dlsym finds it through libucp, which depends on it.
//! - `UCS_MEMORY_TYPE_LAST` and `_UNKNOWN` are left out: their value differs between versions.
//! - Constants of a mask have the type of the field that holds them.
#![allow(non_camel_case_types, clippy::upper_case_acronyms, reason = "the names of the C headers")]
#![allow(dead_code, reason = "declared as a whole, whether used or not")]

use crate::api::dyn_api;
use core::ffi::{c_char, c_int, c_schar, c_uint, c_ulong, c_ushort, c_void};

pub(crate) const UCS_MEMORY_TYPE_HOST: ucs_memory_type = 0;
pub(crate) const UCS_MEMORY_TYPE_CUDA: ucs_memory_type = 1;
pub(crate) const UCS_MEMORY_TYPE_CUDA_MANAGED: ucs_memory_type = 2;
pub(crate) const UCS_MEMORY_TYPE_ROCM: ucs_memory_type = 3;
pub(crate) const UCS_MEMORY_TYPE_ROCM_MANAGED: ucs_memory_type = 4;
pub(crate) const UCS_MEMORY_TYPE_RDMA: ucs_memory_type = 5;
pub(crate) const UCS_MEMORY_TYPE_ZE_HOST: ucs_memory_type = 6;
pub(crate) const UCS_MEMORY_TYPE_ZE_DEVICE: ucs_memory_type = 7;
pub(crate) const UCS_MEMORY_TYPE_ZE_MANAGED: ucs_memory_type = 8;
pub(crate) const UCS_MEMORY_TYPE_GAUDI: ucs_memory_type = 9;
pub(crate) type ucs_memory_type = c_uint;
pub(crate) type ucs_memory_type_t = ucs_memory_type;
pub(crate) const UCS_OK: ucs_status_t = 0;
pub(crate) const UCS_INPROGRESS: ucs_status_t = 1;
pub(crate) const UCS_ERR_NO_MESSAGE: ucs_status_t = -1;
pub(crate) const UCS_ERR_NO_RESOURCE: ucs_status_t = -2;
pub(crate) const UCS_ERR_IO_ERROR: ucs_status_t = -3;
pub(crate) const UCS_ERR_NO_MEMORY: ucs_status_t = -4;
pub(crate) const UCS_ERR_INVALID_PARAM: ucs_status_t = -5;
pub(crate) const UCS_ERR_UNREACHABLE: ucs_status_t = -6;
pub(crate) const UCS_ERR_INVALID_ADDR: ucs_status_t = -7;
pub(crate) const UCS_ERR_NOT_IMPLEMENTED: ucs_status_t = -8;
pub(crate) const UCS_ERR_MESSAGE_TRUNCATED: ucs_status_t = -9;
pub(crate) const UCS_ERR_NO_PROGRESS: ucs_status_t = -10;
pub(crate) const UCS_ERR_BUFFER_TOO_SMALL: ucs_status_t = -11;
pub(crate) const UCS_ERR_NO_ELEM: ucs_status_t = -12;
pub(crate) const UCS_ERR_SOME_CONNECTS_FAILED: ucs_status_t = -13;
pub(crate) const UCS_ERR_NO_DEVICE: ucs_status_t = -14;
pub(crate) const UCS_ERR_BUSY: ucs_status_t = -15;
pub(crate) const UCS_ERR_CANCELED: ucs_status_t = -16;
pub(crate) const UCS_ERR_SHMEM_SEGMENT: ucs_status_t = -17;
pub(crate) const UCS_ERR_ALREADY_EXISTS: ucs_status_t = -18;
pub(crate) const UCS_ERR_OUT_OF_RANGE: ucs_status_t = -19;
pub(crate) const UCS_ERR_TIMED_OUT: ucs_status_t = -20;
pub(crate) const UCS_ERR_EXCEEDS_LIMIT: ucs_status_t = -21;
pub(crate) const UCS_ERR_UNSUPPORTED: ucs_status_t = -22;
pub(crate) const UCS_ERR_REJECTED: ucs_status_t = -23;
pub(crate) const UCS_ERR_NOT_CONNECTED: ucs_status_t = -24;
pub(crate) const UCS_ERR_CONNECTION_RESET: ucs_status_t = -25;
pub(crate) const UCS_ERR_FIRST_LINK_FAILURE: ucs_status_t = -40;
pub(crate) const UCS_ERR_LAST_LINK_FAILURE: ucs_status_t = -59;
pub(crate) const UCS_ERR_FIRST_ENDPOINT_FAILURE: ucs_status_t = -60;
pub(crate) const UCS_ERR_ENDPOINT_TIMEOUT: ucs_status_t = -80;
pub(crate) const UCS_ERR_LAST_ENDPOINT_FAILURE: ucs_status_t = -89;
pub(crate) const UCS_ERR_LAST: ucs_status_t = -100;
pub(crate) type ucs_status_t = c_schar;
pub(crate) type ucs_status_ptr_t = *mut c_void;
pub(crate) type __socklen_t = c_uint;
pub(crate) type socklen_t = __socklen_t;
pub(crate) type sa_family_t = c_ushort;

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub(crate) struct sockaddr {
    pub(crate) sa_family: sa_family_t,
    pub(crate) sa_data: [c_char; 14usize],
}

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub(crate) struct sockaddr_storage {
    pub(crate) ss_family: sa_family_t,
    pub(crate) __ss_padding: [c_char; 118usize],
    pub(crate) __ss_align: c_ulong,
}

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub(crate) struct ucs_sock_addr {
    pub(crate) addr: *const sockaddr,
    pub(crate) addrlen: socklen_t,
}

pub(crate) type ucs_sock_addr_t = ucs_sock_addr;
pub(crate) type ucp_tag_recv_info_t = ucp_tag_recv_info;
pub(crate) type ucp_am_recv_param_t = ucp_am_recv_param;

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub(crate) struct ucp_context {
    _unused: [u8; 0],
}

pub(crate) type ucp_context_h = *mut ucp_context;

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub(crate) struct ucp_config {
    _unused: [u8; 0],
}

pub(crate) type ucp_config_t = ucp_config;

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub(crate) struct ucp_ep {
    _unused: [u8; 0],
}

pub(crate) type ucp_ep_h = *mut ucp_ep;

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub(crate) struct ucp_conn_request {
    _unused: [u8; 0],
}

pub(crate) type ucp_conn_request_h = *mut ucp_conn_request;

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub(crate) struct ucp_address {
    _unused: [u8; 0],
}

pub(crate) type ucp_address_t = ucp_address;
pub(crate) const UCP_ERR_HANDLING_MODE_NONE: ucp_err_handling_mode_t = 0;
pub(crate) const UCP_ERR_HANDLING_MODE_PEER: ucp_err_handling_mode_t = 1;
pub(crate) const UCP_ERR_HANDLING_MODE_FAILOVER: ucp_err_handling_mode_t = 2;
pub(crate) type ucp_err_handling_mode_t = c_uint;

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub(crate) struct ucp_rkey {
    _unused: [u8; 0],
}

pub(crate) type ucp_rkey_h = *mut ucp_rkey;

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub(crate) struct ucp_mem {
    _unused: [u8; 0],
}

pub(crate) type ucp_mem_h = *mut ucp_mem;

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub(crate) struct ucp_mem_attr {
    pub(crate) field_mask: u64,
    pub(crate) address: *mut c_void,
    pub(crate) length: usize,
    pub(crate) mem_type: ucs_memory_type_t,
}

pub(crate) type ucp_mem_attr_t = ucp_mem_attr;
pub(crate) const UCP_MEM_ATTR_FIELD_ADDRESS: u64 = 1;
pub(crate) const UCP_MEM_ATTR_FIELD_LENGTH: u64 = 2;
pub(crate) const UCP_MEM_ATTR_FIELD_MEM_TYPE: u64 = 4;

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub(crate) struct ucp_worker {
    _unused: [u8; 0],
}

pub(crate) type ucp_worker_h = *mut ucp_worker;
pub(crate) type ucp_tag_t = u64;
pub(crate) type ucp_datatype_t = u64;
pub(crate) type ucp_request_init_callback_t = Option<unsafe extern "C" fn(request: *mut c_void)>;
pub(crate) type ucp_request_cleanup_callback_t = Option<unsafe extern "C" fn(request: *mut c_void)>;
pub(crate) type ucp_send_nbx_callback_t = Option<
    unsafe extern "C" fn(request: *mut c_void, status: ucs_status_t, user_data: *mut c_void),
>;
pub(crate) type ucp_err_handler_cb_t =
    Option<unsafe extern "C" fn(arg: *mut c_void, ep: ucp_ep_h, status: ucs_status_t)>;

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub(crate) struct ucp_err_handler {
    pub(crate) cb: ucp_err_handler_cb_t,
    pub(crate) arg: *mut c_void,
}

pub(crate) type ucp_err_handler_t = ucp_err_handler;
pub(crate) type ucp_stream_recv_nbx_callback_t = Option<
    unsafe extern "C" fn(
        request: *mut c_void,
        status: ucs_status_t,
        length: usize,
        user_data: *mut c_void,
    ),
>;
pub(crate) type ucp_tag_recv_nbx_callback_t = Option<
    unsafe extern "C" fn(
        request: *mut c_void,
        status: ucs_status_t,
        tag_info: *const ucp_tag_recv_info_t,
        user_data: *mut c_void,
    ),
>;
pub(crate) type ucp_am_recv_data_nbx_callback_t = Option<
    unsafe extern "C" fn(
        request: *mut c_void,
        status: ucs_status_t,
        length: usize,
        user_data: *mut c_void,
    ),
>;
pub(crate) type ucp_am_recv_callback_t = Option<
    unsafe extern "C" fn(
        arg: *mut c_void,
        header: *const c_void,
        header_length: usize,
        data: *mut c_void,
        length: usize,
        param: *const ucp_am_recv_param_t,
    ) -> ucs_status_t,
>;

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub(crate) struct ucp_ep_params {
    pub(crate) field_mask: u64,
    pub(crate) address: *const ucp_address_t,
    pub(crate) err_mode: ucp_err_handling_mode_t,
    pub(crate) err_handler: ucp_err_handler_t,
    pub(crate) user_data: *mut c_void,
    pub(crate) flags: c_uint,
    pub(crate) sockaddr: ucs_sock_addr_t,
    pub(crate) conn_request: ucp_conn_request_h,
    pub(crate) name: *const c_char,
    pub(crate) local_sockaddr: ucs_sock_addr_t,
}

pub(crate) type ucp_ep_params_t = ucp_ep_params;

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub(crate) struct ucp_transport_entry_t {
    pub(crate) transport_name: *const c_char,
    pub(crate) device_name: *const c_char,
}

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub(crate) struct ucp_transports_t {
    pub(crate) entries: *mut ucp_transport_entry_t,
    pub(crate) num_entries: c_uint,
    pub(crate) entry_size: usize,
}

pub(crate) const UCS_THREAD_MODE_SINGLE: ucs_thread_mode_t = 0;
pub(crate) const UCS_THREAD_MODE_SERIALIZED: ucs_thread_mode_t = 1;
pub(crate) const UCS_THREAD_MODE_MULTI: ucs_thread_mode_t = 2;
pub(crate) const UCS_THREAD_MODE_LAST: ucs_thread_mode_t = 3;
pub(crate) type ucs_thread_mode_t = c_uint;
pub(crate) type ucs_cpu_mask_t = c_ulong;

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub(crate) struct ucs_cpu_set_t {
    pub(crate) ucs_bits: [ucs_cpu_mask_t; 16usize],
}

pub(crate) const UCP_PARAM_FIELD_FEATURES: u64 = 1;
pub(crate) const UCP_PARAM_FIELD_REQUEST_SIZE: u64 = 2;
pub(crate) const UCP_PARAM_FIELD_REQUEST_INIT: u64 = 4;
pub(crate) const UCP_PARAM_FIELD_REQUEST_CLEANUP: u64 = 8;
pub(crate) const UCP_PARAM_FIELD_TAG_SENDER_MASK: u64 = 16;
pub(crate) const UCP_PARAM_FIELD_MT_WORKERS_SHARED: u64 = 32;
pub(crate) const UCP_PARAM_FIELD_ESTIMATED_NUM_EPS: u64 = 64;
pub(crate) const UCP_PARAM_FIELD_ESTIMATED_NUM_PPN: u64 = 128;
pub(crate) const UCP_PARAM_FIELD_NAME: u64 = 256;
pub(crate) const UCP_PARAM_FIELD_NODE_LOCAL_ID: u64 = 512;
pub(crate) const UCP_FEATURE_TAG: u64 = 1;
pub(crate) const UCP_FEATURE_RMA: u64 = 2;
pub(crate) const UCP_FEATURE_AMO32: u64 = 4;
pub(crate) const UCP_FEATURE_AMO64: u64 = 8;
pub(crate) const UCP_FEATURE_WAKEUP: u64 = 16;
pub(crate) const UCP_FEATURE_STREAM: u64 = 32;
pub(crate) const UCP_FEATURE_AM: u64 = 64;
pub(crate) const UCP_FEATURE_EXPORTED_MEMH: u64 = 128;
pub(crate) const UCP_FEATURE_DEVICE: u64 = 256;
pub(crate) const UCP_WORKER_PARAM_FIELD_THREAD_MODE: u64 = 1;
pub(crate) const UCP_WORKER_PARAM_FIELD_CPU_MASK: u64 = 2;
pub(crate) const UCP_WORKER_PARAM_FIELD_EVENTS: u64 = 4;
pub(crate) const UCP_WORKER_PARAM_FIELD_USER_DATA: u64 = 8;
pub(crate) const UCP_WORKER_PARAM_FIELD_EVENT_FD: u64 = 16;
pub(crate) const UCP_WORKER_PARAM_FIELD_FLAGS: u64 = 32;
pub(crate) const UCP_WORKER_PARAM_FIELD_NAME: u64 = 64;
pub(crate) const UCP_WORKER_PARAM_FIELD_AM_ALIGNMENT: u64 = 128;
pub(crate) const UCP_WORKER_PARAM_FIELD_CLIENT_ID: u64 = 256;
pub(crate) const UCP_EP_PARAM_FIELD_REMOTE_ADDRESS: u64 = 1;
pub(crate) const UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE: u64 = 2;
pub(crate) const UCP_EP_PARAM_FIELD_ERR_HANDLER: u64 = 4;
pub(crate) const UCP_EP_PARAM_FIELD_USER_DATA: u64 = 8;
pub(crate) const UCP_EP_PARAM_FIELD_SOCK_ADDR: u64 = 16;
pub(crate) const UCP_EP_PARAM_FIELD_FLAGS: u64 = 32;
pub(crate) const UCP_EP_PARAM_FIELD_CONN_REQUEST: u64 = 64;
pub(crate) const UCP_EP_PARAM_FIELD_NAME: u64 = 128;
pub(crate) const UCP_EP_PARAM_FIELD_LOCAL_SOCK_ADDR: u64 = 256;
pub(crate) const UCP_EP_PARAMS_FLAGS_CLIENT_SERVER: c_uint = 1;
pub(crate) const UCP_EP_PARAMS_FLAGS_NO_LOOPBACK: c_uint = 2;
pub(crate) const UCP_EP_PARAMS_FLAGS_SEND_CLIENT_ID: c_uint = 4;
pub(crate) const UCP_EP_CLOSE_FLAG_FORCE: u32 = 1;
pub(crate) const UCP_MEM_MAP_PARAM_FIELD_ADDRESS: u64 = 1;
pub(crate) const UCP_MEM_MAP_PARAM_FIELD_LENGTH: u64 = 2;
pub(crate) const UCP_MEM_MAP_PARAM_FIELD_FLAGS: u64 = 4;
pub(crate) const UCP_MEM_MAP_PARAM_FIELD_PROT: u64 = 8;
pub(crate) const UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE: u64 = 16;
pub(crate) const UCP_MEM_MAP_PARAM_FIELD_EXPORTED_MEMH_BUFFER: u64 = 32;
pub(crate) const UCP_LIB_ATTR_FIELD_MAX_THREAD_LEVEL: u64 = 1;
pub(crate) const UCP_ATTR_FIELD_REQUEST_SIZE: u64 = 1;
pub(crate) const UCP_ATTR_FIELD_THREAD_MODE: u64 = 2;
pub(crate) const UCP_ATTR_FIELD_MEMORY_TYPES: u64 = 4;
pub(crate) const UCP_ATTR_FIELD_NAME: u64 = 8;
pub(crate) const UCP_ATTR_FIELD_DEVICE_COUNTER_SIZE: u64 = 16;
pub(crate) const UCP_WORKER_ATTR_FIELD_THREAD_MODE: u64 = 1;
pub(crate) const UCP_WORKER_ATTR_FIELD_ADDRESS: u64 = 2;
pub(crate) const UCP_WORKER_ATTR_FIELD_ADDRESS_FLAGS: u64 = 4;
pub(crate) const UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER: u64 = 8;
pub(crate) const UCP_WORKER_ATTR_FIELD_NAME: u64 = 16;
pub(crate) const UCP_WORKER_ATTR_FIELD_MAX_INFO_STRING: u64 = 32;
pub(crate) const UCP_MEM_MAP_NONBLOCK: c_uint = 1;
pub(crate) const UCP_MEM_MAP_ALLOCATE: c_uint = 2;
pub(crate) const UCP_MEM_MAP_FIXED: c_uint = 4;
pub(crate) const UCP_MEM_MAP_SYMMETRIC_RKEY: c_uint = 8;
pub(crate) const UCP_MEM_MAP_LOCK: c_uint = 16;
pub(crate) const UCP_MEM_MAP_PROT_LOCAL_READ: c_uint = 1;
pub(crate) const UCP_MEM_MAP_PROT_LOCAL_WRITE: c_uint = 2;
pub(crate) const UCP_MEM_MAP_PROT_REMOTE_READ: c_uint = 256;
pub(crate) const UCP_MEM_MAP_PROT_REMOTE_WRITE: c_uint = 512;
pub(crate) const UCP_AM_FLAG_WHOLE_MSG: u32 = 1;
pub(crate) const UCP_AM_FLAG_PERSISTENT_DATA: u32 = 2;
pub(crate) const UCP_AM_SEND_FLAG_REPLY: u32 = 1;
pub(crate) const UCP_AM_SEND_FLAG_EAGER: u32 = 2;
pub(crate) const UCP_AM_SEND_FLAG_RNDV: u32 = 4;
pub(crate) const UCP_AM_SEND_FLAG_COPY_HEADER: u32 = 8;
pub(crate) const UCP_OP_ATTR_FIELD_REQUEST: u32 = 1;
pub(crate) const UCP_OP_ATTR_FIELD_CALLBACK: u32 = 2;
pub(crate) const UCP_OP_ATTR_FIELD_USER_DATA: u32 = 4;
pub(crate) const UCP_OP_ATTR_FIELD_DATATYPE: u32 = 8;
pub(crate) const UCP_OP_ATTR_FIELD_FLAGS: u32 = 16;
pub(crate) const UCP_OP_ATTR_FIELD_REPLY_BUFFER: u32 = 32;
pub(crate) const UCP_OP_ATTR_FIELD_MEMORY_TYPE: u32 = 64;
pub(crate) const UCP_OP_ATTR_FIELD_RECV_INFO: u32 = 128;
pub(crate) const UCP_OP_ATTR_FIELD_MEMH: u32 = 256;
pub(crate) const UCP_OP_ATTR_FIELD_REMOTE_DATATYPE: u32 = 512;
pub(crate) const UCP_OP_ATTR_FIELD_REMOTE: u32 = 1024;
pub(crate) const UCP_OP_ATTR_FIELD_REMOTE_COUNT: u32 = 2048;
pub(crate) const UCP_OP_ATTR_FLAG_NO_IMM_CMPL: u32 = 65536;
pub(crate) const UCP_OP_ATTR_FLAG_FAST_CMPL: u32 = 131072;
pub(crate) const UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL: u32 = 262144;
pub(crate) const UCP_OP_ATTR_FLAG_MULTI_SEND: u32 = 524288;
pub(crate) const UCP_AM_RECV_ATTR_FIELD_REPLY_EP: u64 = 1;
pub(crate) const UCP_AM_RECV_ATTR_FLAG_DATA: u64 = 65536;
pub(crate) const UCP_AM_RECV_ATTR_FLAG_RNDV: u64 = 131072;
pub(crate) const UCP_AM_HANDLER_PARAM_FIELD_ID: u64 = 1;
pub(crate) const UCP_AM_HANDLER_PARAM_FIELD_FLAGS: u64 = 2;
pub(crate) const UCP_AM_HANDLER_PARAM_FIELD_CB: u64 = 4;
pub(crate) const UCP_AM_HANDLER_PARAM_FIELD_ARG: u64 = 8;

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub(crate) struct ucp_params {
    pub(crate) field_mask: u64,
    pub(crate) features: u64,
    pub(crate) request_size: usize,
    pub(crate) request_init: ucp_request_init_callback_t,
    pub(crate) request_cleanup: ucp_request_cleanup_callback_t,
    pub(crate) tag_sender_mask: u64,
    pub(crate) mt_workers_shared: c_int,
    pub(crate) estimated_num_eps: usize,
    pub(crate) estimated_num_ppn: usize,
    pub(crate) name: *const c_char,
    pub(crate) node_local_id: usize,
}

pub(crate) type ucp_params_t = ucp_params;

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub(crate) struct ucp_lib_attr {
    pub(crate) field_mask: u64,
    pub(crate) max_thread_level: ucs_thread_mode_t,
}

pub(crate) type ucp_lib_attr_t = ucp_lib_attr;

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub(crate) struct ucp_context_attr {
    pub(crate) field_mask: u64,
    pub(crate) request_size: usize,
    pub(crate) thread_mode: ucs_thread_mode_t,
    pub(crate) memory_types: u64,
    pub(crate) name: [c_char; 32usize],
    pub(crate) device_counter_size: usize,
}

pub(crate) type ucp_context_attr_t = ucp_context_attr;

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub(crate) struct ucp_worker_attr {
    pub(crate) field_mask: u64,
    pub(crate) thread_mode: ucs_thread_mode_t,
    pub(crate) address_flags: u32,
    pub(crate) address: *mut ucp_address_t,
    pub(crate) address_length: usize,
    pub(crate) max_am_header: usize,
    pub(crate) name: [c_char; 32usize],
    pub(crate) max_debug_string: usize,
}

pub(crate) type ucp_worker_attr_t = ucp_worker_attr;

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub(crate) struct ucp_worker_params {
    pub(crate) field_mask: u64,
    pub(crate) thread_mode: ucs_thread_mode_t,
    pub(crate) cpu_mask: ucs_cpu_set_t,
    pub(crate) events: c_uint,
    pub(crate) user_data: *mut c_void,
    pub(crate) event_fd: c_int,
    pub(crate) flags: u64,
    pub(crate) name: *const c_char,
    pub(crate) am_alignment: usize,
    pub(crate) client_id: u64,
}

pub(crate) type ucp_worker_params_t = ucp_worker_params;

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub(crate) struct ucp_mem_map_params {
    pub(crate) field_mask: u64,
    pub(crate) address: *mut c_void,
    pub(crate) length: usize,
    pub(crate) flags: c_uint,
    pub(crate) prot: c_uint,
    pub(crate) memory_type: ucs_memory_type_t,
    pub(crate) exported_memh_buffer: *const c_void,
}

pub(crate) type ucp_mem_map_params_t = ucp_mem_map_params;

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub(crate) struct ucp_tag_recv_info {
    pub(crate) sender_tag: ucp_tag_t,
    pub(crate) length: usize,
}

#[repr(C)]
#[derive(Copy, Clone)]
pub(crate) struct ucp_request_param_t {
    pub(crate) op_attr_mask: u32,
    pub(crate) flags: u32,
    pub(crate) request: *mut c_void,
    pub(crate) cb: ucp_request_param_cb,
    pub(crate) datatype: ucp_datatype_t,
    pub(crate) user_data: *mut c_void,
    pub(crate) reply_buffer: *mut c_void,
    pub(crate) memory_type: ucs_memory_type_t,
    pub(crate) recv_info: ucp_request_param_recv_info,
    pub(crate) memh: ucp_mem_h,
    pub(crate) remote_datatype: ucp_datatype_t,
    pub(crate) remote: *const c_void,
    pub(crate) remote_count: usize,
}

#[repr(C)]
#[derive(Copy, Clone)]
pub(crate) union ucp_request_param_cb {
    pub(crate) send: ucp_send_nbx_callback_t,
    pub(crate) recv: ucp_tag_recv_nbx_callback_t,
    pub(crate) recv_stream: ucp_stream_recv_nbx_callback_t,
    pub(crate) recv_am: ucp_am_recv_data_nbx_callback_t,
}

#[repr(C)]
#[derive(Copy, Clone)]
pub(crate) union ucp_request_param_recv_info {
    pub(crate) length: *mut usize,
    pub(crate) tag_info: *mut ucp_tag_recv_info_t,
}

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub(crate) struct ucp_am_handler_param {
    pub(crate) field_mask: u64,
    pub(crate) id: c_uint,
    pub(crate) flags: u32,
    pub(crate) cb: ucp_am_recv_callback_t,
    pub(crate) arg: *mut c_void,
}

pub(crate) type ucp_am_handler_param_t = ucp_am_handler_param;

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub(crate) struct ucp_am_recv_param {
    pub(crate) recv_attr: u64,
    pub(crate) reply_ep: ucp_ep_h,
}

pub(crate) const UCP_EP_ATTR_FIELD_NAME: u64 = 1;
pub(crate) const UCP_EP_ATTR_FIELD_LOCAL_SOCKADDR: u64 = 2;
pub(crate) const UCP_EP_ATTR_FIELD_REMOTE_SOCKADDR: u64 = 4;
pub(crate) const UCP_EP_ATTR_FIELD_TRANSPORTS: u64 = 8;
pub(crate) const UCP_EP_ATTR_FIELD_USER_DATA: u64 = 16;

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub(crate) struct ucp_ep_attr {
    pub(crate) field_mask: u64,
    pub(crate) name: [c_char; 32usize],
    pub(crate) local_sockaddr: sockaddr_storage,
    pub(crate) remote_sockaddr: sockaddr_storage,
    pub(crate) transports: ucp_transports_t,
    pub(crate) user_data: *mut c_void,
}

pub(crate) type ucp_ep_attr_t = ucp_ep_attr;

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub(crate) struct FILE {
    _unused: [u8; 0],
}

dyn_api! {
    /// The functions of UCP, and one of UCS.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Ucp {
        required {
            fn ucp_init_version(
                api_major_version: c_uint,
                api_minor_version: c_uint,
                params: *const ucp_params_t,
                config: *const ucp_config_t,
                context_p: *mut ucp_context_h,
            ) -> ucs_status_t;
            fn ucp_cleanup(context_p: ucp_context_h);
            fn ucp_get_version(
                major_version: *mut c_uint,
                minor_version: *mut c_uint,
                release_number: *mut c_uint,
            );
            fn ucp_get_version_string() -> *const c_char;
            fn ucp_config_read(
                env_prefix: *const c_char,
                filename: *const c_char,
                config_p: *mut *mut ucp_config_t,
            ) -> ucs_status_t;
            fn ucp_config_modify(
                config: *mut ucp_config_t,
                name: *const c_char,
                value: *const c_char,
            ) -> ucs_status_t;
            fn ucp_config_release(config: *mut ucp_config_t);
            fn ucp_context_query(
                context_p: ucp_context_h,
                attr: *mut ucp_context_attr_t,
            ) -> ucs_status_t;
            fn ucp_context_print_info(context: ucp_context_h, stream: *mut FILE);
            fn ucp_worker_create(
                context: ucp_context_h,
                params: *const ucp_worker_params_t,
                worker_p: *mut ucp_worker_h,
            ) -> ucs_status_t;
            fn ucp_worker_destroy(worker: ucp_worker_h);
            fn ucp_worker_query(worker: ucp_worker_h, attr: *mut ucp_worker_attr_t) -> ucs_status_t;
            fn ucp_worker_get_address(
                worker: ucp_worker_h,
                address_p: *mut *mut ucp_address_t,
                address_length_p: *mut usize,
            ) -> ucs_status_t;
            fn ucp_worker_release_address(worker: ucp_worker_h, address: *mut ucp_address_t);
            fn ucp_worker_progress(worker: ucp_worker_h) -> c_uint;
            fn ucp_worker_get_efd(worker: ucp_worker_h, fd: *mut c_int) -> ucs_status_t;
            fn ucp_worker_arm(worker: ucp_worker_h) -> ucs_status_t;
            fn ucp_worker_signal(worker: ucp_worker_h) -> ucs_status_t;
            fn ucp_worker_flush_nbx(
                worker: ucp_worker_h,
                param: *const ucp_request_param_t,
            ) -> ucs_status_ptr_t;
            fn ucp_worker_set_am_recv_handler(
                worker: ucp_worker_h,
                param: *const ucp_am_handler_param_t,
            ) -> ucs_status_t;
            fn ucp_ep_create(
                worker: ucp_worker_h,
                params: *const ucp_ep_params_t,
                ep_p: *mut ucp_ep_h,
            ) -> ucs_status_t;
            fn ucp_ep_close_nbx(
                ep: ucp_ep_h,
                param: *const ucp_request_param_t,
            ) -> ucs_status_ptr_t;
            fn ucp_ep_flush_nbx(
                ep: ucp_ep_h,
                param: *const ucp_request_param_t,
            ) -> ucs_status_ptr_t;
            fn ucp_ep_rkey_unpack(
                ep: ucp_ep_h,
                rkey_buffer: *const c_void,
                rkey_p: *mut ucp_rkey_h,
            ) -> ucs_status_t;
            fn ucp_mem_map(
                context: ucp_context_h,
                params: *const ucp_mem_map_params_t,
                memh_p: *mut ucp_mem_h,
            ) -> ucs_status_t;
            fn ucp_mem_unmap(context: ucp_context_h, memh: ucp_mem_h) -> ucs_status_t;
            fn ucp_mem_query(memh: ucp_mem_h, attr: *mut ucp_mem_attr_t) -> ucs_status_t;
            fn ucp_rkey_pack(
                context: ucp_context_h,
                memh: ucp_mem_h,
                rkey_buffer_p: *mut *mut c_void,
                size_p: *mut usize,
            ) -> ucs_status_t;
            fn ucp_rkey_buffer_release(rkey_buffer: *mut c_void);
            fn ucp_rkey_destroy(rkey: ucp_rkey_h);
            fn ucp_put_nbx(
                ep: ucp_ep_h,
                buffer: *const c_void,
                count: usize,
                remote_addr: u64,
                rkey: ucp_rkey_h,
                param: *const ucp_request_param_t,
            ) -> ucs_status_ptr_t;
            fn ucp_get_nbx(
                ep: ucp_ep_h,
                buffer: *mut c_void,
                count: usize,
                remote_addr: u64,
                rkey: ucp_rkey_h,
                param: *const ucp_request_param_t,
            ) -> ucs_status_ptr_t;
            fn ucp_am_send_nbx(
                ep: ucp_ep_h,
                id: c_uint,
                header: *const c_void,
                header_length: usize,
                buffer: *const c_void,
                count: usize,
                param: *const ucp_request_param_t,
            ) -> ucs_status_ptr_t;
            fn ucp_request_check_status(request: *mut c_void) -> ucs_status_t;
            fn ucp_request_free(request: *mut c_void);
            fn ucp_request_cancel(worker: ucp_worker_h, request: *mut c_void);
            fn ucs_status_string(status: ucs_status_t) -> *const c_char;
        }
        optional {
            fn ucp_ep_query(ep: ucp_ep_h, attr: *mut ucp_ep_attr_t) -> ucs_status_t;
            fn ucp_ep_print_info(ep: ucp_ep_h, stream: *mut FILE);
            fn ucp_rkey_ptr(rkey: ucp_rkey_h, raddr: u64, addr_p: *mut *mut c_void) -> ucs_status_t;
            fn ucp_lib_query(attr: *mut ucp_lib_attr_t) -> ucs_status_t;
        }
    }
}
