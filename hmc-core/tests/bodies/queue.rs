//! Scripts of operations on a work queue against the plain model of the property tests.

use super::script::Script;
use super::subject::Subject;
use hmc_core::transport::PostErrorKind;

#[path = "../data_support/mod.rs"]
mod data_support;
#[path = "../data_support/model.rs"]
mod model;

use data_support::ScriptedTransport;
use model::{Action, run_on};

/// Steps of one script; a longer one says nothing new.
const MAX_STEPS: usize = 400;

fn step(s: &mut Script<'_>) -> Action {
    let pick = |s: &mut Script<'_>| usize::from(s.u8());
    match s.u8() % 16 {
        0 | 1 => Action::Post {
            len: u64::from(s.u8() % 3),
            lasts: 1 + u64::from(s.u8()),
            space: usize::from(s.u8() % 4),
        },
        2 => Action::Refused(
            [PostErrorKind::Busy, PostErrorKind::Disconnected][usize::from(s.u8() % 2)],
        ),
        3 => Action::List {
            parts: u32::from(s.u8() % 6),
            lasts: 1 + u64::from(s.u8()),
            space: usize::from(s.u8() % 6),
            refuse: s.u8() > 230,
        },
        6 | 7 => Action::Finish { pick: pick(s), ok: s.u8() < 200 },
        8 => Action::Ghost { pick: pick(s) },
        4 | 5 | 9 => Action::Progress { space: usize::from(s.u8() % 6), refuse: s.u8() > 230 },
        10 => Action::Take { pick: pick(s) },
        11 => Action::Cancel { pick: pick(s), withdraws: s.u8() & 1 == 1 },
        12 => Action::Abandon { pick: pick(s) },
        13 => Action::Expire { passes: u64::from(s.u8() % 64), withdraws: s.u8() & 1 == 1 },
        14 if s.u8() > 200 => Action::PeerGone { fenced: s.u8() & 1 == 1 },
        _ => Action::Events,
    }
}

/// A script: one byte for the number of slots, then steps. The broken work queue sits on a transport that
/// says `Withdrawn` of requests that run on.
pub fn queue(bytes: &[u8], subject: Subject) {
    let mut s = Script::new(bytes);
    let size = s.u8() % 3;
    let mut script = Vec::new();
    while !s.is_over() && script.len() < MAX_STEPS {
        script.push(step(&mut s));
    }
    let transport =
        ScriptedTransport { lies: subject == Subject::Broken, ..ScriptedTransport::new() };
    match size {
        0 => run_on::<1>(transport, &script),
        1 => run_on::<2>(transport, &script),
        _ => run_on::<4>(transport, &script),
    }
}
