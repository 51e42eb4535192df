//! Errors of this program: sentences.

/// What may fail, with a sentence that says why.
pub(crate) type Res<T> = Result<T, String>;

/// Any error as a sentence.
pub(crate) fn text(e: impl std::fmt::Display) -> String {
    e.to_string()
}
