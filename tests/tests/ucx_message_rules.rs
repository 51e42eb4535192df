//! Messages between UCX's ends, over the fake libucp: which share one, how an operation is numbered, how many answers wait, and
//! what of a peer's answers is against the rules.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may panic"
)]

use std::sync::Arc;

use hmc_core::transport::Transport as _;
use hmc_core::types::Access;
use hmc_core::wire::data::{DATA_FRAME_BYTES, DataFrame, DataKind};
use hmc_core::work::{Completion, Opcode};
use hmc_hw::ucx::am::AmTarget;
use hmc_hw::ucx::settings::Settings;
use hmc_hw::ucx::testing::RawEndpoint;
use hmc_hw::ucx::worker::Worker;
use hmc_tests::fake_ucp::{CallResult, FakeUcp};
use hmc_tests::ucx_pair::Built;

const LEN: u64 = 1 << 18;
/// Messages that an end has in flight at a time.
const SENDS: u64 = 8;
/// Answers that wait, and the acknowledgements in one message.
const MAX_QUEUED: u32 = 512;
const ACKS: u64 = 16;

fn built(fake_ucp: &FakeUcp) -> Built {
    fake_ucp.lane("tcp/eth0");
    Built::new(fake_ucp.library(), LEN, LEN, Access::all(), 1).unwrap()
}

/// A third party that reaches a worker and knows the number of a target there.
struct Liar {
    endpoint: RawEndpoint,
    number: [u8; 8],
}

impl Liar {
    fn new(fake_ucp: &FakeUcp, worker: &Arc<Worker>, target: &AmTarget) -> Self {
        let info = worker.conn_info(target).unwrap();
        let mut endpoint = RawEndpoint::new(fake_ucp.library(), &Settings::default(), 64).unwrap();
        endpoint.connect(&info).unwrap();
        // Two lengths, then the number: `Worker::conn_info`.
        Self { endpoint, number: info[4..12].try_into().unwrap() }
    }

    /// One that speaks as the target, to the initiator.
    fn to_initiator(fake_ucp: &FakeUcp, pair: &Built) -> Self {
        Self::new(fake_ucp, pair.near.0.worker(), &pair.home)
    }

    /// One that speaks as the initiator, to the target.
    fn to_target(fake_ucp: &FakeUcp, pair: &Built) -> Self {
        Self::new(fake_ucp, &pair.far, &pair.am_target)
    }

    /// The message lies there; the receiver has made no progress.
    fn send(&self, frame: &DataFrame, data: &[u8]) {
        let header = [&self.number[..], &frame.emit()].concat();
        self.endpoint.calls().unwrap().message(&header, data).unwrap();
    }
}

/// A frame to the pair's window.
fn frame(pair: &Built, kind: DataKind, seq: u32, total: u64) -> DataFrame {
    let mut frame = DataFrame::new(kind, seq);
    (frame.window, frame.epoch, frame.total) = (pair.window.window, pair.window.epoch, total);
    frame
}

/// Completions at the initiator. The target makes no progress.
fn poll(pair: &mut Built) -> Vec<Completion> {
    let nobody = pair.request(0, Opcode::Put, 0, 0, 8).op;
    let mut out = [Completion { op: nobody, result: Ok(0) }; 16];
    let n = pair.near.poll(&mut out);
    out[..n].to_vec()
}

fn post(pair: &mut Built, index: u16, opcode: Opcode, len: u64) {
    let at = u64::from(index) * 8192;
    pair.near.post(&pair.request(index, opcode, at, at, len)).unwrap();
}

/// Where an answer names an earlier use of the record, or a later one, it is of no operation.
#[test]
fn each_use_of_a_record_has_a_number_of_its_own() {
    let fake_ucp = FakeUcp::take();
    let mut pair = built(&fake_ucp);
    let liar = Liar::to_initiator(&fake_ucp, &pair);
    for uses in 1..6 {
        post(&mut pair, 0, Opcode::Put, 64);
        for other in (0..10).filter(|other| *other != uses) {
            liar.send(&DataFrame::ack(other << 8, 1), &[]);
            assert_eq!(poll(&mut pair), [], "use {uses} is not use {other}");
        }
        // The first record, for this operation alone was under way.
        liar.send(&DataFrame::ack(uses << 8, 1), &[]);
        assert_eq!(poll(&mut pair).len(), 1, "use {uses}");
    }
    assert_eq!(pair.near.0.failure(), None);
    drop((liar, pair));
    fake_ucp.assert_clean();
}

#[test]
fn a_transfer_of_no_bytes_ends_without_a_message() {
    let fake_ucp = FakeUcp::take();
    let mut pair = built(&fake_ucp);
    let (sends, flushes) = (fake_ucp.calls("ucp_am_send_nbx"), fake_ucp.calls("ucp_ep_flush_nbx"));
    for opcode in [Opcode::Put, Opcode::Get] {
        post(&mut pair, 0, opcode, 0);
        assert_eq!(poll(&mut pair).first().map(|c| c.result), Some(Ok(0)), "{opcode:?}");
    }
    assert_eq!(fake_ucp.calls("ucp_am_send_nbx"), sends);
    assert_eq!((flushes, fake_ucp.calls("ucp_ep_flush_nbx")), (0, 0), "messages need no flush");
    drop(pair);
    fake_ucp.assert_clean();
}

/// Long payload goes eagerly: a rendezvous would have the target read it by UCX's own means.
#[test]
fn long_transfers_go_in_messages_that_have_their_bytes() {
    let fake_ucp = FakeUcp::take();
    let mut pair = built(&fake_ucp);
    let bytes: Vec<u8> = (0..=250).cycle().take(1 << 17).collect();
    pair.write_local(0, &bytes);
    post(&mut pair, 0, Opcode::Put, 1 << 17);
    assert_eq!(pair.wait(1).first().map(|c| c.result), Some(Ok(1 << 17)));
    assert!(pair.read_remote(0, bytes.len()) == bytes, "the bytes differ");
    pair.write_local(0, &[0; 1 << 17]);
    post(&mut pair, 0, Opcode::Get, 1 << 17);
    assert_eq!(pair.wait(1).first().map(|c| c.result), Some(Ok(1 << 17)));
    assert!(pair.read_local(0, bytes.len()) == bytes, "the bytes differ");
    drop(pair);
    fake_ucp.assert_clean();
}

/// Only small puts share a message, those that follow one another.
#[test]
fn requests_share_a_message_only_with_small_puts() {
    let fake_ucp = FakeUcp::take();
    let (put, get) = (Opcode::Put, Opcode::Get);
    for (requests, messages) in [
        (&[(put, 8), (put, 8), (put, 1024)][..], 1),
        (&[(put, 8), (put, 1025)], 2),
        (&[(put, 1025), (put, 8)], 2),
        (&[(put, 8), (get, 8), (put, 8)], 3),
        (&[(get, 8), (put, 8)], 2),
        (&[(get, 2000), (get, 8), (put, 8), (put, 8)], 3),
    ] {
        let mut pair = built(&fake_ucp);
        fake_ucp.rule("ucp_am_send_nbx", 0, CallResult::Held);
        (0..8).for_each(|index| post(&mut pair, index, put, 2000));
        assert_eq!(fake_ucp.count("held"), SENDS, "all are in flight");
        for (index, (opcode, len)) in (8..).zip(requests) {
            post(&mut pair, index, *opcode, *len);
        }
        let sends = fake_ucp.calls("ucp_am_send_nbx");
        fake_ucp.clear_rules();
        assert_eq!(fake_ucp.release(), SENDS);
        (0..5).for_each(|_| assert_eq!(poll(&mut pair), []));
        assert_eq!(fake_ucp.calls("ucp_am_send_nbx") - sends, messages, "{requests:?}");
        let done = pair.wait(8 + requests.len());
        assert!(done.iter().all(|c| c.result.is_ok()), "{requests:?}: {done:?}");
        assert_eq!((pair.near.0.failure(), pair.am_target.violation()), (None, None));
        drop(pair);
        fake_ucp.assert_clean();
        fake_ucp.restart();
    }
}

/// An answer goes with eight messages at the most, and no more wait than there can be requests, twice.
#[test]
fn as_many_answers_wait_as_a_peer_can_have_requests() {
    let fake_ucp = FakeUcp::take();
    for (kind, rule) in [
        (DataKind::Read, "more gets than were agreed"),
        (DataKind::Write, "more requests than can be answered"),
    ] {
        let pair = built(&fake_ucp);
        let liar = Liar::to_target(&fake_ucp, &pair);
        hold_all_answers(&fake_ucp, &pair, &liar);
        let mut one_more = frame(&pair, kind, 0x900, 8);
        one_more.len = if kind == DataKind::Write { 8 } else { 0 };
        let data = &[0; 8][..usize::try_from(one_more.len).unwrap()];
        for _ in 0..MAX_QUEUED {
            liar.send(&one_more, data);
        }
        pair.far.lock().progress();
        assert_eq!(pair.am_target.violation(), None, "{kind:?}");
        liar.send(&one_more, data);
        pair.far.lock().progress();
        assert_eq!(pair.am_target.violation().map(|v| v.what()), Some(rule));
        fake_ucp.clear_rules();
        let _ = fake_ucp.release();
        drop((liar, pair));
        fake_ucp.restart();
    }
}

/// Eight answers to gets are in flight, and nothing else is answered meanwhile.
fn hold_all_answers(fake_ucp: &FakeUcp, pair: &Built, liar: &Liar) {
    for index in 0..8 {
        liar.send(&frame(pair, DataKind::Read, 0x500 + index, 8), &[]);
    }
    fake_ucp.rule("ucp_am_send_nbx", 0, CallResult::Held);
    pair.far.lock().progress();
    assert_eq!(fake_ucp.count("held"), SENDS);
    fake_ucp.clear_rules();
}

#[test]
fn sixteen_acknowledgements_go_in_one_message_and_none_is_added_at_the_limit() {
    let fake_ucp = FakeUcp::take();
    let pair = built(&fake_ucp);
    let liar = Liar::to_target(&fake_ucp, &pair);
    hold_all_answers(&fake_ucp, &pair, &liar);
    liar.send(&frame(&pair, DataKind::Read, 0x600, 8), &[]);
    let put = DataFrame { len: 8, ..frame(&pair, DataKind::Write, 0x700, 8) };
    for _ in 0..MAX_QUEUED {
        liar.send(&put, &[0; 8]);
    }
    pair.far.lock().progress();
    // The get of a window that is closed would be refused, if that could wait.
    pair.am_target.close(pair.window.window);
    let sends = fake_ucp.calls("ucp_am_send_nbx");
    assert_eq!(fake_ucp.release(), SENDS);
    while pair.far.lock().progress() {}
    let messages = fake_ucp.calls("ucp_am_send_nbx") - sends;
    assert_eq!(messages, u64::from(MAX_QUEUED) / ACKS);
    assert_eq!(pair.am_target.violation(), None);
    drop((liar, pair));
    fake_ucp.assert_clean();
}

/// Pieces of an operation that was given up do not count for the next one of its record.
#[test]
fn pieces_of_an_earlier_put_of_a_record_do_not_count() {
    let fake_ucp = FakeUcp::take();
    let pair = built(&fake_ucp);
    let liar = Liar::to_target(&fake_ucp, &pair);
    let answers = |seq, offset| {
        let half = frame(&pair, DataKind::Write, seq, 128);
        liar.send(&DataFrame { len: 64, offset, ..half }, &[1; 64]);
        let sends = fake_ucp.calls("ucp_am_send_nbx");
        pair.far.lock().progress();
        fake_ucp.calls("ucp_am_send_nbx") - sends
    };
    assert_eq!(answers(0x109, 0), 0, "half of it is missing");
    assert_eq!(answers(0x209, 0), 0, "half of it is missing");
    assert_eq!(answers(0x209, 64), 1);
    assert_eq!(answers(0x209, 64), 0, "it was answered");
    drop((liar, pair));
    fake_ucp.assert_clean();
}

/// What a peer says after this end has closed the link reaches nothing, and is not answered on an endpoint that is closed.
#[test]
fn a_target_whose_link_is_closed_takes_nothing() {
    let fake_ucp = FakeUcp::take();
    let mut pair = built(&fake_ucp);
    let liar = Liar::to_target(&fake_ucp, &pair);
    pair.back.as_mut().unwrap().close();
    liar.send(&DataFrame { len: 64, ..frame(&pair, DataKind::Write, 0x100, 64) }, &[7; 64]);
    liar.send(&frame(&pair, DataKind::Read, 0x200, 64), &[]);
    let sends = fake_ucp.calls("ucp_am_send_nbx");
    while pair.far.lock().progress() {}
    assert_eq!(pair.read_remote(0, 64), [0; 64]);
    assert_eq!(fake_ucp.calls("ucp_am_send_nbx"), sends);
    drop((liar, pair));
    fake_ucp.assert_clean();
}

/// UCX uses what it has freed if an endpoint is closed by force while messages are under way and its path is cut.
#[test]
fn an_endpoint_is_not_closed_while_messages_are_under_way() {
    let fake_ucp = FakeUcp::take();
    let mut pair = built(&fake_ucp);
    let liar = Liar::to_target(&fake_ucp, &pair);
    hold_all_answers(&fake_ucp, &pair, &liar);
    let closes = fake_ucp.calls("ucp_ep_close_nbx");
    let back = pair.back.as_mut().unwrap();
    back.close();
    (0..10).for_each(|_| back.advance());
    assert!(!back.is_closed());
    assert_eq!((fake_ucp.count("held"), fake_ucp.calls("ucp_ep_close_nbx")), (SENDS, closes));
    assert_eq!(fake_ucp.release(), SENDS);
    (0..10).for_each(|_| back.advance());
    assert!(back.is_closed());
    // Nor while its own messages are.
    let closes = fake_ucp.calls("ucp_ep_close_nbx");
    fake_ucp.rule("ucp_am_send_nbx", 1, CallResult::Held);
    post(&mut pair, 0, Opcode::Put, 64);
    let near = &mut pair.near.0;
    near.close();
    (0..10).for_each(|_| near.advance());
    assert!(!near.is_closed());
    assert_eq!((fake_ucp.count("held"), fake_ucp.calls("ucp_ep_close_nbx")), (1, closes));
    assert_eq!(fake_ucp.release(), 1);
    (0..10).for_each(|_| near.advance());
    assert!(near.is_closed());
    drop((liar, pair));
    fake_ucp.assert_clean();
}

/// An answer is sent when the way back is known, though nothing else happens then.
#[test]
fn an_answer_alone_is_progress() {
    use hmc_core::transport::Notes as _;
    use hmc_tests::ucx_planes::{End, MESSAGES};
    let fake_ucp = FakeUcp::take();
    fake_ucp.lane(MESSAGES);
    let (mut near, mut far) = (End::new(&fake_ucp, false), End::new(&fake_ucp, false));
    let (ours, theirs) = (near.greeting(), far.greeting());
    near.receive((theirs.0, &theirs.1));
    let mut free = Vec::new();
    while far.domain.progress_all(&mut free) {}
    assert!(!far.plane.has_releases() && !near.domain.progress_all(&mut free));
    far.receive((ours.0, &ours.1));
    assert!(far.domain.progress_all(&mut free), "it has answered");
    assert!(!far.domain.progress_all(&mut free));
    drop((near, far));
    fake_ucp.assert_clean();
}

#[test]
fn answers_against_the_rules_end_the_link() {
    let fake_ucp = FakeUcp::take();
    // The first use of the first record: a get of 64 bytes.
    let get = DataFrame { len: 64, total: 64, ..DataFrame::new(DataKind::ReadData, 0x100) };
    let acks = |count: u32| {
        let more = (1..count).flat_map(|n| DataFrame::ack(0x200 + n, 1).emit());
        more.collect::<Vec<u8>>()
    };
    let ack = DataFrame::ack(0x205, 1);
    let (bytes, nonsense, full, over) =
        (vec![7; 64], vec![0xFF; DATA_FRAME_BYTES], acks(MAX_QUEUED), acks(MAX_QUEUED + 1));
    let put = DataFrame::new(DataKind::Write, 1).emit().to_vec();
    let length = "an answer of another length than its bytes";
    let unfit = "an answer that does not fit its request";
    for (answer, data, rule) in [
        (get, &bytes, None),
        (DataFrame { len: 63, ..get }, &bytes, Some(length)),
        (DataFrame { total: 65, ..get }, &bytes, Some(unfit)),
        // It is no frame: it ends behind its total.
        (DataFrame { offset: 1, ..get }, &bytes, None),
        (DataFrame { seq: 0x200, total: 65, ..get }, &bytes, None),
        (DataFrame { seq: 0x101, ..get }, &bytes, None),
        (DataFrame::ack(0x100, 1), &vec![], Some("an acknowledgement of a get")),
        (DataFrame::ack(0x200, 1), &vec![], None),
        (ack, &put, Some("no answer behind an answer")),
        (ack, &nonsense, Some("a malformed frame behind an answer")),
        (ack, &vec![0; 7], Some("a part of a frame behind an answer")),
        (ack, &full, None),
        (ack, &over, Some("more answers than there can be requests")),
    ] {
        let mut pair = built(&fake_ucp);
        let liar = Liar::to_initiator(&fake_ucp, &pair);
        post(&mut pair, 0, Opcode::Get, 64);
        liar.send(&answer, data);
        pair.near.0.worker().lock().progress();
        let violation = pair.home.violation().map(|violation| violation.what());
        assert_eq!(
            (violation, pair.near.0.failure().is_some()),
            (rule, rule.is_some()),
            "{answer:?}"
        );
        let is_answered = answer == get;
        let done = poll(&mut pair);
        assert_eq!(done.iter().any(|c| c.result == Ok(64)), is_answered, "{answer:?}");
        let read = pair.read_local(0, 64);
        assert_eq!(read, if is_answered { bytes.clone() } else { vec![0; 64] }, "{answer:?}");
        drop((liar, pair));
        fake_ucp.assert_clean();
        fake_ucp.restart();
    }
}
