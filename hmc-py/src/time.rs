//! Seconds of Python, durations of ours.

use std::time::Duration;

use hmc_std::ErrorKind;
use pyo3::prelude::*;

use crate::errors::refuse;

/// The deadline of a call that names none: 30 s, as a session's own.
pub(crate) const DEFAULT: Duration = Duration::from_secs(30);

/// `timeout` in seconds; `None` for the default.
pub(crate) fn timeout(py: Python<'_>, seconds: Option<f64>) -> PyResult<Duration> {
    let Some(seconds) = seconds else { return Ok(DEFAULT) };
    Duration::try_from_secs_f64(seconds).map_err(|_| {
        let what = format!("timeout={seconds}: give seconds, 0 or more");
        refuse(py, ErrorKind::InvalidConfig, what)
    })
}
