//! What goes to stdout: text or JSON, flushed at once. A reader that left ends the command quietly,
//! as SIGPIPE would.

use std::io::Write as _;

use serde::Serialize;

use crate::failure::{Failure, Result};

/// Prints a line (or several) of text.
pub(crate) fn text(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(line.as_bytes())
        .and_then(|()| out.write_all(b"\n"))
        .and_then(|()| out.flush())
        .map_err(|e| Failure::output(&e))
}

/// Prints a value as one line of JSON.
pub(crate) fn json(value: &impl Serialize) -> Result<()> {
    text(&serde_json::to_string(value)?)
}

/// Says something to a person beside the output. If nobody reads it, it is lost.
pub(crate) fn note(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "hmc: {line}");
}
