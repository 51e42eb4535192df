//! What a session is told at its start: keywords of Python as settings of a builder.

use hmc_std::config::Environment;
use hmc_std::{ErrorKind, Prepared, Session, SessionBuilder};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::errors::{interrupted, refuse};
use crate::time::{self, Waits};

/// What is not the builder's part.
pub(crate) struct SessionArgs {
    /// The buffer is UCX's own.
    pub(crate) ucx: bool,
    /// Another transport than the one that is named will do.
    pub(crate) fallback: bool,
    /// How long calls wait.
    pub(crate) waits: Waits,
}

/// The number of a job that is named by a number or a text.
pub(crate) fn job_of(job: &Bound<'_, PyAny>) -> PyResult<u64> {
    match job.cast::<PyString>() {
        Ok(text) => Ok(hmc_std::config::job_of(text.extract::<&str>()?)),
        Err(_) => job.extract(),
    }
}

/// To whom a session belongs, and who may connect; keywords of its start.
pub(crate) struct Who {
    job: Option<u64>,
    secret_file: Option<std::path::PathBuf>,
    insecure_loopback: bool,
    insecure: bool,
    /// Peers may have this session's own rank.
    namesakes: bool,
    /// Nodes of the C++ HMC may connect.
    upstream: bool,
}

impl<'py> FromPyObject<'_, 'py> for Who {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let mut this = Self {
            job: None,
            secret_file: None,
            insecure_loopback: false,
            insecure: false,
            namesakes: false,
            upstream: false,
        };
        for (key, value) in given.cast::<PyDict>()?.iter() {
            match key.extract::<&str>()? {
                "job" => this.job = Some(value.extract()?),
                "secret_file" => this.secret_file = Some(value.extract()?),
                "insecure_loopback" => this.insecure_loopback = value.is_truthy()?,
                "insecure" => this.insecure = value.is_truthy()?,
                "namesakes" => this.namesakes = value.is_truthy()?,
                "upstream" => this.upstream = value.is_truthy()?,
                other => {
                    let what = format!("no keyword of a start is named `{other}`");
                    return Err(refuse(given.py(), ErrorKind::InvalidConfig, what));
                }
            }
        }
        Ok(this)
    }
}

impl Who {
    pub(crate) fn apply(&self, prepared: &mut Prepared) {
        if let Some(job) = self.job {
            prepared.set_job(job);
        }
        if let Some(file) = &self.secret_file {
            prepared.secret_file(file);
        }
        if self.insecure_loopback {
            prepared.insecure_loopback();
        }
        if self.insecure {
            prepared.allow_insecure();
        }
        if self.namesakes {
            prepared.private_ranks();
        }
        if self.upstream {
            prepared.accept_upstream();
        }
    }
}

/// The builder of a session of which nobody knows the rank yet.
pub(crate) fn builder(
    py: Python<'_>,
    buffer_size: u64,
    num_chs: u32,
    settings: Option<&Bound<'_, PyDict>>,
) -> PyResult<(SessionBuilder, SessionArgs)> {
    let mut builder =
        Session::builder(0).buffer(buffer_size).num_channels(num_chs).interrupt(interrupted);
    let environment = Environment::read();
    let mut given = environment.timeout;
    let (mut ucx, mut fallback) = (environment.ucx, false);
    for (key, value) in settings.into_iter().flatten() {
        let key: String = key.extract()?;
        builder = match key.as_str() {
            "deadline" => {
                let deadline = time::duration(py, value.extract()?)?;
                given = Some(deadline);
                builder.deadline(deadline)
            }
            // What stands for the 30 s of a session for which nobody chose a time: for tests that wait for longer than that.
            "_unchosen_deadline" => builder.deadline(time::duration(py, value.extract()?)?),
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
            "slots" => builder.slots(value.extract()?),
            "windows" => builder.windows(value.extract()?),
            "redial" => builder.redial(value.extract()?),
            "ucx" if value.extract()? => {
                ucx = true;
                builder.ucx()
            }
            "lazy" if value.extract()? => builder.lazy(),
            "ucx" | "lazy" => builder,
            other => {
                let what = format!("no setting of a session is named `{other}`");
                return Err(refuse(py, ErrorKind::InvalidConfig, what));
            }
        };
    }
    let waits = Waits::new(builder.call_deadline(), given);
    Ok((builder, SessionArgs { ucx, fallback, waits }))
}
