//! Messages over UCX that no honest peer sends.

use hmc_core::wire::data::{DATA_FRAME_BYTES, DataFlags, DataFrame, DataKind};

use super::rig::{LIE, Rig};
use super::{Case, MESSAGES};

/// More than a peer can have unanswered, twice (`MAX_QUEUED` in `hmc-hw/src/ucx/am/target.rs`), and one.
pub const TOO_MANY: usize = 2 * 256 + 1;
const PART: [u8; DATA_FRAME_BYTES - 1] = [0; DATA_FRAME_BYTES - 1];
const NONSENSE: [u8; DATA_FRAME_BYTES] = [0xFF; DATA_FRAME_BYTES];

/// A put of no bytes, of 64.
fn nothing(rig: &Rig<'_>) -> DataFrame {
    rig.request(DataKind::Write, 1, 64)
}

/// A frame that has no bytes, with 64.
fn with_bytes(rig: &mut Rig<'_>, kind: DataKind) {
    let frame = rig.request(kind, 1, 64);
    rig.send(&frame, &[LIE; 64]);
}

/// Each of them.
pub const CASES: &[Case] = &[
    Case {
        what: "more puts than may be unanswered, in one message",
        check: "more requests than can be answered",
        over: MESSAGES,
        send: |rig| {
            let put = DataFrame { len: 1, ..rig.request(DataKind::Write, 1, 1) };
            let behind = [&[LIE][..], &put.emit()].concat().repeat(TOO_MANY - 1);
            rig.send(&put, &[&behind[..], &[LIE]].concat());
            rig.expect_in_window(0, 1);
        },
    },
    Case {
        what: "a put that brings a byte less than it says",
        check: "a put without all of its bytes",
        over: MESSAGES,
        send: |rig| {
            let put = DataFrame { len: 64, ..nothing(rig) };
            rig.send(&put, &[LIE; 63]);
        },
    },
    Case {
        what: "half a frame behind a put",
        check: "a part of a frame behind a put",
        over: MESSAGES,
        send: |rig| rig.send(&nothing(rig), &PART),
    },
    Case {
        what: "nonsense behind a put",
        check: "no put behind a put",
        over: MESSAGES,
        send: |rig| rig.send(&nothing(rig), &NONSENSE),
    },
    Case {
        what: "a get behind a put",
        check: "no put behind a put",
        over: MESSAGES,
        send: |rig| {
            let get = rig.request(DataKind::Read, 2, 64);
            rig.send(&nothing(rig), &get.emit());
        },
    },
    Case {
        what: "bytes with a request",
        check: "bytes behind a request",
        over: MESSAGES,
        send: |rig| with_bytes(rig, DataKind::Read),
    },
    Case {
        what: "a request for no bytes",
        check: "a request for nothing",
        over: MESSAGES,
        send: |rig| {
            let get = rig.request(DataKind::Read, 1, 0);
            rig.send(&get, &[]);
        },
    },
    Case {
        what: "bytes to be fetched",
        check: "a frame that only streams have",
        over: MESSAGES,
        send: |rig| with_bytes(rig, DataKind::WriteRef),
    },
    Case {
        what: "bytes to be brought",
        check: "a frame that only streams have",
        over: MESSAGES,
        send: |rig| with_bytes(rig, DataKind::ReadRef),
    },
    Case {
        what: "memory to be mapped",
        check: "a frame that only streams have",
        over: MESSAGES,
        send: |rig| with_bytes(rig, DataKind::Region),
    },
    Case {
        what: "an answer that brings a byte less than it says",
        check: "an answer of another length than its bytes",
        over: MESSAGES,
        send: |rig| {
            let seq = rig.get_by_message(64);
            let answer =
                DataFrame { len: 64, total: 64, ..DataFrame::new(DataKind::ReadData, seq) };
            rig.send(&answer, &[LIE; 63]);
        },
    },
    Case {
        what: "an answer that brings a byte more than it says",
        check: "an answer of another length than its bytes",
        over: MESSAGES,
        send: |rig| {
            let seq = rig.get_by_message(64);
            let answer =
                DataFrame { len: 64, total: 64, ..DataFrame::new(DataKind::ReadData, seq) };
            rig.send(&answer, &[LIE; 65]);
        },
    },
    Case {
        what: "an answer that is longer than the get",
        check: "an answer that does not fit its request",
        over: MESSAGES,
        send: |rig| {
            let seq = rig.get_by_message(64);
            let answer =
                DataFrame { len: 65, total: 65, ..DataFrame::new(DataKind::ReadData, seq) };
            rig.insist(&answer, &[LIE; 65]);
        },
    },
    Case {
        what: "the begin of an answer of another total",
        check: "an answer that does not fit its request",
        over: MESSAGES,
        send: |rig| {
            let seq = rig.get_by_message(64);
            let answer =
                DataFrame { len: 32, total: 63, ..DataFrame::new(DataKind::ReadData, seq) };
            rig.insist(&answer, &[LIE; 32]);
        },
    },
    Case {
        what: "an acknowledgement of a get",
        check: "an acknowledgement of a get",
        over: MESSAGES,
        send: |rig| {
            let seq = rig.get_by_message(64);
            rig.insist(&DataFrame::ack(seq, 1), &[]);
        },
    },
    Case {
        what: "more answers than there can be requests, in one message",
        check: "more answers than there can be requests",
        over: MESSAGES,
        send: |rig| {
            let ack = DataFrame::ack(3, 1);
            rig.send(&ack, &ack.emit().repeat(TOO_MANY - 1));
        },
    },
    Case {
        what: "a put behind an answer",
        check: "no answer behind an answer",
        over: MESSAGES,
        send: |rig| {
            let put = DataFrame { flags: DataFlags::LAST, ..nothing(rig) };
            rig.send(&DataFrame::ack(3, 1), &put.emit());
        },
    },
    Case {
        what: "nonsense behind an answer",
        check: "a malformed frame behind an answer",
        over: MESSAGES,
        send: |rig| rig.send(&DataFrame::ack(3, 1), &NONSENSE),
    },
    Case {
        what: "half a frame behind an answer",
        check: "a part of a frame behind an answer",
        over: MESSAGES,
        send: |rig| rig.send(&DataFrame::ack(3, 1), &PART),
    },
];
