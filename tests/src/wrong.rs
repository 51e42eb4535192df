//! Peers that send data frames against the protocol to a session that serves others: what they send, by the check that
//! finds it. [`target`] has the session, [`rig`] one such peer, [`checks`] the list of all checks.

pub mod acks;
pub mod answers;
pub mod checks;
mod ending;
pub mod losses;
pub mod malformed;
pub mod messages;
pub mod puts;
pub mod regions;
pub mod requests;
pub mod rig;
pub mod target;

use std::collections::BTreeSet;
use std::sync::OnceLock;

use crate::env::Via;
use rig::Rig;
use target::Target;

/// One way to break the protocol.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// What is wrong.
    pub what: &'static str,
    /// The words of the check that finds it.
    pub check: &'static str,
    /// The transports to which it applies.
    pub over: &'static [Via],
    /// Sends it.
    pub send: fn(&mut Rig<'_>),
}

/// TCP, and the local socket beside shared memory.
pub const BOTH: &[Via] = &[Via::Tcp, Via::Shm];
/// Messages over UCX.
pub const MESSAGES: &[Via] = &[Via::Ucx];
/// The local socket beside shared memory, which passes descriptors.
pub const LOCAL: &[Via] = &[Via::Shm];

/// Cases that are played together, once in a process.
#[derive(Debug)]
pub struct Group {
    cases: &'static [Case],
    reached: OnceLock<BTreeSet<&'static str>>,
}

impl Group {
    /// Of those cases.
    #[must_use]
    pub const fn new(cases: &'static [Case]) -> Self {
        Self { cases, reached: OnceLock::new() }
    }

    /// Plays them over each transport, unless that was done, and gives the checks that have found them.
    ///
    /// # Panics
    /// When a session lets one pass, or does more than to end that link for that reason.
    pub fn reached(&self) -> &BTreeSet<&'static str> {
        self.reached.get_or_init(|| {
            for via in BOTH {
                play(self.cases, &mut Target::new(*via));
            }
            self.cases.iter().map(|case| case.check).collect()
        })
    }
}

/// Plays those cases that apply to the target's transport.
///
/// # Panics
/// When the session lets one pass, or does more than to end that link for that reason.
pub fn play(cases: &[Case], target: &mut Target) {
    let via = target.via;
    for case in cases.iter().filter(|case| case.over.contains(&via)) {
        let mut rig = Rig::new(target);
        (case.send)(&mut rig);
        rig.assert_ended(case.what, case.check);
    }
}
