//! Messages, immediates, receives and shared receive queues.

use core::ptr::null_mut;

use super::rig::{End, Rig, Turn, attributes, count, queue_pair, request, steps};
use crate::abi::*;
use crate::async_event::{ibv_ack_async_event, ibv_get_async_event};
use crate::qp::ibv_destroy_qp;
use crate::srq::{ibv_create_srq, ibv_destroy_srq, ibv_modify_srq, ibv_query_srq};

fn write_imm(from: &End, to: &End, wr_id: u64, len: u32) -> i32 {
    let mut sge = from.sge(0, len);
    let mut wr = request(IBV_WR_RDMA_WRITE_WITH_IMM, wr_id, &raw mut sge);
    wr.imm.imm_data = 0x1234_5678;
    wr.wr.rdma = ibv_send_wr_rdma { remote_addr: to.addr(0), rkey: to.rkey() };
    from.post(&mut wr)
}

fn send(from: &End, wr_id: u64, len: u32) -> i32 {
    let mut sge = from.sge(0, len);
    let mut wr = request(IBV_WR_SEND, wr_id, &raw mut sge);
    from.post(&mut wr)
}

#[test]
fn an_immediate_takes_a_receive_and_shows_the_bytes_before_it() {
    let rig = Rig::new();
    assert_eq!(rig.b.receive(5, 0, 0), 0, "it needs no space");
    rig.a.write(1, &rig.b, (100, 8));
    write_imm(&rig.a, &rig.b, 2, 16);
    let wc = rig.b.poll();
    assert_eq!((wc[0].wr_id, wc[0].status, wc[0].opcode), (5, 0, IBV_WC_RECV_RDMA_WITH_IMM));
    assert_eq!(
        (wc[0].byte_len, wc[0].wc_flags, wc[0].src_qp),
        (16, IBV_WC_WITH_IMM, rig.a.qp_num())
    );
    // SAFETY: all bytes of the union are set.
    assert_eq!((unsafe { wc[0].imm.imm_data }, wc[0].qp_num), (0x1234_5678, rig.b.qp_num()));
    assert_eq!((rig.b.byte(100), rig.b.byte(15)), (7, 7));
    let wc = rig.a.poll();
    assert_eq!((wc[0].wr_id, wc[1].wr_id, wc[1].opcode), (1, 2, IBV_WC_RDMA_WRITE));
    assert_eq!(rig.end(), [""; 0]);
}

#[test]
fn an_immediate_without_a_receive_is_tried_again() {
    let rig = Rig::new();
    write_imm(&rig.a, &rig.b, 1, 8);
    assert_eq!((rig.a.ended(), rig.b.byte(0)), (vec![], 0));
    rig.b.receive(5, 0, 0);
    assert_eq!(rig.a.ended(), [(1, 0)]);
    write_imm(&rig.a, &rig.b, 2, 8);
    assert_eq!((rig.a.ended(), rig.a.ended()), (vec![], vec![]));
    assert_eq!(rig.a.ended(), [(2, IBV_WC_RNR_RETRY_EXC_ERR)]);
    assert_eq!(rig.b.ended(), [(5, 0)]);
    assert_eq!(rig.end(), [""; 0]);
}

#[test]
fn seven_retries_are_without_end() {
    let turn = Turn::new();
    let (a, b) = (End::new(0), End::new(0));
    b.connect(&a);
    let mut attr = attributes(&b);
    attr.rnr_retry = 7;
    for (state, mask) in steps() {
        attr.qp_state = state;
        assert_eq!(a.modify(&mut attr, mask), 0);
    }
    write_imm(&a, &b, 1, 8);
    for _ in 0..100 {
        assert_eq!(a.ended(), []);
    }
    b.receive(2, 0, 0);
    assert_eq!(a.ended(), [(1, 0)]);
    a.end();
    b.end();
    drop(turn);
}

#[test]
fn a_message_fills_the_pieces_of_its_receive() {
    let rig = Rig::new();
    rig.b.receive(5, 100, 8);
    rig.b.receive(6, 200, 4);
    assert_eq!((send(&rig.a, 1, 6), send(&rig.a, 2, 6)), (0, 0));
    assert_eq!(rig.a.ended(), [(1, 0), (2, IBV_WC_REM_INV_REQ_ERR)]);
    let wc = rig.b.poll();
    assert_eq!((wc[0].wr_id, wc[0].opcode, wc[0].byte_len), (5, IBV_WC_RECV, 6));
    assert_eq!((wc[1].wr_id, wc[1].status), (6, IBV_WC_LOC_LEN_ERR), "too little space");
    assert_eq!((rig.b.byte(105), rig.b.byte(106), rig.b.byte(200)), (7, 0, 0));
    assert_eq!(rig.end(), [""; 0]);
}

#[test]
fn receives_are_limited_and_checked() {
    let rig = Rig::new();
    for id in 0..8 {
        assert_eq!(rig.b.receive(id, 0, 8), 0);
    }
    assert_eq!(rig.b.receive(8, 0, 8), libc::ENOMEM);
    let (mut list, mut bad) = ([rig.b.sge(0, 8); 3], null_mut());
    let sg_list = list.as_mut_ptr();
    let mut wr = ibv_recv_wr { wr_id: 1, next: null_mut(), sg_list, num_sge: 3 };
    let post = rig.b.ops().post_recv.expect("the table has it");
    // SAFETY: the request and its list live during the call.
    assert_eq!(unsafe { post(rig.b.qp, &raw mut wr, &raw mut bad) }, libc::EINVAL);
    assert!(core::ptr::eq(bad, &raw const wr));
    assert_eq!(rig.end(), [""; 0]);
}

/// The next asynchronous event of an end, acknowledged.
fn event(of: &End) -> ibv_event_type {
    // SAFETY: numbers and pointers that may be null.
    let mut event: ibv_async_event = unsafe { core::mem::zeroed() };
    // SAFETY: the context is open, the event may be written.
    assert_eq!(unsafe { ibv_get_async_event(of.context, &raw mut event) }, 0);
    // SAFETY: got above, acknowledged once.
    unsafe { ibv_ack_async_event(&raw mut event) };
    event.event_type
}

#[test]
fn a_shared_queue_serves_all_its_queue_pairs() {
    let turn = Turn::new();
    let (a, mut b) = (End::new(0), End::new(0));
    let mut init = ibv_srq_init_attr {
        srq_context: null_mut(),
        attr: ibv_srq_attr { max_wr: 4, max_sge: 1, srq_limit: 9 },
    };
    // SAFETY: the domain is alive.
    let srq = unsafe { ibv_create_srq(b.pd, &raw mut init) };
    let alone = core::mem::replace(&mut b.qp, queue_pair(b.pd, b.cq, srq));
    // SAFETY: alive, destroyed once.
    assert_eq!(unsafe { ibv_destroy_qp(alone) }, 0);
    a.connect(&b);
    b.connect(&a);
    assert_eq!(b.receive(1, 0, 8), libc::EINVAL, "its receives are posted to the shared queue");
    let post = |wr_id| {
        let (mut sge, mut bad) = (b.sge(0, 8), null_mut());
        let mut wr = ibv_recv_wr { wr_id, next: null_mut(), sg_list: &raw mut sge, num_sge: 1 };
        let post = b.ops().post_srq_recv.expect("the table has it");
        // SAFETY: the request and its list live during the call.
        unsafe { post(srq, &raw mut wr, &raw mut bad) }
    };
    assert_eq!([1, 2, 3, 4, 5].map(post), [0, 0, 0, 0, libc::ENOMEM]);
    let mut attr = ibv_srq_attr { srq_limit: 3, ..ibv_srq_attr::default() };
    // SAFETY: alive.
    assert_eq!(unsafe { ibv_modify_srq(srq, &raw mut attr, IBV_SRQ_MAX_WR) }, libc::EINVAL);
    // SAFETY: alive.
    assert_eq!(unsafe { ibv_modify_srq(srq, &raw mut attr, IBV_SRQ_LIMIT) }, 0);
    // SAFETY: alive, and the attributes may be written.
    assert_eq!(unsafe { ibv_query_srq(srq, &raw mut attr) }, 0);
    assert_eq!((attr.max_wr, attr.max_sge, attr.srq_limit), (4, 1, 3));
    for id in 1..=3 {
        write_imm(&a, &b, id, 8);
    }
    assert_eq!(a.ended(), [(1, 0), (2, 0), (3, 0)]);
    assert_eq!(event(&b), IBV_EVENT_SRQ_LIMIT_REACHED, "once");
    assert_eq!(post(5), libc::ENOMEM, "none was polled");
    assert_eq!(b.ended(), [(1, 0), (2, 0), (3, 0)]);
    assert_eq!(post(5), 0);
    assert_eq!(crate::script::hmc_fake_ibv_kill(0), 2);
    assert_eq!(event(&b), IBV_EVENT_QP_LAST_WQE_REACHED);
    assert_eq!((b.ended(), count("flushed")), (vec![], 0), "receives of a shared queue stay");
    // SAFETY: alive.
    assert_eq!(unsafe { ibv_destroy_srq(srq) }, libc::EBUSY);
    // SAFETY: alive, destroyed once.
    assert_eq!(unsafe { ibv_destroy_qp(b.qp) }, 0);
    // SAFETY: alive, destroyed once.
    assert_eq!(unsafe { ibv_destroy_srq(srq) }, 0);
    b.end_rest();
    a.end();
    drop(turn);
}
