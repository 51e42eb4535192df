//! One file for each room of hmc-core; in it every public function of that room, called by its
//! path (`Type::function`), so that `cargo xtask nopanic` can see that none is missing.

macro_rules! rooms {
    ($($module:ident = $room:literal),* $(,)?) => {
        $(#[cfg(any(not(one_room), room = $room))] mod $module;)*

        /// Calls all rooms, or the one that was asked for.
        pub(crate) fn all() {
            $(#[cfg(any(not(one_room), room = $room))] $module::call();)*
        }
    };
}

rooms! {
    chunks = "chunks",
    ctrl_commands = "ctrl/commands",
    ctrl_conn = "ctrl/conn",
    ctrl_framer = "ctrl/framer",
    ctrl_io = "ctrl/io",
    ctrl_ranks = "ctrl/ranks",
    ctrl_state = "ctrl/state",
    device = "device",
    pipeline = "pipeline",
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

#[cfg(seeded_panic)]
pub(crate) mod seeded;
