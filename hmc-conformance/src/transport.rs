//! The suite that every transport must pass, and what it needs to know of one.
//!
//! Implement [`Subject`] for a pair of ends of your transport and call [`run`]. Each case gets a
//! fresh subject. No case sleeps: it drives the subject until something happened, for at most as
//! long as its [`Patience`].

use super::cases;
pub use super::cases::Case;
use super::ledger::Ledger;
use super::report::caught;
pub use super::report::{Report, Stop};
pub use super::subject::{Patience, Subject, Support};

/// All cases.
#[must_use]
pub fn cases<S: Subject>() -> Vec<Case<S>> {
    cases::all()
}

/// Runs one case on a fresh subject. A panic fails the case.
///
/// # Errors
/// Why it did not pass.
pub fn run_case<S: Subject>(case: &Case<S>, make: impl FnOnce() -> S) -> Result<(), Stop> {
    let body = || {
        let mut subject = make();
        let mut ledger = Ledger::new(&mut subject);
        (case.body)(&mut ledger)
    };
    caught(body)
}

/// Runs all cases, each on a fresh subject.
pub fn run<S: Subject>(make: impl Fn() -> S) -> Report {
    let lines = cases::all::<S>().iter().map(|case| (case.name, run_case(case, &make))).collect();
    Report { lines }
}
