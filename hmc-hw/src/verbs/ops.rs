//! The calls that are inline in C: through the table of functions in an `ibv_context`.
//!
//! A provider may leave a slot empty. The call then fails with `EOPNOTSUPP`.
#![allow(dead_code, reason = "declared as a whole, whether used or not")]

use core::ffi::c_int;
use core::ptr::NonNull;
use std::io;

use libc::EOPNOTSUPP;

use super::sys::{
    ibv_context, ibv_context_ops, ibv_cq, ibv_mw, ibv_mw_type, ibv_pd, ibv_qp, ibv_recv_wr,
    ibv_send_wr, ibv_srq, ibv_wc,
};

/// Returns the table of a context.
///
/// # Safety
/// `context` is a live context.
#[inline]
unsafe fn ops(context: *mut ibv_context) -> *const ibv_context_ops {
    // SAFETY: the context lives, as the caller promises.
    unsafe { &raw const (*context).ops }
}

/// Posts a chain of work requests. Returns 0 or an errno value; `bad_wr` is then the first one that was not posted.
///
/// # Safety
/// `qp` is a live queue pair, `wr` a chain of valid work requests, `bad_wr` valid for writes. The memory of each work
/// request stays registered until its completion.
#[inline]
pub(crate) unsafe fn post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad_wr: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the queue pair lives.
    let context = unsafe { (*qp).context };
    // SAFETY: its context lives as long as it.
    let ops = unsafe { ops(context) };
    // SAFETY: as above.
    let Some(call) = (unsafe { (*ops).post_send }) else { return EOPNOTSUPP };
    // SAFETY: the arguments are as the caller promises.
    unsafe { call(qp, wr, bad_wr) }
}

/// Posts a chain of receives. Returns 0 or an errno value; `bad_wr` is then the first one that was not posted.
///
/// # Safety
/// `qp` is a live queue pair, `wr` a chain of valid work requests, `bad_wr` valid for writes. The memory of each work
/// request stays registered until its completion.
#[inline]
pub(crate) unsafe fn post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the queue pair lives.
    let context = unsafe { (*qp).context };
    // SAFETY: its context lives as long as it.
    let ops = unsafe { ops(context) };
    // SAFETY: as above.
    let Some(call) = (unsafe { (*ops).post_recv }) else { return EOPNOTSUPP };
    // SAFETY: the arguments are as the caller promises.
    unsafe { call(qp, wr, bad_wr) }
}

/// Posts a chain of receives on a shared receive queue. Returns 0 or an errno value; `bad_wr` is then the first one
/// that was not posted.
///
/// # Safety
/// `srq` is a live queue, `wr` a chain of valid work requests, `bad_wr` valid for writes. The memory of each work
/// request stays registered until its completion.
#[inline]
pub(crate) unsafe fn post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the queue lives.
    let context = unsafe { (*srq).context };
    // SAFETY: its context lives as long as it.
    let ops = unsafe { ops(context) };
    // SAFETY: as above.
    let Some(call) = (unsafe { (*ops).post_srq_recv }) else { return EOPNOTSUPP };
    // SAFETY: the arguments are as the caller promises.
    unsafe { call(srq, wr, bad_wr) }
}

/// Takes up to `num_entries` completions. Returns their number, or a negative one if the queue has failed.
///
/// # Safety
/// `cq` is a live queue; `wc` is valid for writes of `num_entries` completions.
#[inline]
pub(crate) unsafe fn poll_cq(cq: *mut ibv_cq, num_entries: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: the queue lives.
    let context = unsafe { (*cq).context };
    // SAFETY: its context lives as long as it.
    let ops = unsafe { ops(context) };
    // SAFETY: as above.
    let Some(call) = (unsafe { (*ops).poll_cq }) else { return -EOPNOTSUPP };
    // SAFETY: the arguments are as the caller promises.
    unsafe { call(cq, num_entries, wc) }
}

/// Requests one event for a completion that is added later; completions that are there already give none. Returns 0 or
/// an errno value.
///
/// # Safety
/// `cq` is a live queue with a completion channel.
#[inline]
pub(crate) unsafe fn req_notify_cq(cq: *mut ibv_cq, solicited_only: bool) -> c_int {
    // SAFETY: the queue lives.
    let context = unsafe { (*cq).context };
    // SAFETY: its context lives as long as it.
    let ops = unsafe { ops(context) };
    // SAFETY: as above.
    let Some(call) = (unsafe { (*ops).req_notify_cq }) else { return EOPNOTSUPP };
    // SAFETY: the arguments are as the caller promises.
    unsafe { call(cq, c_int::from(solicited_only)) }
}

/// Makes a memory window, which is not bound to memory yet.
///
/// # Errors
/// An errno value; `EOPNOTSUPP` if the provider has no windows.
///
/// # Safety
/// `pd` is a live protection domain.
#[inline]
pub(crate) unsafe fn alloc_mw(
    pd: *mut ibv_pd,
    kind: ibv_mw_type,
) -> Result<NonNull<ibv_mw>, c_int> {
    // SAFETY: the domain lives.
    let context = unsafe { (*pd).context };
    // SAFETY: its context lives as long as it.
    let ops = unsafe { ops(context) };
    // SAFETY: as above.
    let call = unsafe { (*ops).alloc_mw }.ok_or(EOPNOTSUPP)?;
    // SAFETY: the arguments are as the caller promises.
    let mw = unsafe { call(pd, kind) };
    NonNull::new(mw).ok_or_else(|| io::Error::last_os_error().raw_os_error().unwrap_or(EOPNOTSUPP))
}

/// Frees a memory window, in any of its states: afterwards its key is not valid. Returns 0 or an errno value.
///
/// # Safety
/// `mw` is a window of [`alloc_mw`] that is not freed yet.
#[inline]
pub(crate) unsafe fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    // SAFETY: the window lives.
    let context = unsafe { (*mw).context };
    // SAFETY: its context lives as long as it.
    let ops = unsafe { ops(context) };
    // SAFETY: as above.
    let Some(call) = (unsafe { (*ops).dealloc_mw }) else { return EOPNOTSUPP };
    // SAFETY: the arguments are as the caller promises.
    unsafe { call(mw) }
}
