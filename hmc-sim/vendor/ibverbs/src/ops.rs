//! The tables of operations: a table of its own for each of 64 contexts, so that a call through that of another is found.

use core::ffi::c_int;
use core::ptr::null_mut;

use crate::abi::{
    ibv_context_ops, ibv_cq, ibv_mw, ibv_mw_bind, ibv_mw_type, ibv_pd, ibv_qp, ibv_recv_wr,
    ibv_send_wr, ibv_srq, ibv_wc,
};
use crate::{cq, mw, post};

const SLOTS: usize = 64;

// SAFETY: called through the table of a context, as the inline functions of libibverbs call it.
unsafe extern "C" fn alloc_mw<const N: usize>(pd: *mut ibv_pd, kind: ibv_mw_type) -> *mut ibv_mw {
    // SAFETY: the caller's arguments.
    unsafe { mw::alloc_mw(N, pd, kind) }
}

// SAFETY: as above.
unsafe extern "C" fn bind_mw<const N: usize>(
    qp: *mut ibv_qp,
    _mw: *mut ibv_mw,
    _bind: *mut ibv_mw_bind,
) -> c_int {
    mw::bind_mw(N, qp)
}

// SAFETY: as above.
unsafe extern "C" fn dealloc_mw<const N: usize>(mw: *mut ibv_mw) -> c_int {
    mw::dealloc_mw(N, mw)
}

// SAFETY: as above.
unsafe extern "C" fn poll_cq<const N: usize>(
    cq: *mut ibv_cq,
    count: c_int,
    wc: *mut ibv_wc,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { cq::poll_cq(N, cq, count, wc) }
}

// SAFETY: as above.
unsafe extern "C" fn req_notify_cq<const N: usize>(
    cq: *mut ibv_cq,
    solicited_only: c_int,
) -> c_int {
    cq::req_notify_cq(N, cq, solicited_only)
}

// SAFETY: as above.
unsafe extern "C" fn post_srq_recv<const N: usize>(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { post::post_srq_recv(N, srq, wr, bad) }
}

// SAFETY: as above.
unsafe extern "C" fn post_send<const N: usize>(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { post::post_send(N, qp, wr, bad) }
}

// SAFETY: as above.
unsafe extern "C" fn post_recv<const N: usize>(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { post::post_recv(N, qp, wr, bad) }
}

fn table<const N: usize>() -> ibv_context_ops {
    ibv_context_ops {
        _compat_query_device: null_mut(),
        _compat_query_port: null_mut(),
        _compat_alloc_pd: null_mut(),
        _compat_dealloc_pd: null_mut(),
        _compat_reg_mr: null_mut(),
        _compat_rereg_mr: null_mut(),
        _compat_dereg_mr: null_mut(),
        alloc_mw: Some(alloc_mw::<N>),
        bind_mw: Some(bind_mw::<N>),
        dealloc_mw: Some(dealloc_mw::<N>),
        _compat_create_cq: null_mut(),
        poll_cq: Some(poll_cq::<N>),
        req_notify_cq: Some(req_notify_cq::<N>),
        _compat_cq_event: null_mut(),
        _compat_resize_cq: null_mut(),
        _compat_destroy_cq: null_mut(),
        _compat_create_srq: null_mut(),
        _compat_modify_srq: null_mut(),
        _compat_query_srq: null_mut(),
        _compat_destroy_srq: null_mut(),
        post_srq_recv: Some(post_srq_recv::<N>),
        _compat_create_qp: null_mut(),
        _compat_query_qp: null_mut(),
        _compat_modify_qp: null_mut(),
        _compat_destroy_qp: null_mut(),
        post_send: Some(post_send::<N>),
        post_recv: Some(post_recv::<N>),
        _compat_create_ah: null_mut(),
        _compat_destroy_ah: null_mut(),
        _compat_attach_mcast: null_mut(),
        _compat_detach_mcast: null_mut(),
        _compat_async_event: null_mut(),
    }
}

macro_rules! tables {
    ($($n:literal)*) => { [$(table::<$n>),*] };
}

static TABLES: [fn() -> ibv_context_ops; SLOTS] = tables!(
    0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
    32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63
);

/// Returns a slot for the context of that number, and its table. From the 65th on, contexts share slots.
pub(crate) fn operations(number: usize, has_windows: bool) -> (usize, ibv_context_ops) {
    let slot = number % SLOTS;
    let mut table = TABLES[slot]();
    if !has_windows {
        (table.alloc_mw, table.dealloc_mw, table.bind_mw) = (None, None, None);
    }
    (slot, table)
}
