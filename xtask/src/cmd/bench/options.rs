//! What `cargo xtask bench` is told, and how long its steps may take.

use std::path::PathBuf;
use std::time::Duration;

/// Time that the build and the measurements may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(1800);

/// The options of the command.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Fewer samples and sizes: about a minute
    #[arg(long)]
    pub(super) quick: bool,
    /// Only rows whose name contains this
    #[arg(long, value_name = "NAME")]
    pub(super) only: Option<String>,
    /// Write every line to FILE as one JSON object a line
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
    /// Fail when a target was missed or a row not measured
    #[arg(long)]
    pub(super) strict: bool,
    /// The rows over UCX instead: lanes of shared memory, then TCP; HMC_UCX_LIB names the library
    #[arg(long, conflicts_with_all = ["micro", "store_instructions"])]
    pub(super) ucx: bool,
    /// Collectives beside those of an MPI library instead, of two and of four members over shared memory
    #[arg(long, conflicts_with_all = ["micro", "store_instructions", "ucx", "python"])]
    pub(super) mpi: bool,
    /// With --mpi: install Open MPI as Debian packages it, if it is missing (as root)
    #[arg(long, requires = "mpi")]
    pub(super) install: bool,
    /// The rows of the Python package instead, from the wheel in a fresh virtual environment
    #[arg(long, conflicts_with_all = ["micro", "store_instructions", "ucx", "json", "only", "strict"])]
    pub(super) python: bool,
    /// Run the micro-benchmarks (criterion) too
    #[arg(long)]
    pub(super) micro: bool,
    /// Store the present count of instructions as the one to compare with
    #[arg(long, conflicts_with = "strict")]
    pub(super) store_instructions: bool,
    /// Compare with COMMIT instead: both are built, and take samples in turns; fails when a line is lost
    #[arg(long, value_name = "COMMIT", conflicts_with_all = ["micro", "store_instructions", "ucx", "mpi", "python", "strict"])]
    pub(super) against: Option<String>,
    /// With --against: the measuring programs of the commit and of this tree, built before (`hmc-bench`, with `hmc` beside it): for
    /// machines without a compiler
    #[arg(long, num_args = 2, value_names = ["OLD", "NEW"], requires = "against")]
    pub(super) programs: Option<Vec<PathBuf>>,
    /// With --against: samples of each line (21 or more)
    #[arg(long, default_value_t = 21, requires = "against")]
    pub(super) pairs: usize,
    /// With --against: the profile that both are built in
    #[arg(long, default_value = "release", requires = "against")]
    pub(super) profile: String,
}
