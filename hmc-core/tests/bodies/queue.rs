//! Scripts of operations on a work queue against the plain model of the property tests.

use super::script::Script;
use super::subject::Subject;
use hmc_core::transport::PostErrorKind;

#[path = "../data_support/mod.rs"]
mod data_support;
#[path = "../data_support/model.rs"]
mod model;

use data_support::Desk;
use model::{Do, run_on};

/// Steps of one script; a longer one says nothing new.
const MAX_STEPS: usize = 400;

fn step(s: &mut Script<'_>) -> Do {
    let pick = |s: &mut Script<'_>| usize::from(s.u8());
    match s.u8() % 16 {
        0 | 1 => Do::Post { len: u64::from(s.u8() % 3), lasts: 1 + u64::from(s.u8()) },
        2 => {
            Do::Refused([PostErrorKind::Busy, PostErrorKind::Disconnected][usize::from(s.u8() % 2)])
        }
        3 => Do::Begin { parts: u32::from(s.u8() % 6), lasts: 1 + u64::from(s.u8()) },
        4 | 5 => Do::Feed {
            pick: pick(s),
            count: u32::from(s.u8() % 5),
            room: usize::from(s.u8() % 6),
            refuse: s.u8() > 230,
        },
        6 | 7 => Do::Finish { pick: pick(s), ok: s.u8() < 200 },
        8 => Do::Ghost { pick: pick(s) },
        9 => Do::Progress,
        10 => Do::Take { pick: pick(s) },
        11 => Do::Cancel { pick: pick(s), withdraws: s.u8() & 1 == 1 },
        12 => Do::Abandon { pick: pick(s) },
        13 => Do::Expire { passes: u64::from(s.u8() % 64), withdraws: s.u8() & 1 == 1 },
        14 if s.u8() > 200 => Do::PeerGone { fenced: s.u8() & 1 == 1 },
        _ => Do::Events,
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
    let desk = Desk { lies: subject == Subject::Broken, ..Desk::new() };
    match size {
        0 => run_on::<1>(desk, &script),
        1 => run_on::<2>(desk, &script),
        _ => run_on::<4>(desk, &script),
    }
}
