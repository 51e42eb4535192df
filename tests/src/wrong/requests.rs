//! More requests than may be unanswered, from a peer that reads no answers.

use hmc_core::wire::data::{DataFlags, DataFrame, DataKind};

use super::rig::{LIE, Rig, WINDOW};
use super::{BOTH, Case, LOCAL};

/// A request that is refused: it is on one byte more than the window has.
fn refused(rig: &Rig<'_>, kind: DataKind) -> DataFrame {
    rig.request(kind, 0, WINDOW + 1)
}

/// Each of them.
pub const CASES: &[Case] = &[
    Case {
        what: "puts that are refused",
        check: "more puts than were agreed",
        over: BOTH,
        send: |rig| {
            let put = DataFrame {
                offset: WINDOW,
                len: 8,
                flags: DataFlags::LAST,
                ..rig.request(DataKind::Write, 0, 8)
            };
            rig.flood(&Rig::many(put), &[LIE; 8]);
        },
    },
    Case {
        what: "gets",
        check: "more gets than were agreed",
        over: BOTH,
        send: |rig| {
            let get = rig.request(DataKind::Read, 0, WINDOW);
            rig.flood(&Rig::many(get), &[]);
        },
    },
    Case {
        what: "gets that are refused",
        check: "more gets than were agreed",
        over: BOTH,
        send: |rig| {
            let get = refused(rig, DataKind::Read);
            rig.flood(&Rig::many(get), &[]);
        },
    },
    Case {
        what: "copies that are refused",
        check: "more copies than were agreed",
        over: BOTH,
        send: |rig| {
            let copy = DataFrame { flags: DataFlags::LAST, ..refused(rig, DataKind::WriteRef) };
            rig.flood(&Rig::many(copy), &[]);
        },
    },
    Case {
        what: "copies",
        check: "more copies than were agreed",
        over: LOCAL,
        send: |rig| {
            // The rogue is in this process, whose memory the session may write for it.
            let memory = vec![0u8; usize::try_from(WINDOW).expect("small")];
            let addr = u64::try_from(memory.as_ptr().expose_provenance()).expect("an address");
            let copy = DataFrame { addr, ..rig.request(DataKind::ReadRef, 0, WINDOW) };
            rig.flood(&Rig::many(copy), &[]);
            rig.keep(memory);
        },
    },
];
