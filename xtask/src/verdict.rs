//! The verdict of a check: passed, failed, or skipped for a reason that has a remedy.
//!
//! A check that cannot run is never counted as passed.

use std::process::ExitCode;

/// The exit status of a command that could not run (the convention of automake and of Meson).
const EXIT_SKIPPED: u8 = 77;

/// The verdict of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It holds.
    Passed,
    /// It does not hold, or the attempt failed.
    Failed(String),
    /// Something that it needs is missing.
    Skipped {
        /// What is missing.
        reason: String,
        /// What to do about it.
        remedy: String,
    },
}

impl Verdict {
    /// A failure in words.
    pub(crate) fn failed(why: impl Into<String>) -> Self {
        Self::Failed(why.into())
    }

    /// A visible skip.
    pub(crate) fn skipped(reason: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Skipped { reason: reason.into(), remedy: remedy.into() }
    }

    /// `Passed` for `Ok`, `Failed` for the error.
    pub(crate) fn from_result(result: Result<(), String>) -> Self {
        match result {
            Ok(()) => Self::Passed,
            Err(why) => Self::Failed(why),
        }
    }

    /// The word in tables.
    pub(crate) const fn word(&self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed(_) => "FAILED",
            Self::Skipped { .. } => "skipped",
        }
    }

    /// The rest of the sentence; empty when passed.
    pub(crate) fn detail(&self) -> String {
        match self {
            Self::Passed => String::new(),
            Self::Failed(why) => why.clone(),
            Self::Skipped { reason, remedy } => format!("{reason}; to run it: {remedy}"),
        }
    }

    /// Says a verdict that is not `Passed` on stderr and turns it into an exit status.
    pub(crate) fn report(&self) -> ExitCode {
        match self {
            Self::Passed => ExitCode::SUCCESS,
            Self::Failed(_) => {
                eprintln!("xtask: failed: {}", self.detail());
                ExitCode::FAILURE
            }
            Self::Skipped { .. } => {
                eprintln!("xtask: not run: {}", self.detail());
                ExitCode::from(EXIT_SKIPPED)
            }
        }
    }
}
