//! What the body of a fuzz target is run against.

/// What a body is run against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The code itself.
    Real,
    /// The code behind a wrapper with one bug.
    Broken,
}
