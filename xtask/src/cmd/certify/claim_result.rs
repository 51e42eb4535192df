//! The result of a claim of `certify`.

use crate::tools;
use crate::verdict::Verdict;

/// The result of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ClaimResult {
    /// It holds; the figure that shows how far.
    Proved(String),
    /// It does not hold.
    Failed(String),
    /// Something that the check needs is missing.
    NotRun { reason: String, remedy: String },
    /// It was not asked for.
    LeftOut,
}

impl ClaimResult {
    pub(super) fn of(result: Result<String, String>) -> Self {
        match result {
            Ok(figure) => Self::Proved(figure),
            Err(why) => Self::Failed(why),
        }
    }

    /// A check that knows only its verdict, with the figure for the case that it holds.
    pub(super) fn with_figure(verdict: Verdict, figure: impl FnOnce() -> String) -> Self {
        match verdict {
            Verdict::Passed => Self::Proved(figure()),
            Verdict::Failed(why) => Self::Failed(why),
            Verdict::Skipped { reason, remedy } => Self::NotRun { reason, remedy },
        }
    }

    pub(super) fn not_run(reason: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::NotRun { reason: reason.into(), remedy: remedy.into() }
    }

    pub(super) const fn word(&self) -> &'static str {
        match self {
            Self::Proved(_) => "proved",
            Self::Failed(_) => "FAILED",
            Self::NotRun { .. } | Self::LeftOut => "not run",
        }
    }

    pub(super) fn detail(&self) -> String {
        match self {
            Self::Proved(what) | Self::Failed(what) => what.clone(),
            Self::NotRun { reason, remedy } => format!("{reason}; to run it: {remedy}"),
            Self::LeftOut => "takes long; to run it: `cargo xtask certify --full`".to_owned(),
        }
    }
}

/// Without which there is no look at the frames of functions.
pub(super) const NIGHTLY: &str = "`rustup toolchain install nightly --component miri,rust-src`";

/// The answer where there is no nightly toolchain, or no such part of it.
pub(super) fn without_nightly(part: Option<&str>) -> Option<ClaimResult> {
    let there = match part {
        Some(part) => tools::has_extension("nightly", part),
        None => tools::has_toolchain("nightly"),
    };
    (!there).then(|| {
        ClaimResult::not_run(format!("no nightly {}", part.unwrap_or("toolchain")), NIGHTLY)
    })
}
