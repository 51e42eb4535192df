//! How HMC finds and configures UCX.

use std::path::PathBuf;

/// How UCX is found and set up.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ucx {
    /// Whether the session takes part from its start: peers can ask for it, and its buffer is UCX's.
    pub(crate) wanted: bool,
    /// Workers, if more than one was asked for.
    pub(crate) workers: Option<u32>,
    /// Keys of UCX's own configuration.
    pub(crate) keys: Vec<(String, String)>,
    pub(crate) library: Option<PathBuf>,
    pub(crate) prefixes: Vec<PathBuf>,
    pub(crate) user_tls: Option<String>,
    pub(crate) user_devices: Option<String>,
    /// Keys of `UCX_*` variables that are set, of those that would be set by themselves.
    pub(crate) user_keys: Vec<&'static str>,
    /// UCX's messages go to `tracing`.
    pub(crate) log: bool,
}
