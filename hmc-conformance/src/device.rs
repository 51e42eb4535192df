//! The suite that every device must pass, and what it needs to know of one.
//!
//! Implement [`DeviceSubject`] for your device and call [`run`]. Each case gets a fresh subject. No
//! case sleeps: it asks for a mark until it was passed, for as long as its
//! [`Patience`](super::transport::Patience).

use super::device_bench::Bench;
use super::device_cases::{self, DeviceCase};
pub use super::device_subject::DeviceSubject;
use super::report::{Report, caught};

/// Runs all cases, each on a fresh subject.
pub fn run<S: DeviceSubject>(make: impl Fn() -> S) -> Report {
    let one = |case: &DeviceCase<S>| {
        caught(|| {
            let mut subject = make();
            subject.fresh()?;
            let mut bench = Bench::new(&mut subject);
            (case.body)(&mut bench)?;
            bench.settle();
            Ok(bench.subject.check()?)
        })
    };
    let cases = device_cases::all::<S>();
    Report { lines: cases.iter().map(|case| (case.name, one(case))).collect() }
}
