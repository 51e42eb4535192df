//! Seconds of Python, durations of ours; how long calls wait that are given no time.

use std::time::Duration;

use hmc_std::ErrorKind;
use hmc_std::config::seconds as of;
use pyo3::prelude::*;

use crate::errors::refuse;

/// `timeout` in seconds, infinity for no limit; `None` for `default`.
pub(crate) fn timeout(
    py: Python<'_>,
    seconds: Option<f64>,
    default: Duration,
) -> PyResult<Duration> {
    seconds.map_or(Ok(default), |seconds| duration(py, seconds))
}

/// A time in seconds.
pub(crate) fn duration(py: Python<'_>, seconds: f64) -> PyResult<Duration> {
    of(seconds).ok_or_else(|| {
        let what = format!("timeout={seconds}: give seconds, 0 or more");
        refuse(py, ErrorKind::InvalidConfig, what)
    })
}

/// How long the calls of one session wait.
#[derive(Clone, Copy)]
pub(crate) struct Waits {
    own: Duration,
    cxx: Duration,
}

impl Waits {
    /// `own` is the session's deadline; `given` is it if somebody chose it. Calls of the C++ HMC that have no limit there
    /// have none here, unless somebody chose one.
    pub(crate) fn new(own: Duration, given: Option<Duration>) -> Self {
        Self { own, cxx: given.unwrap_or(Duration::MAX) }
    }

    /// For a call of this package's own.
    pub(crate) fn own(self, py: Python<'_>, seconds: Option<f64>) -> PyResult<Duration> {
        timeout(py, seconds, self.own)
    }

    /// For a call of the C++ HMC.
    pub(crate) fn cxx(self, py: Python<'_>, seconds: Option<f64>) -> PyResult<Duration> {
        timeout(py, seconds, self.cxx)
    }

    /// For the end of the session.
    pub(crate) fn closing(self, py: Python<'_>, seconds: Option<f64>) -> PyResult<Duration> {
        timeout(py, seconds, self.own.min(Duration::from_secs(1)))
    }

    /// Both in seconds, infinity for no limit.
    pub(crate) fn seconds(self) -> (f64, f64) {
        let of = |d: Duration| if d == Duration::MAX { f64::INFINITY } else { d.as_secs_f64() };
        (of(self.own), of(self.cxx))
    }
}
