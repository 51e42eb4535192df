//! Proof that each function of hmc-hw's table is exported here with the type that the table gives it.
//!
//! `functions.rs`, which is included as it is, calls `dyn_api!`. There it makes a table of pointers; here it
//! makes one constant of that type for each function.

macro_rules! dyn_api {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            required { $(
                fn $must:ident($($must_arg:ident: $must_type:ty),* $(,)?) $(-> $must_result:ty)?;
            )* }
            optional { $(
                fn $may:ident($($may_arg:ident: $may_type:ty),* $(,)?) $(-> $may_result:ty)?;
            )* }
        }
    ) => {
        $(const _: unsafe extern "C" fn($($must_type),*) $(-> $must_result)? =
            $crate::api::exports::$must;)*
        $(const _: unsafe extern "C" fn($($may_type),*) $(-> $may_result)? =
            $crate::api::exports::$may;)*
    };
}
pub(crate) use dyn_api;

/// All exported functions, for the proof.
pub(crate) mod exports {
    pub(crate) use crate::am::{ucp_am_send_nbx, ucp_worker_set_am_recv_handler};
    pub(crate) use crate::endpoint::{
        ucp_ep_close_nbx, ucp_ep_create, ucp_ep_flush_nbx, ucp_ep_print_info, ucp_ep_query,
        ucp_worker_flush_nbx,
    };
    pub(crate) use crate::memory::{
        ucp_ep_rkey_unpack, ucp_mem_map, ucp_mem_query, ucp_mem_unmap, ucp_rkey_buffer_release,
        ucp_rkey_destroy, ucp_rkey_pack, ucp_rkey_ptr,
    };
    pub(crate) use crate::setup::{
        ucp_cleanup, ucp_config_modify, ucp_config_read, ucp_config_release,
        ucp_context_print_info, ucp_context_query, ucp_get_version, ucp_get_version_string,
        ucp_init_version, ucp_lib_query, ucs_status_string,
    };
    pub(crate) use crate::transfer::{
        ucp_get_nbx, ucp_put_nbx, ucp_request_cancel, ucp_request_check_status, ucp_request_free,
    };
    pub(crate) use crate::worker::{
        ucp_worker_arm, ucp_worker_create, ucp_worker_destroy, ucp_worker_get_address,
        ucp_worker_get_efd, ucp_worker_progress, ucp_worker_query, ucp_worker_release_address,
        ucp_worker_signal,
    };
}
