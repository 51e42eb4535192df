//! The types that the headers of UCX 1.22.0 declare, as far as they are wanted. Generated; never edit it.
//!
//! Written by `cargo xtask bindings` with bindgen 0.72.1 from `ucp/api/ucp.h`; the list of what is
//! wanted is in `xtask/src/cmd/bindings/wanted.rs`. `tests.rs` compares sizes and offsets with what a
//! C compiler says.
//!
//! - Structures only ever grew at their end. A zeroed structure of this file serves an older library
//!   too, as long as no mask has a bit that it does not know.
//! - `ucs_status_t` is one byte, also as a result and in callbacks; the upper bits of the register are
//!   undefined. A wider declaration would read them.
#![allow(non_camel_case_types, clippy::upper_case_acronyms, reason = "the names of the C headers")]
#![allow(dead_code, reason = "declared as a whole, whether used or not")]

use core::ffi::{c_char, c_int, c_schar, c_uint, c_ulong, c_ushort, c_void};

pub(crate) type ucs_memory_type = c_uint;
pub(crate) type ucs_memory_type_t = ucs_memory_type;
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

pub(crate) type ucs_thread_mode_t = c_uint;
pub(crate) type ucs_cpu_mask_t = c_ulong;

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub(crate) struct ucs_cpu_set_t {
    pub(crate) ucs_bits: [ucs_cpu_mask_t; 16usize],
}

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
