//! The functions that the headers of UCX 1.22.0 declare, as far as they are wanted. Generated; never edit it.
//!
//! Written by `cargo xtask bindings` with bindgen 0.72.1 from `ucp/api/ucp.h`; the list of what is
//! wanted is in `xtask/src/cmd/bindings/wanted.rs`. There is no foreign block: nothing links against UCX.
//!
//! - Inline or macros in C, so written by hand where they are needed: `ucp_init` (calls
//!   `ucp_init_version` with the version of the headers), `ucp_dt_make_contig` and its kin,
//!   `UCS_PTR_IS_ERR`, `UCS_PTR_RAW_STATUS`, `UCS_STATUS_IS_ERR` and the ranges of errors (`result.rs`).
//! - `ucs_status_string` is libucs's; dlsym finds it through libucp, which depends on it.
#![allow(dead_code, reason = "declared as a whole, whether used or not")]

use super::sys::{
    FILE, ucp_address_t, ucp_am_handler_param_t, ucp_config_t, ucp_context_attr_t, ucp_context_h,
    ucp_ep_attr_t, ucp_ep_h, ucp_ep_params_t, ucp_lib_attr_t, ucp_mem_attr_t, ucp_mem_h,
    ucp_mem_map_params_t, ucp_params_t, ucp_request_param_t, ucp_rkey_h, ucp_worker_attr_t,
    ucp_worker_h, ucp_worker_params_t, ucs_status_ptr_t, ucs_status_t,
};
use crate::api::dyn_api;
use core::ffi::{c_char, c_int, c_uint, c_void};

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
