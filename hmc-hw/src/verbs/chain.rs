//! Work requests that are posted together, with one write of the device's doorbell register.

use std::fmt;
use std::ptr::{self, NonNull};

use super::error::VerbsError;
use super::objects::QueuePair;
use super::sys::{
    IBV_SEND_SIGNALED, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
    IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, ibv_mw_bind_info, ibv_send_wr, ibv_send_wr_bind_mw,
    ibv_send_wr_rdma, ibv_send_wr_wr, ibv_sge,
};

/// Work requests of one chain: each chain costs a call, a ring of the doorbell and a completion.
pub(super) const MAX_CHAIN: usize = 128;
/// Places of a chain: the last one is that of the flush behind it.
const PLACES: usize = MAX_CHAIN + 1;

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
    /// The peer receives this once the bytes are in its memory. None of a read.
    pub(super) immediate: Option<u32>,
}

const NO_SGE: ibv_sge = ibv_sge { addr: 0, length: 0, lkey: 0 };

const NO_REQUEST: ibv_send_wr = ibv_send_wr {
    wr_id: 0,
    next: ptr::null_mut(),
    sg_list: ptr::null_mut(),
    num_sge: 1,
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
///
/// Each place names its element and the place behind it from the beginning. A post unlinks the last one for its time.
pub(super) struct Chain {
    /// Of [`PLACES`], owned, and accessed by nobody else but a post.
    requests: NonNull<ibv_send_wr>,
    /// The same.
    elements: NonNull<ibv_sge>,
    len: usize,
}

/// What the last work request of a chain is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChainEnd {
    /// The last that was appended, which completes with an entry of the completion queue.
    Signalled,
    /// The last that was appended.
    Unsignalled,
    /// A flush behind it, whose completion names that number.
    Flush(u64),
}

/// Where flushes read, and where the byte that they read goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlushWord {
    pub(super) address: u64,
    pub(super) lkey: u32,
    pub(super) remote_address: u64,
    pub(super) rkey: u32,
}

// SAFETY: it owns what its pointers lead to.
unsafe impl Send for Chain {}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chain").field("len", &self.len).finish_non_exhaustive()
    }
}

/// An array that is owned by its address.
fn owned<T: Copy>(value: T) -> NonNull<T> {
    NonNull::from(Box::leak(Box::new([value; PLACES]))).cast()
}

impl Chain {
    pub(super) fn new() -> Self {
        let (requests, elements) = (owned(NO_REQUEST), owned(NO_SGE));
        let (first_request, first_element) = (requests.as_ptr(), elements.as_ptr());
        for at in 0..PLACES {
            let request = first_request.wrapping_add(at);
            // SAFETY: a place of the array, which nobody else has.
            let place = unsafe { &mut *request };
            place.sg_list = first_element.wrapping_add(at);
            place.next = request.wrapping_add(1);
        }
        Self { requests, elements, len: 0 }
    }

    /// The place of the flush.
    #[inline]
    fn flush(&self) -> *mut ibv_send_wr {
        let requests = self.requests.as_ptr();
        requests.wrapping_add(MAX_CHAIN)
    }

    /// Prepares the flush: only its number changes with each post.
    pub(super) fn set_flush(&mut self, word: FlushWord) {
        let elements = self.elements.as_ptr();
        // SAFETY: a place of the array; the chain is borrowed mutably, and nothing is posted meanwhile.
        let element = unsafe { &mut *elements.wrapping_add(MAX_CHAIN) };
        *element = ibv_sge { addr: word.address, length: 1, lkey: word.lkey };
        // SAFETY: as above.
        let request = unsafe { &mut *self.flush() };
        request.opcode = IBV_WR_RDMA_READ;
        request.send_flags = IBV_SEND_SIGNALED;
        request.next = ptr::null_mut();
        request.wr = ibv_send_wr_wr {
            rdma: ibv_send_wr_rdma { remote_addr: word.remote_address, rkey: word.rkey },
        };
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Appends one, whose completion names `number`, with these flags of libibverbs. `has_bytes`: its length is not 0. A chain that is full is
    /// left as it is: see [`MAX_CHAIN`].
    #[inline(always)]
    pub(super) fn push(&mut self, number: u64, access: &RdmaAccess, has_bytes: bool, flags: u32) {
        let element = ibv_sge { addr: access.address, length: access.len, lkey: access.lkey };
        let Some(request) = self.next(element, has_bytes) else { return };
        request.wr_id = number;
        request.opcode = match (access.is_read, access.immediate) {
            (true, _) => IBV_WR_RDMA_READ,
            (false, None) => IBV_WR_RDMA_WRITE,
            (false, Some(immediate)) => {
                request.imm_data = immediate.to_be();
                IBV_WR_RDMA_WRITE_WITH_IMM
            }
        };
        request.send_flags = flags;
        request.wr = ibv_send_wr_wr {
            rdma: ibv_send_wr_rdma { remote_addr: access.remote_address, rkey: access.rkey },
        };
    }

    /// Appends a message without bytes, as [`Self::push`]. It takes a receive of the peer.
    pub(super) fn push_message(&mut self, number: u64, immediate: Option<u32>, flags: u32) {
        let Some(request) = self.next(NO_SGE, false) else { return };
        request.wr_id = number;
        request.imm_data = immediate.unwrap_or(0).to_be();
        request.opcode = if immediate.is_some() { IBV_WR_SEND_WITH_IMM } else { IBV_WR_SEND };
        request.send_flags = flags;
    }

    /// Takes the next place, for a work request with that element, if it has bytes.
    #[inline(always)]
    fn next(&mut self, element: ibv_sge, has_bytes: bool) -> Option<&mut ibv_send_wr> {
        let at = self.len;
        if at >= MAX_CHAIN {
            return None;
        }
        self.len = at.wrapping_add(1);
        // SAFETY: a place of the array.
        let mut place = unsafe { self.elements.add(at) };
        // SAFETY: the chain is borrowed mutably, and nothing is posted meanwhile.
        *unsafe { place.as_mut() } = element;
        // SAFETY: a place of the array.
        let mut request = unsafe { self.requests.add(at) };
        // SAFETY: as above.
        let request = unsafe { request.as_mut() };
        // For some devices an element of 0 bytes has 2 GiB.
        request.num_sge = i32::from(has_bytes);
        Some(request)
    }

    /// Posts all, with that end, and empties the chain.
    ///
    /// # Errors
    /// [`VerbsError`]: some may have been posted.
    ///
    /// # Safety
    /// The memory that was named is registered with the queue pair's domain, and stays so until the requests complete or the queue
    /// pair is dropped.
    #[inline]
    pub(super) unsafe fn post(
        &mut self,
        qp: &QueuePair,
        end: ChainEnd,
    ) -> Result<(), Box<VerbsError>> {
        let (mut behind, mut flags) = (ptr::null_mut(), 0);
        match end {
            ChainEnd::Signalled => flags = IBV_SEND_SIGNALED,
            ChainEnd::Unsignalled => {}
            ChainEnd::Flush(number) => {
                behind = self.flush();
                // SAFETY: a place of the array; nothing is posted meanwhile.
                unsafe { (*behind).wr_id = number };
            }
        }
        let first = self.requests.as_ptr();
        let returned = if let Some(last) = std::mem::take(&mut self.len).checked_sub(1) {
            let last = first.wrapping_add(last);
            // SAFETY: as above.
            let place = unsafe { &mut *last };
            place.send_flags |= flags;
            place.next = behind;
            // SAFETY: the links lead through the array to that place and the flush; the memory is as the caller promises.
            let returned = unsafe { qp.post(first) };
            // SAFETY: as above. What was posted was read.
            unsafe { (*last).next = last.wrapping_add(1) };
            returned
        } else if behind.is_null() {
            0
        } else {
            // SAFETY: as the caller promises.
            unsafe { qp.post(behind) }
        };
        if returned == 0 { Ok(()) } else { Err(qp.refusal(returned)) }
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.len = 0;
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        // SAFETY: `owned` made it of a box of that array, once.
        drop(unsafe { Box::from_raw(self.requests.as_ptr().cast::<[ibv_send_wr; PLACES]>()) });
        // SAFETY: as above.
        drop(unsafe { Box::from_raw(self.elements.as_ptr().cast::<[ibv_sge; PLACES]>()) });
    }
}
