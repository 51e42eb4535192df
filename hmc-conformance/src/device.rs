//! The suite that each device must pass.
//!
//! Implement [`DeviceSubject`] for your device and call [`run`]. Each case gets a fresh subject. No
//! case sleeps: it queries a stream event until it has passed, within its
//! [`IdleLimit`](super::transport::IdleLimit).

pub use super::device_cases::Call;
use super::device_cases::{self, DeviceCase};
use super::device_fixture::Fixture;
pub use super::device_subject::DeviceSubject;
use super::report::{Report, caught};

/// Runs all cases, each on a fresh subject.
pub fn run<S: DeviceSubject>(make: impl Fn() -> S) -> Report {
    let one = |case: &DeviceCase<S>| {
        caught(|| {
            let mut subject = make();
            subject.fresh()?;
            let mut fixture = Fixture::new(&mut subject);
            (case.body)(&mut fixture)?;
            fixture.settle();
            Ok(fixture.subject.check()?)
        })
    };
    let cases = device_cases::all::<S>();
    Report { lines: cases.iter().map(|case| (case.name, one(case))).collect() }
}

/// The cases that check a call, by name.
#[must_use]
pub fn cases_of<S: DeviceSubject>(call: Call) -> Vec<&'static str> {
    let cases = device_cases::all::<S>().into_iter();
    cases.filter(|case| case.calls.contains(&call)).map(|case| case.name).collect()
}
