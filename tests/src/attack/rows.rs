//! All rows.

use super::{
    Row, bystanders, exposure, floods, forks, frames, many, names, ranks, reaped, reopen, silence,
    tags, unfenced, wakers,
};

const README: &str = "README.md";
const SECURITY: &str = "SECURITY.md";
const FAULTS: &str = "docs/FAULTS.md";

/// By group.
pub const ROWS: &[Row] = &[
    Row {
        name: "outside",
        promise: "no transfer can leave its window",
        document: README,
        mutant: "SpanOffByOne",
        attack: frames::outside,
    },
    Row {
        name: "guessed-window",
        promise: "The target checks all four on every TCP frame.",
        document: SECURITY,
        mutant: "SkipEpoch",
        attack: frames::guessed,
    },
    Row {
        name: "without-the-right",
        promise: "read and write what that rank's windows allow",
        document: SECURITY,
        mutant: "SkipAccess",
        attack: frames::without_the_right,
    },
    Row {
        name: "revoked-window",
        promise: "windows that can be revoked, with a fence",
        document: README,
        mutant: "ServeRevoked",
        attack: frames::revoked,
    },
    Row {
        name: "late-bytes",
        promise: "memory goes back to its owner only after a fence",
        document: SECURITY,
        mutant: "WriteAfterRevoke",
        attack: frames::late,
    },
    Row {
        name: "early-answer",
        promise: "or report success that is not yet true",
        document: README,
        mutant: "AckBeforeBytes",
        attack: frames::early_answers,
    },
    Row {
        name: "early-tag",
        promise: "whoever receives the tag can read the bytes",
        document: README,
        mutant: "NotifyBeforeBytes",
        attack: frames::early_tags,
    },
    Row {
        name: "lying-answers",
        promise: "every operation ends, with success only where it is true",
        document: SECURITY,
        mutant: "AnswerEndsEarly",
        attack: frames::lying_answers,
    },
    Row {
        name: "malformed-frames",
        promise: "the control plane and HMC's own data transports stay memory-safe and bounded",
        document: SECURITY,
        mutant: "PassMalformed",
        attack: frames::malformed,
    },
    Row {
        name: "spans-of-two-sessions",
        promise: "keys are never used again, nor by two sessions of a process",
        document: FAULTS,
        mutant: "JoinAnyRegion",
        attack: names::spans,
    },
    Row {
        name: "foreign-operations",
        promise: "others answer `Stale` or `NotFound` and touch nothing of theirs",
        document: FAULTS,
        mutant: "ForeignOperations",
        attack: names::operations,
    },
    Row {
        name: "drop-under-get",
        promise: "outlive its memory",
        document: README,
        mutant: "EndForgetsUnfenced",
        attack: unfenced::get_from_a_stopped_target,
    },
    Row {
        name: "drop-under-put",
        promise: "A time-out is not a fence, nor is the end of a session",
        document: SECURITY,
        mutant: "EndForgetsUnfenced",
        attack: unfenced::put_to_a_stopped_target,
    },
    Row {
        name: "fork-calls",
        promise: "every call of the child is told, drops do nothing",
        document: FAULTS,
        mutant: "ForkedCallsPass",
        attack: forks::calls,
    },
    Row {
        name: "fork-views",
        promise: "their addresses are reserved in the child, where an access faults",
        document: FAULTS,
        mutant: "ForkReservesNothing",
        attack: forks::views,
    },
    Row {
        name: "other-program",
        promise: "looks at the initiator's stream, process and mark",
        document: SECURITY,
        mutant: "CopyWithoutLook",
        attack: bystanders::other_programs,
    },
];
