//! The calls that are inline in C: through the table of functions in an `ibv_context`.
//!
//! A provider may leave an entry empty. The call then fails with `EOPNOTSUPP`.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::sys::{IBV_MW_TYPE_2, ibv_comp_channel};
    use core::mem::MaybeUninit;
    use core::ptr;

    /// Returns a structure of zeros.
    fn zeros<T>() -> T {
        // SAFETY: used for structures of pointers, numbers and locks that nobody takes.
        unsafe { MaybeUninit::zeroed().assume_init() }
    }

    /// A context with objects of it.
    struct Fixture {
        context: Box<ibv_context>,
        qp: Box<ibv_qp>,
        cq: Box<ibv_cq>,
        srq: Box<ibv_srq>,
        pd: Box<ibv_pd>,
        mw: Box<ibv_mw>,
    }

    impl Fixture {
        fn new(ops: ibv_context_ops) -> Self {
            let mut context = Box::new(ibv_context { ops, ..zeros() });
            let at: *mut ibv_context = &raw mut *context;
            Self {
                qp: Box::new(ibv_qp { context: at, ..zeros() }),
                cq: Box::new(ibv_cq {
                    context: at,
                    channel: ptr::without_provenance_mut::<ibv_comp_channel>(8),
                    ..zeros()
                }),
                srq: Box::new(ibv_srq { context: at, ..zeros() }),
                pd: Box::new(ibv_pd { context: at, handle: 0 }),
                mw: Box::new(ibv_mw { context: at, ..zeros() }),
                context,
            }
        }

        /// What each call returns; the window's call: 0 if it made one.
        fn call_all(&mut self) -> [c_int; 7] {
            let mut bad_send = ptr::null_mut();
            let mut bad_recv = ptr::null_mut();
            let (mut send, mut recv, mut wc): (ibv_send_wr, ibv_recv_wr, ibv_wc) =
                (zeros(), zeros(), zeros());
            assert!(ptr::eq(self.qp.context, &raw const *self.context));
            [
                // SAFETY: all objects live; the slots are empty or functions of this file.
                unsafe { post_send(&mut *self.qp, &mut send, &mut bad_send) },
                // SAFETY: as above.
                unsafe { post_recv(&mut *self.qp, &mut recv, &mut bad_recv) },
                // SAFETY: as above.
                unsafe { post_srq_recv(&mut *self.srq, &mut recv, &mut bad_recv) },
                // SAFETY: as above.
                unsafe { poll_cq(&mut *self.cq, 1, &mut wc) },
                // SAFETY: as above.
                unsafe { req_notify_cq(&mut *self.cq, true) },
                // SAFETY: as above.
                unsafe { alloc_mw(&mut *self.pd, IBV_MW_TYPE_2) }.map_or_else(|e| e, |_| 0),
                // SAFETY: as above.
                unsafe { dealloc_mw(&mut *self.mw) },
            ]
        }
    }

    // SAFETY: `bad` is valid for writes, as in `Fixture::call_all`.
    unsafe extern "C" fn send(
        _: *mut ibv_qp,
        wr: *mut ibv_send_wr,
        bad: *mut *mut ibv_send_wr,
    ) -> c_int {
        // SAFETY: the caller's own variable.
        unsafe { *bad = wr };
        11
    }

    // SAFETY: `bad` is valid for writes, as in `Fixture::call_all`.
    unsafe extern "C" fn recv(
        _: *mut ibv_qp,
        wr: *mut ibv_recv_wr,
        bad: *mut *mut ibv_recv_wr,
    ) -> c_int {
        // SAFETY: the caller's own variable.
        unsafe { *bad = wr };
        12
    }

    // SAFETY: `bad` is valid for writes, as in `Fixture::call_all`.
    unsafe extern "C" fn srq_recv(
        _: *mut ibv_srq,
        wr: *mut ibv_recv_wr,
        bad: *mut *mut ibv_recv_wr,
    ) -> c_int {
        // SAFETY: the caller's own variable.
        unsafe { *bad = wr };
        13
    }

    // SAFETY: it uses no argument but numbers.
    unsafe extern "C" fn poll(_: *mut ibv_cq, num_entries: c_int, _: *mut ibv_wc) -> c_int {
        num_entries
    }

    // SAFETY: it uses no argument but numbers.
    unsafe extern "C" fn notify(_: *mut ibv_cq, solicited_only: c_int) -> c_int {
        assert_eq!(solicited_only, 1);
        15
    }

    // SAFETY: it follows no pointer.
    unsafe extern "C" fn alloc(pd: *mut ibv_pd, kind: ibv_mw_type) -> *mut ibv_mw {
        assert_eq!(kind, IBV_MW_TYPE_2);
        // Any address but null.
        pd.cast()
    }

    // SAFETY: it uses no argument but numbers.
    unsafe extern "C" fn alloc_fails(_: *mut ibv_pd, _: ibv_mw_type) -> *mut ibv_mw {
        // SAFETY: it returns the address of the thread's own variable.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: as above.
        unsafe { *errno = libc::ENOMEM };
        ptr::null_mut()
    }

    // SAFETY: it uses no argument but numbers.
    unsafe extern "C" fn dealloc(_: *mut ibv_mw) -> c_int {
        16
    }

    #[test]
    fn an_empty_slot_is_an_operation_that_is_not_supported() {
        let none = EOPNOTSUPP;
        assert_eq!(Fixture::new(zeros()).call_all(), [none, none, none, -none, none, none, none]);
    }

    #[test]
    fn each_call_goes_through_its_slot() {
        let ops = ibv_context_ops {
            post_send: Some(send),
            post_recv: Some(recv),
            post_srq_recv: Some(srq_recv),
            poll_cq: Some(poll),
            req_notify_cq: Some(notify),
            alloc_mw: Some(alloc),
            dealloc_mw: Some(dealloc),
            ..zeros()
        };
        assert_eq!(Fixture::new(ops).call_all(), [11, 12, 13, 1, 15, 0, 16]);
    }

    #[test]
    fn a_window_that_cannot_be_made_has_the_reason_of_the_provider() {
        let ops = ibv_context_ops { alloc_mw: Some(alloc_fails), ..zeros() };
        let calls = Fixture::new(ops).call_all();
        assert_eq!(calls[5], libc::ENOMEM);
    }
}
