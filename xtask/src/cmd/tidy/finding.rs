//! What a rule of `tidy` finds.

/// A place that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// The file, from the root.
    pub(super) path: String,
    /// The line, from 1; 0 for the file as a whole.
    pub(super) line: usize,
    /// What is wrong there and what to do.
    pub(super) what: String,
}

impl Finding {
    pub(super) fn new(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, what: what.into() }
    }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}
