//! The native half of the Python package `hmc`: sessions, peers, regions and operations of hmc-std as Python objects.
//!
//! What a user sees is in `python/hmc`; here arguments go in and answers come out. Every call that may block lets other
//! Python threads run, and ends when a signal's handler has raised something (`errors`). `data` finds the bytes of
//! arrays, `lazy` knows those whose bytes are not what they show, `args` reads numbers; `session`, `peer`, `region`, `op`,
//! `group` are the objects; `bell` tells event loops,
//! `log` hands on what the library says.

mod args;
mod batch;
mod begun;
mod bell;
mod data;
mod dlpack;
mod errors;
mod group;
mod lazy;
mod life;
mod log;
mod names;
mod op;
mod peer;
mod places;
mod region;
mod remote;
mod session;
mod settings;
mod time;
mod told;
mod view;

use pyo3::prelude::*;

/// The native half of ``hmc``.
#[pymodule(gil_used = false)]
mod _hmc {

    #[pymodule_export]
    use super::batch::Batch;
    #[pymodule_export]
    use super::bell::Bell;
    #[pymodule_export]
    use super::group::RawGroup;
    #[pymodule_export]
    use super::op::Op;
    #[pymodule_export]
    use super::peer::Peer;
    #[pymodule_export]
    use super::region::{Region, Remote, Window};
    #[pymodule_export]
    use super::session::Core;
    #[pymodule_export]
    use super::view::View;

    #[pymodule_init]
    fn init() {
        super::log::begin();
    }

    /// The default folder of local control sockets.
    #[pyo3::pyfunction]
    fn default_uds_dir() -> std::path::PathBuf {
        hmc_std::config::Environment::read().default_uds_dir()
    }

    /// The number of a job that is named by a number or a text.
    #[pyo3::pyfunction]
    fn job_of(job: &pyo3::Bound<'_, pyo3::PyAny>) -> pyo3::PyResult<u64> {
        super::settings::job_of(job)
    }

    /// Memory of this process that is not given back yet because a peer may still read or write it, of all sessions, those
    /// that are closed included. Each piece goes once its peer says that it is done, or its process ends.
    #[pyo3::pyfunction]
    fn held(py: pyo3::Python<'_>) -> pyo3::PyResult<Vec<pyo3::Bound<'_, pyo3::types::PyDict>>> {
        // Arrays that came back meanwhile go now.
        drop(super::data::Sweep);
        super::told::held(py, &py.detach(hmc_std::held))
    }
}
