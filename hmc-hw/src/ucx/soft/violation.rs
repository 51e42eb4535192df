//! A rule of the messages that a peer has broken.

use std::fmt;

/// Says which rule a peer has broken. Each check has words of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation(pub(super) &'static str);

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}
