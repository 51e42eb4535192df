//! Bytes that a session did not get, or not so.

use hmc_core::wire::data::DataFlags;

use super::{BOTH, Case};

const NONE: DataFlags = DataFlags::empty();
const LAST: DataFlags = DataFlags::LAST;

/// Each of them.
pub const CASES: &[Case] = &[
    Case {
        what: "an answer to nobody",
        check: "an answer that nobody asked for",
        over: BOTH,
        send: |rig| rig.answer(7, (0, 8), 8, LAST),
    },
    Case {
        what: "an answer to the operation after the last",
        check: "an answer that nobody asked for",
        over: BOTH,
        send: |rig| {
            rig.inline();
            let seq = rig.get(64).seq;
            rig.answer(seq.wrapping_add(1), (0, 64), 64, LAST);
        },
    },
    Case {
        what: "bytes for a put",
        check: "an answer that does not fit its request",
        over: BOTH,
        send: |rig| {
            rig.inline();
            let seq = rig.put(64).seq;
            rig.answer(seq, (0, 64), 64, LAST);
        },
    },
    Case {
        what: "a byte more than the get has",
        check: "an answer that does not fit its request",
        over: BOTH,
        send: |rig| {
            rig.inline();
            let seq = rig.get(64).seq;
            rig.answer(seq, (0, 65), 65, LAST);
        },
    },
    Case {
        what: "bytes behind those of the get, in an answer of another total",
        check: "an answer that does not fit its request",
        over: BOTH,
        send: |rig| {
            rig.inline();
            let seq = rig.get(64).seq;
            rig.answer(seq, (0, 64), 1 << 20, NONE);
            rig.expect_in_buffer(0, 64);
            rig.answer(seq, (64, 1), 1 << 20, LAST);
        },
    },
    Case {
        what: "an answer to a get that was not sent",
        check: "an answer that does not fit its request",
        over: BOTH,
        send: |rig| {
            let seq = rig.queued(true);
            rig.answer(seq, (0, 64), 64, LAST);
        },
    },
    Case {
        what: "an answer to a get that is answered",
        check: "an answer that does not fit its request",
        over: BOTH,
        send: |rig| {
            rig.inline();
            // The first one waits, so that the second is remembered.
            rig.get(64);
            let seq = rig.answered_get(64);
            rig.expect_in_buffer(0, 64);
            rig.answer(seq, (0, 64), 64, LAST);
        },
    },
    Case {
        what: "an answer that begins in its middle",
        check: "an answer out of order",
        over: BOTH,
        send: |rig| {
            rig.inline();
            let seq = rig.get(128).seq;
            rig.answer(seq, (64, 64), 128, LAST);
        },
    },
    Case {
        what: "an answer that repeats its first part",
        check: "an answer out of order",
        over: BOTH,
        send: |rig| {
            rig.inline();
            let seq = rig.get(128).seq;
            rig.answer(seq, (0, 64), 128, NONE);
            rig.expect_in_buffer(0, 64);
            rig.answer(seq, (0, 64), 128, LAST);
        },
    },
    Case {
        what: "an answer without its second half",
        check: "an answer that ends early",
        over: BOTH,
        send: |rig| {
            rig.inline();
            let seq = rig.get(128).seq;
            rig.answer(seq, (0, 64), 128, LAST);
        },
    },
    Case {
        what: "an answer of a smaller total",
        check: "an answer that ends early",
        over: BOTH,
        send: |rig| {
            rig.inline();
            let seq = rig.get(128).seq;
            rig.answer(seq, (0, 64), 64, LAST);
        },
    },
];
