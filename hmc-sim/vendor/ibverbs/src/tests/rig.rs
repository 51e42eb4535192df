//! Two ends of a connection, driven through libibverbs' calls, for the tests of the fake library itself.

use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use std::ffi::CString;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::abi::*;
use crate::channel::{ibv_create_comp_channel, ibv_destroy_comp_channel};
use crate::context::{
    ibv_close_device, ibv_free_device_list, ibv_get_device_list, ibv_open_device,
};
use crate::cq::{ibv_create_cq, ibv_destroy_cq};
use crate::domain::{ibv_alloc_pd, ibv_dealloc_pd};
use crate::modify::ibv_modify_qp;
use crate::port::ibv_query_gid;
use crate::qp::{ibv_create_qp, ibv_destroy_qp};
use crate::region::{ibv_dereg_mr, ibv_reg_mr};
use crate::script::{
    hmc_fake_ibv_calls, hmc_fake_ibv_collect, hmc_fake_ibv_count, hmc_fake_ibv_device,
    hmc_fake_ibv_port, hmc_fake_ibv_reset, hmc_fake_ibv_rule, hmc_fake_ibv_set,
};
use crate::state::state;

/// Bytes of the memory of an end.
pub(super) const BYTES: usize = 8192;
/// The GID that ends use: RoCE v2 of an IPv4 address.
const SGID: u8 = 3;
pub(super) const ALL: c_int = 1 | 2 | 4 | 16;

fn text(text: &str) -> CString {
    CString::new(text).expect("no zero")
}

pub(super) fn set(name: &str, value: u64) {
    // SAFETY: a C string.
    assert_eq!(unsafe { hmc_fake_ibv_set(text(name).as_ptr(), value) }, 0, "{name}");
}

pub(super) fn device(device: u32, name: &str, value: u64) {
    // SAFETY: a C string.
    assert_eq!(unsafe { hmc_fake_ibv_device(device, text(name).as_ptr(), value) }, 0, "{name}");
}

pub(super) fn port(device: u32, port: u32, name: &str, value: u64) {
    // SAFETY: a C string.
    let done = unsafe { hmc_fake_ibv_port(device, port, text(name).as_ptr(), value) };
    assert_eq!(done, 0, "{name}");
}

pub(super) fn rule(function: &str, nth: u64, action: c_int, value: u64) {
    // SAFETY: a C string.
    let done = unsafe { hmc_fake_ibv_rule(text(function).as_ptr(), nth, action, value) };
    assert_eq!(done, 0, "{function}");
}

pub(super) fn count(what: &str) -> u64 {
    // SAFETY: a C string.
    unsafe { hmc_fake_ibv_count(text(what).as_ptr()) }
}

pub(super) fn calls(what: &str) -> u64 {
    // SAFETY: a C string.
    unsafe { hmc_fake_ibv_calls(text(what).as_ptr()) }
}

pub(super) fn findings() -> Vec<String> {
    core::mem::take(&mut state().findings)
}

/// The library for one test at a time, reset.
pub(super) struct Turn {
    _turn: MutexGuard<'static, ()>,
}

impl Turn {
    pub(super) fn new() -> Self {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        hmc_fake_ibv_reset();
        Self { _turn: turn }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        hmc_fake_ibv_reset();
    }
}

/// Opens a device.
pub(super) fn open(device: usize) -> *mut ibv_context {
    // SAFETY: a null pointer is allowed.
    let list = unsafe { ibv_get_device_list(null_mut()) };
    // SAFETY: the list has that many entries, as the test wants.
    let device = unsafe { list.wrapping_add(device).read() };
    // SAFETY: the device is of a list that is alive.
    let context = unsafe { ibv_open_device(device) };
    // SAFETY: made above, freed once.
    unsafe { ibv_free_device_list(list) };
    assert!(!context.is_null());
    context
}

/// One end of a connection.
#[derive(Clone, Copy)]
pub(super) struct End {
    pub(super) context: *mut ibv_context,
    pub(super) channel: *mut ibv_comp_channel,
    pub(super) pd: *mut ibv_pd,
    pub(super) cq: *mut ibv_cq,
    pub(super) qp: *mut ibv_qp,
    pub(super) mr: *mut ibv_mr,
    pub(super) memory: *mut u8,
}

impl End {
    pub(super) fn new(device: usize) -> Self {
        let context = open(device);
        // SAFETY: the context is open; so for all calls below.
        let channel = unsafe { ibv_create_comp_channel(context) };
        // SAFETY: as above.
        let cq = unsafe { ibv_create_cq(context, 64, null_mut(), channel, 0) };
        // SAFETY: as above.
        let pd = unsafe { ibv_alloc_pd(context) };
        let qp = queue_pair(pd, cq, null_mut());
        let memory = Box::leak(vec![0u8; BYTES].into_boxed_slice()).as_mut_ptr();
        // SAFETY: the memory stays.
        let mr = unsafe { ibv_reg_mr(pd, memory.cast::<c_void>(), BYTES, ALL) };
        assert!(!mr.is_null());
        Self { context, channel, pd, cq, qp, mr, memory }
    }

    /// Gives everything back in order.
    pub(super) fn end(&self) {
        // SAFETY: each is alive and given back once; so for all below.
        assert_eq!(unsafe { ibv_destroy_qp(self.qp) }, 0);
        self.end_rest();
    }

    /// Gives everything back except the queue pair.
    pub(super) fn end_rest(&self) {
        // SAFETY: as above.
        assert_eq!(unsafe { ibv_dereg_mr(self.mr) }, 0);
        // SAFETY: as above.
        assert_eq!(unsafe { ibv_dealloc_pd(self.pd) }, 0);
        // SAFETY: as above.
        assert_eq!(unsafe { ibv_destroy_cq(self.cq) }, 0);
        // SAFETY: as above.
        assert_eq!(unsafe { ibv_destroy_comp_channel(self.channel) }, 0);
        // SAFETY: as above.
        assert_eq!(unsafe { ibv_close_device(self.context) }, 0);
    }

    pub(super) fn byte(&self, at: usize) -> u8 {
        assert!(at < BYTES);
        // SAFETY: the memory is of that length, and nothing writes it meanwhile.
        unsafe { self.memory.wrapping_add(at).read() }
    }

    pub(super) fn fill(&self, value: u8) {
        // SAFETY: as above.
        unsafe { self.memory.write_bytes(value, BYTES) };
    }

    pub(super) fn addr(&self, at: usize) -> u64 {
        self.memory.addr() as u64 + at as u64
    }

    pub(super) fn lkey(&self) -> u32 {
        // SAFETY: a structure is never freed.
        unsafe { (*self.mr).lkey }
    }

    pub(super) fn rkey(&self) -> u32 {
        // SAFETY: as above.
        unsafe { (*self.mr).rkey }
    }

    pub(super) fn qp_num(&self) -> u32 {
        // SAFETY: as above.
        unsafe { (*self.qp).qp_num }
    }

    pub(super) fn ops(&self) -> ibv_context_ops {
        // SAFETY: as above.
        unsafe { (*self.context).ops }
    }

    pub(super) fn sge(&self, at: usize, length: u32) -> ibv_sge {
        ibv_sge { addr: self.addr(at), length, lkey: self.lkey() }
    }

    /// Posts a request; its errno.
    pub(super) fn post(&self, wr: &mut ibv_send_wr) -> c_int {
        let mut bad = null_mut();
        let post = self.ops().post_send.expect("each table has it");
        // SAFETY: the request and its list live during the call.
        unsafe { post(self.qp, wr, &raw mut bad) }
    }

    /// Posts an operation of `len` bytes between the two memories at one offset.
    pub(super) fn transfer(
        &self,
        opcode: ibv_wr_opcode,
        wr_id: u64,
        to: &Self,
        (at, len): (usize, u32),
    ) -> c_int {
        let mut sge = self.sge(at, len);
        let mut wr = request(opcode, wr_id, &mut sge);
        wr.wr.rdma = ibv_send_wr_rdma { remote_addr: to.addr(at), rkey: to.rkey() };
        self.post(&mut wr)
    }

    pub(super) fn write(&self, wr_id: u64, to: &Self, range: (usize, u32)) -> c_int {
        self.transfer(IBV_WR_RDMA_WRITE, wr_id, to, range)
    }

    pub(super) fn read(&self, wr_id: u64, to: &Self, range: (usize, u32)) -> c_int {
        self.transfer(IBV_WR_RDMA_READ, wr_id, to, range)
    }

    pub(super) fn receive(&self, wr_id: u64, at: usize, len: u32) -> c_int {
        let (mut sge, mut bad) = (self.sge(at, len), null_mut());
        let num_sge = c_int::from(len != 0);
        let mut wr = ibv_recv_wr { wr_id, next: null_mut(), sg_list: &raw mut sge, num_sge };
        let post = self.ops().post_recv.expect("each table has it");
        // SAFETY: the request and its list live during the call.
        unsafe { post(self.qp, &raw mut wr, &raw mut bad) }
    }

    /// Polls once, for up to 16 completions.
    pub(super) fn poll(&self) -> Vec<ibv_wc> {
        // SAFETY: numbers, for which zero is a value.
        let mut wc: [ibv_wc; 16] = unsafe { core::mem::zeroed() };
        let poll = self.ops().poll_cq.expect("each table has it");
        // SAFETY: 16 entries may be written.
        let got = unsafe { poll(self.cq, 16, wc.as_mut_ptr()) };
        wc[..usize::try_from(got).expect("no error")].to_vec()
    }

    /// Polls once: which ended, and how.
    pub(super) fn ended(&self) -> Vec<(u64, u32)> {
        self.poll().iter().map(|wc| (wc.wr_id, wc.status)).collect()
    }

    pub(super) fn arm(&self, solicited_only: bool) {
        let arm = self.ops().req_notify_cq.expect("each table has it");
        // SAFETY: the queue is alive.
        assert_eq!(unsafe { arm(self.cq, c_int::from(solicited_only)) }, 0);
    }

    /// Allocates a window of type 2.
    pub(super) fn window(&self) -> *mut ibv_mw {
        let alloc = self.ops().alloc_mw.expect("the table has it");
        // SAFETY: the domain is alive.
        let mw = unsafe { alloc(self.pd, IBV_MW_TYPE_2) };
        assert!(!mw.is_null());
        mw
    }

    pub(super) fn free_window(&self, mw: *mut ibv_mw) -> c_int {
        let free = self.ops().dealloc_mw.expect("the table has it");
        // SAFETY: the structure of a window is never freed.
        unsafe { free(mw) }
    }

    /// Posts the bind of a window with its next key, which its structure has from then on. Returns the key.
    pub(super) fn bind(
        &self,
        wr_id: u64,
        mw: *mut ibv_mw,
        at: usize,
        len: u64,
        access: u32,
    ) -> u32 {
        // SAFETY: as above.
        let old = unsafe { (*mw).rkey };
        let rkey = old & !0xFF | (old + 1) & 0xFF;
        let mut wr = request(IBV_WR_BIND_MW, wr_id, null_mut());
        let bind_info = ibv_mw_bind_info {
            mr: self.mr,
            addr: self.addr(at),
            length: len,
            mw_access_flags: access,
        };
        wr.bind.bind_mw = ibv_send_wr_bind { mw, rkey, bind_info };
        assert_eq!(self.post(&mut wr), 0);
        // SAFETY: as above.
        unsafe { (*mw).rkey = rkey };
        rkey
    }

    pub(super) fn invalidate(&self, wr_id: u64, rkey: u32) -> c_int {
        let mut wr = request(IBV_WR_LOCAL_INV, wr_id, null_mut());
        wr.imm.invalidate_rkey = rkey;
        self.post(&mut wr)
    }

    pub(super) fn address(&self) -> ibv_gid {
        let mut gid = ibv_gid { raw: [0; 16] };
        // SAFETY: the context is open, the GID may be written.
        assert_eq!(unsafe { ibv_query_gid(self.context, 1, SGID.into(), &raw mut gid) }, 0);
        gid
    }

    pub(super) fn modify(&self, attr: &mut ibv_qp_attr, mask: c_int) -> c_int {
        // SAFETY: the queue pair is alive.
        unsafe { ibv_modify_qp(self.qp, attr, mask) }
    }

    /// Takes the queue pair from RESET to RTS, connected to another end.
    pub(super) fn connect(&self, to: &Self) {
        let (mut attr, steps) = (attributes(to), steps());
        for (state, mask) in steps {
            attr.qp_state = state;
            assert_eq!(self.modify(&mut attr, mask), 0, "{state}");
        }
    }
}

/// The steps to RTS with the attributes that each needs.
pub(super) const fn steps() -> [(ibv_qp_state, c_int); 3] {
    [
        (IBV_QPS_INIT, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
        (
            IBV_QPS_RTR,
            IBV_QP_STATE
                | IBV_QP_AV
                | IBV_QP_PATH_MTU
                | IBV_QP_DEST_QPN
                | IBV_QP_RQ_PSN
                | IBV_QP_MAX_DEST_RD_ATOMIC
                | IBV_QP_MIN_RNR_TIMER,
        ),
        (
            IBV_QPS_RTS,
            IBV_QP_STATE
                | IBV_QP_TIMEOUT
                | IBV_QP_RETRY_CNT
                | IBV_QP_RNR_RETRY
                | IBV_QP_SQ_PSN
                | IBV_QP_MAX_QP_RD_ATOMIC,
        ),
    ]
}

/// Attributes of a connection to an end.
pub(super) fn attributes(to: &End) -> ibv_qp_attr {
    // SAFETY: numbers and bytes, for which zero is a value.
    let mut attr: ibv_qp_attr = unsafe { core::mem::zeroed() };
    attr.port_num = 1;
    attr.qp_access_flags = 1 | 2 | 4;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = to.qp_num();
    attr.rq_psn = 100;
    attr.sq_psn = 100;
    attr.max_dest_rd_atomic = 4;
    attr.max_rd_atomic = 4;
    attr.min_rnr_timer = 1;
    attr.timeout = 14;
    attr.retry_cnt = 2;
    attr.rnr_retry = 2;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.grh.dgid = to.address();
    attr.ah_attr.grh.sgid_index = SGID;
    attr.ah_attr.grh.hop_limit = 1;
    attr
}

pub(super) fn queue_pair(pd: *mut ibv_pd, cq: *mut ibv_cq, srq: *mut ibv_srq) -> *mut ibv_qp {
    let mut init = ibv_qp_init_attr {
        qp_context: null_mut(),
        send_cq: cq,
        recv_cq: cq,
        srq,
        cap: ibv_qp_cap {
            max_send_wr: 8,
            max_recv_wr: 8,
            max_send_sge: 2,
            max_recv_sge: 2,
            max_inline_data: 32,
        },
        qp_type: IBV_QPT_RC,
        sq_sig_all: 0,
    };
    // SAFETY: domain and queues are alive.
    let qp = unsafe { ibv_create_qp(pd, &raw mut init) };
    assert!(!qp.is_null());
    qp
}

/// A signalled request with one piece, or none for a null pointer.
pub(super) fn request(opcode: ibv_wr_opcode, wr_id: u64, sg_list: *mut ibv_sge) -> ibv_send_wr {
    // SAFETY: numbers and pointers that may be null.
    let mut wr: ibv_send_wr = unsafe { core::mem::zeroed() };
    wr.wr_id = wr_id;
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.sg_list = sg_list;
    wr.num_sge = c_int::from(!sg_list.is_null());
    wr
}

/// Two ends that are connected, of different contexts.
pub(super) struct Rig {
    pub(super) a: End,
    pub(super) b: End,
    _turn: Turn,
}

impl Rig {
    pub(super) fn new() -> Self {
        Self::with(|| {})
    }

    /// With a script that is set before anything is made. The ends are on the first two devices, or the same.
    pub(super) fn with(script: impl FnOnce()) -> Self {
        let turn = Turn::new();
        script();
        let second = usize::from(state().script.knobs.devices > 1);
        let (a, b) = (End::new(0), End::new(second));
        a.connect(&b);
        b.connect(&a);
        a.fill(7);
        hmc_fake_ibv_collect(1);
        Self { a, b, _turn: turn }
    }

    /// Gives everything back, and returns the misuse that was found.
    pub(super) fn end(self) -> Vec<String> {
        self.a.end();
        self.b.end();
        assert_eq!(count("live"), 0);
        findings()
    }
}
