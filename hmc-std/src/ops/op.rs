//! Results of operations.

use std::fmt;

use crate::base::error::Error;
pub use crate::base::op_id::OpId;
use crate::memory::Span;

/// A failed operation that owned a span.
#[derive(Debug)]
pub struct OpError {
    /// Why it failed.
    pub error: Error,
    /// The span, when no transport will touch it any more. `None` when it has not reached its fence:
    /// the range then stays `Busy` in its region until it has.
    pub span: Option<Span>,
}

impl fmt::Display for OpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.error)?;
        if self.span.is_none() {
            f.write_str("; its memory is held until the transport lets go of it")?;
        }
        Ok(())
    }
}

impl std::error::Error for OpError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl From<OpError> for Error {
    fn from(e: OpError) -> Self {
        e.error
    }
}
