//! The suite that each transport must pass.
//!
//! Implement [`Subject`] for a pair of ends of your transport and call [`run`]. Each case gets a
//! fresh subject. No case sleeps: it drives the subject until its condition holds, within its
//! [`IdleLimit`].

use super::cases;
pub use super::cases::Case;
use super::completion_checker::CompletionChecker;
use super::report::caught;
pub use super::report::{Report, Stop};
pub use super::subject::{IdleLimit, Subject, Support};

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
        let mut checker = CompletionChecker::new(&mut subject);
        (case.body)(&mut checker)
    };
    caught(body)
}

/// Runs all cases, each on a fresh subject.
pub fn run<S: Subject>(make: impl Fn() -> S) -> Report {
    let lines = cases::all::<S>().iter().map(|case| (case.name, run_case(case, &make))).collect();
    Report { lines }
}
