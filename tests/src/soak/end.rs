//! How the work on a link ends.

use hmc_std::{Error, ErrorKind};

/// Why a thread leaves a link.
pub(super) enum End {
    /// The peer is gone, or the time is up.
    Over,
    /// This must not happen.
    Wrong(String),
}

impl From<Error> for End {
    fn from(e: Error) -> Self {
        match e.kind() {
            ErrorKind::PeerDead | ErrorKind::Closed => Self::Over,
            _ => Self::Wrong(e.to_string()),
        }
    }
}

pub(super) type Step<T = ()> = Result<T, End>;

/// Says what was tried.
pub(super) trait Of<T> {
    /// The error, with what was tried before it.
    fn of(self, what: &str) -> Step<T>;
}

impl<T> Of<T> for Result<T, Error> {
    fn of(self, what: &str) -> Step<T> {
        self.map_err(|e| match End::from(e) {
            End::Wrong(why) => End::Wrong(format!("{what}: {why}")),
            End::Over => End::Over,
        })
    }
}
