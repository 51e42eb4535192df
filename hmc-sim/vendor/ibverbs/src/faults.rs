//! The script: which call or operation fails and how, the time and order of operations, and the counts of calls.

use core::ffi::c_int;

use crate::abi::{
    IBV_WR_BIND_MW, IBV_WR_LOCAL_INV, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE,
    IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_SEND_WITH_INV,
    ibv_wc_status, ibv_wr_opcode,
};

/// The tick of what is held until the script releases it.
pub(crate) const HELD: u64 = u64::MAX;

/// Names the calls once: a call's number counts and scripts it, its text is how a test names it.
macro_rules! calls {
    ($($name:ident $text:literal,)+) => {
        /// A call or an operation that is counted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Call { $($name,)+ }

        /// All of them.
        pub(crate) const CALLS: &[(Call, &str)] = &[$((Call::$name, $text),)+];
    };
}

calls! {
    GetDeviceList "ibv_get_device_list",
    FreeDeviceList "ibv_free_device_list",
    OpenDevice "ibv_open_device",
    CloseDevice "ibv_close_device",
    QueryDevice "ibv_query_device",
    QueryPort "ibv_query_port",
    QueryPkey "ibv_query_pkey",
    QueryGid "ibv_query_gid",
    QueryGidEx "_ibv_query_gid_ex",
    QueryGidTable "_ibv_query_gid_table",
    GetAsyncEvent "ibv_get_async_event",
    AckAsyncEvent "ibv_ack_async_event",
    AllocPd "ibv_alloc_pd",
    DeallocPd "ibv_dealloc_pd",
    RegMr "ibv_reg_mr",
    RegMrIova2 "ibv_reg_mr_iova2",
    RegDmabufMr "ibv_reg_dmabuf_mr",
    DeregMr "ibv_dereg_mr",
    AllocMw "ibv_alloc_mw",
    DeallocMw "ibv_dealloc_mw",
    BindMw "ibv_bind_mw",
    CreateCompChannel "ibv_create_comp_channel",
    DestroyCompChannel "ibv_destroy_comp_channel",
    CreateCq "ibv_create_cq",
    DestroyCq "ibv_destroy_cq",
    GetCqEvent "ibv_get_cq_event",
    AckCqEvents "ibv_ack_cq_events",
    ReqNotifyCq "ibv_req_notify_cq",
    PollCq "ibv_poll_cq",
    CreateQp "ibv_create_qp",
    ModifyQp "ibv_modify_qp",
    QueryQp "ibv_query_qp",
    DestroyQp "ibv_destroy_qp",
    PostSend "ibv_post_send",
    PostRecv "ibv_post_recv",
    CreateSrq "ibv_create_srq",
    ModifySrq "ibv_modify_srq",
    QuerySrq "ibv_query_srq",
    DestroySrq "ibv_destroy_srq",
    PostSrqRecv "ibv_post_srq_recv",
    ForkInit "ibv_fork_init",
    Write "write",
    WriteImm "write_imm",
    Send "send",
    SendImm "send_imm",
    SendInv "send_inv",
    Read "read",
    LocalInv "local_inv",
    Bind "bind",
}

pub(crate) fn call(text: &str) -> Option<Call> {
    CALLS.iter().find(|(_, name)| *name == text).map(|(call, _)| *call)
}

/// The operation that a work request's opcode means; `None` for one that this library does not have.
pub(crate) const fn operation(opcode: ibv_wr_opcode) -> Option<Call> {
    Some(match opcode {
        IBV_WR_RDMA_WRITE => Call::Write,
        IBV_WR_RDMA_WRITE_WITH_IMM => Call::WriteImm,
        IBV_WR_SEND => Call::Send,
        IBV_WR_SEND_WITH_IMM => Call::SendImm,
        IBV_WR_SEND_WITH_INV => Call::SendInv,
        IBV_WR_RDMA_READ => Call::Read,
        IBV_WR_LOCAL_INV => Call::LocalInv,
        IBV_WR_BIND_MW => Call::Bind,
        _ => return None,
    })
}

/// The status of a completion and its vendor's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) status: ibv_wc_status,
    pub(crate) vendor_err: u32,
}

/// The scripted result of a call or an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// The call returns that errno and does nothing. Of an operation: its post is refused.
    Refuse(c_int),
    /// The operation moves half of its bytes and completes with that status.
    Fail(Outcome),
    /// It is carried out that many ticks later.
    Late(u64),
    /// It is carried out when held operations are released.
    Hold,
    /// It is carried out, and completes that many ticks later.
    AckLate(u64),
    /// It is carried out, and completes when held operations are released.
    AckHold,
    /// Its completion is lost, as with an overrun of the completion queue.
    Drop,
}

#[derive(Clone, Copy, Debug)]
struct Rule {
    call: Call,
    /// The number of the queue pair whose operations it means; 0 for all.
    qp: u64,
    /// The call that it means, counted from when it was added; 0 for all.
    nth: u64,
    seen: u64,
    action: Action,
}

/// Order of queue pairs within one tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Posted,
    Reversed,
    Shuffled,
}

/// Numbers that a test can set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Knobs {
    pub(crate) devices: u64,
    /// Ticks from the post of an operation until it may be carried out; 0: in the next one.
    pub(crate) delay: u64,
    /// Ticks from there until its completion.
    pub(crate) ack_delay: u64,
    /// Maximum random number of additional ticks of both.
    pub(crate) jitter: u64,
    pub(crate) order: Order,
    /// Maximum number of operations in one tick; 0: all.
    pub(crate) batch: u64,
    /// Bytes of writes are visible with a later read or receive of the same queue pair, or `landing` ticks later.
    pub(crate) staged: bool,
    pub(crate) landing: u64,
    /// A poll of a completion queue is a tick.
    pub(crate) poll_progress: bool,
    /// Bytes that may be registered; 0: without limit.
    pub(crate) memlock: u64,
    pub(crate) fork_status: u64,
}

const KNOBS: Knobs = Knobs {
    devices: 1,
    delay: 0,
    ack_delay: 0,
    jitter: 0,
    order: Order::Posted,
    batch: 0,
    staged: true,
    landing: 64,
    poll_progress: true,
    memlock: 0,
    fork_status: 2,
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

    /// Sets a number. `None`: there is none of that name, or it is out of range.
    pub(crate) fn set(&mut self, name: &str, value: u64) -> Option<()> {
        let k = &mut self.knobs;
        match name {
            "devices" if value <= 4 => k.devices = value,
            "delay" => k.delay = value,
            "ack_delay" => k.ack_delay = value,
            "jitter" => k.jitter = value,
            "batch" => k.batch = value,
            "staged" => k.staged = value != 0,
            "landing" => k.landing = value,
            "poll_progress" => k.poll_progress = value != 0,
            "memlock" => k.memlock = value,
            "fork_status" if value <= 2 => k.fork_status = value,
            "seed" => self.chance = value,
            "order" => {
                k.order = match value {
                    0 => Order::Posted,
                    1 => Order::Reversed,
                    _ => Order::Shuffled,
                }
            }
            _ => return None,
        }
        Some(())
    }

    /// Scripts the `nth` call from now, or all for 0; of one queue pair, or of all for 0.
    pub(crate) fn add(&mut self, call: Call, qp: u64, nth: u64, action: Action) {
        self.rules.push(Rule { call, qp, nth, seen: 0, action });
    }

    /// Forgets all rules.
    pub(crate) fn forget(&mut self) {
        self.rules.clear();
    }

    /// Counts a call; what the script says of it.
    pub(crate) fn count(&mut self, call: Call) -> Option<Action> {
        self.count_of(call, 0)
    }

    /// Counts an operation of a queue pair; what the script says of it.
    pub(crate) fn count_of(&mut self, call: Call, qp: u64) -> Option<Action> {
        self.calls[call as usize] += 1;
        let mut found = None;
        let own = |r: &&mut Rule| r.call == call && (r.qp == 0 || r.qp == qp);
        for rule in self.rules.iter_mut().filter(own) {
            rule.seen += 1;
            if rule.nth == 0 || rule.nth == rule.seen {
                found = found.or(Some(rule.action));
            }
        }
        found
    }

    /// Counts a call that completes immediately; the errno that it returns by the script.
    pub(crate) fn refused(&mut self, call: Call) -> Option<c_int> {
        match self.count(call) {
            Some(Action::Refuse(errno)) => Some(errno),
            _ => None,
        }
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

    /// Returns the number of ticks for a delay.
    pub(crate) fn delay(&mut self, delay: u64) -> u64 {
        match self.knobs.jitter {
            0 => delay,
            jitter => delay + self.below(jitter + 1),
        }
    }
}
