//! What a session is told at its start: keywords of Python as settings of a builder.

use hmc_std::config::Environment;
use hmc_std::{ErrorKind, Session, SessionBuilder};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::{interrupted, refuse};
use crate::time::{self, Waits};

/// What is not the builder's part.
pub(crate) struct Wanted {
    /// The buffer is UCX's own.
    pub(crate) ucx: bool,
    /// Another transport than the one that is named will do.
    pub(crate) fallback: bool,
    /// How long calls wait.
    pub(crate) waits: Waits,
}

/// The builder of a session of which nobody knows the rank yet.
pub(crate) fn builder(
    py: Python<'_>,
    buffer_size: u64,
    num_chs: u32,
    settings: Option<&Bound<'_, PyDict>>,
) -> PyResult<(SessionBuilder, Wanted)> {
    let mut builder =
        Session::builder(0).buffer(buffer_size).num_channels(num_chs).interrupt(interrupted);
    let mut given = Environment::read().timeout;
    let (mut ucx, mut fallback) = (false, false);
    for (key, value) in settings.into_iter().flatten() {
        let key: String = key.extract()?;
        builder = match key.as_str() {
            "deadline" => {
                let deadline = time::duration(py, value.extract()?)?;
                given = Some(deadline);
                builder.deadline(deadline)
            }
            "heartbeat" => {
                let period: Option<f64> = value.extract()?;
                builder.heartbeat(period.map(|p| time::duration(py, p)).transpose()?)
            }
            "spin" => builder.spin(time::duration(py, value.extract()?)?),
            "fallback" => {
                fallback = value.extract()?;
                builder
            }
            "prefix" => builder.ucx_prefix(value.extract::<std::path::PathBuf>()?),
            "job" => builder.job(value.extract()?),
            "slots" => builder.slots(value.extract()?),
            "windows" => builder.windows(value.extract()?),
            "redial" => builder.redial(value.extract()?),
            "accept_upstream" if value.extract()? => builder.accept_upstream(),
            "ucx" if value.extract()? => {
                ucx = true;
                builder.ucx()
            }
            "accept_upstream" | "ucx" => builder,
            other => {
                let what = format!("no setting of a session is named `{other}`");
                return Err(refuse(py, ErrorKind::InvalidConfig, what));
            }
        };
    }
    let waits = Waits::new(builder.call_deadline(), given);
    Ok((builder, Wanted { ucx, fallback, waits }))
}
