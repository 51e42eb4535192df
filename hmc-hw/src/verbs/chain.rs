//! Work requests that are posted together, with one ring of the device's doorbell.

use std::fmt;
use std::ptr;

use super::error::VerbsError;
use super::objects::QueuePair;
use super::sys::{
    IBV_SEND_INLINE, IBV_SEND_SIGNALED, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, ibv_mw_bind_info,
    ibv_send_wr, ibv_send_wr_bind_mw, ibv_send_wr_rdma, ibv_send_wr_wr, ibv_sge,
};

/// Work requests of one chain: each chain costs a call, a ring of the doorbell and a completion.
pub(super) const MAX_CHAIN: usize = 128;

/// One read or write of the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct RdmaAccess {
    /// From the peer's memory into this end's; the other way otherwise.
    pub(super) is_read: bool,
    /// This end's memory.
    pub(super) address: u64,
    pub(super) lkey: u32,
    /// Bytes, at most 2^31 (InfiniBand specification, volume 1, 9.3.3.1).
    pub(super) len: u32,
    pub(super) remote_address: u64,
    pub(super) rkey: u32,
}

/// How a work request is carried out.
#[derive(Clone, Copy, Debug)]
pub(super) struct SendFlags {
    /// The bytes are copied into it.
    pub(super) is_inline: bool,
    /// It completes with an entry of the completion queue, though others follow it in its chain.
    pub(super) is_signalled: bool,
}

const NO_SGE: ibv_sge = ibv_sge { addr: 0, length: 0, lkey: 0 };

const NO_REQUEST: ibv_send_wr = ibv_send_wr {
    wr_id: 0,
    next: ptr::null_mut(),
    sg_list: ptr::null_mut(),
    num_sge: 0,
    opcode: 0,
    send_flags: 0,
    imm_data: 0,
    wr: ibv_send_wr_wr { rdma: ibv_send_wr_rdma { remote_addr: 0, rkey: 0 } },
    qp_type: 0,
    bind_mw: ibv_send_wr_bind_mw {
        mw: ptr::null_mut(),
        rkey: 0,
        bind_info: ibv_mw_bind_info { mr: ptr::null_mut(), addr: 0, length: 0, mw_access_flags: 0 },
    },
};

/// Work requests that wait to be posted.
pub(super) struct Chain {
    requests: Box<[ibv_send_wr; MAX_CHAIN]>,
    elements: Box<[ibv_sge; MAX_CHAIN]>,
    len: usize,
}

// SAFETY: its pointers lead into its own boxes.
unsafe impl Send for Chain {}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chain").field("len", &self.len).finish_non_exhaustive()
    }
}

impl Chain {
    pub(super) fn new() -> Self {
        Self {
            requests: Box::new([NO_REQUEST; MAX_CHAIN]),
            elements: Box::new([NO_SGE; MAX_CHAIN]),
            len: 0,
        }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Appends one, whose completion names `number`. A chain that is full is left as it is: see [`MAX_CHAIN`].
    #[inline]
    pub(super) fn push(&mut self, number: u64, access: &RdmaAccess, flags: SendFlags) {
        let at = self.len;
        let (Some(request), Some(element)) = (self.requests.get_mut(at), self.elements.get_mut(at))
        else {
            return;
        };
        *element = ibv_sge { addr: access.address, length: access.len, lkey: access.lkey };
        request.wr_id = number;
        request.num_sge = 1;
        request.opcode = if access.is_read { IBV_WR_RDMA_READ } else { IBV_WR_RDMA_WRITE };
        let inline = if flags.is_inline { IBV_SEND_INLINE } else { 0 };
        let signalled = if flags.is_signalled { IBV_SEND_SIGNALED } else { 0 };
        request.send_flags = inline | signalled;
        request.wr = ibv_send_wr_wr {
            rdma: ibv_send_wr_rdma { remote_addr: access.remote_address, rkey: access.rkey },
        };
        self.len = at.saturating_add(1);
    }

    /// Posts all, and empties the chain. The last one completes with an entry of the completion queue.
    ///
    /// # Errors
    /// [`VerbsError`]: some may have been posted.
    ///
    /// # Safety
    /// The memory that was named is registered with the queue pair's domain, and stays so until the requests complete or the queue
    /// pair is dropped.
    #[inline]
    pub(super) unsafe fn post(&mut self, qp: &QueuePair) -> Result<(), VerbsError> {
        let (first, elements) = (self.requests.as_mut_ptr(), self.elements.as_mut_ptr());
        let count = std::mem::take(&mut self.len);
        for at in 0..count {
            let is_last = at.saturating_add(1) == count;
            let next = first.wrapping_add(at).wrapping_add(1);
            // SAFETY: `count` places of the array are filled in, and nobody else names them.
            let request = unsafe { &mut *first.wrapping_add(at) };
            request.sg_list = elements.wrapping_add(at);
            request.next = if is_last { ptr::null_mut() } else { next };
            if is_last {
                request.send_flags |= IBV_SEND_SIGNALED;
            }
        }
        if count == 0 {
            return Ok(());
        }
        // SAFETY: the links lead through the array; the memory is as the caller promises.
        unsafe { qp.post(first) }
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.len = 0;
    }
}
