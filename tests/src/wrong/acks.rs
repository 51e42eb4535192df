//! Acknowledgements and refusals of what is not to be acknowledged or refused.

use hmc_core::wire::data::DataFrame;
use hmc_core::work::Failure;

use super::rig::Rig;
use super::{BOTH, Case, LOCAL};

fn ack(rig: &mut Rig<'_>, seq: u32, count: u64) {
    rig.send(&DataFrame::ack(seq, count), &[]);
}

fn nack(rig: &mut Rig<'_>, seq: u32) {
    rig.send(&DataFrame::nack(seq, Failure::Cancelled), &[]);
}

/// Two puts of which the second is answered and the first is not: its number.
fn answered(rig: &mut Rig<'_>) -> u32 {
    rig.inline();
    rig.put(64);
    rig.answered_put(64)
}

/// Each of them.
pub const CASES: &[Case] = &[
    Case {
        what: "an acknowledgement of a put that was never posted",
        check: "an acknowledgement of nothing",
        over: BOTH,
        send: |rig| ack(rig, 7, 1),
    },
    Case {
        what: "an acknowledgement of one put more than there are",
        check: "an acknowledgement of nothing",
        over: BOTH,
        send: |rig| {
            rig.inline();
            let seq = rig.put(64).seq;
            ack(rig, seq, 2);
        },
    },
    Case {
        what: "an acknowledgement of a get",
        check: "an acknowledgement out of turn",
        over: BOTH,
        send: |rig| {
            rig.inline();
            let seq = rig.get(64).seq;
            ack(rig, seq, 1);
        },
    },
    Case {
        what: "an acknowledgement of a put that was not sent",
        check: "an acknowledgement out of turn",
        over: BOTH,
        send: |rig| {
            let seq = rig.queued(false);
            ack(rig, seq, 1);
        },
    },
    Case {
        what: "a second acknowledgement",
        check: "an acknowledgement out of turn",
        over: BOTH,
        send: |rig| {
            let seq = answered(rig);
            ack(rig, seq, 1);
        },
    },
    Case {
        what: "an acknowledgement of a put whose bytes are being sent",
        check: "an acknowledgement of an unsent put",
        over: BOTH,
        send: |rig| {
            let seq = rig.put_that_sticks().seq;
            ack(rig, seq, 1);
        },
    },
    Case {
        what: "a refusal of a put that was never posted",
        check: "a refusal of nothing",
        over: BOTH,
        send: |rig| nack(rig, 7),
    },
    Case {
        what: "a refusal of a get that was not sent",
        check: "a refusal out of turn",
        over: BOTH,
        send: |rig| {
            let seq = rig.queued(true);
            nack(rig, seq);
        },
    },
    Case {
        what: "a refusal after the acknowledgement",
        check: "a refusal out of turn",
        over: BOTH,
        send: |rig| {
            let seq = answered(rig);
            nack(rig, seq);
        },
    },
    Case {
        what: "a refusal of a copy that was not asked for any more",
        check: "a refusal out of turn",
        over: LOCAL,
        send: |rig| {
            // The first one waits, so that the second is remembered.
            rig.put(64);
            let seq = rig.put(64).seq;
            for _ in 0..2 {
                rig.send(&DataFrame::nack(seq, Failure::Unsupported), &[]);
            }
        },
    },
    Case {
        what: "a refusal of a put whose bytes are being sent",
        check: "a refusal of an unsent put",
        over: BOTH,
        send: |rig| {
            let seq = rig.put_that_sticks().seq;
            nack(rig, seq);
        },
    },
];
