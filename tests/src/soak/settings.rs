//! What a soak is told: by whoever starts it, and by the process that lives on to those that it kills.

use std::path::PathBuf;
use std::time::Duration;

use crate::env::Via;

/// How long an answer, a revocation or a connection may take.
pub(super) const LONG: Duration = Duration::from_secs(30);
/// How soon a thread looks whether it is to stop.
pub(super) const SOON: Duration = Duration::from_millis(100);

/// What to run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The transport.
    pub via: Via,
    /// For UCX: its lanes, as in `UCX_TLS`.
    pub lanes: Option<String>,
    /// How long.
    pub time: Duration,
    /// Of all choices.
    pub seed: u64,
    /// Whether processes are killed.
    pub kills: bool,
}

/// What a process that is to be killed is told.
#[derive(Clone, Debug)]
pub struct KillableArgs {
    /// Its rank.
    pub rank: u32,
    /// Where the others are.
    pub home: PathBuf,
    /// As everybody's.
    pub settings: Settings,
}
