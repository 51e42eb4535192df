//! The script: operations late, held, failed and out of order, and calls that fail.

use core::ptr::null_mut;

use super::rig::{
    End, Rig, Turn, attributes, calls, count, device, open, queue_pair, rule, set, steps,
};
use crate::abi::*;
use crate::channel::{ibv_create_comp_channel, ibv_destroy_comp_channel};
use crate::context::{
    ibv_close_device, ibv_free_device_list, ibv_get_device_list, ibv_open_device,
};
use crate::cq::{ibv_create_cq, ibv_destroy_cq};
use crate::domain::{ibv_alloc_pd, ibv_dealloc_pd};
use crate::qp::{ibv_create_qp, ibv_destroy_qp};
use crate::region::{ibv_dereg_mr, ibv_reg_dmabuf_mr, ibv_reg_mr};
use crate::script::{
    ACK_HOLD, ACK_LATE, FAIL, HOLD, LATE, REFUSE, hmc_fake_ibv_forget, hmc_fake_ibv_kill,
    hmc_fake_ibv_progress, hmc_fake_ibv_release, hmc_fake_ibv_rule,
};

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

#[test]
fn operations_are_refused_late_held_and_failed() {
    let rig = Rig::new();
    set("staged", 0);
    rule("write", 1, REFUSE, libc::ENOMEM as u64);
    rule("write", 2, LATE, 2);
    rule("write", 3, HOLD, 0);
    rule("write", 4, FAIL, u64::from(IBV_WC_GENERAL_ERR) | 0x77 << 8);
    assert_eq!(rig.a.write(1, &rig.b, (0, 8)), libc::ENOMEM);
    for id in 2..=5 {
        assert_eq!(rig.a.write(id, &rig.b, (id as usize * 10, 8)), 0);
    }
    assert_eq!((rig.a.ended(), rig.a.ended()), (vec![], vec![]));
    assert_eq!((rig.a.ended(), rig.a.ended()), (vec![(2, 0)], vec![]));
    assert_eq!((count("held"), count("posted"), hmc_fake_ibv_release()), (1, 3, 1));
    let wc = rig.a.poll();
    assert_eq!((wc[0].wr_id, wc[0].status), (3, 0));
    assert_eq!((wc[1].status, wc[1].vendor_err), (IBV_WC_GENERAL_ERR, 0x77));
    assert_eq!((wc[2].wr_id, wc[2].status), (5, IBV_WC_WR_FLUSH_ERR));
    let seen = [20, 30, 43, 44, 50].map(|at| rig.b.byte(at));
    assert_eq!(seen, [7, 7, 7, 0, 0], "a half of what failed, nothing of what was flushed");
    assert_eq!((calls("write"), calls("ibv_post_send"), count("doorbells")), (5, 5, 4));
    assert_eq!(rig.end(), [""; 0]);
}

#[test]
fn a_rule_may_mean_one_queue_pair() {
    let rig = Rig::new();
    rule("write@2", 2, HOLD, 0);
    for id in 1..=2 {
        rig.a.write(id, &rig.b, (0, 8));
        rig.b.write(id, &rig.a, (0, 8));
    }
    assert_eq!((rig.a.ended(), rig.b.ended()), (vec![(1, 0), (2, 0)], vec![(1, 0)]));
    assert_eq!((hmc_fake_ibv_release(), rig.b.ended()), (1, vec![(2, 0)]));
    for wrong in [c"write@0", c"write@", c"ibv_create_qp@1", c"fly"] {
        // SAFETY: a C string.
        assert_eq!(unsafe { hmc_fake_ibv_rule(wrong.as_ptr(), 1, HOLD, 0) }, -1, "{wrong:?}");
    }
    assert_eq!(rig.end(), [""; 0]);
}

#[test]
fn bytes_may_be_there_long_before_the_completion() {
    let rig = Rig::new();
    set("staged", 0);
    rule("write", 1, ACK_LATE, 1);
    rule("write", 2, ACK_HOLD, 0);
    rig.a.write(1, &rig.b, (0, 8));
    rig.a.write(2, &rig.b, (10, 8));
    assert_eq!((rig.a.ended(), rig.b.byte(0), rig.b.byte(10)), (vec![], 7, 0));
    assert_eq!(rig.a.ended(), [(1, 0)]);
    assert_eq!((rig.a.ended(), rig.b.byte(10)), (vec![], 7));
    assert_eq!(hmc_fake_ibv_kill(1), 1);
    assert_eq!(rig.a.ended(), [(2, IBV_WC_WR_FLUSH_ERR)], "flushed, and yet written");
    assert_eq!(rig.end(), [""; 0]);
}

#[test]
fn queue_pairs_take_turns_by_the_script() {
    for (order, wanted) in [(0, [1, 2, 3, 4]), (1, [2, 4, 1, 3])] {
        let rig = Rig::new();
        set("order", order);
        let pair = |end: &End| End { qp: queue_pair(end.pd, end.cq, null_mut()), ..*end };
        let (c, d) = (pair(&rig.a), pair(&rig.b));
        c.connect(&d);
        d.connect(&c);
        for (from, to, id) in [(&rig.a, &rig.b, 1), (&c, &d, 2), (&rig.a, &rig.b, 3), (&c, &d, 4)] {
            assert_eq!(from.write(id, to, (0, 8)), 0);
        }
        let ended: Vec<u64> = rig.a.ended().iter().map(|e| e.0).collect();
        if order == 0 {
            assert_eq!(ended, wanted);
        } else {
            let at = |id| ended.iter().position(|e| *e == id);
            assert!(at(1) < at(3) && at(2) < at(4), "{ended:?}");
            assert_eq!(ended[0], 2, "the queue pair that posted last is first");
        }
        for end in [&c, &d] {
            // SAFETY: alive, destroyed once.
            assert_eq!(unsafe { ibv_destroy_qp(end.qp) }, 0);
        }
        assert_eq!(rig.end(), [""; 0]);
    }
}

#[test]
fn a_tick_may_be_short_and_a_poll_no_tick() {
    let rig = Rig::new();
    set("batch", 1);
    set("delay", 1);
    set("ack_delay", 1);
    rig.a.write(1, &rig.b, (0, 8));
    rig.a.write(2, &rig.b, (0, 8));
    let ended: Vec<_> =
        (0..6).flat_map(|tick| rig.a.ended().into_iter().map(move |e| (tick, e.0))).collect();
    assert_eq!(ended, [(2, 1), (4, 2)]);
    set("poll_progress", 0);
    rig.a.write(3, &rig.b, (0, 8));
    (0..9).for_each(|_| assert_eq!(rig.a.ended(), []));
    hmc_fake_ibv_progress(3);
    assert_eq!(rig.a.ended(), [(3, 0)]);
    assert_eq!(rig.end(), [""; 0]);
}

#[test]
fn a_queue_is_full_until_a_completion_is_polled() {
    let rig = Rig::new();
    let mut wr = super::rig::request(IBV_WR_RDMA_WRITE, 1, null_mut());
    wr.send_flags = 0;
    for _ in 0..8 {
        assert_eq!(rig.a.post(&mut wr), 0);
    }
    assert_eq!((rig.a.post(&mut wr), rig.a.ended()), (libc::ENOMEM, vec![]));
    assert_eq!(count("posted"), 0, "all are done, but nothing says so");
    assert_eq!((rig.a.post(&mut wr), count("unsignalled")), (libc::ENOMEM, 8));
    rig.a.modify(
        &mut {
            let mut attr = attributes(&rig.b);
            attr.qp_state = IBV_QPS_RESET;
            attr
        },
        IBV_QP_STATE,
    );
    assert_eq!(rig.a.post(&mut wr), libc::EINVAL);
    assert_eq!(rig.end(), [""; 0]);
}

#[test]
fn a_chain_stops_at_what_is_refused() {
    let rig = Rig::new();
    let mut last = super::rig::request(IBV_WR_RDMA_WRITE, 3, null_mut());
    let mut wrong = super::rig::request(IBV_WR_ATOMIC_FETCH_AND_ADD, 2, null_mut());
    wrong.next = &raw mut last;
    let mut first = super::rig::request(IBV_WR_RDMA_WRITE, 1, null_mut());
    first.next = &raw mut wrong;
    let (post, mut bad) = (rig.a.ops().post_send.expect("the table has it"), null_mut());
    // SAFETY: the chain lives during the call.
    let result = unsafe { post(rig.a.qp, &raw mut first, &raw mut bad) };
    assert_eq!(result, libc::EINVAL, "there are no atomics");
    assert!(core::ptr::eq(bad, &raw const wrong));
    assert_eq!((rig.a.ended(), count("doorbells")), (vec![(1, 0)], 1));
    assert_eq!(rig.end(), [""; 0]);
}

/// A call that makes something; whether it failed.
type Call = fn(&End) -> bool;

#[test]
fn each_call_of_setting_up_can_fail() {
    let pointers: [(&str, Call); 7] = [
        ("ibv_get_device_list", |_| {
            // SAFETY: a null pointer is allowed.
            unsafe { ibv_get_device_list(null_mut()) }.is_null()
        }),
        ("ibv_alloc_pd", |e| {
            // SAFETY: the context is open; so for all below.
            unsafe { ibv_alloc_pd(e.context) }.is_null()
        }),
        ("ibv_create_comp_channel", |e| {
            // SAFETY: as above.
            unsafe { ibv_create_comp_channel(e.context) }.is_null()
        }),
        ("ibv_create_cq", |e| {
            // SAFETY: as above.
            unsafe { ibv_create_cq(e.context, 1, null_mut(), null_mut(), 0) }.is_null()
        }),
        ("ibv_create_qp", |e| {
            // SAFETY: numbers and pointers that may be null; it is refused before it is read.
            let mut init: ibv_qp_init_attr = unsafe { core::mem::zeroed() };
            // SAFETY: as above.
            unsafe { ibv_create_qp(e.pd, &raw mut init) }.is_null()
        }),
        ("ibv_reg_mr", |e| {
            // SAFETY: as above.
            unsafe { ibv_reg_mr(e.pd, core::ptr::without_provenance_mut(4096), 8, 0) }.is_null()
        }),
        ("ibv_reg_dmabuf_mr", |e| {
            // SAFETY: as above.
            unsafe { ibv_reg_dmabuf_mr(e.pd, 0, 8, 0, -1, 0) }.is_null()
        }),
    ];
    let turn = Turn::new();
    let end = End::new(0);
    for (name, call) in pointers {
        rule(name, 1, REFUSE, libc::ENOSPC as u64);
        assert!(call(&end), "{name}");
        assert_eq!(errno(), libc::ENOSPC, "{name}");
    }
    rule("ibv_dereg_mr", 0, REFUSE, libc::EBUSY as u64);
    // SAFETY: alive.
    assert_eq!(unsafe { ibv_dereg_mr(end.mr) }, libc::EBUSY);
    rule("ibv_modify_qp", 2, REFUSE, libc::ENOMEM as u64);
    let mut attr = attributes(&end);
    let results = steps().map(|(state, mask)| {
        attr.qp_state = state;
        end.modify(&mut attr, mask)
    });
    assert_eq!(results, [0, libc::ENOMEM, libc::EINVAL], "nothing was changed");
    hmc_fake_ibv_forget();
    end.end();
    assert_eq!(count("live"), 0);
    drop(turn);
}

#[test]
fn limits_of_a_device_are_kept() {
    let turn = Turn::new();
    set("memlock", 10_000);
    for (limit, value) in [("max_cqe", 100), ("max_pd", 2), ("max_mr", 3), ("max_qp_wr", 8)] {
        device(0, limit, value);
    }
    let end = End::new(0);
    let map = |len, access| {
        // SAFETY: the domain is alive, and the memory stays.
        let mr = unsafe {
            ibv_reg_mr(end.pd, core::ptr::without_provenance_mut(end.addr(0) as usize), len, access)
        };
        if mr.is_null() { Err(errno()) } else { Ok(mr) }
    };
    assert_eq!(map(0, 1), Err(libc::EINVAL));
    assert_eq!(map(8, 2), Err(libc::EINVAL), "a remote write needs a local one");
    assert_eq!(map(8, 1 << 20), Err(libc::EINVAL), "an optional bit needs the other call");
    assert_eq!(map(8, 64), Err(libc::EOPNOTSUPP));
    assert_eq!(map(1 << 40, 1), Err(libc::ENOMEM), "more than may be locked");
    set("memlock", 0);
    assert_eq!(map(1 << 40, 1), Err(libc::EFAULT), "not mapped");
    let (first, second) = (map(8, 1).expect("allowed"), map(8, 1).expect("allowed"));
    assert_eq!((map(8, 1), count("registered")), (Err(libc::ENOMEM), 8192 + 16));
    for mr in [first, second] {
        // SAFETY: alive, given back once.
        assert_eq!(unsafe { ibv_dereg_mr(mr) }, 0);
    }
    // SAFETY: the context is open.
    let make = |cqe| unsafe { ibv_create_cq(end.context, cqe, null_mut(), null_mut(), 0) };
    assert!(make(101).is_null() && make(0).is_null());
    let queue = make(100);
    // SAFETY: alive, destroyed once.
    assert_eq!(unsafe { ibv_destroy_cq(queue) }, 0);
    // SAFETY: the context is open.
    let second = unsafe { ibv_alloc_pd(end.context) };
    // SAFETY: as above.
    assert!(unsafe { ibv_alloc_pd(end.context) }.is_null());
    // SAFETY: alive, given back once.
    assert_eq!(unsafe { ibv_dealloc_pd(second) }, 0);
    end.end();
    drop(turn);
}

#[test]
fn objects_that_are_used_are_busy() {
    let turn = Turn::new();
    let end = End::new(0);
    // SAFETY: all are alive.
    let busy = unsafe { [ibv_dealloc_pd(end.pd)] };
    // SAFETY: as above.
    let queue = unsafe { ibv_destroy_cq(end.cq) };
    // SAFETY: as above.
    let channel = unsafe { ibv_destroy_comp_channel(end.channel) };
    assert_eq!((busy, queue, channel), ([libc::EBUSY], libc::EBUSY, libc::EBUSY));
    end.end();
    drop(turn);
}

#[test]
fn memory_of_a_descriptor_is_registered_where_the_device_can() {
    for has in [0, 1] {
        let rig = Rig::with(|| device(0, "dmabuf", has));
        // SAFETY: a C string.
        let fd = unsafe { libc::memfd_create(c"test".as_ptr(), libc::MFD_CLOEXEC) };
        // SAFETY: no pointers.
        assert_eq!(unsafe { libc::ftruncate(fd, 8192) }, 0);
        // SAFETY: the domain is alive.
        let wrong = unsafe { ibv_reg_dmabuf_mr(rig.b.pd, 100, 64, 0x1000, fd, 1 | 16) };
        let errors = [libc::EOPNOTSUPP, libc::EINVAL];
        assert!(wrong.is_null() && errno() == errors[has as usize], "no windows");
        if has != 0 {
            // SAFETY: as above.
            let mr = unsafe { ibv_reg_dmabuf_mr(rig.b.pd, 4100, 64, 0x1000, fd, 1 | 2) };
            set("staged", 0);
            let mut sge = rig.a.sge(0, 64);
            let mut wr = super::rig::request(IBV_WR_RDMA_WRITE, 1, &raw mut sge);
            // SAFETY: a structure is never freed.
            wr.wr.rdma = ibv_send_wr_rdma { remote_addr: 0x1000, rkey: unsafe { (*mr).rkey } };
            assert_eq!((rig.a.post(&mut wr), rig.a.ended()), (0, vec![(1, 0)]));
            // SAFETY: alive, given back once.
            assert_eq!(unsafe { ibv_dereg_mr(mr) }, 0);
            let mut seen = [9u8; 2];
            // SAFETY: two bytes of ours.
            let len = unsafe { libc::pread(fd, seen.as_mut_ptr().cast(), 2, 4163) };
            assert_eq!((len, seen), (2, [7, 0]));
        }
        // SAFETY: opened above, closed once.
        unsafe { libc::close(fd) };
        assert_eq!(rig.end(), [""; 0]);
    }
}

#[test]
fn there_are_up_to_four_devices() {
    for devices in 0..=4 {
        let turn = Turn::new();
        set("devices", devices);
        let mut count = 9;
        // SAFETY: the number may be written.
        let list = unsafe { ibv_get_device_list(&raw mut count) };
        assert_eq!(u64::try_from(count), Ok(devices));
        // SAFETY: the list ends with a null pointer.
        assert!(unsafe { list.wrapping_add(devices as usize).read() }.is_null());
        // SAFETY: made above, freed once.
        unsafe { ibv_free_device_list(list) };
        for at in 0..devices as usize {
            let context = open(at);
            // SAFETY: the context is open.
            let device = unsafe { (*context).device };
            // SAFETY: a device of an open context.
            assert!(!unsafe { crate::context::ibv_get_device_name(device) }.is_null());
            // SAFETY: as above.
            assert_ne!(unsafe { crate::context::ibv_get_device_guid(device) }, 0);
            rule("ibv_open_device", 1, REFUSE, libc::EACCES as u64);
            // SAFETY: as above.
            assert!(unsafe { ibv_open_device(device) }.is_null() && errno() == libc::EACCES);
            // SAFETY: open, closed once.
            assert_eq!(unsafe { ibv_close_device(context) }, 0);
        }
        drop(turn);
    }
}
