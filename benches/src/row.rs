//! What a row of the table is, and words that several rows use.

use crate::context::Context;
use crate::error::Res;
use crate::line::Line;

/// One row of the table: a question to the machine, answered by one or more lines.
pub(crate) trait Row {
    /// Its name, for `--only`.
    fn name(&self) -> &'static str;
    /// The unit of its values.
    fn unit(&self) -> &'static str;
    /// What it is compared with.
    fn reference(&self) -> &'static str;
    /// What is to be reached.
    fn target(&self) -> &'static str;
    /// Measures.
    ///
    /// # Errors
    /// Why it could not be measured.
    fn run(&self, context: &Context) -> Res<Vec<Line>>;
}

/// Remark on lines whose reference spins: the table asks for the one that blocks.
pub(crate) const SPINNING: &str = "a waiter of ours spins 20 us before it sleeps";

/// A size in words.
pub(crate) fn size(bytes: u64) -> String {
    if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) {
        format!("{} MiB", bytes >> 20)
    } else if bytes >= 1 << 10 && bytes.is_multiple_of(1 << 10) {
        format!("{} KiB", bytes >> 10)
    } else {
        format!("{bytes} B")
    }
}
