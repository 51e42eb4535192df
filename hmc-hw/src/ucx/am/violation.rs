//! A rule of the AM path that a peer has broken.

use std::fmt;

/// A rule of the protocol that a peer has broken. Each check has its own text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation(pub(super) &'static str);

impl Violation {
    /// Returns the rule as an English phrase.
    #[must_use]
    pub const fn what(self) -> &'static str {
        self.0
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}
