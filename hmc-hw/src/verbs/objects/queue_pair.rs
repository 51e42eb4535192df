//! A queue pair of a reliable connection to one peer.

use std::fmt;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::{CompletionQueue, ProtectionDomain};
use crate::verbs::device::Device;
use crate::verbs::error::{VerbsError, check, failed};
use crate::verbs::ops;
use crate::verbs::sys::{
    IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, IBV_QP_ACCESS_FLAGS, IBV_QP_AV,
    IBV_QP_DEST_QPN, IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QP_MAX_QP_RD_ATOMIC, IBV_QP_MIN_RNR_TIMER,
    IBV_QP_PATH_MTU, IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY,
    IBV_QP_RQ_PSN, IBV_QP_SQ_PSN, IBV_QP_STATE, IBV_QP_TIMEOUT, IBV_QPS_ERR, IBV_QPS_INIT,
    IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPT_RC, ibv_ah_attr, ibv_qp, ibv_qp_attr, ibv_qp_cap,
    ibv_qp_init_attr, ibv_qp_state, ibv_recv_wr, ibv_send_wr,
};

/// How often a packet is sent again before the connection is given up. For soft-RoCE 7 is without end.
const RETRIES: u8 = 6;
/// How often one is sent again that the receiver was not ready for. 7 would be without end.
const RNR_RETRIES: u8 = 6;
/// What a sender waits before, by the table of the InfiniBand specification (volume 1, 9.7.5.2.8): 0.64 ms.
const MIN_RNR_TIMER: u8 = 12;

const NO_RECEIVE: ibv_recv_wr =
    ibv_recv_wr { wr_id: 0, next: ptr::null_mut(), sg_list: ptr::null_mut(), num_sge: 0 };

/// What a queue pair has space for.
#[derive(Clone, Copy, Debug)]
pub(in crate::verbs) struct QueueSizes {
    /// Work requests that are under way.
    pub(in crate::verbs) send: u32,
    /// Receives that are under way.
    pub(in crate::verbs) receive: u32,
    /// Bytes that a work request can carry itself; less where the device cannot.
    pub(in crate::verbs) inline_bytes: u32,
}

/// The way to the peer's queue pair.
#[derive(Clone, Copy, Debug)]
pub(in crate::verbs) struct PathTo {
    pub(in crate::verbs) address: ibv_ah_attr,
    pub(in crate::verbs) qp_num: u32,
    /// The number of the first packet that the peer sends, and of this end's first.
    pub(in crate::verbs) their_psn: u32,
    pub(in crate::verbs) our_psn: u32,
    /// The largest packet that both ends and the port take (`enum ibv_mtu`).
    pub(in crate::verbs) mtu: u32,
    /// Reads of this end that are under way at a time, and of the peer.
    pub(in crate::verbs) max_rd_atomic: u8,
    pub(in crate::verbs) max_dest_rd_atomic: u8,
    /// How long an acknowledgement may take: 4.096 us times 2 to this.
    pub(in crate::verbs) timeout: u8,
}

/// A queue pair.
pub(in crate::verbs) struct QueuePair {
    qp: NonNull<ibv_qp>,
    number: u32,
    /// Bytes that a work request can carry itself.
    inline_bytes: u32,
    /// Dropped after the queue pair was destroyed.
    cq: ManuallyDrop<Arc<CompletionQueue>>,
    pd: ManuallyDrop<Arc<ProtectionDomain>>,
}

// SAFETY: libibverbs may be called from any thread, and two threads may call it for one object.
unsafe impl Send for QueuePair {}
// SAFETY: as above.
unsafe impl Sync for QueuePair {}

impl fmt::Debug for QueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePair").field("number", &self.number).finish_non_exhaustive()
    }
}

impl QueuePair {
    /// A queue pair whose completions come to `cq`; it can be connected at once.
    ///
    /// # Errors
    /// [`VerbsError`].
    pub(in crate::verbs) fn new(
        pd: &Arc<ProtectionDomain>,
        cq: &Arc<CompletionQueue>,
        port: u8,
        sizes: QueueSizes,
    ) -> Result<Self, VerbsError> {
        let api = pd.device().api();
        let mut wanted = ibv_qp_init_attr {
            qp_context: ptr::null_mut(),
            send_cq: cq.raw(),
            recv_cq: cq.raw(),
            srq: ptr::null_mut(),
            cap: ibv_qp_cap {
                max_send_wr: sizes.send,
                max_recv_wr: sizes.receive.max(1),
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: sizes.inline_bytes,
            },
            qp_type: IBV_QPT_RC,
            sq_sig_all: 0,
        };
        // SAFETY: domain and queue exist.
        let mut qp = unsafe { (api.ibv_create_qp)(pd.raw(), &mut wanted) };
        if qp.is_null() {
            // The device has less space in a work request.
            wanted.cap.max_inline_data = 0;
            // SAFETY: as above.
            qp = unsafe { (api.ibv_create_qp)(pd.raw(), &mut wanted) };
        }
        let qp = NonNull::new(qp).ok_or_else(|| {
            let what = format!("{}, {} work requests", pd.device().name(), sizes.send);
            VerbsError::last("making a queue pair", what)
        })?;
        // SAFETY: libibverbs returned it, with its number filled in.
        let number = unsafe { qp.as_ref().qp_num };
        let (cq, pd) = (ManuallyDrop::new(Arc::clone(cq)), ManuallyDrop::new(Arc::clone(pd)));
        let this = Self { qp, number, inline_bytes: wanted.cap.max_inline_data, cq, pd };
        let mut attr = ibv_qp_attr {
            qp_state: IBV_QPS_INIT,
            pkey_index: 0,
            port_num: port,
            qp_access_flags: IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE,
            ..ibv_qp_attr::default()
        };
        let mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
        this.modify(&mut attr, mask, "to INIT")?;
        Ok(this)
    }

    /// Its number, by which the peer names it.
    pub(in crate::verbs) fn number(&self) -> u32 {
        self.number
    }

    /// Bytes that a work request can carry itself.
    #[inline]
    pub(in crate::verbs) fn inline_bytes(&self) -> u32 {
        self.inline_bytes
    }

    /// Where its completions come.
    #[inline]
    pub(in crate::verbs) fn cq(&self) -> &CompletionQueue {
        &self.cq
    }

    fn device(&self) -> &Device {
        self.cq.device()
    }

    fn modify(
        &self,
        attr: &mut ibv_qp_attr,
        mask: i32,
        what: &'static str,
    ) -> Result<(), VerbsError> {
        // SAFETY: the queue pair exists; the mask says which fields are read.
        let result = unsafe { (self.device().api().ibv_modify_qp)(self.qp.as_ptr(), attr, mask) };
        let what = format!("{}, {what}", self.device().name());
        check("changing a queue pair", &what, result)
    }

    /// Connects it: requests of both ends can be served, and sent.
    ///
    /// # Errors
    /// [`VerbsError`]: `EINVAL` for an address that cannot be reached by the device, `ETIMEDOUT` where address resolution fails.
    pub(in crate::verbs) fn connect(&self, path: &PathTo) -> Result<(), VerbsError> {
        let mut attr = ibv_qp_attr {
            qp_state: IBV_QPS_RTR,
            path_mtu: path.mtu,
            dest_qp_num: path.qp_num,
            rq_psn: path.their_psn,
            max_dest_rd_atomic: path.max_dest_rd_atomic,
            min_rnr_timer: MIN_RNR_TIMER,
            ah_attr: path.address,
            ..ibv_qp_attr::default()
        };
        let mask = IBV_QP_STATE
            | IBV_QP_AV
            | IBV_QP_PATH_MTU
            | IBV_QP_DEST_QPN
            | IBV_QP_RQ_PSN
            | IBV_QP_MAX_DEST_RD_ATOMIC
            | IBV_QP_MIN_RNR_TIMER;
        self.modify(&mut attr, mask, "to RTR")?;
        let mut attr = ibv_qp_attr {
            qp_state: IBV_QPS_RTS,
            sq_psn: path.our_psn,
            timeout: path.timeout,
            retry_cnt: RETRIES,
            rnr_retry: RNR_RETRIES,
            max_rd_atomic: path.max_rd_atomic,
            ..ibv_qp_attr::default()
        };
        let mask = IBV_QP_STATE
            | IBV_QP_SQ_PSN
            | IBV_QP_TIMEOUT
            | IBV_QP_RETRY_CNT
            | IBV_QP_RNR_RETRY
            | IBV_QP_MAX_QP_RD_ATOMIC;
        self.modify(&mut attr, mask, "to RTS")
    }

    /// Nothing more of either end is executed; what was posted completes with an error.
    ///
    /// # Errors
    /// [`VerbsError`]: the device is gone, or the queue pair goes on until it is destroyed.
    pub(in crate::verbs) fn set_error(&self) -> Result<(), VerbsError> {
        // In a forked child it is the parent's.
        if self.device().library().is_inherited() {
            return Ok(());
        }
        let qp_state: ibv_qp_state = IBV_QPS_ERR;
        let mut attr = ibv_qp_attr { qp_state, ..ibv_qp_attr::default() };
        self.modify(&mut attr, IBV_QP_STATE, "to ERR")
    }

    /// Posts a chain of work requests. Returns 0, or what [`Self::refusal`] explains: some of the chain may have been posted.
    ///
    /// # Safety
    /// `first` begins a chain of valid work requests. The memory that they name is registered with this queue pair's domain, and
    /// stays so until they complete or the queue pair is dropped.
    #[inline]
    pub(in crate::verbs) unsafe fn post(&self, first: *mut ibv_send_wr) -> i32 {
        // Where the first that was not posted would be named.
        let mut refused = MaybeUninit::uninit();
        // SAFETY: the queue pair exists; the chain is as the caller promises.
        unsafe { ops::post_send(self.qp.as_ptr(), first, refused.as_mut_ptr()) }
    }

    /// Why requests were not posted.
    #[cold]
    pub(in crate::verbs) fn refusal(&self, returned: i32) -> Box<VerbsError> {
        Box::new(failed("posting requests", self.device().name(), returned))
    }

    /// Posts so many receives without memory, whose completions name `number`.
    ///
    /// # Errors
    /// [`VerbsError`]: some may have been posted.
    pub(in crate::verbs) fn post_receives(
        &self,
        number: u64,
        count: u32,
    ) -> Result<(), VerbsError> {
        for _ in 0..count {
            let mut receive = ibv_recv_wr { wr_id: number, ..NO_RECEIVE };
            let mut refused = ptr::null_mut();
            // SAFETY: the queue pair exists; the receive names no memory.
            let result = unsafe { ops::post_recv(self.qp.as_ptr(), &mut receive, &mut refused) };
            check("posting receives", self.device().name(), result)?;
        }
        Ok(())
    }
}

impl QueuePair {
    /// Destroys it. A fence: once it has returned, nothing of either end's requests is executed, nor accesses memory.
    ///
    /// # Errors
    /// [`VerbsError`]: the device may still execute what was posted, and what the peer sends. The queue pair stays for ever, as do its
    /// domain and its queue. The end of each registration of the domain is the fence then.
    pub(in crate::verbs) fn destroy(self) -> Result<(), VerbsError> {
        let mut this = ManuallyDrop::new(self);
        this.end()?;
        // SAFETY: the value is never used again, nor dropped.
        unsafe { this.drop_owners() };
        Ok(())
    }

    fn end(&self) -> Result<(), VerbsError> {
        // In a forked child it is the parent's.
        if self.device().library().is_inherited() {
            return Ok(());
        }
        // SAFETY: made in `new`; called once, by `destroy` or by `drop`.
        let result = unsafe { (self.device().api().ibv_destroy_qp)(self.qp.as_ptr()) };
        check("destroying a queue pair", self.device().name(), result)
    }

    /// # Safety
    /// Nothing reads the value's queue and domain again.
    unsafe fn drop_owners(&mut self) {
        // SAFETY: as the caller promises.
        unsafe { ManuallyDrop::drop(&mut self.cq) };
        // SAFETY: as above.
        unsafe { ManuallyDrop::drop(&mut self.pd) };
    }
}

impl Drop for QueuePair {
    /// See [`Self::destroy`].
    fn drop(&mut self) {
        if self.end().is_ok() {
            // SAFETY: the value is dropped.
            unsafe { self.drop_owners() };
        }
    }
}
