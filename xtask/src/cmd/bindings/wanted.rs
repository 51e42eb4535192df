//! What of UCX is declared: functions, constants, and the types that they bring along.

/// Functions without which UCX is of no use to us; in the order of the written table.
pub(super) const REQUIRED: [&str; 37] = [
    "ucp_init_version",
    "ucp_cleanup",
    "ucp_get_version",
    "ucp_get_version_string",
    "ucp_config_read",
    "ucp_config_modify",
    "ucp_config_release",
    "ucp_context_query",
    "ucp_context_print_info",
    "ucp_worker_create",
    "ucp_worker_destroy",
    "ucp_worker_query",
    "ucp_worker_get_address",
    "ucp_worker_release_address",
    "ucp_worker_progress",
    "ucp_worker_get_efd",
    "ucp_worker_arm",
    "ucp_worker_signal",
    "ucp_worker_flush_nbx",
    "ucp_worker_set_am_recv_handler",
    "ucp_ep_create",
    "ucp_ep_close_nbx",
    "ucp_ep_flush_nbx",
    "ucp_ep_rkey_unpack",
    "ucp_mem_map",
    "ucp_mem_unmap",
    "ucp_mem_query",
    "ucp_rkey_pack",
    "ucp_rkey_buffer_release",
    "ucp_rkey_destroy",
    "ucp_put_nbx",
    "ucp_get_nbx",
    "ucp_am_send_nbx",
    "ucp_request_check_status",
    "ucp_request_free",
    "ucp_request_cancel",
    "ucs_status_string",
];

/// Functions that are used where the library has them.
pub(super) const OPTIONAL: [&str; 4] =
    ["ucp_ep_query", "ucp_ep_print_info", "ucp_rkey_ptr", "ucp_lib_query"];

/// The enumerations whose constants are wanted and that no wanted function names.
pub(super) const ENUMS: [&str; 17] = [
    "ucp_params_field",
    "ucp_feature",
    "ucp_worker_params_field",
    "ucp_ep_params_field",
    "ucp_ep_params_flags_field",
    "ucp_ep_close_flags_t",
    "ucp_mem_map_params_field",
    "ucp_op_attr_t",
    "ucp_context_attr_field",
    "ucp_worker_attr_field",
    "ucp_mem_attr_field",
    "ucp_ep_attr_field",
    "ucp_lib_attr_field",
    "ucp_am_cb_flags",
    "ucp_send_am_flags",
    "ucp_am_handler_param_field",
    "ucp_am_recv_attr_t",
];

/// Wanted constants of enumerations without a name, as a regular expression.
pub(super) const NAMELESS: &str = "UCP_MEM_MAP_.*";

/// The constants that are kept, by the beginning of their name, and the type of the field that holds
/// them; without one they keep their enumeration's. The first match counts.
const CONSTANTS: [(&str, Option<&str>); 24] = [
    ("UCP_PARAM_FIELD_", Some("u64")),
    ("UCP_FEATURE_", Some("u64")),
    ("UCP_WORKER_PARAM_FIELD_", Some("u64")),
    ("UCP_EP_PARAM_FIELD_", Some("u64")),
    ("UCP_EP_PARAMS_FLAGS_", Some("::core::ffi::c_uint")),
    ("UCP_ERR_HANDLING_MODE_", None),
    ("UCP_EP_CLOSE_FLAG_", Some("u32")),
    ("UCP_MEM_MAP_PARAM_FIELD_", Some("u64")),
    ("UCP_MEM_MAP_", Some("::core::ffi::c_uint")),
    ("UCP_OP_ATTR_", Some("u32")),
    ("UCP_ATTR_FIELD_", Some("u64")),
    ("UCP_WORKER_ATTR_FIELD_", Some("u64")),
    ("UCP_MEM_ATTR_FIELD_", Some("u64")),
    ("UCP_EP_ATTR_FIELD_", Some("u64")),
    ("UCP_LIB_ATTR_FIELD_", Some("u64")),
    ("UCP_AM_FLAG_", Some("u32")),
    ("UCP_AM_SEND_FLAG_", Some("u32")),
    ("UCP_AM_HANDLER_PARAM_FIELD_", Some("u64")),
    ("UCP_AM_RECV_ATTR_", Some("u64")),
    ("UCS_MEMORY_TYPE_", None),
    ("UCS_THREAD_MODE_", None),
    ("UCS_OK", None),
    ("UCS_INPROGRESS", None),
    ("UCS_ERR_", None),
];

/// Constants that are no part of the ABI: their values differ between versions.
const LEFT_OUT: [&str; 2] = ["UCS_MEMORY_TYPE_LAST", "UCS_MEMORY_TYPE_UNKNOWN"];

/// Whether a constant is kept, and if so the type that it is given.
pub(super) fn constant(name: &str) -> Option<Option<&'static str>> {
    if LEFT_OUT.contains(&name) {
        return None;
    }
    CONSTANTS.iter().find(|(prefix, _)| name.starts_with(prefix)).map(|(_, of)| *of)
}

#[cfg(test)]
mod tests {
    use super::constant;

    #[test]
    fn a_constant_gets_the_type_of_its_field() {
        assert_eq!(constant("UCP_MEM_MAP_PARAM_FIELD_FLAGS"), Some(Some("u64")));
        assert_eq!(constant("UCP_MEM_MAP_PROT_LOCAL_READ"), Some(Some("::core::ffi::c_uint")));
        assert_eq!(constant("UCS_ERR_BUSY"), Some(None));
        assert_eq!(constant("UCS_MEMORY_TYPE_LAST"), None);
        assert_eq!(constant("UCP_WAKEUP_RMA"), None);
    }
}
