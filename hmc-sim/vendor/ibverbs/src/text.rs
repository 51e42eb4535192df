//! Texts of statuses, events, states and nodes.

use core::ffi::{CStr, c_char};

use crate::abi::{IBV_NODE_CA, ibv_event_type, ibv_node_type, ibv_port_state, ibv_wc_status};

const STATUSES: [&CStr; 24] = [
    c"success",
    c"local length error",
    c"local QP operation error",
    c"local EE context operation error",
    c"local protection error",
    c"Work Request Flushed Error",
    c"memory management operation error",
    c"bad response error",
    c"local access error",
    c"remote invalid request error",
    c"remote access error",
    c"remote operation error",
    c"transport retry counter exceeded",
    c"RNR retry counter exceeded",
    c"local RDD violation error",
    c"remote invalid RD request",
    c"aborted error",
    c"invalid EE context number",
    c"invalid EE context state",
    c"fatal error",
    c"response timeout error",
    c"general error",
    c"TM error",
    c"TM software rendezvous",
];

const EVENTS: [&CStr; 21] = [
    c"CQ error",
    c"local work queue catastrophic error",
    c"invalid request local work queue error",
    c"local access violation work queue error",
    c"communication established",
    c"send queue drained",
    c"path migrated",
    c"path migration request error",
    c"local catastrophic error",
    c"port active",
    c"port error",
    c"LID change",
    c"P_Key change",
    c"SM change",
    c"SRQ catastrophic error",
    c"SRQ limit reached",
    c"last WQE reached",
    c"client reregistration",
    c"GID table change",
    c"WQ fatal",
    c"Device link speed change",
];

const PORT_STATES: [&CStr; 6] =
    [c"no state change (NOP)", c"down", c"init", c"armed", c"active", c"active defer"];

fn text(texts: &[&'static CStr], number: u32, none: &'static CStr) -> *const c_char {
    texts.get(number as usize).copied().unwrap_or(none).as_ptr()
}

// SAFETY: the name is libibverbs' own, and a process has one.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_wc_status_str(status: ibv_wc_status) -> *const c_char {
    text(&STATUSES, status, c"unknown")
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_event_type_str(event: ibv_event_type) -> *const c_char {
    text(&EVENTS, event, c"unknown")
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_port_state_str(port_state: ibv_port_state) -> *const c_char {
    text(&PORT_STATES, port_state, c"unknown")
}

// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_node_type_str(node_type: ibv_node_type) -> *const c_char {
    let name = if node_type == IBV_NODE_CA { c"InfiniBand channel adapter" } else { c"unknown" };
    name.as_ptr()
}
