//! One file for each module of hmc-core. It calls every public function of that module by its path (`Type::function`), so that
//! `cargo xtask nopanic` can check that none is missing.

macro_rules! modules {
    ($($module:ident = $name:literal),* $(,)?) => {
        $(#[cfg(any(not(one_module), module = $name))] mod $module;)*

        /// Calls all modules, or the selected one.
        pub(crate) fn all() {
            $(#[cfg(any(not(one_module), module = $name))] $module::call();)*
        }
    };
}

modules! {
    blocks = "blocks",
    chunks = "chunks",
    ctrl_commands = "ctrl/commands",
    ctrl_conn = "ctrl/conn",
    ctrl_framer = "ctrl/framer",
    ctrl_io = "ctrl/io",
    ctrl_ranks = "ctrl/ranks",
    ctrl_state = "ctrl/state",
    device_attributes = "device/attributes",
    device_copies = "device/copies",
    device_error = "device/error",
    device_memory = "device/memory",
    pipeline = "pipeline",
    place = "place",
    queue = "queue",
    queue_waiting = "queue/waiting",
    range = "range",
    region = "region",
    rndv = "rndv",
    rndv_receiver = "rndv/receiver",
    rndv_sender = "rndv/sender",
    slots = "slots",
    slots_deadline = "slots/deadline",
    slots_fail = "slots/fail",
    slots_leave = "slots/leave",
    slots_state = "slots/state",
    time = "time",
    transport = "transport",
    transport_data_plane = "transport/data_plane",
    types = "types",
    window = "window",
    wire_advert = "wire/advert",
    wire_cursor = "wire/cursor",
    wire_cxx = "wire/cxx",
    wire_data = "wire/data",
    wire_held = "wire/held",
    wire_header = "wire/header",
    wire_hello = "wire/hello",
    wire_message = "wire/message",
    wire_proof = "wire/proof",
    wire_reject = "wire/reject",
    wire_rndv = "wire/rndv",
    work = "work",
}

#[cfg(planted_panic)]
pub(crate) mod planted_panic;
