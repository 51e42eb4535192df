//! Puts that do not keep to what they announced.

use hmc_core::wire::data::{DataFlags, DataFrame, DataKind};

use super::rig::Rig;
use super::{BOTH, Case};

const NONE: DataFlags = DataFlags::empty();
const LAST: DataFlags = DataFlags::LAST;

/// The first part of a put of 128 bytes, which is as it has to be.
fn begin(rig: &mut Rig<'_>, seq: u32) {
    rig.write(seq, (0, 64), 128, NONE);
    rig.expect_in_window(0, 64);
}

/// Each of them.
pub const CASES: &[Case] = &[
    Case {
        what: "a put that leaves a byte out",
        check: "a put that does not continue",
        over: BOTH,
        send: |rig| {
            begin(rig, 1);
            rig.write(1, (65, 63), 128, LAST);
        },
    },
    Case {
        what: "a put that goes back",
        check: "a put that does not continue",
        over: BOTH,
        send: |rig| {
            begin(rig, 1);
            rig.write(1, (0, 64), 128, LAST);
        },
    },
    Case {
        what: "a put that is longer than announced",
        check: "a put that does not continue",
        over: BOTH,
        send: |rig| {
            begin(rig, 1);
            rig.write(1, (64, 65), 129, LAST);
        },
    },
    Case {
        what: "a put that goes on behind its last byte",
        check: "a put that does not continue",
        over: BOTH,
        send: |rig| {
            begin(rig, 1);
            rig.write(1, (64, 64), 128, NONE);
            rig.expect_in_window(64, 64);
            rig.write(1, (128, 1), 129, LAST);
        },
    },
    Case {
        what: "a put between two parts of another",
        check: "a put in the middle of another",
        over: BOTH,
        send: |rig| {
            begin(rig, 1);
            rig.write(2, (1024, 64), 64, LAST);
        },
    },
    Case {
        what: "a put between two parts of one that was refused",
        check: "a put in the middle of another",
        over: BOTH,
        send: |rig| {
            rig.write(1, (super::rig::WINDOW, 64), 128, NONE);
            rig.write(2, (1024, 64), 64, LAST);
        },
    },
    Case {
        what: "a put without its last bytes",
        check: "a put that ends early",
        over: BOTH,
        send: |rig| rig.write(1, (0, 64), 128, LAST),
    },
    Case {
        what: "a put of two parts without its last byte",
        check: "a put that ends early",
        over: BOTH,
        send: |rig| {
            begin(rig, 1);
            rig.write(1, (64, 63), 128, LAST);
        },
    },
    Case {
        what: "a gathered put of which a part is to follow",
        check: "a gathered frame of another kind",
        over: BOTH,
        send: |rig| {
            rig.send(&DataFrame::gather(2), &[]);
            rig.write(1, (0, 64), 128, NONE);
        },
    },
    Case {
        what: "a gathered request",
        check: "a gathered frame of another kind",
        over: BOTH,
        send: |rig| {
            rig.send(&DataFrame::gather(1), &[]);
            let get = rig.request(DataKind::Read, 0, 8);
            rig.send(&get, &[]);
        },
    },
];
