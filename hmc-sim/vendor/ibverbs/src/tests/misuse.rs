//! What a caller must not do ends the process with a message.

use core::ffi::c_void;
use core::ptr::null_mut;
use std::io::Read as _;
use std::os::fd::FromRawFd as _;

use super::rig::{End, Rig, findings, open, queue_pair, request, rule};
use crate::abi::*;
use crate::async_event::{ibv_ack_async_event, ibv_get_async_event};
use crate::channel::ibv_destroy_comp_channel;
use crate::context::{
    ibv_close_device, ibv_free_device_list, ibv_get_device_list, ibv_open_device,
};
use crate::cq::{ibv_ack_cq_events, ibv_destroy_cq, ibv_get_cq_event};
use crate::domain::ibv_dealloc_pd;
use crate::qp::ibv_destroy_qp;
use crate::region::ibv_dereg_mr;
use crate::script::{HOLD, hmc_fake_ibv_collect, hmc_fake_ibv_event, hmc_fake_ibv_progress};
use crate::state::state;

/// Runs a call in a child process that has to be aborted by it. Returns what it wrote to its error output.
fn aborts(rig: &Rig, call: fn(&Rig)) -> String {
    let mut ends = [0; 2];
    // SAFETY: two numbers of ours.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    // No other thread holds the library's lock while the process forks.
    let lock = state();
    // SAFETY: the child makes calls of this library only, and ends.
    let child = unsafe { libc::fork() };
    drop(lock);
    if child == 0 {
        // SAFETY: descriptors of ours.
        unsafe { libc::dup2(ends[1], 2) };
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: a structure of ours.
        unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const none) };
        hmc_fake_ibv_collect(0);
        call(rig);
        // SAFETY: the child ends here.
        unsafe { libc::_exit(0) };
    }
    // SAFETY: opened above, closed once.
    unsafe { libc::close(ends[1]) };
    let mut text = String::new();
    // SAFETY: opened above, and the file's alone from now on.
    let mut from = unsafe { std::fs::File::from_raw_fd(ends[0]) };
    from.read_to_string(&mut text).expect("text");
    let mut status = 0;
    // SAFETY: a number of ours.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFSIGNALED(status), "the child was not ended: {text}");
    assert_eq!(libc::WTERMSIG(status), libc::SIGABRT);
    text
}

fn destroy(qp: *mut ibv_qp) {
    // SAFETY: wrong on purpose where the test says so, and harmless here: addresses are looked up.
    unsafe { ibv_destroy_qp(qp) };
}

/// A message, and the calls that lead to it.
type Case = (&'static str, fn(&Rig));

/// Each misuse with its message.
const CASES: &[Case] = &[
    ("ibv_destroy_qp: this queue pair was destroyed, or never made", |rig| {
        destroy(rig.a.qp);
        destroy(rig.a.qp);
    }),
    ("ibv_post_send: this queue pair was destroyed, or never made", |rig| {
        destroy(rig.a.qp);
        rig.a.write(1, &rig.b, (0, 8));
    }),
    ("ibv_poll_cq: this completion queue was destroyed, or never made", |rig| {
        destroy(rig.a.qp);
        rig.a.end_rest();
        rig.a.poll();
    }),
    ("ibv_dereg_mr: this region was destroyed, or never made", |rig| {
        for _ in 0..2 {
            // SAFETY: as above.
            unsafe { ibv_dereg_mr(rig.a.mr) };
        }
    }),
    ("ibv_dealloc_pd: this protection domain was destroyed, or never made", |rig| {
        // SAFETY: as above.
        unsafe { ibv_dealloc_pd(rig.a.mr.cast()) };
    }),
    ("ibv_destroy_comp_channel: this channel was destroyed, or never made", |_| {
        // SAFETY: as above.
        unsafe { ibv_destroy_comp_channel(core::ptr::without_provenance_mut(16)) };
    }),
    (
        "ibv_dereg_mr: a posted request still uses this region: its completion was not polled",
        |rig| {
            rig.a.write(1, &rig.b, (0, 8));
            hmc_fake_ibv_progress(2);
            // SAFETY: as above.
            unsafe { ibv_dereg_mr(rig.a.mr) };
        },
    ),
    (
        "ibv_dereg_mr: a posted request still uses this region: its completion was not polled",
        |rig| {
            rig.a.receive(1, 0, 8);
            // SAFETY: as above.
            unsafe { ibv_dereg_mr(rig.a.mr) };
        },
    ),
    (
        "ibv_dealloc_mw: a posted bind still names this window: its completion was not polled",
        |rig| {
            let mw = rig.a.window();
            rig.a.bind(1, mw, 0, 8, IBV_ACCESS_REMOTE_READ);
            rig.a.free_window(mw);
        },
    ),
    ("ibv_destroy_qp: windows are bound to this queue pair: rxe waits 50 seconds here", |rig| {
        rig.a.bind(1, rig.a.window(), 0, 8, IBV_ACCESS_REMOTE_READ);
        rig.a.poll();
        destroy(rig.a.qp);
    }),
    ("local_inv: this window is free; rxe stops the kernel here", |rig| {
        let key = rig.a.bind(1, rig.a.window(), 0, 8, IBV_ACCESS_REMOTE_READ);
        rig.a.invalidate(2, key);
        rig.a.invalidate(3, key);
        rig.a.poll();
    }),
    ("bind: this region was destroyed, or never made", |rig| {
        let mut wr = request(IBV_WR_BIND_MW, 1, null_mut());
        // SAFETY: numbers and pointers that may be null.
        wr.bind.bind_mw = unsafe { core::mem::zeroed() };
        wr.bind.bind_mw.mw = rig.a.window();
        rig.a.post(&mut wr);
    }),
    (
        "ibv_destroy_cq: events of this queue are not acknowledged: the call would never return",
        |rig| {
            rig.a.arm(false);
            rig.a.write(1, &rig.b, (0, 8));
            rig.a.poll();
            let (mut cq, mut data) = (null_mut(), null_mut::<c_void>());
            // SAFETY: both may be written.
            unsafe { ibv_get_cq_event(rig.a.channel, &raw mut cq, &raw mut data) };
            destroy(rig.a.qp);
            // SAFETY: as above.
            unsafe { ibv_destroy_cq(cq) };
        },
    ),
    ("ibv_ack_cq_events: more events are acknowledged than there were", |rig| {
        // SAFETY: as above.
        unsafe { ibv_ack_cq_events(rig.a.cq, 1) };
    }),
    (
        "ibv_destroy_qp: events of this queue pair are not acknowledged: the call would never return",
        |rig| {
            hmc_fake_ibv_event(0, IBV_EVENT_QP_FATAL, 1);
            // SAFETY: numbers and pointers that may be null.
            let mut event: ibv_async_event = unsafe { core::mem::zeroed() };
            // SAFETY: the event may be written.
            unsafe { ibv_get_async_event(rig.a.context, &raw mut event) };
            destroy(rig.a.qp);
        },
    ),
    ("ibv_ack_async_event: this event was acknowledged already", |rig| {
        hmc_fake_ibv_event(0, IBV_EVENT_QP_FATAL, 1);
        // SAFETY: numbers and pointers that may be null.
        let mut event: ibv_async_event = unsafe { core::mem::zeroed() };
        // SAFETY: the event may be written.
        unsafe { ibv_get_async_event(rig.a.context, &raw mut event) };
        for _ in 0..2 {
            // SAFETY: as above.
            unsafe { ibv_ack_async_event(&raw mut event) };
        }
    }),
    ("ibv_close_device: objects of this context are left", |rig| {
        // SAFETY: as above.
        unsafe { ibv_close_device(rig.a.context) };
    }),
    ("ibv_free_device_list: this list was freed already, or never made", |_| {
        // SAFETY: a null pointer is allowed.
        let list = unsafe { ibv_get_device_list(null_mut()) };
        for _ in 0..2 {
            // SAFETY: as above.
            unsafe { ibv_free_device_list(list) };
        }
    }),
    ("ibv_post_send: this object does not belong to the context of these operations", |rig| {
        let mixed = End { context: rig.b.context, ..rig.a };
        mixed.write(1, &rig.b, (0, 8));
    }),
    ("ibv_poll_cq: this object does not belong to the context of these operations", |rig| {
        End { context: rig.b.context, ..rig.a }.poll();
    }),
    ("ibv_req_notify_cq: this object does not belong to the context of these operations", |rig| {
        End { context: rig.b.context, ..rig.a }.arm(false);
    }),
    ("ibv_alloc_mw: this object does not belong to the context of these operations", |rig| {
        End { context: rig.b.context, ..rig.a }.window();
    }),
];

#[test]
fn misuse_ends_the_process() {
    let rig = Rig::new();
    for (wanted, call) in CASES {
        assert_eq!(aborts(&rig, *call), format!("fake libibverbs: {wanted}\n"));
    }
    assert_eq!(rig.end(), [""; 0], "the parent did nothing wrong");
}

#[test]
fn a_device_of_a_freed_list_is_no_device() {
    let rig = Rig::new();
    let context = open(0);
    // SAFETY: the context is open.
    let device = unsafe { (*context).device };
    for end in [&rig.a, &rig.b] {
        end.end();
    }
    // SAFETY: open, closed once.
    assert_eq!(unsafe { ibv_close_device(context) }, 0);
    // SAFETY: the structure of a device lives as long as the process.
    unsafe { ibv_open_device(device) };
    assert_eq!(findings(), ["ibv_open_device: the list of this device was freed, or never made"]);
}

#[test]
fn a_queue_pair_may_go_with_requests_under_way() {
    let rig = Rig::new();
    rule("write", 0, HOLD, 0);
    rig.a.write(1, &rig.b, (0, 8));
    rig.a.receive(2, 0, 8);
    let spare = queue_pair(rig.a.pd, rig.a.cq, null_mut());
    destroy(spare);
    assert_eq!(rig.end(), [""; 0], "and its region is free then");
}
