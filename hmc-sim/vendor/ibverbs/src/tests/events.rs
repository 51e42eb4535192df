//! Notification of completions, and asynchronous events.

use core::ffi::c_void;
use core::ptr::null_mut;

use super::rig::{End, Rig, calls, count, request, rule, set};
use crate::abi::*;
use crate::async_event::{ibv_ack_async_event, ibv_get_async_event};
use crate::cq::{ibv_ack_cq_events, ibv_get_cq_event};
use crate::port::ibv_query_port;
use crate::script::{DROP, hmc_fake_ibv_event, hmc_fake_ibv_kill, hmc_fake_ibv_progress};
use crate::state::state;

fn is_readable(fd: i32) -> bool {
    let mut one = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry of ours.
    unsafe { libc::poll(&raw mut one, 1, 0) == 1 }
}

fn never_block(fd: i32) {
    // SAFETY: no pointers.
    assert_eq!(unsafe { libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK) }, 0);
}

fn channel_fd(of: &End) -> i32 {
    // SAFETY: a structure is never freed.
    unsafe { (*of.channel).fd }
}

fn async_fd(of: &End) -> i32 {
    // SAFETY: as above.
    unsafe { (*of.context).async_fd }
}

/// Gets an event of the channel. Returns `false` if there is none.
fn got(of: &End) -> bool {
    let (mut cq, mut data) = (null_mut(), null_mut::<c_void>());
    // SAFETY: both may be written.
    let result = unsafe { ibv_get_cq_event(of.channel, &raw mut cq, &raw mut data) };
    assert!(result == -1 || cq == of.cq);
    result == 0
}

fn ack(of: &End, count: u32) {
    // SAFETY: the queue is alive.
    unsafe { ibv_ack_cq_events(of.cq, count) };
}

/// The next asynchronous event: its type, and the address or number of its element.
fn event(of: &End) -> Option<(ibv_event_type, usize)> {
    // SAFETY: numbers and pointers that may be null.
    let mut event: ibv_async_event = unsafe { core::mem::zeroed() };
    // SAFETY: the context is open, the event may be written.
    if unsafe { ibv_get_async_event(of.context, &raw mut event) } != 0 {
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EAGAIN));
        return None;
    }
    // SAFETY: got above, acknowledged once.
    unsafe { ibv_ack_async_event(&raw mut event) };
    // SAFETY: all bytes of the union are set.
    Some((event.event_type, unsafe { event.element.wq }.addr()))
}

#[test]
fn a_request_covers_one_completion_that_comes_after_it() {
    let rig = Rig::new();
    let fd = channel_fd(&rig.a);
    never_block(fd);
    rig.a.write(1, &rig.b, (0, 8));
    hmc_fake_ibv_progress(1);
    rig.a.arm(false);
    hmc_fake_ibv_progress(1);
    assert!(!is_readable(fd), "the completion was there before");
    assert!(!got(&rig.a));
    for id in [2, 3] {
        rig.a.write(id, &rig.b, (0, 8));
    }
    hmc_fake_ibv_progress(1);
    assert!(is_readable(fd));
    assert!(got(&rig.a));
    assert!(!is_readable(fd) && !got(&rig.a), "one request, one event");
    assert_eq!(rig.a.ended(), [(1, 0), (2, 0), (3, 0)]);
    ack(&rig.a, 1);
    assert_eq!(count("notifications"), 1);
    assert_eq!(rig.end(), [""; 0]);
}

#[test]
fn a_solicited_request_waits_for_what_is_solicited_or_failed() {
    let rig = Rig::new();
    let fd = channel_fd(&rig.b);
    rig.b.arm(true);
    for (id, solicited) in [(1, 0), (2, IBV_SEND_SOLICITED)] {
        rig.b.receive(id, 0, 0);
        let mut wr = request(IBV_WR_SEND, id, null_mut());
        wr.send_flags |= solicited;
        assert_eq!(rig.a.post(&mut wr), 0);
        rig.a.poll();
        assert_eq!(is_readable(fd), solicited != 0);
    }
    assert!(got(&rig.b));
    rig.b.arm(true);
    rig.b.receive(3, 0, 0);
    assert_eq!(hmc_fake_ibv_kill(2), 1);
    rig.a.poll();
    assert!(got(&rig.b), "a failed one");
    assert_eq!(rig.b.ended(), [(1, 0), (2, 0), (3, IBV_WC_WR_FLUSH_ERR)]);
    ack(&rig.b, 2);
    assert_eq!(rig.end(), [""; 0]);
}

#[test]
fn a_thread_sleeps_until_an_event_comes() {
    let rig = Rig::new();
    rig.a.arm(false);
    rig.a.write(1, &rig.b, (0, 8));
    let channel = rig.a.channel.addr();
    std::thread::scope(|s| {
        let sleeper = s.spawn(move || {
            let (mut cq, mut data) = (null_mut(), null_mut::<c_void>());
            let channel = core::ptr::without_provenance_mut(channel);
            // SAFETY: an address that is looked up; both may be written.
            unsafe { ibv_get_cq_event(channel, &raw mut cq, &raw mut data) }
        });
        while calls("ibv_get_cq_event") == 0 {
            std::thread::yield_now();
        }
        hmc_fake_ibv_progress(1);
        assert_eq!(sleeper.join().expect("no panic"), 0);
    });
    ack(&rig.a, 1);
    rig.a.poll();
    assert_eq!(rig.end(), [""; 0]);
}

#[test]
fn a_ticker_makes_progress_while_all_sleep() {
    let rig = Rig::new();
    set("delay", 20);
    set("ticker_us", 100);
    rig.a.arm(false);
    rig.a.write(1, &rig.b, (0, 8));
    assert!(got(&rig.a), "without a poll");
    set("ticker_us", 0);
    ack(&rig.a, 1);
    assert_eq!(rig.a.ended(), [(1, 0)]);
    assert_eq!(rig.end(), [""; 0]);
}

#[test]
fn events_that_nobody_got_go_with_their_queue() {
    let rig = Rig::new();
    rig.a.arm(false);
    rig.a.write(1, &rig.b, (0, 8));
    rig.a.poll();
    assert!(is_readable(channel_fd(&rig.a)));
    assert_eq!(rig.end(), [""; 0]);
}

#[test]
fn events_of_ports_come_to_all_contexts() {
    let rig = Rig::new();
    for end in [&rig.a, &rig.b] {
        never_block(async_fd(end));
    }
    // SAFETY: numbers, for which zero is a value.
    let mut attr: _compat_ibv_port_attr = unsafe { core::mem::zeroed() };
    let states = [(IBV_EVENT_PORT_ERR, IBV_PORT_DOWN), (IBV_EVENT_PORT_ACTIVE, IBV_PORT_ACTIVE)];
    for (kind, state) in states {
        assert_eq!(hmc_fake_ibv_event(0, kind, 1), 0);
        // SAFETY: the context is open, the attributes may be written.
        assert_eq!(unsafe { ibv_query_port(rig.a.context, 1, &raw mut attr) }, 0);
        assert_eq!(attr.state, state);
    }
    assert_eq!(hmc_fake_ibv_event(0, IBV_EVENT_GID_CHANGE, 1), 0);
    assert_eq!(hmc_fake_ibv_event(0, IBV_EVENT_GID_CHANGE, 2), -1, "there is one port");
    for end in [&rig.a, &rig.b] {
        assert!(is_readable(async_fd(end)));
        let wanted = [IBV_EVENT_PORT_ERR, IBV_EVENT_PORT_ACTIVE, IBV_EVENT_GID_CHANGE];
        assert_eq!(wanted.map(|_| event(end)), wanted.map(|kind| Some((kind, 1))));
        assert_eq!((event(end), is_readable(async_fd(end))), (None, false));
    }
    assert_eq!(rig.end(), [""; 0]);
}

#[test]
fn a_port_that_is_down_reaches_nobody() {
    let rig = Rig::new();
    hmc_fake_ibv_event(0, IBV_EVENT_PORT_ERR, 1);
    rig.a.write(1, &rig.b, (0, 8));
    assert_eq!(rig.a.ended(), []);
    hmc_fake_ibv_event(0, IBV_EVENT_PORT_ACTIVE, 1);
    assert_eq!(rig.a.ended(), [(1, 0)], "within its retries");
    assert_eq!(rig.end(), [""; 0]);
}

#[test]
fn an_overrun_loses_completions_and_raises_an_event() {
    let rig = Rig::new();
    never_block(async_fd(&rig.a));
    rule("write", 2, DROP, 0);
    for id in 1..=3 {
        rig.a.write(id, &rig.b, (0, 8));
    }
    assert_eq!(rig.a.ended(), [(1, 0), (3, 0)]);
    assert_eq!(event(&rig.a), Some((IBV_EVENT_CQ_ERR, rig.a.cq.addr())));
    assert_eq!((event(&rig.a), count("overruns")), (None, 1));
    // 64 entries: a full queue loses what comes then.
    for _ in 0..13 {
        for id in 0..8 {
            assert_eq!(rig.a.write(id, &rig.b, (0, 8)), 0);
        }
        hmc_fake_ibv_progress(1);
        // Slots of a send queue are free only when a completion was polled.
        assert_eq!(rig.a.poll().len(), 8);
    }
    for _ in 0..9 {
        for id in 0..8 {
            assert_eq!(rig.b.receive(id, 0, 0), 0);
        }
        assert_eq!(hmc_fake_ibv_kill(2), 1);
        hmc_fake_ibv_progress(1);
        let mut w = state();
        let id = w.qps.id(rig.b.qp).expect("alive");
        // The receives are free without a poll, for the test.
        w.free_receives(crate::queue::Owner::Qp(id));
    }
    assert_eq!((count("unpolled"), count("overruns")), (64, 1 + 8));
    assert_eq!(rig.end(), [""; 0]);
}

#[test]
fn a_fatal_event_ends_a_device() {
    let rig = Rig::with(|| set("devices", 2));
    never_block(async_fd(&rig.a));
    rig.b.receive(1, 0, 0);
    assert_eq!(hmc_fake_ibv_event(1, IBV_EVENT_DEVICE_FATAL, 0), 0);
    assert_eq!(event(&rig.b), Some((IBV_EVENT_DEVICE_FATAL, 0)));
    assert_eq!(event(&rig.a), None, "it is of the other device");
    assert_eq!(rig.b.ended(), [(1, IBV_WC_WR_FLUSH_ERR)]);
    assert_eq!(rig.b.write(2, &rig.a, (0, 8)), libc::EIO);
    // SAFETY: the context is open.
    assert!(unsafe { crate::domain::ibv_alloc_pd(rig.b.context) }.is_null());
    assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EIO));
    rig.a.write(3, &rig.b, (0, 8));
    assert_eq!((rig.a.ended(), rig.a.ended()), (vec![], vec![]));
    assert_eq!(rig.a.ended(), [(3, IBV_WC_RETRY_EXC_ERR)]);
    assert_eq!(rig.end(), [""; 0], "all can be given back");
}

#[test]
fn a_refused_access_is_an_event_at_the_target() {
    let rig = Rig::new();
    let mut sge = rig.a.sge(0, 8);
    let mut wr = request(IBV_WR_RDMA_WRITE, 1, &raw mut sge);
    wr.wr.rdma = ibv_send_wr_rdma { remote_addr: rig.b.addr(0), rkey: 1 };
    assert_eq!(rig.a.post(&mut wr), 0);
    assert_eq!(rig.a.ended(), [(1, IBV_WC_REM_ACCESS_ERR)]);
    assert_eq!(event(&rig.b), Some((IBV_EVENT_QP_ACCESS_ERR, rig.b.qp.addr())));
    assert_eq!(rig.end(), [""; 0]);
}

#[test]
fn a_queue_pair_fails_with_its_fatal_event() {
    let rig = Rig::new();
    assert_eq!(hmc_fake_ibv_event(0, IBV_EVENT_QP_FATAL, 1), 0);
    rig.a.write(1, &rig.b, (0, 8));
    assert_eq!(rig.a.ended(), [(1, IBV_WC_WR_FLUSH_ERR)]);
    assert_eq!(event(&rig.a), Some((IBV_EVENT_QP_FATAL, rig.a.qp.addr())));
    assert_eq!(rig.end(), [""; 0]);
}

/// Each is acknowledged as one of its queue pair. A number that is not known has no object.
#[test]
fn events_of_a_queue_pair_that_change_nothing_are_acknowledged() {
    let rig = Rig::new();
    never_block(async_fd(&rig.a));
    for kind in [2, 3, 4, 5, 6, IBV_EVENT_PATH_MIG_ERR, IBV_EVENT_QP_LAST_WQE_REACHED] {
        assert_eq!(hmc_fake_ibv_event(0, kind, 1), 0);
        assert_eq!(event(&rig.a), Some((kind, rig.a.qp.addr())));
    }
    for kind in [21, u32::MAX] {
        assert_eq!(hmc_fake_ibv_event(0, kind, 1), 0);
        assert_eq!(event(&rig.a), Some((kind, 1)));
    }
    rig.a.write(1, &rig.b, (0, 8));
    assert_eq!(rig.a.ended(), [(1, 0)]);
    assert_eq!(rig.end(), [""; 0]);
}
