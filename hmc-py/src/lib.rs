//! The native half of the Python package `hmc`: sessions, peers, regions and operations of hmc-std as Python objects.
//!
//! The public API is in `python/hmc`; this half converts arguments and results. Each call that may block lets other
//! Python threads run, and returns when a signal's handler has raised an exception (`errors`). `data` finds the bytes of
//! `array`s, `dlpack` those of torch and others, `pack` copies those with gaps, `lazy` recognises those whose bytes are not their values, `args` reads numbers; `session`, `native`, `parts`, `peer`, `batch`, `piece`, `region`, `op`,
//! `group` are the objects; `loop_waker` wakes event loops, `log` passes the library's log records on; `interpreter` checks who may load
//! the module.

mod args;
mod array;
mod batch;
mod data;
mod dicts;
mod dlpack;
mod ends;
mod errors;
mod generations;
mod group;
mod interpreter;
mod lazy;
mod log;
mod loop_waker;
mod names;
mod native;
mod op;
mod op_table;
mod pack;
mod parts;
mod peer;
mod peer_table;
mod piece;
mod region;
mod remote;
mod session;
mod session_state;
mod settings;
mod tags;
mod time;
mod view;

use pyo3::prelude::*;

/// The native half of ``hmc``.
#[pymodule(gil_used = false)]
fn _hmc(module: &Bound<'_, PyModule>) -> PyResult<()> {
    // Before the classes, which is why they are not listed by a `mod`.
    interpreter::require_main(module.py())?;
    module.add_class::<batch::Batch>()?;
    module.add_class::<generations::Generations>()?;
    module.add_class::<loop_waker::LoopWaker>()?;
    module.add_class::<group::RawGroup>()?;
    module.add_class::<op::Op>()?;
    module.add_class::<peer::Peer>()?;
    module.add_class::<piece::Piece>()?;
    module.add_class::<region::Region>()?;
    module.add_class::<region::Remote>()?;
    module.add_class::<region::Window>()?;
    module.add_class::<native::Core>()?;
    module.add_class::<view::View>()?;
    module.add_function(wrap_pyfunction!(default_uds_dir, module)?)?;
    module.add_function(wrap_pyfunction!(errors::error_kinds, module)?)?;
    module.add_function(wrap_pyfunction!(job_of, module)?)?;
    module.add_function(wrap_pyfunction!(rank_of, module)?)?;
    module.add("SECOND_RANKS", (peer_table::SECOND_RANKS.start, peer_table::SECOND_RANKS.end))?;
    module.add_function(wrap_pyfunction!(held, module)?)?;
    module.add_function(wrap_pyfunction!(log::end_log, module)?)?;
    log::begin();
    Ok(())
}

/// The default folder of local control sockets.
#[pyfunction]
fn default_uds_dir() -> std::path::PathBuf {
    hmc_std::config::Environment::read().default_uds_dir()
}

/// The number of a job that is named by a number or a text.
#[pyfunction]
fn job_of(job: &Bound<'_, PyAny>) -> PyResult<u64> {
    settings::job_of(job)
}

/// The rank of a process that calls itself by any number.
#[pyfunction]
fn rank_of(number: u32) -> u32 {
    hmc_std::rank_of(number)
}

/// Memory of this process that is not given back yet because a peer may still read or write it, of all sessions, those
/// that are closed included. Each piece goes once its peer says that it is done, or its process ends.
#[pyfunction]
fn held(py: Python<'_>) -> PyResult<Vec<Bound<'_, pyo3::types::PyDict>>> {
    // Arrays that came back meanwhile go now.
    drop(data::DropDeferred);
    dicts::held(py, &py.detach(hmc_std::held))
}
