//! Memory windows: bind, the check of accesses, invalidation, devices that lack them.

use super::rig::{BYTES, End, Rig, Turn, count, device, queue_pair, request, rule, set};
use crate::abi::*;
use crate::qp::ibv_destroy_qp;
use crate::region::ibv_dereg_mr;

/// Writes 8 bytes by a key; the status.
fn write(from: &End, remote_addr: u64, rkey: u32) -> u32 {
    let mut sge = from.sge(0, 8);
    let mut wr = request(IBV_WR_RDMA_WRITE, 9, &raw mut sge);
    wr.wr.rdma = ibv_send_wr_rdma { remote_addr, rkey };
    assert_eq!(from.post(&mut wr), 0);
    from.ended()[0].1
}

#[test]
fn a_window_opens_its_range_until_it_is_invalidated() {
    let rig = Rig::new();
    let mw = rig.b.window();
    let key = rig.b.bind(1, mw, 100, 16, IBV_ACCESS_REMOTE_WRITE);
    let wc = rig.b.poll();
    assert_eq!((wc[0].wr_id, wc[0].status, wc[0].opcode), (1, 0, IBV_WC_BIND_MW));
    assert_eq!(write(&rig.a, rig.b.addr(108), key), 0);
    // SAFETY: alive.
    assert_eq!(unsafe { ibv_dereg_mr(rig.b.mr) }, libc::EINVAL, "a window is bound");
    assert_eq!(rig.b.invalidate(2, key), 0);
    assert_eq!((rig.b.byte(108), count("staged")), (0, 1));
    let wc = rig.b.poll();
    assert_eq!((wc[0].wr_id, wc[0].status, wc[0].opcode), (2, 0, IBV_WC_LOCAL_INV));
    assert_eq!((rig.b.byte(108), count("staged")), (7, 0), "what was acknowledged is there");
    assert_eq!(write(&rig.a, rig.b.addr(108), key), IBV_WC_REM_ACCESS_ERR);
    assert_eq!(rig.b.free_window(mw), 0);
    assert_eq!(rig.end(), [""; 0]);
}

#[test]
fn a_window_refuses_what_it_does_not_allow() {
    for wrong in 0..5 {
        let rig = Rig::new();
        let mw = rig.b.window();
        let access = if wrong == 0 { IBV_ACCESS_REMOTE_READ } else { IBV_ACCESS_REMOTE_WRITE };
        let key = rig.b.bind(1, mw, 100, 16, access);
        assert_eq!(rig.b.ended(), [(1, 0)]);
        let (at, key) = match wrong {
            0 => (100, key),
            1 => (99, key),
            2 => (109, key),
            // The key before the bind, and the one after the next.
            3 => (100, key - 1),
            _ => (100, key + 1),
        };
        assert_eq!(write(&rig.a, rig.b.addr(at), key), IBV_WC_REM_ACCESS_ERR, "{wrong}");
        assert_eq!(rig.b.free_window(mw), 0, "also of a queue pair that has failed");
        assert_eq!(rig.end(), [""; 0]);
    }
}

#[test]
fn a_window_belongs_to_one_queue_pair() {
    let rig = Rig::new();
    let other = queue_pair(rig.b.pd, rig.b.cq, core::ptr::null_mut());
    let second = End { qp: other, ..rig.b };
    second.connect(&rig.a);
    let mw = second.window();
    let key = second.bind(1, mw, 0, 16, IBV_ACCESS_REMOTE_WRITE);
    assert_eq!(second.ended(), [(1, 0)]);
    assert_eq!(write(&rig.a, rig.b.addr(0), key), IBV_WC_REM_ACCESS_ERR);
    assert_eq!(rig.b.free_window(mw), 0);
    // SAFETY: alive, destroyed once.
    assert_eq!(unsafe { ibv_destroy_qp(other) }, 0);
    assert_eq!(rig.end(), [""; 0]);
}

#[test]
fn zero_based_windows_count_from_their_beginning() {
    let rig = Rig::new();
    let mw = rig.b.window();
    let key = rig.b.bind(1, mw, 100, 16, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ZERO_BASED);
    rig.b.poll();
    set("staged", 0);
    assert_eq!(write(&rig.a, 8, key), 0);
    assert_eq!((rig.b.byte(107), rig.b.byte(108), rig.b.byte(116)), (0, 7, 0));
    assert_eq!(rig.b.free_window(mw), 0);
    assert_eq!(rig.end(), [""; 0]);
}

#[test]
fn a_wrong_bind_fails_its_queue_pair() {
    for wrong in 0..6 {
        let rig = Rig::new();
        let mw = rig.b.window();
        // SAFETY: a structure is never freed.
        let first = unsafe { (*mw).rkey };
        let mut at = (0, 16);
        match wrong {
            0 => at = (BYTES - 8, 16),
            1 => at = (0, 0),
            2 => {
                // The structure was not told of the key of the bind before.
                let key = rig.b.bind(1, mw, 0, 16, IBV_ACCESS_REMOTE_READ);
                rig.b.invalidate(2, key);
                assert_eq!(rig.b.ended(), [(1, 0), (2, 0)]);
                // SAFETY: as above.
                unsafe { (*mw).rkey = first };
            }
            3 => {
                rig.b.bind(1, mw, 0, 16, IBV_ACCESS_REMOTE_READ);
                assert_eq!(rig.b.ended(), [(1, 0)], "and it is not invalidated");
            }
            // SAFETY: as above; another window's key.
            4 => unsafe { (*mw).rkey += 0x100 },
            _ => device(0, "windows", 4),
        }
        rig.b.bind(5, mw, at.0, at.1, IBV_ACCESS_REMOTE_READ);
        rig.b.write(6, &rig.a, (0, 8));
        let wanted = [(5, IBV_WC_MW_BIND_ERR), (6, IBV_WC_WR_FLUSH_ERR)];
        assert_eq!(rig.b.ended(), wanted, "{wrong}");
        assert_eq!(rig.b.free_window(mw), 0);
        assert_eq!(rig.end(), [""; 0]);
    }
}

#[test]
fn a_bind_with_an_immediate_or_pieces_is_refused() {
    let rig = Rig::new();
    let mw = rig.b.window();
    let mut sge = rig.b.sge(0, 8);
    let mut wr = request(IBV_WR_BIND_MW, 1, &raw mut sge);
    let bind_info = ibv_mw_bind_info {
        mr: rig.b.mr,
        addr: rig.b.addr(0),
        length: 8,
        mw_access_flags: IBV_ACCESS_REMOTE_READ,
    };
    // SAFETY: a structure is never freed.
    let rkey = unsafe { (*mw).rkey } + 1;
    wr.bind.bind_mw = ibv_send_wr_bind { mw, rkey, bind_info };
    assert_eq!(rig.b.post(&mut wr), libc::EINVAL);
    wr.num_sge = 0;
    wr.imm.imm_data = 1;
    assert_eq!(rig.b.post(&mut wr), libc::EINVAL);
    // Type 1 has a call of its own, which this library refuses.
    let bind = rig.b.ops().bind_mw.expect("the table has it");
    let mut old = ibv_mw_bind { wr_id: 1, send_flags: 0, bind_info };
    // SAFETY: all are alive.
    assert_eq!(unsafe { bind(rig.b.qp, mw, &raw mut old) }, libc::EINVAL);
    assert_eq!(rig.b.free_window(mw), 0);
    assert_eq!(rig.end(), [""; 0]);
}

#[test]
fn only_its_queue_pair_invalidates_a_window() {
    let rig = Rig::new();
    let mw = rig.b.window();
    let key = rig.b.bind(1, mw, 0, 16, IBV_ACCESS_REMOTE_READ);
    assert_eq!(rig.b.ended(), [(1, 0)]);
    assert_eq!(rig.a.invalidate(2, key), 0);
    assert_eq!(rig.a.ended(), [(2, IBV_WC_LOC_QP_OP_ERR)]);
    assert_eq!(rig.b.free_window(mw), 0);
    assert_eq!(rig.end(), [""; 0]);
}

#[test]
fn a_failed_queue_pair_flushes_an_invalidation() {
    let rig = Rig::new();
    let mw = rig.b.window();
    let key = rig.b.bind(1, mw, 0, 16, IBV_ACCESS_REMOTE_WRITE);
    assert_eq!(rig.b.ended(), [(1, 0)]);
    let mut attr = super::rig::attributes(&rig.a);
    attr.qp_state = IBV_QPS_ERR;
    assert_eq!(rig.b.modify(&mut attr, IBV_QP_STATE), 0);
    assert_eq!(rig.b.invalidate(2, key), 0, "it is posted");
    assert_eq!(rig.b.ended(), [(2, IBV_WC_WR_FLUSH_ERR)]);
    assert_eq!(rig.b.free_window(mw), 0);
    assert_eq!(rig.end(), [""; 0]);
}

#[test]
fn a_message_invalidates_a_window_of_its_target() {
    let rig = Rig::new();
    let mw = rig.b.window();
    let key = rig.b.bind(1, mw, 0, 16, IBV_ACCESS_REMOTE_WRITE);
    rig.b.receive(2, 100, 8);
    rig.b.receive(3, 100, 8);
    assert_eq!(rig.b.ended(), [(1, 0)]);
    for id in [4, 5] {
        let mut sge = rig.a.sge(0, 8);
        let mut wr = request(IBV_WR_SEND_WITH_INV, id, &raw mut sge);
        wr.imm.invalidate_rkey = key;
        assert_eq!(rig.a.post(&mut wr), 0);
    }
    assert_eq!(rig.a.ended(), [(4, 0), (5, IBV_WC_REM_INV_REQ_ERR)]);
    let wc = rig.b.poll();
    assert_eq!((wc[0].wr_id, wc[0].status, wc[0].wc_flags), (2, 0, IBV_WC_WITH_INV));
    // SAFETY: all bytes of the union are set.
    assert_eq!(unsafe { wc[0].imm.invalidated_rkey }, key);
    assert_eq!((wc[1].wr_id, wc[1].status), (3, IBV_WC_REM_INV_REQ_ERR));
    assert_eq!(rig.b.free_window(mw), 0);
    assert_eq!(rig.end(), [""; 0]);
}

#[test]
fn a_device_may_not_check_a_windows_range() {
    let rig = Rig::with(|| device(0, "window_range", 0));
    let mw = rig.b.window();
    let key = rig.b.bind(1, mw, 100, 16, IBV_ACCESS_REMOTE_WRITE);
    rig.b.poll();
    assert_eq!(write(&rig.a, rig.b.addr(0), key), 0, "as rxe");
    assert_eq!(write(&rig.a, rig.b.addr(BYTES), key), IBV_WC_REM_ACCESS_ERR, "but the region's");
    assert_eq!(rig.b.free_window(mw), 0);
    assert_eq!(rig.end(), [""; 0]);
}

#[test]
fn a_device_may_ignore_an_invalidation() {
    let rig = Rig::with(|| device(0, "invalidation", 0));
    let mw = rig.b.window();
    let key = rig.b.bind(1, mw, 0, 16, IBV_ACCESS_REMOTE_WRITE);
    rig.b.invalidate(2, key);
    assert_eq!(rig.b.ended(), [(1, 0), (2, 0)]);
    assert_eq!(write(&rig.a, rig.b.addr(0), key), 0);
    let next = rig.b.bind(3, mw, 0, 16, IBV_ACCESS_REMOTE_WRITE);
    assert_eq!(rig.b.ended(), [(3, 0)]);
    assert_eq!(write(&rig.a, rig.b.addr(0), next), 0);
    assert_eq!(rig.b.free_window(mw), 0);
    assert_eq!(rig.end(), [""; 0]);
}

#[test]
fn a_device_may_let_other_queue_pairs_through_a_window() {
    let rig = Rig::with(|| device(0, "window_qp", 0));
    let other = queue_pair(rig.b.pd, rig.b.cq, core::ptr::null_mut());
    let second = End { qp: other, ..rig.b };
    second.connect(&rig.a);
    let mw = second.window();
    let key = second.bind(1, mw, 0, 16, IBV_ACCESS_REMOTE_WRITE);
    assert_eq!(second.ended(), [(1, 0)]);
    assert_eq!(write(&rig.a, rig.b.addr(0), key), 0);
    assert_eq!(write(&rig.a, rig.b.addr(16), key), IBV_WC_REM_ACCESS_ERR, "its range is checked");
    assert_eq!(rig.b.free_window(mw), 0);
    // SAFETY: alive, destroyed once.
    assert_eq!(unsafe { ibv_destroy_qp(other) }, 0);
    assert_eq!(rig.end(), [""; 0]);
}

#[test]
fn a_device_may_ignore_the_end_of_a_window() {
    for (ends, status) in [(1, IBV_WC_REM_ACCESS_ERR), (0, IBV_WC_SUCCESS)] {
        let rig = Rig::with(|| device(0, "window_end", ends));
        let mw = rig.b.window();
        let key = rig.b.bind(1, mw, 0, 16, IBV_ACCESS_REMOTE_WRITE);
        assert_eq!(rig.b.ended(), [(1, 0)]);
        assert_eq!(rig.b.free_window(mw), 0);
        assert_eq!(write(&rig.a, rig.b.addr(0), key), status, "{ends}");
        assert_eq!(rig.end(), [""; 0]);
    }
}

/// A queue pair in its error state carries out no bind: the window may be freed before the completion was polled.
#[test]
fn a_window_is_freed_while_its_bind_is_flushed() {
    let rig = Rig::new();
    let mw = rig.b.window();
    rule("bind", 1, crate::script::HOLD, 0);
    rig.b.bind(1, mw, 0, 16, IBV_ACCESS_REMOTE_WRITE);
    assert_eq!(rig.b.ended(), []);
    let mut attr = super::rig::attributes(&rig.a);
    attr.qp_state = IBV_QPS_ERR;
    assert_eq!(rig.b.modify(&mut attr, IBV_QP_STATE), 0);
    assert_eq!(rig.b.free_window(mw), 0);
    assert_eq!(rig.b.ended(), [(1, IBV_WC_WR_FLUSH_ERR)]);
    assert_eq!(rig.end(), [""; 0]);
}

#[test]
fn a_device_may_lack_windows() {
    for windows in [0, 2, 3] {
        let turn = Turn::new();
        device(0, "windows", windows);
        let end = End::new(0);
        // SAFETY: numbers, for which zero is a value.
        let mut attr: ibv_device_attr = unsafe { core::mem::zeroed() };
        // SAFETY: the attributes may be written.
        assert_eq!(unsafe { crate::context::ibv_query_device(end.context, &raw mut attr) }, 0);
        let flags = IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
        assert_eq!(attr.device_cap_flags & flags != 0, windows != 0, "what it says of itself");
        match end.ops().alloc_mw {
            None => assert_ne!(windows, 3),
            Some(alloc) => {
                // SAFETY: the domain is alive.
                assert!(unsafe { alloc(end.pd, IBV_MW_TYPE_2) }.is_null());
                let errno = std::io::Error::last_os_error().raw_os_error();
                assert_eq!((errno, windows), (Some(libc::EOPNOTSUPP), 3));
            }
        }
        end.end();
        drop(turn);
    }
    let rig = Rig::new();
    rule("ibv_alloc_mw", 1, crate::script::REFUSE, libc::ENOMEM as u64);
    let alloc = rig.b.ops().alloc_mw.expect("the table has it");
    // SAFETY: the domain is alive.
    assert!(unsafe { alloc(rig.b.pd, IBV_MW_TYPE_2) }.is_null());
    assert_eq!(rig.end(), [""; 0]);
}
