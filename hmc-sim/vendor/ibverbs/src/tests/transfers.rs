//! Writes and reads between two queue pairs, and how they are set up.

use super::rig::{BYTES, End, Rig, Turn, attributes, count, device, port, request, set, steps};
use crate::abi::*;
use crate::qp::{ibv_destroy_qp, ibv_query_qp};
use crate::script::hmc_fake_ibv_gid;

#[test]
fn a_write_moves_nothing_before_a_poll_and_shows_with_a_read() {
    let rig = Rig::new();
    assert_eq!(rig.a.write(1, &rig.b, (10, 100)), 0);
    assert_eq!((rig.b.byte(10), count("posted")), (0, 1));
    assert_eq!(rig.a.ended(), [(1, 0)]);
    assert_eq!((rig.b.byte(10), count("staged")), (0, 1), "its completion does not show the bytes");
    rig.b.fill(0);
    assert_eq!(rig.a.read(2, &rig.b, (10, 1)), 0);
    // It is a poll of the other end that makes it progress.
    assert_eq!(rig.b.ended(), []);
    assert_eq!((rig.b.byte(9), rig.b.byte(10), rig.b.byte(109), rig.b.byte(110)), (0, 7, 7, 0));
    assert_eq!(rig.a.ended(), [(2, 0)]);
    assert_eq!((count("completions"), count("signalled"), count("doorbells")), (2, 2, 2));
    assert_eq!(rig.end(), [""; 0]);
}

#[test]
fn bytes_of_a_write_show_after_a_while_or_at_once() {
    let rig = Rig::new();
    set("landing", 2);
    rig.a.write(1, &rig.b, (0, 8));
    for seen in [0, 0, 7] {
        rig.a.poll();
        assert_eq!(rig.b.byte(0), seen);
    }
    set("staged", 0);
    rig.a.write(2, &rig.b, (100, 8));
    rig.a.poll();
    assert_eq!(rig.b.byte(100), 7);
    assert_eq!(rig.end(), [""; 0]);
}

#[test]
fn a_read_brings_bytes() {
    let rig = Rig::new();
    rig.b.fill(9);
    assert_eq!(rig.a.read(1, &rig.b, (100, 50)), 0);
    let wc = rig.a.poll();
    assert_eq!((wc[0].wr_id, wc[0].status, wc[0].opcode), (1, 0, IBV_WC_RDMA_READ));
    assert_eq!((wc[0].qp_num, wc[0].byte_len), (rig.a.qp_num(), 50));
    assert_eq!((rig.a.byte(99), rig.a.byte(100), rig.a.byte(149), rig.a.byte(150)), (7, 9, 9, 7));
    assert_eq!(rig.end(), [""; 0]);
}

#[test]
fn pieces_are_gathered_and_inline_bytes_are_read_at_the_post() {
    let rig = Rig::new();
    let mut list = [rig.a.sge(0, 4), rig.a.sge(100, 4)];
    let mut wr = request(IBV_WR_RDMA_WRITE, 1, list.as_mut_ptr());
    wr.num_sge = 2;
    wr.wr.rdma = ibv_send_wr_rdma { remote_addr: rig.b.addr(0), rkey: rig.b.rkey() };
    assert_eq!(rig.a.post(&mut wr), 0);
    let bytes = [5u8; 33];
    let mut inline =
        ibv_sge { addr: bytes.as_ptr().expose_provenance() as u64, length: 32, lkey: 0 };
    let mut wr = request(IBV_WR_RDMA_WRITE, 2, &raw mut inline);
    wr.send_flags |= IBV_SEND_INLINE;
    wr.wr.rdma = ibv_send_wr_rdma { remote_addr: rig.b.addr(8), rkey: rig.b.rkey() };
    assert_eq!(rig.a.post(&mut wr), 0);
    inline.length = 33;
    wr.sg_list = &raw mut inline;
    assert_eq!(rig.a.post(&mut wr), libc::ENOMEM, "one byte more than was granted");
    rig.a.read(3, &rig.b, (0, 48));
    assert_eq!(rig.a.ended(), [(1, 0), (2, 0), (3, 0)]);
    let seen: Vec<u8> = [0, 7, 8, 39, 40].map(|at| rig.b.byte(at)).into();
    assert_eq!(seen, [7, 7, 5, 5, 0]);
    assert_eq!(rig.end(), [""; 0]);
}

#[test]
fn a_local_piece_outside_its_region_fails() {
    for wrong in [0, 1, 2] {
        let rig = Rig::new();
        let mut sge = rig.a.sge(BYTES - 8, 8);
        match wrong {
            0 => sge.length = 9,
            1 => sge.lkey = rig.a.rkey(),
            _ => sge.lkey = rig.b.lkey(),
        }
        let mut wr = request(IBV_WR_RDMA_WRITE, 1, &raw mut sge);
        wr.send_flags = 0;
        wr.wr.rdma = ibv_send_wr_rdma { remote_addr: rig.b.addr(0), rkey: rig.b.rkey() };
        assert_eq!(rig.a.post(&mut wr), 0);
        assert_eq!(rig.a.write(2, &rig.b, (0, 8)), 0);
        let wc = rig.a.poll();
        assert_eq!(
            (wc[0].wr_id, wc[0].status),
            (1, IBV_WC_LOC_PROT_ERR),
            "unsignalled, but failed"
        );
        assert_ne!(wc[0].vendor_err, 0);
        assert!(wc[0].opcode > IBV_WC_RECV_RDMA_WITH_IMM && wc[0].byte_len > 1 << 31, "garbage");
        assert_eq!((wc[1].wr_id, wc[1].status), (2, IBV_WC_WR_FLUSH_ERR));
        assert_eq!(rig.end(), [""; 0]);
    }
}

#[test]
fn a_target_refuses_what_its_key_does_not_allow() {
    for wrong in 0..5 {
        let rig = Rig::new();
        assert_eq!(rig.b.receive(9, 0, 8), 0);
        let mut attr = attributes(&rig.a);
        let mut sge = rig.a.sge(0, 8);
        let mut wr = request(IBV_WR_RDMA_WRITE, 1, &raw mut sge);
        let mut rdma = ibv_send_wr_rdma { remote_addr: rig.b.addr(BYTES - 8), rkey: rig.b.rkey() };
        match wrong {
            0 => rdma.remote_addr += 1,
            1 => rdma.remote_addr = rig.b.addr(0) - 1,
            2 => rdma.rkey ^= 1,
            // The region of another domain.
            3 => rdma.rkey = rig.a.rkey(),
            _ => {
                attr.qp_access_flags = IBV_ACCESS_REMOTE_READ;
                assert_eq!(rig.b.modify(&mut attr, IBV_QP_ACCESS_FLAGS), 0);
            }
        }
        wr.wr.rdma = rdma;
        assert_eq!(rig.a.post(&mut wr), 0);
        assert_eq!(rig.a.ended(), [(1, IBV_WC_REM_ACCESS_ERR)], "{wrong}");
        assert_eq!(rig.b.ended(), [(9, IBV_WC_WR_FLUSH_ERR)], "both ends fail");
        assert_eq!(rig.b.byte(BYTES - 8), 0);
        assert_eq!(count("refused"), 1);
        assert_eq!(rig.end(), [""; 0]);
    }
}

#[test]
fn an_empty_write_needs_no_key() {
    let rig = Rig::new();
    let mut wr = request(IBV_WR_RDMA_WRITE, 1, core::ptr::null_mut());
    assert_eq!(rig.a.post(&mut wr), 0);
    assert_eq!(rig.a.ended(), [(1, 0)]);
    assert_eq!(rig.end(), [""; 0]);
}

#[test]
fn wrong_parameters_of_a_connection_show() {
    for wrong in 0..5 {
        let turn = Turn::new();
        set("devices", 2);
        let (a, b) = (End::new(0), End::new(1));
        assert_eq!(a.qp_num(), b.qp_num(), "devices have the same numbers");
        let mut attr = attributes(&b);
        match wrong {
            0 => attr.dest_qp_num += 1,
            1 => attr.sq_psn += 1,
            // The address of no port.
            2 => attr.ah_attr.grh.dgid = ibv_gid { raw: [1; 16] },
            // RoCE v1 does not reach v2.
            3 => attr.ah_attr.grh.sgid_index = 2,
            _ => {}
        }
        for (state, mask) in steps() {
            attr.qp_state = state;
            assert_eq!(a.modify(&mut attr, mask), 0);
        }
        if wrong != 4 {
            b.connect(&a);
        }
        a.write(1, &b, (0, 8));
        // Each tick is a retry.
        assert_eq!((a.ended(), a.ended()), (vec![], vec![]));
        assert_eq!(a.ended(), [(1, IBV_WC_RETRY_EXC_ERR)], "{wrong}");
        a.end();
        b.end();
        drop(turn);
    }
}

#[test]
fn a_peer_that_is_gone_is_told_after_all_retries() {
    let rig = Rig::new();
    // SAFETY: alive, destroyed once.
    assert_eq!(unsafe { ibv_destroy_qp(rig.b.qp) }, 0);
    rig.a.write(1, &rig.b, (0, 8));
    rig.a.write(2, &rig.b, (0, 8));
    assert_eq!((rig.a.ended(), rig.a.ended()), (vec![], vec![]));
    assert_eq!(rig.a.ended(), [(1, IBV_WC_RETRY_EXC_ERR), (2, IBV_WC_WR_FLUSH_ERR)]);
    rig.a.end();
    rig.b.end_rest();
}

#[test]
fn each_step_needs_its_attributes() {
    let turn = Turn::new();
    let (a, b) = (End::new(0), End::new(0));
    let mut attr = attributes(&b);
    for (state, mask) in steps() {
        attr.qp_state = state;
        for bit in (0..32).map(|bit| 1 << bit) {
            if mask & bit != 0 {
                assert_eq!(a.modify(&mut attr, mask & !bit), libc::EINVAL, "{state} without {bit}");
            }
        }
        assert_eq!(a.modify(&mut attr, mask | IBV_QP_QKEY), libc::EINVAL);
        assert_eq!(a.modify(&mut attr, mask), 0);
    }
    attr.qp_state = IBV_QPS_RTR;
    assert_eq!(a.modify(&mut attr, IBV_QP_STATE), libc::EINVAL, "there is no way back");
    // SAFETY: numbers and pointers, for which zero is a value.
    let (mut seen, mut init) = unsafe { core::mem::zeroed::<(ibv_qp_attr, ibv_qp_init_attr)>() };
    // SAFETY: both may be written.
    assert_eq!(unsafe { ibv_query_qp(a.qp, &raw mut seen, 0, &raw mut init) }, 0);
    assert_eq!((seen.qp_state, seen.retry_cnt, init.cap.max_inline_data), (IBV_QPS_RTS, 2, 32));
    a.end();
    b.end();
    drop(turn);
}

#[test]
fn attributes_are_checked_against_the_device() {
    let turn = Turn::new();
    device(0, "max_qp_rd_atom", 3);
    let (a, b) = (End::new(0), End::new(0));
    let mut attr = attributes(&b);
    let [(_, init), (_, rtr), _] = steps();
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 2;
    assert_eq!(a.modify(&mut attr, init), libc::EINVAL, "there is no such port");
    attr.port_num = 1;
    assert_eq!(a.modify(&mut attr, init), 0);
    attr.qp_state = IBV_QPS_RTR;
    assert_eq!(a.modify(&mut attr, rtr), libc::EINVAL, "more reads than the device answers");
    attr.max_dest_rd_atomic = 3;
    attr.ah_attr.is_global = 0;
    assert_eq!(a.modify(&mut attr, rtr), libc::EINVAL, "Ethernet needs a GID");
    attr.ah_attr.is_global = 1;
    attr.ah_attr.grh.sgid_index = 7;
    assert_eq!(a.modify(&mut attr, rtr), libc::EINVAL, "an empty entry");
    attr.ah_attr.grh.sgid_index = 3;
    attr.path_mtu = 6;
    assert_eq!(a.modify(&mut attr, rtr), libc::EINVAL);
    port(0, 1, "active_mtu", 2);
    attr.path_mtu = 3;
    assert_eq!(a.modify(&mut attr, rtr), libc::EINVAL, "more than the port has");
    attr.path_mtu = 2;
    assert_eq!(a.modify(&mut attr, rtr), 0);
    a.end();
    b.end();
    drop(turn);
}

#[test]
fn infiniband_is_reached_by_its_lid() {
    let turn = Turn::new();
    set("devices", 2);
    for device in 0..2 {
        port(device, 1, "link_layer", 1);
        port(device, 1, "lid", 5 + u64::from(device));
    }
    // SAFETY: 16 bytes.
    assert_eq!(unsafe { hmc_fake_ibv_gid(0, 1, 3, 0, [3u8; 16].as_ptr()) }, 0);
    let ends = [End::new(0), End::new(1)];
    for (own, other, lid) in [(&ends[0], &ends[1], 6), (&ends[1], &ends[0], 5)] {
        let mut attr = attributes(other);
        attr.ah_attr.is_global = 0;
        attr.ah_attr.dlid = lid;
        for (state, mask) in steps() {
            attr.qp_state = state;
            assert_eq!(own.modify(&mut attr, mask), 0);
        }
    }
    ends[0].write(1, &ends[1], (0, 8));
    assert_eq!(ends[0].ended(), [(1, 0)]);
    port(1, 1, "lid", 7);
    ends[0].write(2, &ends[1], (0, 8));
    assert_eq!((ends[0].ended(), ends[0].ended()), (vec![], vec![]));
    assert_eq!(ends[0].ended(), [(2, IBV_WC_RETRY_EXC_ERR)]);
    ends[0].end();
    ends[1].end();
    drop(turn);
}

#[test]
fn reads_are_limited_by_both_ends() {
    let rig = Rig::new();
    for id in 1..=6 {
        rig.a.read(id, &rig.b, (0, 8));
    }
    assert_eq!(rig.a.ended(), [(1, 0), (2, 0), (3, 0), (4, 0)], "four are in flight");
    assert_eq!(rig.a.ended(), [(5, 0), (6, 0)]);
    assert_eq!(rig.end(), [""; 0]);

    let turn = Turn::new();
    let (a, b) = (End::new(0), End::new(0));
    a.connect(&b);
    let mut attr = attributes(&a);
    attr.max_dest_rd_atomic = 1;
    for (state, mask) in steps() {
        attr.qp_state = state;
        assert_eq!(b.modify(&mut attr, mask), 0);
    }
    a.read(1, &b, (0, 8));
    a.read(2, &b, (0, 8));
    assert_eq!(a.ended(), [(1, 0), (2, IBV_WC_REM_INV_REQ_ERR)], "more than the target answers");
    a.end();
    b.end();
    drop(turn);
}

#[test]
fn packets_of_another_size_are_refused() {
    let turn = Turn::new();
    let (a, b) = (End::new(0), End::new(0));
    a.connect(&b);
    let mut attr = attributes(&a);
    attr.path_mtu = IBV_MTU_512;
    for (state, mask) in steps() {
        attr.qp_state = state;
        assert_eq!(b.modify(&mut attr, mask), 0);
    }
    a.write(1, &b, (0, 512));
    a.write(2, &b, (0, 513));
    assert_eq!(a.ended(), [(1, 0), (2, IBV_WC_REM_INV_REQ_ERR)]);
    a.end();
    b.end();
    drop(turn);
}
