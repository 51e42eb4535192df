//! The script: which call fails and how, the delay and order of completions, and the counts of calls.

use crate::sys::ucs_status_t;

/// Names the calls once: a call's number counts and scripts it, its text is how a test names it.
macro_rules! calls {
    ($($name:ident $text:literal,)+) => {
        /// A call that is counted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Call { $($name,)+ }

        /// All of them.
        pub(crate) const CALLS: &[(Call, &str)] = &[$((Call::$name, $text),)+];
    };
}

calls! {
    Init "ucp_init_version",
    Cleanup "ucp_cleanup",
    ConfigRead "ucp_config_read",
    ConfigModify "ucp_config_modify",
    WorkerCreate "ucp_worker_create",
    WorkerDestroy "ucp_worker_destroy",
    WorkerAddress "ucp_worker_get_address",
    Efd "ucp_worker_get_efd",
    Progress "ucp_worker_progress",
    Arm "ucp_worker_arm",
    Signal "ucp_worker_signal",
    WorkerFlush "ucp_worker_flush_nbx",
    EpCreate "ucp_ep_create",
    EpClose "ucp_ep_close_nbx",
    EpFlush "ucp_ep_flush_nbx",
    Unpack "ucp_ep_rkey_unpack",
    MemMap "ucp_mem_map",
    MemUnmap "ucp_mem_unmap",
    MemQuery "ucp_mem_query",
    Pack "ucp_rkey_pack",
    BufferRelease "ucp_rkey_buffer_release",
    KeyDestroy "ucp_rkey_destroy",
    Put "ucp_put_nbx",
    Get "ucp_get_nbx",
    Free "ucp_request_free",
    AmHandler "ucp_worker_set_am_recv_handler",
    AmSend "ucp_am_send_nbx",
    AmRelease "ucp_am_data_release",
}

pub(crate) fn call(text: &str) -> Option<Call> {
    CALLS.iter().find(|(_, name)| *name == text).map(|(call, _)| *call)
}

/// The scripted result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// The call returns that status and starts nothing.
    Refuse(ucs_status_t),
    /// It starts, and its callback receives that status.
    Fail(ucs_status_t),
    /// It completes that many calls of progress later.
    Late(u64),
    /// It completes when held operations are released, or its endpoint is closed by force.
    Hold,
    /// A flush never completes and is removed. Any other operation is held.
    Lose,
}

/// Returns the scripted status of a call that completes immediately.
pub(crate) fn refused(action: Option<Action>) -> Option<ucs_status_t> {
    match action {
        Some(Action::Refuse(status) | Action::Fail(status)) => Some(status),
        _ => None,
    }
}

#[derive(Clone, Copy, Debug)]
struct Rule {
    call: Call,
    /// The call that it means, counted from the last reset; 0 for all.
    nth: u64,
    action: Action,
}

/// Order of the callbacks within one call of progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Posted,
    Reversed,
    Shuffled,
}

/// Numbers that a test can set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Knobs {
    /// Calls of progress until a put completes; 0: it completes in the call, up to `immediate_bytes`.
    pub(crate) put_delay: u64,
    pub(crate) get_delay: u64,
    /// 0: a flush completes in the call if nothing is before it.
    pub(crate) flush_delay: u64,
    pub(crate) close_delay: u64,
    pub(crate) am_delay: u64,
    /// Maximum random number of additional calls of progress, for all operations except a close.
    pub(crate) jitter: u64,
    pub(crate) immediate_bytes: u64,
    /// Bytes of puts reach the target with a flush only, or after `landing` calls of progress.
    pub(crate) staged: bool,
    pub(crate) landing: u64,
    pub(crate) order: Order,
    /// `ucp_rkey_ptr` returns the address of memory, as with lanes of shared memory.
    pub(crate) maps: bool,
    /// A bit for each kind of memory that contexts reach.
    pub(crate) memory_types: u64,
    pub(crate) version: [u32; 3],
    /// Number of times that a call yields inside a worker, so that a second thread is detected there.
    pub(crate) yields: u64,
}

const KNOBS: Knobs = Knobs {
    put_delay: 0,
    get_delay: 1,
    flush_delay: 1,
    close_delay: 1,
    am_delay: 0,
    jitter: 0,
    immediate_bytes: 8192,
    staged: true,
    landing: 64,
    order: Order::Posted,
    maps: false,
    // Host memory alone.
    memory_types: 1,
    version: [1, 22, 0],
    yields: 0,
};

/// The script, its chance, and what was counted.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) knobs: Knobs,
    rules: Vec<Rule>,
    calls: [u64; CALLS.len()],
    chance: u64,
}

impl Script {
    pub(crate) const fn new() -> Self {
        Self { knobs: KNOBS, rules: Vec::new(), calls: [0; CALLS.len()], chance: 1 }
    }

    /// Sets a number. `None`: there is none of that name.
    pub(crate) fn set(&mut self, name: &str, value: u64) -> Option<()> {
        let small = u32::try_from(value).unwrap_or(u32::MAX);
        let k = &mut self.knobs;
        match name {
            "put_delay" => k.put_delay = value,
            "get_delay" => k.get_delay = value,
            "flush_delay" => k.flush_delay = value,
            "close_delay" => k.close_delay = value,
            "am_delay" => k.am_delay = value,
            "jitter" => k.jitter = value,
            "immediate_bytes" => k.immediate_bytes = value,
            "landing" => k.landing = value,
            "maps" => k.maps = value != 0,
            "memory_types" => k.memory_types = value,
            "staged" => k.staged = value != 0,
            "yields" => k.yields = value,
            "seed" => self.chance = value,
            "order" => {
                k.order = match value {
                    0 => Order::Posted,
                    1 => Order::Reversed,
                    _ => Order::Shuffled,
                }
            }
            "version_major" => k.version[0] = small,
            "version_minor" => k.version[1] = small,
            "version_release" => k.version[2] = small,
            _ => return None,
        }
        Some(())
    }

    /// Scripts the `nth` call from now, or all for 0.
    pub(crate) fn add(&mut self, call: Call, nth: u64, action: Action) {
        let nth = if nth == 0 { 0 } else { self.calls[call as usize].saturating_add(nth) };
        self.rules.push(Rule { call, nth, action });
    }

    /// Removes all rules.
    pub(crate) fn clear(&mut self) {
        self.rules.clear();
    }

    /// Counts a call; what the script says of it.
    pub(crate) fn count(&mut self, call: Call) -> Option<Action> {
        let n = &mut self.calls[call as usize];
        *n += 1;
        if self.rules.is_empty() {
            return None;
        }
        let meant = |rule: &&Rule| rule.call == call && (rule.nth == 0 || rule.nth == *n);
        self.rules.iter().find(meant).map(|rule| rule.action)
    }

    pub(crate) const fn calls(&self, call: Call) -> u64 {
        self.calls[call as usize]
    }

    /// A number below `limit` (splitmix64).
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.chance = self.chance.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.chance ^ (self.chance >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let wide = u128::from(z ^ (z >> 31)) * u128::from(limit);
        u64::try_from(wide >> 64).unwrap_or(0)
    }

    /// Returns the number of calls of progress for an operation whose knob is `delay`.
    pub(crate) fn delay(&mut self, delay: u64) -> u64 {
        match self.knobs.jitter {
            0 => delay,
            jitter => delay + self.below(jitter + 1),
        }
    }
}
